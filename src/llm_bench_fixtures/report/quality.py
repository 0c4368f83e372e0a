"""What the quality over the corpus supports: which variants keep a limit, and which are near-lossless.

Near the reference neither the perplexity nor the Kullback-Leibler divergence nor the agreement on the most likely token
ranks variants by the tasks that they solve (Nikolić et al., "Displacement Is Not Direction", arXiv 2606.19558: rank
correlations of 0.00 and -0.24 with benchmarks). So near-lossless variants are named together and in no order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.options.quality_limit import QualityLimit, QualityMeasure
from llm_bench_fixtures.results.formatting import (
    MISSING,
    count,
    five_digits,
    format_change,
    format_change_and_error,
    format_share,
)
from llm_bench_fixtures.results.record import Run, VariantResult
from llm_bench_fixtures.statistics.spread import Interval

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

    @property
    def words(self) -> str:
        """The limit, to stand after "with": "perplexity at most 1 % above fp32's"."""
        return self.limit.words(self.run.reference)

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


def near_lossless_sentence(run: Run) -> str:
    """The group with what else is known of its quality, and what the figures can't tell; empty for nobody."""
    names = near_lossless(run)
    if not names:
        return ""
    order, whose = (", in no order", "Their") if len(names) > 1 else ("", "Its")
    group = f"{', '.join(_with_agreement(run, name) for name in names)}{_flips_of_all(run, names)}"
    return (
        f"Near-lossless by perplexity{order}: {group}. {whose} perplexity is within {NEAR * 100:g} % of "
        f"{run.reference}'s with its whole 95 % interval. So near to it neither perplexity nor KLD nor top-1 ranks "
        "variants by the tasks that they solve: only your own task does."
    )


def _with_agreement(run: Run, name: str) -> str:
    variant = run.variant(name)
    share = variant.quality.get(QualityMeasure.TOP1_AGREEMENT) if variant else None
    return name if share is None else f"{name} (top-1 {format_share(share)})"


def _flips_of_all(run: Run, names: Sequence[str]) -> str:
    """The least and the most of the variants that were asked."""
    variants = [variant for variant in map(run.variant, names) if variant]
    found = [flips for variant in variants if (flips := flips_of(variant))]
    if not found:
        return ""
    low, high = min(found)[0], max(found)[0]
    flip = "flips" if low == high == 1 else "flip"
    return f"; of {count(found[0][1], 'answer')} {low if low == high else f'{low} to {high}'} {flip}"


def beside_perplexity(variant: VariantResult) -> Iterator[str]:
    """What else was measured against the reference: the agreement on the likeliest token, and answers that flip."""
    if QualityMeasure.TOP1_AGREEMENT in variant.quality:
        yield f"top-1 {format_share(variant.quality[QualityMeasure.TOP1_AGREEMENT])}"
    found = flips_of(variant)
    if found is not None:
        yield f"flips {found[0]}/{found[1]}"


def flips_of(variant: VariantResult) -> tuple[int, int] | None:
    """How many answers flip against the reference's, and of how many; None where that wasn't measured."""
    quality = variant.quality
    if "flips" not in quality or not quality.get("choice_items"):
        return None
    return round(quality.get("flips_lost", 0.0) + quality.get("flips_gained", 0.0)), round(quality["choice_items"])


def change_cell(variant: VariantResult) -> str:
    """The perplexity's change against the reference's, with its standard error."""
    ratio = variant.quality.get("ppl_ratio")
    if ratio is None:
        return MISSING
    error = variant.quality.get("ppl_ratio_error")
    return format_change(ratio) if error is None else format_change_and_error(ratio, error)


def quality_in_short(run: Run, identifier: str) -> str:
    """The cost in quality without its error: "near-lossless", "perplexity +1.0 %"."""
    variant = run.variant(identifier)
    if variant is None or "perplexity" not in variant.quality:
        return "quality not measured"
    if is_near_lossless(variant):
        return "near-lossless"
    ratio = variant.quality.get("ppl_ratio")
    return quality_words(run, identifier) if ratio is None else f"perplexity {format_change(ratio)}"


def quality_words(run: Run, identifier: str) -> str:
    """The variant's perplexity beside the reference's and what else is known of its quality, or why nothing is."""
    variant, reference = run.variant(identifier), run.variant(run.reference)
    own, other = (one.quality.get("perplexity") if one else None for one in (variant, reference))
    if variant is None or own is None:
        note = f" ({variant.quality_note})" if variant and variant.quality_note else ""
        return f"its quality was not measured{note}"
    if other is None:
        return f"perplexity {five_digits(own)}, and the reference has none"
    if is_near_lossless(variant):
        return f"near-lossless ({', '.join([f'perplexity {change_cell(variant)}', *beside_perplexity(variant)])})"
    change = change_cell(variant) if "ppl_ratio" in variant.quality else format_change(own / other)
    perplexity = f"perplexity {five_digits(own)} against {five_digits(other)} ({change})"
    return ", ".join([perplexity, *beside_perplexity(variant)])
