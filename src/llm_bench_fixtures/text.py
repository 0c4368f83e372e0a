"""Text from elsewhere, made fit for where it goes: a model, a saved run or a message may come from anybody.

What goes to a terminal or a log passes `harmless`, a table for spreadsheets `csv_text`, a page `readable`, JSON that is
printed `harmless_json`; Markdown and LaTeX have escapes of their own, which begin with `printable`.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# Control and format characters move the cursor, change colours, set a terminal's title or turn text around; the
# separators break lines; surrogates can't be encoded.
UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# What a spreadsheet takes for the beginning of a formula; the last four are the wide forms, which Excel takes too.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# What turns text around that stands beside it: marks, embeddings, overrides and isolates of Unicode's bidi algorithm.
TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INSTEAD = "\N{REPLACEMENT CHARACTER}"
SURROGATE = re.compile("[\ud800-\udfff]")
# Commands to CI runners: GitHub takes `::` where a line begins and `##[` anywhere, Azure `##vso[` and `##[`, TeamCity
# `##teamcity[`.
COMMAND_AT_START = re.compile(r"^(\s*):(?=:)")
COMMAND = re.compile(r"##(?=\w*\[)")
# What stands for our own signs where an encoding lacks them; for any other character it is "?".
PLAIN = {
    "→": "->", "–": "-", "—": "-", "×": "x", "±": "+/-", "µ": "u", "μ": "u", "≤": "<=", "≥": ">=", "…": "...",
    "·": "|", "▴": "^", "▾": "v", "↵": "/", "\N{NO-BREAK SPACE}": " ", INSTEAD: "?",
}  # fmt: skip
LONGEST = 100_000  # characters of any text from elsewhere: what a model writes, a test's id, a reason
# A page's host and port; else a user and whatever may be the password: words up to one that holds the @. Whatever is
# matched is never looked at again, so that the time grows with the text's length.
USER = re.compile(r"https?://[^\s:@/]*:\d+(?=[/?#\s]|$)|(://[^\s:@/]*:)((?:[^/@\n]*[ \t])?\S*)", re.IGNORECASE)
PASSWORD = re.compile(r"""(password *= *)(?:'(?:[^'\\\n]|\\.)*'?|"(?:[^"\\\n]|\\.)*"?|[^\s&]+)""", re.IGNORECASE)
PLAINLY = "llm-bench-plainly"  # the name of this handling of errors among Python's codecs


def printable(text: str) -> str:
    """The text on one line, with a replacement character for each character that is not printable."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(INSTEAD if unicodedata.category(character) in UNPRINTABLE else character for character in text)


def printable_lines(text: str) -> str:
    """Text of several lines, each as `printable` shows it."""
    return "\n".join(map(printable, text.split("\n")))


def encodable(text: str) -> str:
    """The text with a replacement for each surrogate: for each byte of a file's name that is no text. No JSON reader
    takes one, and no channel does."""
    return text if text.isascii() else SURROGATE.sub(INSTEAD, text)


def without_commands(line: str) -> str:
    """The line, spaced so that no CI runner takes it, or a part of it, for a command."""
    return COMMAND.sub("## ", COMMAND_AT_START.sub(r"\1: ", line))


def without_passwords(text: str) -> str:
    """The text with *** for each password in a URL or behind `password=`."""
    return PASSWORD.sub(r"\1***", USER.sub(_without_password, text))


def _without_password(found: re.Match[str]) -> str:
    _, at, host = (found[2] or "").rpartition("@")
    return f"{found[1]}***@{host}" if at else found[0]


def harmless(lines: Iterable[str]) -> Iterator[str]:
    """Lines without commands to a terminal or to a CI runner. To be applied last, as wrapping makes new lines."""
    return (without_commands(printable(line)) for line in lines)


def harmless_text(text: str) -> str:
    """Text of several lines without commands to a terminal or to a CI runner, and with spaces for tabs."""
    return "\n".join(harmless(text.expandtabs(4).split("\n")))


def harmless_json(value: object) -> str:
    """JSON of several lines for a terminal: in ASCII, and without commands to a CI runner."""
    return json.dumps(value, indent=1).replace("##", "#\\u0023")  # only strings hold it


def csv_text(text: str) -> str:
    """The text of a cell of CSV: harmless in a log, and with an apostrophe before what would be a formula."""
    shown = without_commands(printable(text))
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown


def readable(text: str) -> str:
    """The text for a page: line breaks, tabs and joiners stay; a replacement character stands for each character that
    turns text around, controls a device or can't be encoded."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _is_readable(character) else INSTEAD for character in text)


def _is_readable(character: str) -> bool:
    if character in "\n\t":
        return True
    return character not in TURNING and unicodedata.category(character) not in UNPRINTABLE - {"Cf"}


def without_middle(text: str, most: int = LONGEST) -> str:
    """The text, of which the middle is left out where it has more characters than so many."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def well_formed(value: Any, change: Callable[[str], str] = encodable) -> Any:
    """The value, of dicts, lists and plain values, with every text in it made encodable, or changed in another way."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {well_formed(name, change): well_formed(one, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [one if isinstance(one, float) else well_formed(one, change) for one in value]
    return value


def first_few(lines: Sequence[str], most: int = 3) -> list[str]:
    """The first lines, and one that counts the others."""
    return [*lines[:most], *([f"... and {len(lines) - most} more"] if len(lines) > most else [])]


def some_of(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many others there are: "a, b, c and 5 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def in_encoding(text: str, encoding: str | None) -> str:
    """The text as a stream of that encoding can show it. None: of a stream that takes any text."""
    if encoding is None or text.isascii():
        return text
    return text.encode(encoding, plainly()).decode(encoding)


def plainly() -> str:
    """The name of the codecs' handling of errors that writes plainly what an encoding lacks."""
    codecs.register_error(PLAINLY, _plainly)
    return PLAINLY


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end
