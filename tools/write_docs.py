"""Write what the docs take from the code: the tables of docs/metrics.md and of docs/options.md.

python tools/write_docs.py          # after adding or changing a metric or an option
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from llm_bench_fixtures.plugin.stash import ALL_OPTIONS
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.markdown import markdown_table
from llm_bench_fixtures.results.metrics import METRICS, Kind

DOCS = Path(__file__).resolve().parent.parent / "docs"
MARK = "<!-- What follows is written by tools/write_docs.py. -->"


def metric_tables() -> Iterator[str]:
    header = ("name", "unit", "direction", "formula", "as in")
    for kind in Kind:
        rows = tuple(
            (metric.name, metric.unit.value, metric.direction.value, metric.formula, metric.source)
            for metric in METRICS
            if metric.kind is kind
        )
        if rows:
            yield from (f"## {kind.value.capitalize()}", "", *markdown_table(Table(header, rows)), "")


def option_table() -> Iterator[str]:
    rows = tuple((option.flag, option.metavar, option.default, option.help) for option in ALL_OPTIONS)
    yield from (*markdown_table(Table(("option", "value", "default", "what"), rows)), "")


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {"metrics.md": metric_tables, "options.md": option_table}


def render(page: str, text: str) -> str:
    """The page with what is written renewed."""
    return text.split(MARK)[0] + "\n".join([MARK, "", *PAGES[page]()])


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(render(page, path.read_text(encoding="utf-8")), encoding="utf-8")
