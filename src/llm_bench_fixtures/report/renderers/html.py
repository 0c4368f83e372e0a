"""Pages that need nothing else: style, pictures and scripts are in them, and every text is escaped. A policy in them
lets a browser run no other script and fetch nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.tables.table import ALIKE, Cell, Column, Tone
from llm_bench_fixtures.text import readable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

STYLES = {
    **dict.fromkeys(("variant", "case"), "name"),
    **dict.fromkeys(("what ran", "remarks", "reason", "because"), "prose"),
    **dict.fromkeys(("benchmark", "metric", "tests"), "place"),
    "verdict": "verdict",
}  # classes of columns of words
SAFE_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
START, END = '"use strict";var Plotly=(()=>{', "return Plotly;"
ALL_KINDS = re.compile(r"(?<=\.register\(\[)(?:[\w$]+\(\),?){20,}(?=\]\))")
BARS = re.compile(r'moduleType:"trace",name:"bar"')
MODULE = re.compile(r"(?<![\w$])([\w$]+)=[\w$]+\(\([\w$]+,[\w$]+\)=>\{")
HEAD_COMMENT = re.compile(r"\s*/\*.*?\*/\s*", re.DOTALL)  # with the licence


def render_page(template: str, page: Mapping[str, object], **values: object) -> str:
    """Page that the template of that name makes of the values. page: what every page has, such as "figures", its
    charts."""
    scripts = page_scripts(has_charts=bool(page["figures"]), reloads=bool(page.get("reload_s")))
    return _environment().get_template(template).render(page=page, scripts=scripts, **values)


@cache
def _environment() -> Environment:
    """The templates' environment, which keeps what it has compiled."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("llm_bench_fixtures.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(figure=_figure, style=_style, data_uri=_data_uri, embedded_json=embedded_json)
    return environment


def _readable(value: object) -> object:
    """Texts from elsewhere without what turns text around; what is markup already stays."""
    return readable(value) if type(value) is str else value


def _figure(cell: Cell, column: Column) -> str:
    shown = cell.figure(column)
    return f"{ALIKE} {shown}" if cell.tone is Tone.ALIKE else shown


def _style(column: Column) -> str:
    """The class of a column's cells."""
    return "number" if column.is_numeric else STYLES.get(column.name, "")


def _data_uri(picture: bytes) -> str:
    """picture: an SVG."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"


def embedded_json(value: object) -> Markup:
    """JSON for a script element: ASCII, and without the characters that could end the element.

    Raises ValueError for a NaN or an infinity.
    """
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # escapes what is not ASCII, U+2028 too
    return Markup(text.translate(SAFE_IN_SCRIPT))  # noqa: S704  # nothing in it can end the element


@dataclass(frozen=True)
class PageScripts:
    """Code of installed packages; none of it holds an end tag."""

    own: Markup
    """The page's own, which unpacks plotly."""
    packed_plotly: str
    """Compressed by gzip, in base64: two fifths of plotly's own size. Empty where there are no charts, or no plotly."""
    policy: str
    """As `content_policy` says it."""


@cache
def page_scripts(*, has_charts: bool = True, reloads: bool = False) -> PageScripts:
    from markupsafe import Markup

    folder = files("llm_bench_fixtures.report").joinpath("templates")
    names = ("report.js", "reload.js") if reloads else ("report.js",)
    own = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names).replace("\r\n", "\n")
    plotly = _installed_plotly() if has_charts else ""
    packed = base64.b64encode(gzip.compress(plotly.encode(), mtime=0)).decode() if plotly else ""
    policy = content_policy(filter(None, (plotly, own)))
    return PageScripts(Markup(own), packed, policy)  # noqa: S704  # no text from elsewhere


def _installed_plotly() -> str:
    """Script of the installed plotly; empty where it isn't installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        return ""
    return quick_plotly(get_plotlyjs().replace("\r\n", "\n"))


def content_policy(scripts: Iterable[str]) -> str:
    """Content-Security-Policy: these scripts by their digests, styles and pictures of the page itself, nothing else. So
    even markup that slipped in could run no script and reach no network."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


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
    """Script without the function around it that serves other loaders of modules."""
    start, end, head = source.find(START), source.rfind(END), HEAD_COMMENT.match(source)
    if head is None or start < 0 or end < start or "window.Plotly = Plotly;" not in source[end - 40 : end]:
        return source
    return f"{head[0]}{source[start:end]}"
