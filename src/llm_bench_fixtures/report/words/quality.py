"""The quality over the corpus in words. Near-lossless variants are named together and in no order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_bench_fixtures.answer.need import QualityMeasure
from llm_bench_fixtures.answer.standings import NEAR, is_near_lossless, near_lossless
from llm_bench_fixtures.report.renderers.figures import text
from llm_bench_fixtures.report.tables.table import perplexity_change
from llm_bench_fixtures.results.formatting import count, five_digits, format_change, format_share
from llm_bench_fixtures.results.record import Run, VariantResult

NOT_MEASURED = "quality not measured"


def near_lossless_sentence(run: Run) -> str:
    """The group with what else is known of its quality, and what the figures can't tell; empty for nobody."""
    names = near_lossless(run)
    if not names:
        return ""
    order, whose = (", in no order", "their") if len(names) > 1 else ("", "its")
    group = f"{', '.join(_with_agreement(run, name) for name in names)}{_flips_of_all(run, names)}"
    return (
        f"Near-lossless by perplexity{order}: {group}. The whole 95 % interval of {whose} perplexity is within "
        f"±{NEAR * 100:g} % of {run.reference}'s. Such differences are too small to rank variants; test your "
        "own task."
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


def _next_to_perplexity(variant: VariantResult) -> Iterator[str]:
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


def quality_in_short(run: Run, identifier: str) -> str:
    """The cost in quality without its error: "near-lossless", "perplexity +1.0 %"."""
    variant = run.variant(identifier)
    if variant is None or "perplexity" not in variant.quality:
        return NOT_MEASURED
    if is_near_lossless(variant):
        return "near-lossless"
    ratio = variant.quality.get("ppl_ratio")
    return quality_words(run, identifier) if ratio is None else f"perplexity {format_change(ratio)}"


def quality_words(run: Run, identifier: str) -> str:
    """The change of the variant's perplexity and what else is known of its quality, or why nothing is."""
    variant, reference = run.variant(identifier), run.variant(run.reference)
    own, other = (one.quality.get("perplexity") if one else None for one in (variant, reference))
    if variant is None or own is None:
        note = f" ({variant.quality_note})" if variant and variant.quality_note else ""
        return f"{NOT_MEASURED}{note}"
    if other is None:
        return f"perplexity {five_digits(own)}, and the reference has none"
    change = text(perplexity_change(variant)) if "ppl_ratio" in variant.quality else format_change(own / other)
    words = ", ".join([f"perplexity {change}", *_next_to_perplexity(variant)])
    return f"near-lossless ({words})" if is_near_lossless(variant) else words
