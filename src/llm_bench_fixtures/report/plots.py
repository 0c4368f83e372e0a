"""The report's plots, as PNG and SVG. A plot without data is not drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.report.document import MACHINE, SUMMARY, Plot
from llm_bench_fixtures.report.drawings.bars import draw_precision, draw_quantization
from llm_bench_fixtures.report.drawings.machine import draw_phases, draw_roofline
from llm_bench_fixtures.report.drawings.memory import draw_memory
from llm_bench_fixtures.report.drawings.style import drawing, plot_style
from llm_bench_fixtures.report.drawings.sweeps import draw_batch, draw_prompt_length
from llm_bench_fixtures.report.drawings.tradeoff import draw_tradeoff
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results.folder import remove_pictures
from llm_bench_fixtures.writing import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[Findings], "Figure | None"]

DRAWINGS: tuple[tuple[str, str, str, Drawing], ...] = (
    ("tradeoff", "Quality against speed, with the memory of each variant", SUMMARY, draw_tradeoff),
    ("memory", "Memory against latency against perplexity", SUMMARY, draw_memory),
    ("phases", "Prefill and decode of each variant", MACHINE, draw_phases),
    ("roofline", "Prefill and decode against the limits of this machine", MACHINE, draw_roofline),
    ("precision", "Latency, weights and perplexity by precision", "precision", draw_precision),
    ("quantization", "Latency, weights and perplexity by quantization", "quantization", draw_quantization),
    ("batch", "Throughput and speed-up against batch size", "batch", draw_batch),
    ("prompt_length", "Time to first token and speed-up against prompt length", "prompt_length", draw_prompt_length),
)


def write_plots(findings: Findings, folder: Path) -> list[Plot]:
    """Draw what the run has data for, into `folder`; our pictures of an earlier run are removed. Raises
    UnwritableFile."""
    plots = []
    remove_pictures(folder)
    with drawing(plot_style()):
        for name, title, scenario, draw in DRAWINGS:
            figure = draw(findings)
            if figure is not None:
                path = folder / f"{name}.svg"
                _save(figure, path.with_suffix(".png"))
                _save(figure, path, metadata={"Date": None})
                plots.append(Plot(path, title, scenario))
    return plots


def _save(figure: Figure, path: Path, **settings: Any) -> None:
    """The path's ending says how it is drawn."""
    with replacing(path, follows=False) as scratch:
        figure.savefig(scratch, format=path.suffix[1:], **settings)
