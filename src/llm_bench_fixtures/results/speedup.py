"""The speed-up of a variant over the reference, from rounds of both that were measured side by side, in blocks.

Each round is paired with the reference's round of the same number in the same block. The speed-up is the ratio of what
both take undisturbed, over these pairs. How sure it is follows from how the pairs differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.results.record import TimedRecord
from llm_bench_fixtures.results.spread import student_half_width

CONFIDENCE = 0.95
LEAST_ROUNDS = 3
WIDE = 0.1  # relative half-width of an interval that is too wide to say that there is no difference
WAITED_SHARE = 0.02  # of a round's latency that its threads may wait for a core in a calm round
WAITED_S = 0.3e-3  # or this many seconds
# Of a process' log latencies on a workload, from run to run: processes of identical work differ, and a machine's drift
# moves one kind of work more than another.
PROCESS_DEVIATION = 0.0125


@dataclass(frozen=True)
class LogRatio:
    """The mean of some logarithms of ratios, and how sure it is."""

    centre: float
    standard_error: float
    freedom: float
    """Degrees of freedom of Student's t, which needn't be whole."""
    process_variance: float = 0.0
    """Of what each process differs by from run to run, which no number of rounds in one run shows."""

    def margin(self, confidence: float) -> float:
        """Half the width of the two-sided interval."""
        beyond = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(self.process_variance)
        return math.hypot(self.margin_by_rounds(confidence), beyond)

    def margin_by_rounds(self, confidence: float) -> float:
        """The part of it that more rounds make smaller."""
        return student_half_width(self.standard_error, self.freedom, confidence)

    def minus(self, other: LogRatio) -> LogRatio:
        """The difference of two independent ones, with the degrees of freedom of Welch and Satterthwaite."""
        variances = self.standard_error**2, other.standard_error**2
        parts = variances[0] ** 2 / self.freedom + variances[1] ** 2 / other.freedom
        return LogRatio(
            self.centre - other.centre,
            math.sqrt(sum(variances)),
            sum(variances) ** 2 / parts if parts else self.freedom + other.freedom,
            self.process_variance + other.process_variance,
        )


@dataclass(frozen=True)
class Speedup:
    """How many times as fast a variant is as the reference, with the interval that its rounds give."""

    ratio: float
    """Above 1 where the variant is faster."""
    low: float
    high: float
    rounds: int
    """How many pairs of rounds it is computed from."""

    @property
    def is_faster(self) -> bool:
        """The whole interval is above 1."""
        return self.low > 1

    @property
    def is_slower(self) -> bool:
        """The whole interval is below 1."""
        return self.high < 1

    @property
    def is_unclear(self) -> bool:
        """The rounds are too few to tell: the interval has 1 in it, and is wider than 10 % to either side."""
        return not (self.is_faster or self.is_slower) and self.relative_half_width > WIDE

    @property
    def relative_half_width(self) -> float:
        """Half the interval's width over its middle."""
        return (self.high - self.low) / (self.high + self.low)


def log_ratio(over_s: Sequence[float], of_s: Sequence[float]) -> LogRatio | None:
    """Of two processes; None for fewer than three rounds of each.

    over_s, of_s: (R,), what each takes undisturbed, as each of its rounds sees it (`undisturbed_s`); in pairs. The
    standard error is that of the jackknife: the rounds' logarithms are its pseudo-values, and so are the pairs'
    differences. Raises ValueError where lengths differ.
    """
    logs = [math.log(over / of) for over, of in zip(over_s, of_s, strict=True)]
    if len(logs) < LEAST_ROUNDS:
        return None
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    is_one_process = tuple(over_s) == tuple(of_s)
    return LogRatio(statistics.fmean(logs), error, len(logs) - 1, 0.0 if is_one_process else 2 * PROCESS_DEVIATION**2)


def speedup_of(
    reference_s: Sequence[float], undisturbed_s: Sequence[float], confidence: float = CONFIDENCE
) -> Speedup | None:
    """The speed-up of a variant; None for fewer than three rounds.

    Both: (R,), what the reference and the variant take undisturbed, as each round sees it; in pairs.
    """
    ratio = log_ratio(reference_s, undisturbed_s)
    return speedup_from(ratio, confidence, len(undisturbed_s)) if ratio else None


def speedup_from(ratio: LogRatio, confidence: float, rounds: int) -> Speedup:
    """The mean logarithm taken back, with its interval."""
    margin = ratio.margin(confidence)
    middle, low, high = map(math.exp, (ratio.centre, ratio.centre - margin, ratio.centre + margin))
    return Speedup(middle, low, high, rounds)


def record_log_ratio(record: TimedRecord) -> LogRatio | None:
    """Of the reference and the record; None where it has fewer than three rounds in blocks."""
    if not record.reference_undisturbed_s:
        return None
    return log_ratio(record.reference_undisturbed_s, record.undisturbed_s)


def record_speedup(record: TimedRecord, confidence: float = CONFIDENCE) -> Speedup | None:
    """The record's speed-up over the reference; None where it has fewer than three rounds in blocks."""
    ratio = record_log_ratio(record)
    return speedup_from(ratio, confidence, len(record.undisturbed_s)) if ratio else None


def speedup_between(of: TimedRecord, over: TimedRecord, confidence: float = CONFIDENCE) -> Speedup | None:
    """How many times as fast one record is as another; None where one has fewer than three rounds in blocks.

    If they share all blocks, it comes from the pairs of their rounds; else from how each compares with the reference.
    """
    if share_blocks(of, over) and len(of.undisturbed_s) == len(over.undisturbed_s):
        return speedup_of(over.undisturbed_s, of.undisturbed_s, confidence)
    own, other = record_log_ratio(of), record_log_ratio(over)
    if own is None or other is None:
        return None
    ratio = own.minus(other)
    if share_blocks(of, over):  # the reference's process is one and the same
        ratio = replace(ratio, process_variance=2 * PROCESS_DEVIATION**2)
    return speedup_from(ratio, confidence, min(len(of.undisturbed_s), len(over.undisturbed_s)))


def share_blocks(one: TimedRecord, other: TimedRecord) -> bool:
    """Whether both were measured in the same blocks: beside the same rounds of the reference.

    One of them may have been settled after fewer blocks.
    """
    shared = min(len(one.reference_s), len(other.reference_s))
    return shared > 0 and one.reference_s[:shared] == other.reference_s[:shared]


def disturbed_pairs(record: TimedRecord) -> int:
    """How many pairs of a round and the reference's have one that is not calm; 0 where the system doesn't tell."""
    own, reference = _calm(record.rounds_s, record.waited_s), _calm(record.reference_s, record.reference_waited_s)
    return sum(not all(both) for both in zip(own, reference, strict=False))


def waiting_share(rounds_s: Sequence[float], waited_s: Sequence[float]) -> float | None:
    """The median over rounds of how long their threads together waited for a core, over the round's time.

    None where the system doesn't tell, or of fewer than LEAST_ROUNDS.
    """
    shares = [waited / seconds for seconds, waited in zip(rounds_s, waited_s, strict=False)]
    return statistics.median(shares) if len(shares) >= LEAST_ROUNDS else None


def is_calm(round_s: float, waited_s: float) -> bool:
    """Whether the round's threads had a core whenever they wanted one, but for a moment."""
    return waited_s <= max(WAITED_SHARE * round_s, WAITED_S)


def _calm(rounds_s: Sequence[float], waited_s: Sequence[float]) -> list[bool]:
    return [is_calm(*one) for one in zip(rounds_s, waited_s, strict=True)] if waited_s else [True] * len(rounds_s)
