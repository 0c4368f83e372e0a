"""Where a generation's time goes: prefill and decode of the common workload, stacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llm_bench_fixtures.report.cells import describe_workload
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.figures import escaped, hover, layout, short, title
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.values import Chart, Json
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.formatting import format_seconds, format_share
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.text import readable

_prefill_s = prefill_decode.median_of_rounds(prefill_decode.prefill_s)
_decode_s = prefill_decode.median_of_rounds(prefill_decode.decode_s)
BAR = 30  # pixels a variant


def phases_chart(findings: Findings) -> Chart | None:
    """A bar a variant; None where no variant's tokens were timed."""
    phases = phases_of(findings)
    if not phases:
        return None
    some = next(iter(findings.common.values()))
    return Chart(
        name="phases",
        title="Prefill and decode",
        note=f"Solid: prefill, up to the first token. Faded: decode, the rest. On {describe_workload(some)}.",
        description=f"Milliseconds of prefill and of decode, a bar for each of {', '.join(phases)}",
        figure=_figure(phases, looks_of(findings.run)),
    )


def phases_of(findings: Findings) -> dict[str, tuple[float, float]]:
    """By variant whose tokens were timed: seconds of prefill and of decode on the common workload."""
    found = {variant: _phases(record) for variant, record in findings.common.items()}
    return {variant: seconds for variant, seconds in found.items() if seconds}


def _phases(record: Record) -> tuple[float, float] | None:
    """Seconds of prefill and of decode, medians over the rounds."""
    prefill_s = _prefill_s(record)
    return (prefill_s, _decode_s(record) or 0.0) if prefill_s else None


def _figure(phases: Mapping[str, tuple[float, float]], looks: Mapping[str, Look]) -> Json:
    x: Json = {"title": title("milliseconds"), "rangemode": "tozero"}
    y: Json = {
        "type": "category",
        "autorange": "reversed",
        "showgrid": False,
        "tickvals": [readable(variant) for variant in phases],
        "ticktext": [escaped(short(variant)) for variant in phases],
    }
    traces = [trace for variant, seconds in phases.items() for trace in _bars(variant, seconds, looks[variant])]
    height = 84 + BAR * len(phases)
    return {"data": traces, "layout": layout(x, y, height=height, barmode="stack", bargap=0.32)}


def _bars(variant: str, seconds: tuple[float, float], look: Look) -> Iterator[Json]:
    total_s = sum(seconds)
    for phase, phase_s, opacity in zip(("prefill", "decode"), seconds, (1.0, 0.45), strict=True):
        facts = [(phase, f"{format_seconds(phase_s)}, {format_share(phase_s / total_s)}")]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "meta": readable(variant),
            "x": [phase_s * 1e3],
            "y": [readable(variant)],
            "marker": {"color": look.colour, "opacity": opacity},
            "hoverinfo": "text",
            "hovertext": [hover(variant, facts)],
        }
