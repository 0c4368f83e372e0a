"""Write the tables of docs/metrics.md from the metric registry.

python tools/write_metrics_doc.py          # after adding or changing a metric
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llm_bench_fixtures.report.markdown import markdown_table
from llm_bench_fixtures.report.sections import Table
from llm_bench_fixtures.results.metrics import METRICS, Kind

PATH = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
MARK = "<!-- The tables below are written by tools/write_metrics_doc.py from the registry. -->"
HEADER = ("name", "unit", "direction", "formula", "as in")


def tables() -> Iterator[str]:
    for kind in Kind:
        rows = tuple(
            (metric.name, metric.unit.value, metric.direction.value, metric.formula, metric.source)
            for metric in METRICS
            if metric.kind is kind
        )
        if rows:
            yield from (f"## {kind.value.capitalize()}", "", *markdown_table(Table(HEADER, rows)), "")


def render(text: str) -> str:
    """The document with its tables renewed."""
    return text.split(MARK)[0] + "\n".join([MARK, "", *tables()])


if __name__ == "__main__":
    PATH.write_text(render(PATH.read_text(encoding="utf-8")), encoding="utf-8")
