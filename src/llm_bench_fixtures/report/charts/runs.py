"""Several runs in a chart: for each variant a marker for each run, with error bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llm_bench_fixtures.report.charts.spec import (
    Axis,
    Chart,
    Estimate,
    Look,
    Point,
    Series,
    ends_of,
    exactly,
    padded,
    rows_axis,
)
from llm_bench_fixtures.report.charts.variants import (
    LATENCY,
    SPEEDUP,
    axis_title,
    estimate_of,
    in_words,
    numbered_looks,
    on_axis,
    what_bars_are,
)
from llm_bench_fixtures.report.runs import Aspect, RunBeside
from llm_bench_fixtures.results.metrics import Metric

ROW, AROUND = 44, 120  # pixels of a row, and of what is around all of them
SPREAD = 0.5  # of a row, over which the runs are apart
LOG_ROOM = 1.3
PANELS = ((Aspect.LATENCY, LATENCY), (Aspect.SPEEDUP, SPEEDUP))


def runs_charts(runs: Sequence[RunBeside]) -> Iterator[Chart]:
    """A chart for each metric that at least two of the runs can be compared by."""
    looks = dict(zip((run.label for run in runs), numbered_looks(len(runs)), strict=True))
    for aspect, metric in PANELS:
        found = {run.label: _estimates(run, metric) for run in runs if aspect not in run.left_out}
        found = {label: estimates for label, estimates in found.items() if estimates}
        if len(found) > 1:
            yield _chart(metric, found, looks)


def _estimates(run: RunBeside, metric: Metric) -> dict[str, Estimate]:
    """By variant."""
    findings = run.findings
    found = {name: estimate_of(findings.run, record, metric) for name, record in findings.common.items()}
    return {name: one for name, one in found.items() if one is not None}


def _chart(metric: Metric, found: Mapping[str, Mapping[str, Estimate]], looks: Mapping[str, Look]) -> Chart:
    """A row a variant. looks: of all runs, so that each looks the same in every chart."""
    variants = list(dict.fromkeys(name for estimates in found.values() for name in estimates))
    places = {label: SPREAD * ((at + 0.5) / len(looks) - 0.5) for at, label in enumerate(looks)}
    series = (
        Series(
            name,
            (Point(on_axis(one, metric), exactly(variants.index(name) + places[label]), _facts(label, one, metric)),),
            looks[label],
            size=6.5,
        )
        for label, estimates in found.items()
        for name, one in estimates.items()
    )
    ends = ends_of(on_axis(one, metric) for estimates in found.values() for one in estimates.values())
    across = padded(ends) if metric is SPEEDUP else (min(ends) / LOG_ROOM, max(ends) * LOG_ROOM)
    return Chart(
        name=f"runs-{metric.name}",
        title=metric.title,
        note=f"Bars: {what_bars_are(metric)}; {metric.direction}.",
        description=f"{metric.title} of each variant, a marker for each of {', '.join(found)}",
        x=Axis(axis_title(metric, "the run's own reference"), across, is_log=metric is not SPEEDUP),
        y=rows_axis(variants),
        series=tuple(series),
        keys=tuple((label, looks[label]) for label in found),
        height=AROUND + ROW * len(variants),
    )


def _facts(label: str, estimate: Estimate, metric: Metric) -> tuple[tuple[str, str], ...]:
    return (("run", label), (metric.title, in_words(estimate, metric)))
