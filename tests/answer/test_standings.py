"""Where a variant's quality stands to a limit and to the reference's."""

from __future__ import annotations

import pytest
from run_factory import asking, make_record, make_run, make_variant

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need, QualityMeasure, Reader, Standing, quality_limit
from llm_bench_fixtures.answer.standings import Standings, is_decided, is_near_lossless, near_lossless, standings_for
from llm_bench_fixtures.results.record import Run, VariantResult


def scored(ratio: float, error: float = 0.0, name: str = "bf16", **changes: object) -> VariantResult:
    quality = {"perplexity": 20.0 * ratio, "ppl_ratio": ratio, "ppl_ratio_error": error}
    return make_variant(name, quality=quality, **changes)


def agreeing(share: float, tokens: float, name: str = "bf16") -> VariantResult:
    return make_variant(name, quality={"top1_agreement": share, "scored_tokens": tokens})


def standing(variant: VariantResult, measure: str, bound: float) -> Standing:
    run = make_run([], [make_variant(), variant, scored(1.0, name="other"), agreeing(1.0, 0, "another")])
    return standings(run, Need((quality_limit(QualityMeasure(measure), bound),))).of(variant)


def standings(run: Run, need: Need = DEFAULT_NEED) -> Standings:
    return Standings(evidence_of(run), need, {})


@pytest.mark.parametrize(
    ("ratio", "error", "expected"),
    [
        (1.005, 0.0, Standing.WITHIN),
        (1.01, 0.0, Standing.WITHIN),  # the limit itself
        (1.005, 0.0025, Standing.WITHIN),  # up to 1.0099
        (1.005, 0.0026, Standing.UNCLEAR),  # up to 1.0101
        (1.015, 0.0026, Standing.UNCLEAR),  # from 1.0099
        (1.015, 0.0025, Standing.BEYOND),  # from 1.0101
        (0.9, 0.01, Standing.WITHIN),
    ],
)
def test_a_perplexity_ratio_keeps_a_limit_with_its_whole_interval(
    ratio: float, error: float, expected: Standing
) -> None:
    """1.96 standard errors to either side."""
    assert standing(scored(ratio, error), "ppl_ratio", 1.01) is expected


@pytest.mark.parametrize(
    ("share", "tokens", "expected"),
    [
        (0.995, 0, Standing.WITHIN),  # without the number of tokens the share stands for itself
        (0.985, 0, Standing.BEYOND),
        (0.995, 10_000, Standing.WITHIN),
        (0.995, 100, Standing.UNCLEAR),  # from 96.1 %
        (0.9, 100, Standing.BEYOND),
    ],
)
def test_an_agreement_keeps_a_limit_with_its_whole_interval(share: float, tokens: float, expected: Standing) -> None:
    assert standing(agreeing(share, tokens), "top1_agreement", 0.99) is expected


def test_what_has_no_quality_is_not_known_to_keep_a_limit() -> None:
    assert standing(make_variant("bf16"), "ppl_ratio", 1.01) is Standing.UNKNOWN


def test_the_reference_and_what_ran_the_same_keep_every_limit() -> None:
    fallback = make_variant("fp16", configuration="configuration of fp32")
    assert standing(fallback, "ppl_ratio", 1.0) is Standing.WITHIN
    assert standing(make_variant(), "ppl_ratio", 1.0) is Standing.WITHIN


def test_a_limit_is_not_applied_where_no_quality_was_compared() -> None:
    dummy = make_variant("bf16", quality={})
    found = standings(make_run([], [make_variant(), dummy]))
    assert found.not_applied == DEFAULT_NEED.limits
    assert found.admits(dummy)
    other = standings(make_run([], [make_variant(), dummy, scored(1.0, name="near")]))
    assert other.not_applied == ()
    assert not other.admits(dummy)


@pytest.mark.parametrize(
    ("ratio", "error", "is_near"),
    [
        (1.0, 0.0, True),
        (1.004, 0.0005, True),  # up to 1.00498: worse for sure, but by less than half a percent
        (1.004, 0.0006, False),  # up to 1.00518
        (0.996, 0.0005, True),
        (0.99, 0.0, False),  # better is another model, too
        (1.0, 0.003, False),  # it may be anything up to 1.00588
    ],
)
def test_near_lossless_is_an_interval_within_half_a_percent(ratio: float, error: float, is_near: bool) -> None:
    assert is_near_lossless(scored(ratio, error)) is is_near


def test_a_variant_without_a_ratio_is_not_near_lossless() -> None:
    assert not is_near_lossless(make_variant())


def test_who_keeps_what_is_needed() -> None:
    """The reference, and whose whole interval is within the limit."""
    run = make_run([], [make_variant(), scored(1.001, name="near"), scored(1.02, name="lossy")])
    assert standings(run).kept == {"fp32", "near"}
    assert standings(run, asking("ppl_ratio<=1.05")).kept == {"fp32", "near", "lossy"}


def test_more_rounds_may_show_who_wins_but_not_who_keeps_the_quality() -> None:
    """v1's latency is at the limit, and v2's beyond it; v3's perplexity is at its own. v4 has yet to be measured."""
    latencies = {"fp32": 0.5, "v1": 1.0, "v2": 2.0, "v3": 0.5}
    near = {"ppl_ratio": 1.0}
    qualities = {"v1": near, "v2": near, "v3": {"ppl_ratio": 1.01, "ppl_ratio_error": 0.01}, "v4": near}
    variants = [make_variant(), *(make_variant(name, quality=one) for name, one in qualities.items())]
    seen = evidence_of(make_run([make_record(*one) for one in latencies.items()], variants))
    found = standings_for(Reader.LATENCY, seen, asking("latency_s<=1, ppl_ratio<=1.01"))
    assert found.in_the_race == {"fp32", "v1", "v4"}
    assert found.kept == {"fp32"}
    assert found.undecided == {"v1", "v3", "v4"}


@pytest.mark.parametrize(
    ("limits", "quality", "expected"),
    [
        ("ppl_ratio<=1.01", {"ppl_ratio": 1.005, "ppl_ratio_error": 0.001}, True),
        ("ppl_ratio<=1.01", {"ppl_ratio": 1.005, "ppl_ratio_error": 0.01}, False),
        ("ppl_ratio<=1.01", {}, False),
        ("ppl_ratio<=1.01, flips<=5%", {"ppl_ratio": 1.005}, False),
        ("tpot_s<=50ms", {"ppl_ratio": 1.005}, True),  # times are no matter of how much is scored
        ("ppl_ratio<=any", {}, True),
    ],
)
def test_a_sample_is_enough_once_all_limits_on_quality_are_decided(
    limits: str, quality: dict[str, float], expected: bool
) -> None:
    assert is_decided(quality, asking(limits).limits, look=1) is expected


def test_near_lossless_variants_are_in_the_runs_order() -> None:
    """Not in that of their figures, which don't rank them. What ran the same as the reference is not among them."""
    same = scored(1.0, name="fp16", configuration="configuration of fp32")
    variants = [
        make_variant(),
        same,
        scored(1.002, name="worse"),
        scored(1.02, name="lossy"),
        scored(1.001, name="better"),
    ]
    assert near_lossless(make_run([], variants)) == ("worse", "better")
