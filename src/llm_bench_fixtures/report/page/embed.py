"""What the page holds besides its text: the charts' data, the scripts, and the policy by which a browser runs no other
script and fetches nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.page.plotly_script import quick_plotly

if TYPE_CHECKING:
    from markupsafe import Markup

SAFE_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


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
    """Compressed by gzip, in base64: two fifths of plotly's own size. Empty where there are no charts."""
    policy: str
    """As `content_policy` says it."""


@cache
def page_scripts(*, has_charts: bool = True) -> PageScripts:
    from markupsafe import Markup

    folder = files("llm_bench_fixtures.report").joinpath("templates")
    own = folder.joinpath("report.js").read_text(encoding="utf-8").replace("\r\n", "\n")
    if not has_charts:
        return PageScripts(Markup(own), "", content_policy((own,)))  # noqa: S704
    from plotly.offline import get_plotlyjs

    plotly = quick_plotly(get_plotlyjs().replace("\r\n", "\n"))
    packed = base64.b64encode(gzip.compress(plotly.encode(), mtime=0)).decode()
    return PageScripts(Markup(own), packed, content_policy((plotly, own)))  # noqa: S704  # no text from elsewhere


def content_policy(scripts: Iterable[str]) -> str:
    """For a Content-Security-Policy: these scripts by their digests, styles and pictures of the page itself, nothing
    else. So even markup that slipped in could run no script and reach no network."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
