"""The bounds of a quality limit that change who keeps it."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from run_factory import full_run

from llm_bench_fixtures.answer.bounds import bounds, estimates_of
from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import Need, QualityMeasure, Standing, quality_limit
from llm_bench_fixtures.answer.standings import Standings

PPL, TOP1 = QualityMeasure.PPL_RATIO, QualityMeasure.TOP1_AGREEMENT


@pytest.mark.parametrize("measure", list(QualityMeasure))
def test_the_strictest_bound_is_kept_and_a_stricter_one_is_not(measure: QualityMeasure) -> None:
    run = full_run()
    bf16 = run.variant("bf16")
    assert bf16 is not None
    found = estimates_of(run, measure)["bf16"]
    bound = found.high if measure is PPL else found.low
    stricter = bound - 1e-6 if measure is PPL else bound + 1e-6
    for one, is_kept in ((bound, True), (stricter, False)):
        standings = Standings(evidence_of(run), Need((quality_limit(measure, one),)), {})
        assert (standings.of(bf16) is Standing.WITHIN) is is_kept


@example([math.nextafter(1, 2)], math.nextafter(1, 2))  # twice as far from 1 is rounded to 1
@given(st.lists(st.floats(1.0, 3.0), max_size=8), st.floats(1.0, 3.0))
def test_rounded_bounds_let_through_what_the_exact_ones_do(strictest: list[float], given_bound: float) -> None:
    found = bounds(strictest, PPL, quality_limit(PPL, given_bound))
    passed = [sum(one <= bound for one in strictest) for bound in found]
    assert passed == sorted(passed)
    assert len(found) - len(set(passed)) <= 2  # beyond the given one, on either side
    assert passed[-1] == len(strictest)
    assert given_bound in found
    assert found == sorted(found)


@given(st.lists(st.floats(0.01, 1.0), max_size=8))
def test_bounds_of_an_agreement_fall(strictest: list[float]) -> None:
    found = bounds(strictest, TOP1, quality_limit(PPL, 1.01))
    passed = [sum(one >= bound for one in strictest) for bound in found]
    assert passed == sorted(set(passed))
    assert passed[-1] == len(strictest)
    assert not any(math.isinf(bound) or bound <= 0 for bound in found)


def test_the_scale_goes_beyond_the_given_limit_on_either_side() -> None:
    """Two variants are kept at 1.002 and at 1.03. Half of 0.001 is 0.0005, and twice 0.05 is 0.1."""
    assert bounds([1.002, 1.03], PPL, quality_limit(PPL, 1.001)) == [1.0005, 1.001, 1.002, 1.03]
    assert bounds([1.002, 1.03], PPL, quality_limit(PPL, 1.01)) == [1.0, 1.01, 1.03]
    assert bounds([1.002, 1.03], PPL, quality_limit(PPL, 1.05)) == [1.0, 1.002, 1.05, 1.1]


def test_a_scale_of_one_step_stays_one() -> None:
    assert bounds([], PPL, quality_limit(PPL, 1.01)) == [1.01]
