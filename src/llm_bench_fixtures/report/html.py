"""Pages that need nothing else: style, pictures and scripts are in them, and every text is escaped."""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.report.page.embed import content_policy, embedded_json, page_scripts
from llm_bench_fixtures.report.page.runs import RunsPage
from llm_bench_fixtures.report.page.values import Page
from llm_bench_fixtures.report.renderers.figures import head, text
from llm_bench_fixtures.text import readable

if TYPE_CHECKING:
    from jinja2 import Environment


def render_html(page: Page) -> str:
    """report.html. The scripts are in it only where there is a table or a chart for them."""
    scripts = page_scripts(has_charts=bool(page.figures)) if page.figures or page.summary.rows else None
    return render_page(
        "report.html", page=page, scripts=scripts, policy=scripts.policy if scripts else content_policy(())
    )


def render_runs(page: RunsPage) -> str:
    """The page of several runs."""
    scripts = page_scripts(has_charts=bool(page.charts))
    return render_page("runs.html", page=page, scripts=scripts, policy=scripts.policy)


def render_page(template: str, **values: Any) -> str:
    """What the template of that name makes of the values."""
    return _environment().get_template(template).render(values)


@functools.cache
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
    environment.filters |= {"head": head, "text": text, "data_uri": _data_uri}
    environment.filters["embedded_json"] = embedded_json
    environment.filters["one_line"] = _one_line
    return environment


def _readable(value: object) -> object:
    """Texts from elsewhere without what turns text around; what is markup already stays."""
    return readable(value) if type(value) is str else value


def _data_uri(picture: bytes) -> str:
    """picture: a PNG or an SVG."""
    kind = "png" if picture.startswith(b"\x89PNG") else "svg+xml"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def _one_line(words: str) -> str:
    """With a sign for each line break."""
    return words.replace("\n", "¶")
