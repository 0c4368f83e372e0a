"""What the page holds besides its text: the charts' data, the scripts, and the policy by which a browser runs no other
script and fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING

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


def page_scripts(*, has_charts: bool = True) -> tuple[Markup, ...]:
    """Plotly, if there are charts, then the page's own script. Both are code of installed packages; neither holds an
    end tag."""
    from markupsafe import Markup

    own = files("llm_bench_fixtures.report").joinpath("templates", "report.js").read_text(encoding="utf-8")
    scripts = [*([_plotly()] if has_charts else []), own]
    return tuple(Markup(script.replace("\r\n", "\n")) for script in scripts)  # noqa: S704


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def content_policy(scripts: Iterable[str]) -> str:
    """For a Content-Security-Policy: these scripts by their digests, styles and pictures of the page itself, nothing
    else. So even markup that slipped in could run no script and reach no network."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
