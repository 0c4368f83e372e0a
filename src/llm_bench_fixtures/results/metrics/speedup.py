"""The speed-up over the reference, from blocks; and how many rounds were disturbed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llm_bench_fixtures.results.metrics.metric import (
    NEVER_JUDGED,
    Direction,
    Kind,
    Metric,
    ReportTable,
    Tolerance,
    Unit,
    Value,
)
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.results.speedup import is_calm, record_speedup
from llm_bench_fixtures.statistics.ratio import Speedup


def _of_speedup(field: Callable[[Speedup], float]) -> Value:
    def value(record: Record, _: VariantResult) -> float | None:
        found = record_speedup(record)
        return field(found) if found else None

    return value


def _disturbed_rounds(record: Record, _: VariantResult) -> float | None:
    if not record.waited_s:
        return None
    return sum(not is_calm(*one) for one in zip(record.rounds_s, record.waited_s, strict=True))


# What a row does not say.
_row = partial(Metric, unit=Unit.NONE, direction=Direction.HIGHER_IS_BETTER, kind=Kind.TIMING)

SPEEDUP: tuple[Metric, ...] = (
    _row(
        name="speedup",
        title="Speed-up",
        column="speed-up",
        formula=(
            "the reference's latency / latency, for each pair of rounds of the same block; averaged as the exponential "
            "of the 20 % trimmed mean of their logarithms; none for fewer than three pairs, or two where the run's "
            "other cases show how far pairs scatter"
        ),
        source="own",
        value=_of_speedup(lambda found: found.ratio),
        tolerance=Tolerance(relative=0.05),
    ),
    _row(
        name="speedup_low",
        title="Speed-up, lower bound",
        column="from",
        formula=(
            "lower end of the speed-up's 95 % interval: Student's t with the Winsorized variance of the logarithms, "
            "shrunk toward those of the run's other comparisons, plus the variance between processes of identical work"
        ),
        source="Tukey and McLaughlin 1963; Smyth 2004",
        value=_of_speedup(lambda found: found.low),
        tolerance=NEVER_JUDGED,
    ),
    _row(
        name="speedup_high",
        title="Speed-up, upper bound",
        column="to",
        formula="upper end of the speed-up's 95 % interval",
        source="Tukey and McLaughlin 1963; Smyth 2004",
        value=_of_speedup(lambda found: found.high),
        tolerance=NEVER_JUDGED,
    ),
    _row(
        name="disturbed_rounds",
        title="Disturbed rounds",
        column="disturbed",
        unit=Unit.COUNT,
        direction=Direction.NEITHER,
        formula=(
            "rounds whose threads waited for a core for more than 2 % of the round's latency and 0.3 ms, summed over "
            "the threads; none where the system doesn't report it"
        ),
        source="own; from Linux's run-queue wait",
        value=_disturbed_rounds,
        tables={ReportTable.VARIATION: 45},
    ),
)
