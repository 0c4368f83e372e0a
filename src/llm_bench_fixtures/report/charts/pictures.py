"""The report's pictures, as PNG and SVG. A picture without data is not drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.report.charts.bars import bar_charts
from llm_bench_fixtures.report.charts.draw import draw, drawing
from llm_bench_fixtures.report.charts.machine import phases_chart, roofline_chart
from llm_bench_fixtures.report.charts.memory import memory_chart
from llm_bench_fixtures.report.charts.spec import Chart, Picture
from llm_bench_fixtures.report.charts.sweeps import sweep_charts
from llm_bench_fixtures.report.charts.tradeoff import tradeoff_chart
from llm_bench_fixtures.report.document import Plot
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import MACHINE, SUMMARY
from llm_bench_fixtures.results.folder import remove_pictures
from llm_bench_fixtures.writing import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Charts = Callable[[Findings], "Iterable[Chart | None]"]


def _sweep(scenario: str) -> Charts:
    return lambda findings: (chart for chart in sweep_charts(findings) if chart.scenario == scenario)


DRAWINGS: tuple[tuple[str, str, str, Charts], ...] = (
    ("tradeoff", "Quality against speed, with the memory of each variant", SUMMARY, lambda one: [tradeoff_chart(one)]),
    ("memory", "Memory against latency against perplexity", SUMMARY, lambda one: [memory_chart(one)]),
    ("phases", "Prefill and decode of each variant", MACHINE, lambda one: [phases_chart(one)]),
    ("roofline", "Prefill and decode against the limits of this machine", MACHINE, lambda one: [roofline_chart(one)]),
    *(
        (name, f"Latency, weights and perplexity by {name}", name, partial(bar_charts, scenario=name))
        for name in ("precision", "quantization")
    ),
    ("batch", "Throughput and speed-up against batch size", "batch", _sweep("batch")),
    (
        "prompt_length",
        "Time to first token and speed-up against prompt length",
        "prompt_length",
        _sweep("prompt_length"),
    ),
)


def pictures(findings: Findings) -> Iterator[Picture]:
    """What the run has data for."""
    where = findings.run.provenance
    for name, title, part, charts in DRAWINGS:
        found = tuple(chart for chart in charts(findings) if chart is not None)
        if found:
            yield Picture(name, title, part, found, f"{where.model}, {where.hardware}. {_notes(found)}")


def _notes(charts: Sequence[Chart]) -> str:
    """Those of several charts each with its title."""
    noted = [chart for chart in charts if chart.note]
    return " ".join(f"{chart.title}: {chart.note}" if len(noted) > 1 else chart.note for chart in noted)


def write_plots(findings: Findings, folder: Path) -> list[Plot]:
    """Draw what the run has data for, into `folder`; our pictures of an earlier run are removed. Raises
    UnwritableFile."""
    plots = []
    remove_pictures(folder)
    with drawing():
        for picture in pictures(findings):
            figure, path = draw(picture), folder / f"{picture.name}.svg"
            _save(figure, path.with_suffix(".png"))
            _save(figure, path, metadata={"Date": None})
            plots.append(Plot(path, picture.title, picture.part))
    return plots


def _save(figure: Figure, path: Path, **settings: Any) -> None:
    """The path's ending says how it is drawn."""
    with replacing(path, follows=False) as scratch:
        figure.savefig(scratch, format=path.suffix[1:], **settings)
