"""The speed-up of a variant over the reference, from rounds of both that were measured side by side, in blocks.

Each round is paired with the reference's round of the same number in the same block.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap, zip_longest
from operator import attrgetter

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.statistics.pooling import drift_between, mean_over_cases, mean_over_runs
from llm_bench_fixtures.statistics.ratio import (
    FEWEST_PAIRS,
    LEAST_PAIRS,
    LogRatio,
    Speedup,
    log_ratio,
    log_ratios,
    speedup_from,
    trimmed_variance,
    without_odd,
)
from llm_bench_fixtures.statistics.shrinkage import (
    LEAST_COMPARISONS,
    LEAST_VARIANCE,
    NO_PRIOR,
    VarianceEstimate,
    estimate_prior,
    expected_beside,
    mean_variance,
)
from llm_bench_fixtures.statistics.spread import CONFIDENCE

WAITED_SHARE = 0.02  # share of a round's latency that its threads may wait for a core in a calm round
WAITED_S = 0.3e-3  # or this many seconds
OWN_WAITING = 1.5  # times as long as a variant's threads make each other wait in any case, which scatters, too


def with_expected_variance(records: Iterable[Record]) -> tuple[Record, ...]:
    """A run's records; those in blocks with the variance between pairs that other comparisons lead to expect, and with
    their variant's drift between cases."""
    known = _with_expectation(tuple(records))
    alike = like_cases(known)
    drifts = {variant: _drift((one, _ratio_to_reference(one)) for one in own) for variant, own in alike.items()}
    return tuple(replace(one, drift=drifts.get(one.variant) or NO_PRIOR) if one.reference_s else one for one in known)


def _with_expectation(records: Sequence[Record]) -> list[Record]:
    """The variants of a case shared the machine's state and the reference's rounds, so that they tell most of how far
    its pairs scatter; the run's other cases tell the rest. Of a variant that scatters more than others no less is
    expected than the median of its own cases."""
    pairs = {one.test: log_ratios(one.reference_s, one.rounds_s) for one in records if _has_pairs(one)}
    seen = [trimmed_variance(logs).variance for logs in pairs.values() if len(logs) >= LEAST_PAIRS]
    usual = VarianceEstimate(statistics.median(seen), len(seen)) if seen else NO_PRIOR
    of_case: dict[tuple[str, str, float], dict[str, VarianceEstimate]] = defaultdict(dict)
    of_variant: dict[str, list[float]] = defaultdict(list)
    for one in records:
        found = trimmed_variance(without_odd(pairs[one.test], usual)) if one.test in pairs else NO_PRIOR
        if found.variance >= LEAST_VARIANCE:
            of_case[_blocks_of(one)][one.test] = found
            of_variant[one.variant].append(found.variance)
    prior = estimate_prior(mean_variance(own.values()) for own in of_case.values())
    least = {name: statistics.median(own) for name, own in of_variant.items() if len(own) >= LEAST_COMPARISONS}

    def expected(record: Record) -> VarianceEstimate:
        others = [one for test, one in of_case.get(_blocks_of(record), {}).items() if test != record.test]
        found = expected_beside(others, prior)
        return replace(found, variance=max(found.variance, least.get(record.variant, 0.0)))

    return [replace(one, expected_variance=expected(one)) if one.reference_s else one for one in records]


def _blocks_of(record: Record) -> tuple[str, str, float]:
    """What the records of the same blocks share: their case, and the reference's first round."""
    return record.scenario, record.case, record.reference_s[0]


def _has_pairs(record: Record) -> bool:
    """Whether it tells how far pairs scatter; the reference's own record doesn't."""
    return len(record.reference_s) >= FEWEST_PAIRS and record.reference_s != record.rounds_s


def like_cases(records: Iterable[Record]) -> Mapping[str, list[Record]]:
    """Each variant's cases in blocks that are alike but for the prompt's length: one prompt with the default cache, and
    the number of new tokens that most have."""
    measured = [one for one in records if one.status is Status.MEASURED and one.reference_s and one.workload]
    plain = [one for one in measured if one.facts.is_plain]
    usual = Counter(one.facts.new_tokens for one in plain).most_common(1)
    return grouped((one for one in plain if one.facts.new_tokens == usual[0][0]), lambda one: one.variant)


def _drift(alike: Iterable[tuple[Record, LogRatio | None]]) -> VarianceEstimate | None:
    known = [(one.facts.prompt_tokens, ratio) for one, ratio in alike if ratio is not None]
    return drift_between([ratio for _, ratio in known], [size for size, _ in known])


def record_log_ratio(record: Record) -> LogRatio | None:
    """Log ratio of the reference over the record; None where it has too few rounds in blocks."""
    return _mean_of_runs(log_ratios_by_run([record]))


def log_ratios_by_run(cases: Sequence[Record]) -> list[LogRatio | None]:
    """Log ratio of the reference over a variant, across its cases, in each run; None where any has too few rounds in
    blocks."""
    return _means_of_cases([[_ratio_to_reference(one) for one in case.by_run] for case in cases])


def _ratio_to_reference(record: Record | None) -> LogRatio | None:
    """Log ratio of a record of one run; None without one, and without the reference's rounds."""
    if record is None or not record.reference_s:
        return None
    ratio = log_ratio(record.reference_s, record.rounds_s, record.expected_variance)
    return replace(ratio, drift=record.drift) if ratio else None


def _means_of_cases(cases: Sequence[Sequence[LogRatio | None]]) -> list[LogRatio | None]:
    """The mean in each run. cases: each one's log ratio in each run.

    The same processes ran all cases of a run, so their mean comes first, and that of the runs after it.
    """
    runs = [[one for one in run if one is not None] for run in zip(*cases, strict=True)]
    return [mean_over_cases(run) if len(run) == len(cases) else None for run in runs]


def _mean_of_runs(by_run: Sequence[LogRatio | None]) -> LogRatio | None:
    known = [one for one in by_run if one is not None]
    return mean_over_runs(known) if known else None


def record_speedup(record: Record, confidence: float = CONFIDENCE) -> Speedup | None:
    """The record's speed-up over the reference; None where it has too few rounds in blocks."""
    return mean_speedup([record], confidence)


def mean_speedup(cases: Sequence[Record], confidence: float = CONFIDENCE) -> Speedup | None:
    """A variant's speed-up over its cases; None where any has too few rounds in blocks."""
    return _speedup(_mean_of_runs(log_ratios_by_run(cases)), cases, confidence)


def drifts_apart(alike: Sequence[tuple[Record, Record]]) -> list[VarianceEstimate | None]:
    """Drift of two variants against each other in each run, by the like cases of both; None where they are too few."""
    runs = zip(*map(_ratios_between, alike), strict=True)
    return [_drift(zip((of for of, _ in alike), run, strict=True)) for run in runs]


def mean_speedup_between(
    pairs: Sequence[tuple[Record, Record]],
    confidence: float = CONFIDENCE,
    apart: Sequence[VarianceEstimate | None] = (),
) -> Speedup | None:
    """How many times as fast the first of each pair is, over several cases; None where any has too few rounds in
    blocks.

    apart: `drifts_apart`. Where a run doesn't know it, what each variant drifts from the reference adds up.
    """
    ratios = [[*starmap(_with_drift, zip_longest(_ratios_between(pair), apart))] for pair in pairs]
    mean = _mean_of_runs(_means_of_cases(ratios))
    return _speedup(mean, [min(pair, key=lambda one: len(one.rounds_s)) for pair in pairs], confidence)


def _speedup(ratio: LogRatio | None, cases: Sequence[Record], confidence: float) -> Speedup | None:
    return speedup_from(ratio, confidence, sum(len(case.rounds_s) for case in cases)) if ratio else None


def _ratios_between(pair: tuple[Record, Record]) -> list[LogRatio | None]:
    """Log ratio of the second over the first, in each run."""
    of, over = pair
    return [*starmap(_ratio_between, zip(of.by_run, over.by_run, strict=True))]


def _with_drift(ratio: LogRatio | None, drift: VarianceEstimate | None) -> LogRatio | None:
    return replace(ratio, drift=drift) if ratio and drift else ratio


def _ratio_between(of: Record | None, over: Record | None) -> LogRatio | None:
    """Two records of one run. If they share blocks, it comes from the pairs of their rounds there; else from how each
    compares with the reference."""
    if of is None or over is None:
        return None
    if shared := rounds_together(of, over):
        expected = max(of.expected_variance, over.expected_variance, key=attrgetter("variance"))
        of_s, over_s = [of.rounds_s[own] for own, _ in shared], [over.rounds_s[other] for _, other in shared]
        ratio = log_ratio(over_s, of_s, expected)
        return replace(ratio, drift=of.drift.plus(over.drift)) if ratio else None
    own, other = _ratio_to_reference(of), _ratio_to_reference(over)
    return None if own is None or other is None else own.minus(other)


def share_blocks(one: Record, other: Record) -> bool:
    """Whether both were measured in the same blocks, of pooled runs in any run."""
    return any(a and b and rounds_together(a, b) for a, b in zip(one.by_run, other.by_run, strict=False))


def rounds_together(one: Record, other: Record) -> list[tuple[int, int]]:
    """Numbers of the rounds of either, from 0, that were measured next to the same round of the reference; none where
    those are fewer than FEWEST_PAIRS.

    Not all need be: one of them may have been settled after fewer blocks, or left out of some.
    """
    shared = min(len(one.reference_s), len(other.reference_s))
    if one.reference_s[:shared] == other.reference_s[:shared]:
        found = [(number, number) for number in range(shared)]
    else:
        place = {seconds: number for number, seconds in enumerate(other.reference_s)}
        found = [(number, place[seconds]) for number, seconds in enumerate(one.reference_s) if seconds in place]
    return found if len(found) >= FEWEST_PAIRS else []


def disturbed_pairs(record: Record) -> int:
    """How many pairs of a round and the reference's have one that is disturbed; 0 where the system doesn't tell."""
    reference = _disturbed(record.reference_s, record.reference_waited_s, record.rounds_s, record.waited_s)
    return sum(map(any, zip(disturbed_rounds(record), reference, strict=False)))


def disturbed_rounds(record: Record) -> list[bool]:
    """Whether each round was disturbed: its threads waited for a core for longer than a moment, and than those of this
    variant make each other wait anyway."""
    return _disturbed(record.rounds_s, record.waited_s, record.reference_s, record.reference_waited_s)


def waiting_share(rounds_s: Sequence[float], waited_s: Sequence[float]) -> float | None:
    """The median over rounds of how long their threads together waited for a core, over the round's time.

    None where the system doesn't tell, or of fewer than LEAST_PAIRS.
    """
    shares = _waiting_shares(rounds_s, waited_s)
    return statistics.median(shares) if len(shares) >= LEAST_PAIRS else None


def is_calm(round_s: float, waited_s: float) -> bool:
    """Whether the round's threads had a core whenever they wanted one, but for a moment."""
    return waited_s <= max(WAITED_SHARE * round_s, WAITED_S)


def _waiting_shares(rounds_s: Sequence[float], waited_s: Sequence[float]) -> list[float]:
    return [waited / seconds for seconds, waited in zip(rounds_s, waited_s, strict=False)]


def _disturbed(
    rounds_s: Sequence[float], waited_s: Sequence[float], others_s: Sequence[float], others_waited_s: Sequence[float]
) -> list[bool]:
    """Whether each round was disturbed. others_s: the rounds that it was paired with.

    The threads of some variants make each other wait, as two pools do: for so much of each round longer than those of
    the other side in the same block, save for a quarter of the pairs. Other programs would hold up both sides.
    """
    if not waited_s:
        return [False] * len(rounds_s)
    shares, others = _waiting_shares(rounds_s, waited_s), _waiting_shares(others_s, others_waited_s)
    longer = sorted(own - other for own, other in zip(shares, others, strict=False))
    own_share = OWN_WAITING * max(longer[len(longer) // 4], 0.0) if len(longer) >= LEAST_PAIRS else 0.0
    return [not is_calm(one, waited - own_share * one) for one, waited in zip(rounds_s, waited_s, strict=True)]
