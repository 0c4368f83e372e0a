"""How far two values, or the speed-ups of two runs, may differ by chance, and by how much the machine itself differed.

Only the median latency, of all times, has a measured noise: how far identical work differs within each run, and how far
the rounds of the test scatter. That says nothing of a mean, a percentile or the first `generate`, which a single
outlier moves.

A speed-up over the reference is measured in blocks with it: what slows the whole machine for a while falls on
both and cancels out. So speed-ups of two hours are compared where times aren't. This is done at two levels: for each
test, by the difference of the two log ratios; and for each variant, by the trimmed mean of its tests' changes (Tukey
and McLaughlin, Sankhya A 25, 1963), which finds a smaller change if all of the variant's tests share it. Each level
takes half of ALARMS, divided by its number of comparisons (Bonferroni).

Processes of identical work differ by more than their rounds show, each time all tests of a variant alike. How far is
read off the comparison itself: from the scatter of the other variants' changes about their median, which a few variants
that really changed hardly move. That is shrunk toward what processes are known to differ by.

A machine's state that lasts for a test's few rounds shows in none of them, either. How far such states move a test is
read off the variant's other tests: by what their changes scatter beyond their rounds. With fewer than LEAST_OTHER_TESTS
of them it isn't known. One state is looked for in each block: that the host has moved the processor's cores apart. A
test may change by as much as the time from core to core did.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeAlias

from llm_bench_fixtures.answer.noise import APART
from llm_bench_fixtures.results.metrics import Force, Kind, Metric, Tolerance
from llm_bench_fixtures.results.metrics.quality import OF_CHOICES, QUALITY
from llm_bench_fixtures.results.metrics.tasks import task_metrics
from llm_bench_fixtures.results.noise import NoiseFloor, probe_level_s
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.results.speedup import record_log_ratio
from llm_bench_fixtures.statistics.pooling import PROCESS_FREEDOM
from llm_bench_fixtures.statistics.ratio import PROCESS_DEVIATION, LogRatio, trimmed_mean
from llm_bench_fixtures.statistics.robust import bounded
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate, shrink
from llm_bench_fixtures.statistics.spread import GATE_CONFIDENCE, mean_half_width, student_half_width

Probe: TypeAlias = Sequence[tuple[float, float]]  # seconds of both kinds of work, for each round
OF_MEDIAN = ("latency_s", "output_tokens_per_s", "ms_per_token")  # the median latency, and its multiples
# Metrics of a variant by itself, whatever the reference is.
OVER_THE_REFERENCES_TEXT = ("loss", "perplexity", "bits_per_byte", "word_perplexity", "byte_perplexity")  # in samples
BY_ITSELF = (*OVER_THE_REFERENCES_TEXT, "scored_tokens", "choice_accuracy", "choice_items")
ALARMS = 0.01  # share of comparisons of equal versions in which any speed-up comes out as lower; as many as higher
LEAST_TESTS = 5  # fewest tests of a variant whose mean change is judged
LEAST_OTHERS = 4  # fewest other variants that tell the scatter of a variant's change
LEAST_OTHER_TESTS = 12  # fewest other tests of a variant that tell the scatter of a test's change
LEAST_TO_TRIM = 6  # of five, trimming leaves three: their interval is half as wide again as that of the plain mean


def has_own_noise(metric: Metric) -> bool:
    """Whether the metric's margin was measured on itself. Timings other than the median have none."""
    return metric.kind is not Kind.TIMING or metric.name in (*OF_MEDIAN, "speedup")


@dataclass(frozen=True)
class TimingNoise:
    """Noise of the times of two runs."""

    floors: tuple[NoiseFloor, NoiseFloor]
    tests: int
    """How many tests are compared: the chance of a false alarm is for all of them together."""

    @property
    def floor(self) -> NoiseFloor:
        """The smaller one."""
        return min(self.floors, key=lambda floor: floor.log_ratio)

    def margin(
        self, metric: Metric, rule: Tolerance, base_s: Sequence[float] = (), head_s: Sequence[float] = ()
    ) -> float:
        """A log ratio up to which two values can't be told apart; infinite where nothing is known of their noise.

        base_s, head_s: the rounds of the test. A rule that blocks was asked for: it goes by the smaller floor alone, so
        that a noisy run excuses nothing. An advisory change has to leave the larger floor, and Welch's
        interval of the rounds' log-latencies, at ALARMS over all tests (Bonferroni).
        """
        if metric.kind is not Kind.TIMING:
            return 0.0
        if rule.force is Force.BLOCKING:
            return self.floor.log_ratio
        if metric.name not in OF_MEDIAN:
            return math.inf
        confidence = 1 - ALARMS / max(self.tests, 1)
        return max(*(floor.log_ratio for floor in self.floors), _welch_margin(base_s, head_s, confidence))


def _welch_margin(base_s: Sequence[float], head_s: Sequence[float], confidence: float) -> float:
    if min(len(base_s), len(head_s)) < 2:
        return math.inf
    base, head = (trimmed_mean([math.log(seconds) for seconds in rounds_s], share=0.0) for rounds_s in (base_s, head_s))
    return head.minus(base).margin(confidence)


def machine_slowdown(head_probe_s: Probe, base_probe_s: Probe) -> float | None:
    """How many times as long the same work took when `head` was measured as when `base` was.

    head's seconds divided by it are what they would be at base's speed of the machine, as far as the two kinds of work
    stand for the model's. None where either has no probe.
    """
    head_s, base_s = probe_level_s(head_probe_s), probe_level_s(base_probe_s)
    return head_s / base_s if head_s and base_s else None


def mean_slowdown(probes: Iterable[tuple[Probe, Probe]]) -> float | None:
    """Geometric mean over the tests that have the probe on both sides; None where there is none. probes: of each test,
    those of the run and those of the baseline."""
    known = [slowdown for now_s, before_s in probes if (slowdown := machine_slowdown(now_s, before_s)) is not None]
    return statistics.geometric_mean(known) if known else None


def questions_obstacle(metric: Metric, base: Provenance, head: Provenance) -> str:
    """Why a metric of answers or of a task can't be compared; "" where the same was asked, or the metric is another
    one."""
    if metric.name in OF_CHOICES and base.choices != head.choices:
        return f"other questions: {head.choices or 'none'}; the baseline's: {base.choices or 'none'}"
    was, now = (
        next((task for task in origin.tasks if metric.name in task_metrics([task])), None) for origin in (base, head)
    )
    if was is None or now is None:
        return ""
    if was.digest != now.digest:
        return f"{now.name} asks other prompts than in the baseline"
    return f"{now.items:,} items; in the baseline {was.items:,}" if was.items != now.items else ""


def samples_obstacle(
    metric: Metric, before: VariantResult, after: VariantResult, references: Sequence[VariantResult | None]
) -> str:
    """Why a metric of quality can't be compared where a run scored a sample of the corpus or of the questions; "" where
    both have as many of them: those are the same.

    references: the reference in both runs. A sampled variant's loss, and what follows from it, is over the tokens that
    the reference was scored on.
    """
    is_sampled = any("scored_share" in one.quality for one in (before, after))
    if metric.name not in OF_CHOICES and not (is_sampled and metric in QUALITY):
        return ""
    counted, what = ("choice_items", "questions") if metric.name in OF_CHOICES else ("scored_tokens", "scored tokens")
    pairs = [(before, after), *([references] if metric.name in OVER_THE_REFERENCES_TEXT else [])]
    counts = ([one.quality.get(counted) if one else None for one in pair] for pair in pairs)
    different = ((was, now) for was, now in counts if was != now and was is not None and now is not None)
    return next((f"{now:,.0f} {what}; in the baseline {was:,.0f}" for was, now in different), "")


def quality_margin(metric: Metric, before: VariantResult, after: VariantResult) -> float:
    """A log ratio within which a quality metric's change can't be told from chance."""
    if metric.name == "perplexity":
        return paired_margin(before.loss_blocks, after.loss_blocks)
    if metric.name in before.item_blocks and metric.name in after.item_blocks:
        difference = paired_margin(before.item_blocks[metric.name], after.item_blocks[metric.name])
    elif metric.name == "kld_mean":
        difference = sum(one.quality.get("kld_error", 0.0) for one in (before, after))
    else:
        return 0.0
    least = min(one.quality.get(metric.name, 0.0) for one in (before, after))
    return math.log1p(difference / least) if least > 0 else 0.0


def paired_margin(base: Sequence[float], head: Sequence[float]) -> float:
    """Half-width of Student's 99 % interval of the mean difference of two models' losses, block by block.

    The mean difference of the losses is the log ratio of the perplexities. Both models score the same stretches of
    text, so a block's difference does not depend on how hard its text is. 0 where there are fewer than two blocks, or
    not as many on both sides.
    """
    if len(base) != len(head) or len(base) < 2:
        return 0.0
    deviation = statistics.stdev(after - before for before, after in zip(base, head, strict=True))
    return mean_half_width(deviation, len(base), GATE_CONFIDENCE)


@dataclass(frozen=True)
class SpeedupChange:
    """The speed-ups of one test, or of one variant over its tests, in both runs."""

    base: float
    head: float
    margin: float
    """A log ratio within which the two can't be told apart."""


@dataclass(frozen=True)
class SpeedupChanges:
    """Changes of speed-ups between two runs, from their rounds."""

    tests: Mapping[str, SpeedupChange]
    """Changes by node id. The reference's own tests are not among them."""
    variants: Mapping[str, SpeedupChange]
    """Changes by variant: the geometric means over its tests, where there are at least five."""


@dataclass(frozen=True)
class _Change:
    base: float
    """Logarithm of the baseline's speed-up."""
    by: LogRatio
    """What the judged run's logarithm differs by."""
    by_cores: float = 0.0
    """Logarithm of how many times as long data took from core to core in one of the runs; 0 where that isn't far."""


def speedup_changes(pairs: Iterable[tuple[Record, Record]], reference: str) -> SpeedupChanges:
    """pairs: the baseline's record and the judged one of each test that ran the same workload in both runs."""
    tests: dict[str, dict[str, _Change]] = defaultdict(dict)  # by variant
    for before, after in pairs:
        base, head = record_log_ratio(before), record_log_ratio(after)
        if after.variant != reference and base is not None and head is not None:  # both were measured in blocks
            tests[after.variant][after.test] = _Change(base.centre, head.minus(base), _by_cores(before, after))
    alike = {variant: [one for one in own.values() if not one.by_cores] for variant, own in tests.items()}
    means = {variant: _mean(own) for variant, own in alike.items() if len(own) >= LEAST_TESTS}
    scatter = {variant: _scatter([means[other].by.centre for other in means if other != variant]) for variant in tests}
    number = sum(map(len, tests.values()))
    of_tests = {
        test: _changed(one, scatter[variant], number, _states(own, test))
        for variant, own in tests.items()
        for test, one in own.items()
    }
    of_variants = {variant: _changed(one, scatter[variant], len(means)) for variant, one in means.items()}
    return SpeedupChanges(of_tests, of_variants)


def _by_cores(before: Record, after: Record) -> float:
    looks = [one.core_to_core for one in (before, after)]
    apart = abs(math.log(median(looks[1]) / median(looks[0]))) if all(looks) else 0.0
    return apart if apart >= math.log(APART) else 0.0


def _mean(tests: Collection[_Change]) -> _Change:
    """Over a variant's tests, whose scatter tells what processes differ by on single workloads."""
    changes = [one.by.centre for one in tests]
    by = trimmed_mean(changes) if len(changes) >= LEAST_TO_TRIM else trimmed_mean(changes, share=0.0)
    return _Change(fmean(one.base for one in tests), by)


def _scatter(others: Sequence[float]) -> VarianceEstimate:
    """Variance of a variant's change by its processes and the reference's. others: changes of the other variants.

    What the reference changed by, all of them share. Their scatter is of their own processes alone: half of it.
    """
    known = VarianceEstimate(4 * PROCESS_DEVIATION**2, PROCESS_FREEDOM)  # two processes in each run
    if len(others) < LEAST_OTHERS:
        return known
    found = _about_median(others)
    return shrink(replace(found, variance=2 * found.variance), known)


def _states(tests: Mapping[str, _Change], test: str) -> VarianceEstimate | None:
    """Variance of the changes of a variant's other tests beyond that of their rounds; None where they are too few."""
    others = [one.by for name, one in tests.items() if name != test]
    if len(others) < LEAST_OTHER_TESTS:
        return None
    found = _about_median([one.centre for one in others])
    by_rounds = fmean(one.by_rounds.variance for one in others)
    return replace(found, variance=max(found.variance - by_rounds, 0.0))


def _about_median(changes: Sequence[float]) -> VarianceEstimate:
    middle, freedom = median(changes), len(changes) - 1
    squares = sum(one**2 for one in bounded([change - middle for change in changes]))
    return VarianceEstimate(squares / freedom, freedom)


def _changed(
    one: _Change, scatter: VarianceEstimate, comparisons: int, states: VarianceEstimate | None = None
) -> SpeedupChange:
    """comparisons: how many are made at this level. states: variance by the machine's states that rounds don't show."""
    confidence = 1 - ALARMS / comparisons  # two-sided: half of it lies on either side
    processes = max(scatter.variance, one.by.process_variance)
    by_processes = student_half_width(math.sqrt(processes), scatter.freedom, confidence)
    by_rounds = replace(one.by, process_variance=0.0).margin(confidence)
    by_states = student_half_width(math.sqrt(states.variance), states.freedom, confidence) if states else 0.0
    margin = math.hypot(by_rounds, by_processes, by_states) + one.by_cores
    return SpeedupChange(math.exp(one.base), math.exp(one.base + one.by.centre), margin)
