"""The report as one HTML page that needs nothing else: style and plots are in it, and every text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from llm_bench_fixtures.report.document import Document
from llm_bench_fixtures.report.plots import Plot


def render_html(document: Document, plots: Sequence[Plot]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("llm_bench_fixtures.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri
    return environment.get_template("report.html").render(document=document, plots=plots)


def _data_uri(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
