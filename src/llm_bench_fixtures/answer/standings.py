"""Where a variant's quality over the corpus stands: to a limit, and to the reference's.

Near the reference neither the perplexity nor the Kullback-Leibler divergence nor the agreement on the most likely token
ranks variants by the tasks that they solve (Nikolić et al., "Displacement Is Not Direction", arXiv 2606.19558: rank
correlations of 0.00 and -0.24 with benchmarks). So near-lossless variants are in no order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.answer.noise import ran_the_same
from llm_bench_fixtures.options.quality_limit import QualityLimit, QualityMeasure
from llm_bench_fixtures.results.record import Run, VariantResult
from llm_bench_fixtures.statistics.spending import deviations_of_look
from llm_bench_fixtures.statistics.spread import Interval

NEAR = 0.005  # by which a near-lossless variant's perplexity may differ: the tolerance that the gate has for it
DEVIATIONS = 1.96  # standard errors to either side of a 95 % interval
LOOKS_SPEND = 0.002  # two-sided error of deciding early, over all looks at a sample that grows


class Standing(StrEnum):
    """Where a variant's quality stands to a limit."""

    WITHIN = "within"
    BEYOND = "beyond"
    UNCLEAR = "unclear"  # the limit is inside the 95 % interval
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class QualityStandings:
    """Every variant's quality against a limit."""

    run: Run
    limit: QualityLimit

    @property
    def is_applied(self) -> bool:
        """Whether some variant other than the reference has a value that can be limited."""
        return any(
            variant.id != self.run.reference and self.limit.measure in variant.quality for variant in self.run.variants
        )

    def of(self, variant: VariantResult) -> Standing:
        """The reference, and what ran the same as it, is within every limit."""
        if self._is_reference(variant):
            return Standing.WITHIN
        found = interval_of(variant, self.limit.measure)
        if found is None:
            return Standing.UNKNOWN
        return standing_to(self.limit, found)

    def strictest(self, variant: VariantResult) -> float | None:
        """The strictest bound that the variant keeps; None where it keeps every one, or none at all."""
        found = None if self._is_reference(variant) else interval_of(variant, self.limit.measure)
        if found is None:
            return None
        return found.low if self.limit.measure is QualityMeasure.TOP1_AGREEMENT else found.high

    def admits(self, variant: VariantResult) -> bool:
        """Whether the run shows that the variant keeps the limit, or no quality is there to judge by."""
        return not self.is_applied or self.of(variant) is Standing.WITHIN

    def _is_reference(self, variant: VariantResult) -> bool:
        """Whether it is the reference, or ran the same as it."""
        return ran_the_same(self.run, variant.id, self.run.reference)


def standing_to(limit: QualityLimit, found: Interval) -> Standing:
    """Where an interval of the limited metric stands to the limit."""
    low, high, bound = found.low, found.high, limit.bound
    if limit.measure is QualityMeasure.TOP1_AGREEMENT:
        low, high, bound = -high, -low, -bound
    return Standing.WITHIN if high <= bound else Standing.BEYOND if low > bound else Standing.UNCLEAR


def is_decided(quality: Mapping[str, float], limit: QualityLimit, look: int) -> bool:
    """Whether the limit is decided by a sample that has grown, so that nothing larger is needed.

    look: how many samples there were, this one included. The report claims by its 95 % interval, whose error this may
    raise by LOOKS_SPEND at the most.
    """
    found = _interval(quality, limit.measure, deviations_of_look(look, LOOKS_SPEND))
    return found is not None and standing_to(limit, found) is not Standing.UNCLEAR


def interval_of(variant: VariantResult, measure: QualityMeasure) -> Interval | None:
    """The 95 % interval of the metric; None where it wasn't measured. A point where its error isn't known."""
    return _interval(variant.quality, measure, DEVIATIONS)


def _interval(quality: Mapping[str, float], measure: QualityMeasure, deviations: float) -> Interval | None:
    value = quality.get(measure)
    if value is None:
        return None
    if measure is QualityMeasure.PPL_RATIO:
        margin = deviations * quality.get("ppl_ratio_error", 0.0)
        return Interval(value - margin, value + margin)
    return wilson(value, quality.get("scored_tokens", 0.0), deviations)


def wilson(share: float, trials: float, deviations: float = DEVIATIONS) -> Interval:
    """Wilson's score interval of a share of independent trials (JASA 22, 1927); without trials, the share."""
    if trials <= 0:
        return Interval(share, share)
    shift = deviations**2 / trials
    centre = (share + shift / 2) / (1 + shift)
    margin = deviations * math.sqrt(share * (1 - share) / trials + shift / (4 * trials)) / (1 + shift)
    return Interval(centre - margin, centre + margin)


def is_near_lossless(variant: VariantResult) -> bool:
    """Whether the whole 95 % interval of the perplexity ratio is within 0.5 % of 1: a test of equivalence."""
    found = interval_of(variant, QualityMeasure.PPL_RATIO)
    return found is not None and found.low >= 1 - NEAR and found.high <= 1 + NEAR


def near_lossless(run: Run) -> tuple[str, ...]:
    """In the run's order, which says nothing of their quality. What ran the same as the reference is not named."""
    return tuple(
        variant.id
        for variant in run.variants
        if is_near_lossless(variant) and not ran_the_same(run, variant.id, run.reference)
    )
