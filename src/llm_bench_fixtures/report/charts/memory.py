"""The memory that the answer goes by against latency, and what each variant costs in quality beside its name."""

from __future__ import annotations

from llm_bench_fixtures.answer.peaks import memory_metric
from llm_bench_fixtures.report.charts.spec import Axis, Chart, Point, Series
from llm_bench_fixtures.report.charts.variants import LATENCY, estimate_of, looks_of, on_axis
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.words.workload import describe_workload
from llm_bench_fixtures.results.formatting import format_change
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Run

ROOM = 1.12  # times the largest value: where an axis ends
LOG_FROM = 20  # times the smallest value: above it the axis is logarithmic
LOG_ROOM = 1.6


def memory_chart(findings: Findings) -> Chart | None:
    """None where fewer than two variants have a memory and a latency. Memory is the peak, or weights without peaks."""
    run, memory = findings.run, METRIC_BY_NAME[memory_metric(findings)]
    looks, series = looks_of(run), []
    for record in findings.common.values():
        size, latency = estimate_of(run, record, memory), estimate_of(run, record, LATENCY)
        if size is not None and size.value > 0 and latency is not None:
            point, name = Point(on_axis(size, memory), on_axis(latency, LATENCY)), record.variant
            series.append(Series(name, (point,), looks[name], name, _change(run, name), size=9))
    if len(series) < 2:
        return None
    beside = f"; beside each name its perplexity against {run.reference}'s" if any(one.detail for one in series) else ""
    across, up = ([getattr(one.points[0], side) for one in series] for side in ("x", "y"))
    values, top = [one.value for one in up], max(one.high for one in up)
    is_log = max(values) > LOG_FROM * min(values)
    ends = (min(values) / LOG_ROOM, top * LOG_ROOM) if is_log else (0.0, ROOM * top)
    return Chart(
        name="memory",
        title=f"Lower left is smaller and faster{beside}",
        note=f"On {describe_workload(next(iter(findings.common.values())))}. Bars: quartiles of the rounds.",
        x=Axis(f"{memory.title.lower()}, MB", (0.0, ROOM * max(one.value for one in across))),
        y=Axis("latency, ms", ends, is_log=is_log),
        series=tuple(series),
        height=460,
    )


def _change(run: Run, name: str) -> str:
    """Of the perplexity against the reference's; empty where the two can't be compared."""
    variants = (run.variant(name), run.variant(run.reference))
    own, other = (one.quality.get("perplexity", 0.0) if one else 0.0 for one in variants)
    return f" {format_change(own / other)}" if own > 0 and other > 0 and name != run.reference else ""
