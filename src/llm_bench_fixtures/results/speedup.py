"""The speed-up of a variant over the reference, from rounds of both that were measured side by side, in blocks.

Each round is paired with the reference's round of the same number in the same block.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from llm_bench_fixtures.results.record import TimedRecord
from llm_bench_fixtures.statistics.ratio import (
    CONFIDENCE,
    LEAST_PAIRS,
    LogRatio,
    Speedup,
    log_ratio,
    log_ratios,
    speedup_from,
    trimmed_variance,
)
from llm_bench_fixtures.statistics.shrinkage import estimate_prior

TimedT = TypeVar("TimedT", bound=TimedRecord)

WAITED_SHARE = 0.02  # of a round's latency that its threads may wait for a core in a calm round
WAITED_S = 0.3e-3  # or this many seconds


def with_expected_variance(records: Iterable[TimedT]) -> tuple[TimedT, ...]:
    """A run's records, each of those in blocks with what all of them lead to expect of its variance between pairs."""
    records = tuple(records)
    pairs = (log_ratios(one.reference_s, one.rounds_s) for one in records if len(one.reference_s) >= LEAST_PAIRS)
    prior = estimate_prior(map(trimmed_variance, pairs))
    return tuple(replace(one, expected_variance=prior) if one.reference_s else one for one in records)


def record_log_ratio(record: TimedRecord) -> LogRatio | None:
    """Of the reference and the record; None where it has fewer than three rounds in blocks."""
    if not record.reference_s:
        return None
    return log_ratio(record.reference_s, record.rounds_s, record.expected_variance)


def record_speedup(record: TimedRecord, confidence: float = CONFIDENCE) -> Speedup | None:
    """The record's speed-up over the reference; None where it has fewer than three rounds in blocks."""
    ratio = record_log_ratio(record)
    return speedup_from(ratio, confidence, len(record.rounds_s)) if ratio else None


def log_ratio_between(of: TimedRecord, over: TimedRecord) -> LogRatio | None:
    """One record over another, above 0 where the first is faster; None where one has fewer than three rounds in blocks.

    If they share blocks, it comes from the pairs of their rounds there; else from how each compares with the reference.
    """
    if share_blocks(of, over):
        shared = min(len(of.rounds_s), len(over.rounds_s))
        return log_ratio(over.rounds_s[:shared], of.rounds_s[:shared], of.expected_variance)
    own, other = record_log_ratio(of), record_log_ratio(over)
    return None if own is None or other is None else own.minus(other)


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

    None where the system doesn't tell, or of fewer than LEAST_PAIRS.
    """
    shares = [waited / seconds for seconds, waited in zip(rounds_s, waited_s, strict=False)]
    return statistics.median(shares) if len(shares) >= LEAST_PAIRS else None


def is_calm(round_s: float, waited_s: float) -> bool:
    """Whether the round's threads had a core whenever they wanted one, but for a moment."""
    return waited_s <= max(WAITED_SHARE * round_s, WAITED_S)


def _calm(rounds_s: Sequence[float], waited_s: Sequence[float]) -> list[bool]:
    return [is_calm(*one) for one in zip(rounds_s, waited_s, strict=True)] if waited_s else [True] * len(rounds_s)
