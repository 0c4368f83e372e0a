"""The report's plots, as PNG and SVG. A plot without data is not drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.document import MACHINE, SUMMARY, Plot
from llm_bench_fixtures.report.drawings.bars import draw_precision, draw_quantization
from llm_bench_fixtures.report.drawings.machine import draw_phases, draw_roofline
from llm_bench_fixtures.report.drawings.style import plot_style
from llm_bench_fixtures.report.drawings.sweeps import draw_batch, draw_prompt_length
from llm_bench_fixtures.report.drawings.tradeoff import draw_tradeoff
from llm_bench_fixtures.report.findings import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[Findings], "Figure | None"]

DRAWINGS: tuple[tuple[str, str, str, Drawing], ...] = (
    ("tradeoff", "Memory against latency against perplexity", SUMMARY, draw_tradeoff),
    ("phases", "Prefill and decode of each variant", MACHINE, draw_phases),
    ("roofline", "Prefill and decode against the limits of this machine", MACHINE, draw_roofline),
    ("precision", "Latency, weights and perplexity by precision", "precision", draw_precision),
    ("quantization", "Latency, weights and perplexity by quantization", "quantization", draw_quantization),
    ("batch", "Throughput and speed-up against batch size", "batch", draw_batch),
    ("prompt_length", "Time to first token and speed-up against prompt length", "prompt_length", draw_prompt_length),
)


def write_plots(findings: Findings, folder: Path) -> list[Plot]:
    """Draw what the run has data for, into `folder`; pictures of an earlier run are removed."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    for stale in (*folder.glob("*.png"), *folder.glob("*.svg")):
        stale.unlink()
    plots = []
    with matplotlib.rc_context(plot_style()):
        for name, title, scenario, draw in DRAWINGS:
            figure = draw(findings)
            if figure is not None:
                path = folder / f"{name}.svg"
                figure.savefig(path.with_suffix(".png"))
                figure.savefig(path, metadata={"Date": None})
                plots.append(Plot(path, title, scenario))
    return plots
