"""A round's latency: its middle, its spread, and what follows from it; and the speed-up over the reference."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from llm_bench_fixtures.results.metrics.metric import Direction, Metric, ReportTable, Tolerance, Unit, Value
from llm_bench_fixtures.results.metrics.rows import NEVER_JUDGED, throughput_row, timing_row
from llm_bench_fixtures.results.prefill_decode import mean_over_prompts
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.results.speedup import disturbed_rounds, record_speedup
from llm_bench_fixtures.statistics.spread import coefficient_of_variation, interval, quartiles, standard_deviation

T = TypeVar("T")


def _of_rounds(summary: Callable[[tuple[float, ...]], float], least: int = 1) -> Value:
    return lambda record, _: summary(record.rounds_s) if len(record.rounds_s) >= least else None


def _interquartile_range(rounds_s: tuple[float, ...]) -> float:
    low, _, high = quartiles(rounds_s)
    return high - low


def _part_of(find: Callable[[Record], T | None], part: Callable[[T], float]) -> Value:
    """A part of what is found in the record; None where it isn't found."""
    return lambda record, _: None if (found := find(record)) is None else part(found)


def _ms_per_token(record: Record, _: VariantResult) -> float | None:
    if not record.workload or not record.rounds_s:
        return None
    return record.median_s / record.workload.new_tokens * 1000


def _per_sample_latency(record: Record, _: VariantResult) -> float | None:
    per_round = [mean_over_prompts(list(zip(record.batch_rows, one, strict=True))) for one in record.batches_s]
    return statistics.median(per_round) if per_round else None


# How far rounds scatter is no property of the code: it is never judged.
_scatter_row = partial(timing_row, tolerance=NEVER_JUDGED)
_count_row = partial(timing_row, unit=Unit.COUNT, direction=Direction.NEITHER)
_speedup_row = partial(timing_row, unit=Unit.NONE, direction=Direction.HIGHER_IS_BETTER)
_speedup_bound_row = partial(_speedup_row, source="Tukey and McLaughlin 1963; Smyth 2004", tolerance=NEVER_JUDGED)

LATENCY: tuple[Metric, ...] = (
    timing_row(
        name="latency_s",
        title="Latency",
        column="latency",
        formula="start of the first batch to the last token of the last batch; median over the rounds",
        source="all common tools",
        value=_of_rounds(statistics.median),
        tables={ReportTable.VARIATION: 10},
    ),
    timing_row(
        name="latency_mean_s",
        title="Mean latency",
        column="mean",
        formula="mean of the rounds' latencies",
        source="pytest-benchmark",
        value=_of_rounds(statistics.fmean),
        tables={ReportTable.VARIATION: 15},
    ),
    _scatter_row(
        name="latency_stddev_s",
        title="Latency, standard deviation",
        column="std. dev.",
        formula="sample standard deviation of the rounds' latencies; none for one round",
        source="pytest-benchmark",
        value=_of_rounds(standard_deviation, least=2),
    ),
    _scatter_row(
        name="latency_iqr_s",
        title="Latency, interquartile range",
        column="IQR",
        formula="upper minus lower quartile of the rounds' latencies; none for one round",
        source="pytest-benchmark",
        value=_of_rounds(_interquartile_range, least=2),
    ),
    timing_row(
        name="per_sample_latency_s",
        title="Latency per sample",
        column="per sample",
        formula=(
            "mean over the prompts of the latency of the batch that each was in; "
            "waiting for earlier batches not counted"
        ),
        source="own; MLPerf's per-sample latency without the queue",
        value=_per_sample_latency,
    ),
    throughput_row(
        name="output_tokens_per_s",
        title="Output throughput",
        column="tokens/s",
        formula="new tokens of all prompts / latency_s; the prefill's time is in it",
        source="vLLM's output throughput",
        value=lambda record, _: record.tokens_per_s,
        tables={ReportTable.SCENARIO: 30},
    ),
    timing_row(
        name="ms_per_token",
        title="Time per new token",
        column="ms/token",
        unit=Unit.MILLISECONDS_PER_TOKEN,
        formula="latency_s / new tokens of all prompts x 1000; the prefill's time is in it, so this is not TPOT",
        source="average latency per token of common tutorials",
        value=_ms_per_token,
        tables={ReportTable.PREFILL_DECODE: 25},
    ),
    _scatter_row(
        name="latency_cv",
        title="Latency, coefficient of variation",
        column="CV",
        unit=Unit.SHARE,
        formula=(
            "standard deviation / mean of the rounds' latencies; "
            "below 5 % excellent, 10 % good, 20 % fair, else unstable"
        ),
        source="aiperf's bands",
        value=lambda record, _: coefficient_of_variation(record.rounds_s),
        tables={ReportTable.VARIATION: 50},
    ),
    _scatter_row(
        name="latency_low_s",
        title="Latency, lower bound",
        column="from",
        formula="lower end of Student's 95 % interval of the rounds' geometric mean; at least three rounds",
        value=_part_of(lambda record: interval(record.rounds_s), lambda found: found.low),
        tables={ReportTable.VARIATION: 20},
    ),
    _scatter_row(
        name="latency_high_s",
        title="Latency, upper bound",
        column="to",
        formula="upper end of Student's 95 % interval of the rounds' geometric mean",
        value=_part_of(lambda record: interval(record.rounds_s), lambda found: found.high),
        tables={ReportTable.VARIATION: 30},
    ),
    _count_row(
        name="rounds",
        title="Timed rounds",
        column="rounds",
        formula="number of timed rounds",
        value=lambda record, _: len(record.rounds_s) or None,
        tables={ReportTable.VARIATION: 40},
    ),
    _speedup_row(
        name="speedup",
        title="Speed-up",
        column="speed-up",
        formula=(
            "the reference's latency / latency, for each pair of rounds of the same block; their geometric mean "
            "without the lowest and highest fifth (20 % trimmed), of three or four pairs without an outlier; none "
            "below three pairs, or below two if other comparisons show how far pairs scatter"
        ),
        value=_part_of(record_speedup, lambda found: found.ratio),
        tolerance=Tolerance(relative=0.05),
    ),
    _speedup_bound_row(
        name="speedup_low",
        title="Speed-up, lower bound",
        column="from",
        formula=(
            "lower end of the speed-up's 95 % interval: Student's t with the Winsorized variance of the logarithms, "
            "shrunk toward those of the case's other variants, plus the variance between processes of identical work"
        ),
        value=_part_of(record_speedup, lambda found: found.low),
    ),
    _speedup_bound_row(
        name="speedup_high",
        title="Speed-up, upper bound",
        column="to",
        formula="upper end of the speed-up's 95 % interval",
        value=_part_of(record_speedup, lambda found: found.high),
    ),
    _count_row(
        name="disturbed_rounds",
        title="Disturbed rounds",
        column="disturbed",
        formula=(
            "rounds whose threads waited for a core for more than 2 % of the round's latency and 0.3 ms, summed over "
            "the threads, not counting waits for each other; none where the system doesn't report it"
        ),
        source="own; from Linux's run-queue wait",
        value=lambda record, _: sum(disturbed_rounds(record)) if record.waited_s else None,
        tables={ReportTable.VARIATION: 45},
    ),
)
