"""What a run's figures of quality support, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import make_run, make_variant

from llm_bench_fixtures.report.words.quality import near_lossless_sentence, quality_words
from llm_bench_fixtures.results.record import VariantResult


def scored(ratio: float, error: float = 0.0, name: str = "bf16", **changes: object) -> VariantResult:
    quality = {"perplexity": 20.0 * ratio, "ppl_ratio": ratio, "ppl_ratio_error": error}
    return make_variant(name, quality=quality, **changes)


def test_near_lossless_variants_are_named_in_the_runs_order() -> None:
    """Not by their figures, which don't rank them."""
    run = make_run(
        [], [make_variant(), scored(1.002, name="worse"), scored(1.02, name="lossy"), scored(1.001, name="better")]
    )
    sentence = near_lossless_sentence(run)
    assert sentence.startswith(
        "Near-lossless by perplexity, in no order: worse, better. The whole 95 % interval of their "
        "perplexity is within ±0.5 % of fp32's"
    )
    assert "test your own task" in sentence
    assert near_lossless_sentence(make_run([], [make_variant()])) == ""


def test_what_else_is_known_of_near_lossless_variants_stands_beside_them() -> None:
    """Perplexity alone may be near where every tenth likeliest token is another."""
    variant = scored(1.0)
    rest = {"top1_agreement": 0.9, "flips": 0.1, "flips_lost": 10, "flips_gained": 9, "choice_items": 190}
    variant = replace(variant, quality={**variant.quality, **rest})
    sentence = near_lossless_sentence(make_run([], [make_variant(), variant]))
    assert sentence.startswith(
        "Near-lossless by perplexity: bf16 (top-1 90 %); 19 of 190 answers flip. The whole 95 % interval of its "
    )
    steadier = replace(variant, id="other", quality={**variant.quality, "flips_lost": 1, "flips_gained": 1})
    both = near_lossless_sentence(make_run([], [make_variant(), variant, steadier]))
    assert ": bf16 (top-1 90 %), other (top-1 90 %); 2 to 19 of 190 answers flip. " in both
    assert "interval of their perplexity" in both


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        (scored(1.02, 0.001), "perplexity +2.0 % ± 0.1 %"),
        (scored(1.001, 0.001), "near-lossless (perplexity +0.1 % ± 0.1 %)"),
        (make_variant("bf16", quality={"perplexity": 22.0}), "perplexity +10.0 %"),
        (
            make_variant("bf16", quality={}, quality_note="random weights"),
            "quality not measured (random weights)",
        ),
        (make_variant("bf16", quality={}), "quality not measured"),
    ],
)
def test_the_quality_in_words(variant: VariantResult, words: str) -> None:
    assert quality_words(make_run([], [make_variant(), variant]), "bf16") == words


def test_a_reference_without_perplexity_is_told() -> None:
    run = make_run([], [make_variant(quality={}), make_variant("bf16")])
    assert quality_words(run, "bf16") == "perplexity 20.000, and the reference has none"
