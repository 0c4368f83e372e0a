"""Plotly's script as the page runs it: with the two kinds of charts that the page has, so that a browser starts it in a
fifth of the time.

Plotly is one script with nearly fifty kinds of charts, made by esbuild: each module is a function that is called when
another one asks for it, and the last module asks for all kinds. Asking for bars alone leaves the others uncalled;
scatter and lines are in the core. A browser also reads a script sooner whose outermost function is called where it
stands. A script that isn't built like that stays as it is.
"""

from __future__ import annotations

import re

START, END = '"use strict";var Plotly=(()=>{', "return Plotly;"
ALL_KINDS = re.compile(r"(?<=\.register\(\[)(?:[\w$]+\(\),?){20,}(?=\]\))")
BARS = re.compile(r'moduleType:"trace",name:"bar"')
MODULE = re.compile(r"(?<![\w$])([\w$]+)=[\w$]+\(\([\w$]+,[\w$]+\)=>\{")
HEAD_COMMENT = re.compile(r"\s*/\*.*?\*/\s*", re.DOTALL)  # with the licence


def quick_plotly(source: str) -> str:
    """The script, which defines `window.Plotly`."""
    return _called_where_it_stands(_with_bars_alone(source))


def _with_bars_alone(source: str) -> str:
    kinds, bars = ALL_KINDS.search(source), BARS.search(source)
    module = _module_around(source, bars.start()) if bars else None
    asked = _asked_by(source, module) if module else None
    if kinds is None or asked is None or f"{asked}()" not in kinds[0].split(","):
        return source
    return f"{source[: kinds.start()]}{asked}(){source[kinds.end() :]}"


def _module_around(source: str, place: int) -> str | None:
    """The name of the module that the place is in: the last one that begins before it."""
    start = source.rfind('=>{"use strict";', 0, place)
    found = [match for match in MODULE.finditer(source, max(start - 200, 0), place) if match.end() > start]
    return found[-1][1] if found else None


def _asked_by(source: str, module: str) -> str | None:
    """The module that is nothing but another name of this one: as the last module asks for it."""
    other = r"(?<![\w$])([\w$]+)=[\w$]+\(\([\w$]+,([\w$]+)\)=>"
    again = re.search(rf'{other}{{"use strict";\2\.exports={re.escape(module)}\(\)}}\)', source)
    return again[1] if again else None


def _called_where_it_stands(source: str) -> str:
    """Without the function around it that serves other loaders of modules."""
    start, end, head = source.find(START), source.rfind(END), HEAD_COMMENT.match(source)
    if head is None or start < 0 or end < start or "window.Plotly = Plotly;" not in source[end - 40 : end]:
        return source
    return f"{head[0]}{source[start:end]}"
