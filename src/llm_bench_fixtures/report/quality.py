"""What the quality over the corpus supports: which variants keep a limit, and which are near-lossless.

Near the reference neither the perplexity nor the Kullback-Leibler divergence nor the agreement on the most likely token
ranks variants by the tasks that they solve (Nikolić et al., "Displacement Is Not Direction", arXiv 2606.19558: rank
correlations of 0.00 and -0.24 with benchmarks). So near-lossless variants are named together and in no order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.options.quality_limit import QualityLimit, QualityMeasure
from llm_bench_fixtures.results.formatting import MISSING, five_digits, format_change, format_change_and_error
from llm_bench_fixtures.results.record import Run, VariantResult
from llm_bench_fixtures.results.spread import Interval

NEAR = 0.005  # by which a near-lossless variant's perplexity may differ: the tolerance that the gate has for it
DEVIATIONS = 1.96  # standard errors to either side of a 95 % interval


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
        low, high, bound = found.low, found.high, self.limit.bound
        if self.limit.measure is QualityMeasure.TOP1_AGREEMENT:
            low, high, bound = -high, -low, -bound
        return Standing.WITHIN if high <= bound else Standing.BEYOND if low > bound else Standing.UNCLEAR

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
        reference = self.run.variant(self.run.reference)
        is_same = bool(reference and variant.configuration and variant.configuration == reference.configuration)
        return variant.id == self.run.reference or is_same


def interval_of(variant: VariantResult, measure: QualityMeasure) -> Interval | None:
    """The 95 % interval of the metric; None where it wasn't measured. A point where its error isn't known."""
    value = variant.quality.get(measure)
    if value is None:
        return None
    if measure is QualityMeasure.PPL_RATIO:
        margin = DEVIATIONS * variant.quality.get("ppl_ratio_error", 0.0)
        return Interval(value - margin, value + margin)
    return wilson(value, variant.quality.get("scored_tokens", 0.0))


def wilson(share: float, trials: float) -> Interval:
    """Wilson's 95 % score interval of a share of independent trials (JASA 22, 1927); without trials, the share."""
    if trials <= 0:
        return Interval(share, share)
    shift = DEVIATIONS**2 / trials
    centre = (share + shift / 2) / (1 + shift)
    margin = DEVIATIONS * math.sqrt(share * (1 - share) / trials + shift / (4 * trials)) / (1 + shift)
    return Interval(centre - margin, centre + margin)


def is_near_lossless(variant: VariantResult) -> bool:
    """Whether the whole 95 % interval of the perplexity ratio is within 0.5 % of 1: a test of equivalence."""
    found = interval_of(variant, QualityMeasure.PPL_RATIO)
    return found is not None and found.low >= 1 - NEAR and found.high <= 1 + NEAR


def near_lossless(run: Run) -> tuple[str, ...]:
    """In the run's order, which says nothing of their quality. What ran the same as the reference is not named."""
    reference = run.variant(run.reference)
    same = reference.configuration if reference else ""
    return tuple(
        variant.id
        for variant in run.variants
        if variant.id != run.reference and variant.configuration != same and is_near_lossless(variant)
    )


def near_lossless_sentence(names: Sequence[str], reference: str) -> str:
    """The group, and what its figures can't tell; empty where nobody is in it."""
    if not names:
        return ""
    order, whose = (", in no order", "Their") if len(names) > 1 else ("", "Its")
    return (
        f"Near-lossless{order}: {', '.join(names)}. {whose} perplexity is within {NEAR * 100:g} % of {reference}'s "
        "with its whole 95 % interval. So near to it neither perplexity nor KLD nor top-1 ranks variants by the tasks "
        "that they solve: only your own task does."
    )


def change_cell(variant: VariantResult) -> str:
    """The perplexity's change against the reference's, with its standard error."""
    ratio = variant.quality.get("ppl_ratio")
    if ratio is None:
        return MISSING
    error = variant.quality.get("ppl_ratio_error")
    return format_change(ratio) if error is None else format_change_and_error(ratio, error)


def quality_words(run: Run, identifier: str) -> str:
    """The variant's perplexity beside the reference's, or why there is none."""
    variant, reference = run.variant(identifier), run.variant(run.reference)
    own, other = (one.quality.get("perplexity") if one else None for one in (variant, reference))
    if variant is None or own is None:
        note = f" ({variant.quality_note})" if variant and variant.quality_note else ""
        return f"its quality was not measured{note}"
    if other is None:
        return f"perplexity {five_digits(own)}, and the reference has none"
    if is_near_lossless(variant):
        return f"near-lossless (perplexity {change_cell(variant)})"
    change = change_cell(variant) if "ppl_ratio" in variant.quality else format_change(own / other)
    return f"perplexity {five_digits(own)} against {five_digits(other)} ({change})"
