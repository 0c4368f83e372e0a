"""How far two values may differ by chance, and by how much the machine itself differed.

Only the median latency, of all times, has a measured noise: how far identical work differs within each run, and how far
the rounds of the test scatter. That says nothing of a mean, a percentile or the first `generate`, which a single
outlier moves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llm_bench_fixtures.gate.speedups import ALARMS
from llm_bench_fixtures.results.metrics import Force, Kind, Metric, Tolerance
from llm_bench_fixtures.results.metrics.quality import OF_CHOICES, QUALITY
from llm_bench_fixtures.results.metrics.tasks import task_metrics
from llm_bench_fixtures.results.noise import NoiseFloor, probe_level_s
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import VariantResult
from llm_bench_fixtures.statistics.ratio import trimmed_mean
from llm_bench_fixtures.statistics.spread import GATE_CONFIDENCE, mean_half_width

Probe: TypeAlias = Sequence[tuple[float, float]]  # seconds of both kinds of work, for each round
OF_MEDIAN = ("latency_s", "output_tokens_per_s", "ms_per_token")  # the median latency, and its multiples
# Metrics of a variant by itself, whatever the reference is.
OVER_THE_REFERENCES_TEXT = ("loss", "perplexity", "bits_per_byte", "word_perplexity", "byte_perplexity")  # in samples
BY_ITSELF = (*OVER_THE_REFERENCES_TEXT, "scored_tokens", "choice_accuracy", "choice_items")


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
