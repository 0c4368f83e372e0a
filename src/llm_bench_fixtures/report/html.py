"""Pages that need nothing else: style and pictures are in them, and every text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from llm_bench_fixtures.report.document import Document
from llm_bench_fixtures.report.plots import Plot


def render_html(document: Document, plots: Sequence[Plot]) -> str:
    return render_page("report.html", page=document, plots=plots)


def render_page(template: str, **values: Any) -> str:
    """What the template of that name makes of the values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("llm_bench_fixtures.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri
    return environment.get_template(template).render(values)


def _data_uri(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
