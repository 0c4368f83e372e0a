"""The table of verdicts, each state by hand, and its properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_bench_fixtures.gate.verdicts import Verdict, judge_change, log_change
from llm_bench_fixtures.results.metrics import Direction, Tolerance
from llm_bench_fixtures.results.metrics.quality import MLPERF_FLOOR

LOWER, HIGHER, NEITHER = Direction.LOWER_IS_BETTER, Direction.HIGHER_IS_BETTER, Direction.NEITHER
REGRESSED, IMPROVED = Verdict.REGRESSED, Verdict.IMPROVED
UNCHANGED, INCONCLUSIVE = Verdict.UNCHANGED, Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("direction", "rule", "base", "head", "margin", "verdict"),
    [
        (LOWER, Tolerance(), 100, 100, 0, UNCHANGED),
        (LOWER, Tolerance(), 100, 101, 0, REGRESSED),
        (LOWER, Tolerance(), 100, 99, 0, IMPROVED),
        (HIGHER, Tolerance(), 100, 99, 0, REGRESSED),
        (HIGHER, Tolerance(), 100, 101, 0, IMPROVED),
        (NEITHER, Tolerance(), 16, 17, 0, REGRESSED),
        (NEITHER, Tolerance(), 16, 15, 0, REGRESSED),
        (LOWER, Tolerance(relative=0.05), 100, 105, 0, UNCHANGED),
        (LOWER, Tolerance(relative=0.05), 100, 105.1, 0, REGRESSED),
        (LOWER, Tolerance(relative=0.05), 105, 100, 0, UNCHANGED),
        (HIGHER, Tolerance(relative=0.05), 105.1, 100, 0, REGRESSED),
        (LOWER, Tolerance(absolute=5), 100, 105, 0, UNCHANGED),
        (LOWER, Tolerance(absolute=5), 100, 105.1, 0, REGRESSED),
        (LOWER, Tolerance(relative=0.01, absolute=5), 100, 104, 0, UNCHANGED),
        (LOWER, Tolerance(relative=0.05), 100, 110, math.log(1.2), INCONCLUSIVE),
        (LOWER, Tolerance(relative=0.05), 100, 121, math.log(1.2), REGRESSED),
        (LOWER, Tolerance(relative=0.05), 100, 104, math.log(1.2), UNCHANGED),
        (LOWER, Tolerance(relative=0.005, floor=MLPERF_FLOOR), 100, 100.9, 0.02, INCONCLUSIVE),
        (LOWER, Tolerance(relative=0.005, floor=MLPERF_FLOOR), 100, 101.1, 0.02, REGRESSED),
        (LOWER, Tolerance(relative=0.05), 0, 0, 0, UNCHANGED),
        (LOWER, Tolerance(relative=0.05), 0, 1, 0, REGRESSED),
        (LOWER, Tolerance(relative=0.05), 1, 0, 0, IMPROVED),
        (LOWER, Tolerance(absolute=0.1), 0, 0.1, 0, UNCHANGED),
        (LOWER, Tolerance(relative=0.05), -2.0, -1.99, 0, UNCHANGED),
        (LOWER, Tolerance(relative=0.05), -2.0, -1.5, 0, REGRESSED),
        (HIGHER, Tolerance(relative=0.05), -2.0, -1.5, 0, IMPROVED),
        (LOWER, Tolerance(relative=0.05), -0.1, 0.1, 0, REGRESSED),
    ],
)
def test_each_state(
    direction: Direction, rule: Tolerance, base: float, head: float, margin: float, verdict: Verdict
) -> None:
    assert judge_change(direction, rule, base, head, margin) is verdict


positive = st.floats(1e-6, 1e12)
rules = st.builds(Tolerance, relative=st.floats(0, 2), absolute=st.floats(0, 1e6), floor=st.none() | st.floats(0, 2))
MIRRORED = {REGRESSED: IMPROVED, IMPROVED: REGRESSED}


@given(st.sampled_from([LOWER, HIGHER]), rules, positive, positive, st.floats(0, 2))
def test_swapping_the_two_mirrors_the_verdict(
    direction: Direction, rule: Tolerance, base: float, head: float, margin: float
) -> None:
    verdict = judge_change(direction, rule, base, head, margin)
    assert judge_change(direction, rule, head, base, margin) is MIRRORED.get(verdict, verdict)


@given(rules, positive, positive, st.floats(0, 2))
def test_where_there_is_no_better_swapping_changes_nothing(
    rule: Tolerance, base: float, head: float, margin: float
) -> None:
    assert judge_change(NEITHER, rule, base, head, margin) is judge_change(NEITHER, rule, head, base, margin)


@given(st.floats(0.5, 2), st.floats(0, 0.5), st.integers(-20, 20))
def test_a_relative_tolerance_knows_no_unit(change: float, relative: float, power: int) -> None:
    """Scaling by a power of two is exact."""
    rule = Tolerance(relative=relative)
    assert judge_change(LOWER, rule, 1.0, change) is judge_change(LOWER, rule, 2.0**power, change * 2.0**power)


def test_a_ratio_with_nothing_is_infinite() -> None:
    assert log_change(0.0, 0.0) == 0
    assert log_change(0.0, 2.0) == math.inf
    assert log_change(2.0, 0.0) == -math.inf
    assert log_change(2.0, 1.0) == -math.log(2)
    assert log_change(-2.0, -1.0) == math.log(2)
    assert log_change(-1.0, 1.0) == math.inf
