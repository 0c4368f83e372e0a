"""The answer under other quality limits: every one that changes it, computed by the rules of the answer itself."""

from __future__ import annotations

import math

from run_factory import asking, make_record, make_run, make_variant

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import DEFAULT_NEED, QualityMeasure, quality_limit
from llm_bench_fixtures.answer.standings import Standings
from llm_bench_fixtures.report.page.build import LimitScale, limit_scales
from llm_bench_fixtures.report.words.answer import answer_of
from llm_bench_fixtures.results.record import Run

PPL, TOP1 = QualityMeasure.PPL_RATIO, QualityMeasure.TOP1_AGREEMENT
RATIOS = {"a": 1.004, "b": 1.0139, "c": 1.0137, "d": 0.9}


def scored_run() -> Run:
    """Variants of known ratios, each faster than the one before; their agreement is 99 % of a million tokens, and
    less by one percent each."""
    quality = {
        name: {"perplexity": 20 * ratio, "ppl_ratio": ratio, "top1_agreement": 0.99 - 0.01 * at, "scored_tokens": 1e6}
        for at, (name, ratio) in enumerate(RATIOS.items())
    }
    variants = [make_variant(), *(make_variant(name, quality=quality[name]) for name in RATIOS)]
    records = [make_record(name, 1 / (2 * at + 1)) for at, name in enumerate(("fp32", *RATIOS))]
    return make_run(records, variants)


def scales(limits: str = "ppl_ratio<=1.01", run: Run | None = None) -> tuple[LimitScale, ...]:
    seen = evidence_of(run or scored_run())
    return limit_scales(seen, answer_of(seen, asking(limits)))


def test_there_is_a_step_for_each_set_of_variants_that_a_limit_lets_through() -> None:
    """1.0137 and 1.0139 are told apart by a fourth digit; the given 1.01 is the step that lets d and a through."""
    ratio, _ = scales()
    assert [(step.limit.bound, step.keeps) for step in ratio.steps] == [
        (1.0, ("d",)),
        (1.01, ("a", "d")),
        (1.0137, ("a", "c", "d")),
        (1.014, ("a", "b", "c", "d")),
    ]
    assert ratio.place(quality_limit(PPL, 1.01)) == 1


def test_the_measure_of_the_given_limit_is_the_first() -> None:
    assert [scale.measure for scale in scales()] == [PPL, TOP1]
    assert [scale.measure for scale in scales("top1_agreement>=98%")] == [TOP1, PPL]


def test_an_agreement_is_the_looser_the_lower_it_is() -> None:
    agreement = scales("top1_agreement>=98.5%")[0]
    assert [step.keeps for step in agreement.steps] == [(), ("a",), ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")]
    found = [step.limit.bound for step in agreement.steps]
    assert found == sorted(found, reverse=True)
    assert found[:2] == [1.0, 0.985]


def test_each_step_has_the_answer_that_its_limit_gives() -> None:
    seen = evidence_of(scored_run())
    for scale in scales():
        for step in scale.steps:
            assert step.answer == answer_of(seen, DEFAULT_NEED.with_quality(step.limit))


def test_a_step_says_in_words_what_it_asks_and_who_keeps_it() -> None:
    ratio, agreement = scales()
    assert [step.words for step in ratio.steps[:3]] == [
        "perplexity not above fp32's: kept by d",
        "perplexity at most 1 % above fp32's: kept by a, d",
        "perplexity at most 1.37 % above fp32's: kept by a, c, d",
    ]
    assert agreement.steps[0].words == "top-1 agreement of at least 100 % with fp32: kept by no other variant"
    assert [scale.title for scale in (ratio, agreement)] == [
        "by perplexity",
        "by agreement on the likeliest token (top-1)",
    ]


def test_a_limit_between_two_steps_lets_through_what_the_stricter_one_does() -> None:
    """From the ratio of one variant up to, but without, that of the next."""
    run = scored_run()
    ratios = [1.0, RATIOS["a"], RATIOS["c"], RATIOS["b"], math.inf]
    for step, ratio, following in zip(scales(run=run)[0].steps, ratios[:-1], ratios[1:], strict=True):
        for bound in (ratio, math.nextafter(following, 1.0)):
            standings = Standings(evidence_of(run), DEFAULT_NEED.with_quality(quality_limit(PPL, bound)), {})
            assert tuple(one.id for one in run.variants if one.id != "fp32" and standings.admits(one)) == step.keeps


def test_without_quality_there_is_nothing_to_move() -> None:
    assert scales(run=make_run([make_record("fp32"), make_record("bf16", 0.5)])) == ()


def test_where_no_limit_changes_who_may_be_recommended_there_is_nothing_to_move() -> None:
    """Better than the reference at every bound that may be asked for."""
    better = make_variant("bf16", quality={"perplexity": 18.0, "ppl_ratio": 0.9})
    run = make_run([make_record("fp32"), make_record("bf16", 0.5)], [make_variant(), better])
    assert scales(run=run) == ()
