"""What a workload takes undisturbed: values derived by hand, and how often its interval holds the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from llm_bench_fixtures.results.undisturbed import undisturbed_s

TRIALS = 300


def estimate(rounds: list[list[float]]) -> float:
    """The geometric mean of what the rounds see."""
    return math.exp(np.log(undisturbed_s(rounds)).mean())


def test_equal_rounds_take_what_each_takes() -> None:
    assert undisturbed_s([[0.5, 0.25, 0.25]] * 4) == pytest.approx((1.0,) * 4)


def test_one_round_takes_what_it_took() -> None:
    assert undisturbed_s([[0.5, 0.25]]) == pytest.approx((0.75,))


def test_what_strikes_a_step_in_two_of_three_rounds_does_not_count() -> None:
    """No round is left alone, and yet each step is, once."""
    assert estimate([[1.0, 9.0, 9.0], [9.0, 2.0, 9.0], [9.0, 9.0, 3.0]]) == pytest.approx(6.0)


def test_of_six_rounds_each_step_takes_the_mean_of_its_fastest_two() -> None:
    """(1 + 2) / 2 and (10 + 30) / 2."""
    rounds = [[1.0, 60.0], [2.0, 50.0], [3.0, 40.0], [4.0, 30.0], [5.0, 70.0], [6.0, 10.0]]
    assert estimate(rounds) == pytest.approx(1.5 + 20)


def test_of_four_rounds_it_takes_one_and_a_third() -> None:
    """(1 + 2 / 3) / (4 / 3): so the estimate is no steadier or slower because a round more was run."""
    assert undisturbed_s([[1.0, 3.0]] * 4) == pytest.approx((4.0,) * 4)
    whole, without_first = math.log(5 / 4), math.log(2)
    others = math.log(1.0)
    middle = (without_first + 3 * others) / 4
    expected = [math.exp(whole + 3 * (middle - one)) for one in (others, without_first, others, others)]
    assert undisturbed_s([[3.0], [1.0], [2.0], [4.0]]) == pytest.approx(expected)


@pytest.mark.parametrize("rounds", range(2, 12))
def test_each_round_left_out_is_as_if_it_had_not_been_run(rounds: int) -> None:
    """The pseudo-values by their definition, R times the estimate of all less R - 1 times that of the others."""
    times = np.random.default_rng(rounds).integers(1, 6, (rounds, 3)).astype(float)  # with ties
    whole = sum(fastest_third(step) for step in times.T)
    others = [sum(fastest_third(np.delete(step, number)) for step in times.T) for number in range(rounds)]
    middle = np.log(others).mean()
    expected = np.exp(np.log(whole) + (rounds - 1) * (middle - np.log(others)))
    assert undisturbed_s(times.tolist()) == pytest.approx(expected)


def fastest_third(times: np.ndarray) -> float:
    """Each time cut in three: the mean of the fastest R of the 3 R pieces, or of all pieces of one round."""
    pieces = np.sort(np.repeat(times, 3))
    return float(pieces[: max(len(times), 3)].mean())


def test_the_rounds_scatter_as_pseudo_values_of_the_jackknife_do() -> None:
    """Of 1, 2 and 4 the fastest is 1. Without it that is 2, and without another one 1 still: logarithms log 2, 0, 0
    with the mean (log 2) / 3. Twice their distances from it are the pseudo-values' about the estimate."""
    log_2 = math.log(2)
    expected = [math.exp(2 * (log_2 / 3 - one)) for one in (log_2, 0.0, 0.0)]
    assert undisturbed_s([[1.0], [2.0], [4.0]]) == pytest.approx(expected)


def test_rounds_of_different_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        undisturbed_s([[1.0, 1.0], [1.0]])


@pytest.mark.parametrize("rounds", [6, 7, 12])
def test_an_interval_of_a_ratio_holds_the_truth_about_as_often_as_it_says(rounds: int) -> None:
    """Both take the same: 32 steps, each of which takes up to 5 % longer, and in one round of five all of them up to
    twice as long. Of 300 intervals 95 % hold 1; 4 % fewer or more come by chance in one of a thousand."""
    random = np.random.default_rng(rounds)
    held = 0
    for _ in range(TRIALS):
        steps = 1 + 0.05 * random.random((2, rounds, 32))
        steps *= 1 + (random.random((2, rounds, 1)) < 0.2) * random.random((2, rounds, 1))
        one, other = (np.log(undisturbed_s(each)) for each in steps.tolist())
        ratio = one - other
        margin = stats.t.ppf(0.975, rounds - 1) * ratio.std(ddof=1) / math.sqrt(rounds)
        held += abs(ratio.mean()) <= margin
    assert 0.91 <= held / TRIALS <= 0.995
