"""A bar for each variant: latency, speed-up, weights and perplexity of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.standings import NEAR
from llm_bench_fixtures.report.charts.spec import (
    AROUND_ROWS,
    ROW,
    Axis,
    Band,
    Bar,
    Chart,
    Estimate,
    ends_of,
    rows_axis,
)
from llm_bench_fixtures.report.charts.variants import (
    LATENCY,
    SPEEDUP,
    axis_title,
    estimate_of,
    looks_of,
    on_axis,
    perplexity_change,
)
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.words.workload import describe_workload
from llm_bench_fixtures.results.formatting import MINUS, five_digits, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.results.record import Record, Run

ROOM = 0.45  # of what the bars take, for the numbers at their ends
PERPLEXITY, WEIGHTS = METRIC_BY_NAME["perplexity"], METRIC_BY_NAME["weight_bytes"]


def bar_charts(findings: Findings, scenario: str) -> Iterator[Chart]:
    """From each variant's first record of the scenario; none where there is none."""
    run = findings.run
    records = {record.variant: record for record in reversed(run.measured(scenario))}
    shown = [records[variant.id] for variant in run.variants if variant.id in records]
    if not shown:
        return
    note = (
        f"On {describe_workload(shown[0])}. Bars: quartiles of the rounds; 95 % interval of speed-up and perplexity. "
        f"Shaded: perplexity within ± {100 * NEAR:g} %."
    )
    for metric in (LATENCY, SPEEDUP, WEIGHTS):
        lengths = {one.variant: found for one in shown if (found := estimate_of(run, one, metric))}
        if metric is not SPEEDUP or lengths:
            title, told = axis_title(metric, run.reference), note if metric is LATENCY else ""
            yield replace(_chart(run, shown, title, _on_axis(lengths, metric), three_digits), note=told)
    changes = {one.variant: found for one in shown if (found := perplexity_change(run, run.variant(one.variant)))}
    perplexities = {one.variant: found for one in shown if (found := estimate_of(run, one, PERPLEXITY))}
    if changes.keys() - {run.reference}:
        chart = _chart(run, shown, "Perplexity change, %", changes, _signed)
        low, high = chart.x.ends
        near = 100 * NEAR  # in sight whatever the bars, so that none within it looks long
        across = (min(low, -near * 1.3), max(high, near * (1 + ROOM)))
        yield replace(chart, x=replace(chart.x, ends=across), bands=(Band(-near, near, is_of_x=True),))
    elif perplexities:
        yield _chart(run, shown, PERPLEXITY.title, perplexities, five_digits)


def _on_axis(lengths: Mapping[str, Estimate], metric: Metric) -> dict[str, Estimate]:
    return {variant: on_axis(length, metric) for variant, length in lengths.items()}


def _signed(percent: float) -> str:
    return f"{round(percent, 2) + 0.0:+.2f}".replace("-", MINUS)  # no "-0.00"


def _chart(
    run: Run, records: Sequence[Record], title: str, lengths: Mapping[str, Estimate], written: Callable[[float], str]
) -> Chart:
    looks, names = looks_of(run), [record.variant for record in records]
    ends = [0.0, *ends_of(lengths.values())]
    room = ROOM * (max(ends) - min(ends))
    bars = (
        Bar(name, row, lengths[name], looks[name], text=written(lengths[name].value))
        for row, name in enumerate(names)
        if name in lengths
    )
    return Chart(
        name=title,
        title=title,
        x=Axis("", (min(ends) - room * (min(ends) < 0), max(ends) + room or 1.0)),
        y=rows_axis(names),
        bars=tuple(bars),
        height=AROUND_ROWS + ROW * len(names),
    )
