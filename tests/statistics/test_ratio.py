"""Ratios of paired times: values derived by hand, and how often an interval holds the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from llm_bench_fixtures.statistics import ratio as module
from llm_bench_fixtures.statistics.ratio import (
    CONFIDENCE,
    LogRatio,
    Speedup,
    are_far_apart,
    log_ratio,
    speedup_from,
    trimmed_mean,
    trimmed_variance,
    without_odd,
)
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate, estimate_prior

LOG_2 = math.log(2)
TRIALS = 3000


def speedup_of(
    reference_s: Sequence[float],
    own_s: Sequence[float],
    confidence: float = CONFIDENCE,
    prior: VarianceEstimate = NO_PRIOR,
) -> Speedup | None:
    ratio = log_ratio(reference_s, own_s, prior)
    return speedup_from(ratio, confidence, len(own_s)) if ratio else None


def test_identical_rounds_have_a_speedup_of_exactly_one() -> None:
    """The reference's own record, whose rounds are paired with themselves."""
    rounds_s = (0.1, 0.3, 0.2, 0.25)
    assert speedup_of(rounds_s, rounds_s) == Speedup(1.0, 1.0, 1.0, 4)


def test_a_variant_that_takes_half_the_time_in_each_round_is_twice_as_fast() -> None:
    """However the machine's speed changes from round to round."""
    found = speedup_of((1.0, 4.0, 0.5), (0.5, 2.0, 0.25))
    assert found is not None
    assert (found.ratio, found.low * found.high) == pytest.approx((2.0, 4.0))
    assert (found.is_faster, found.is_slower) == (True, False)


def test_a_slower_variant_is_said_to_be_slower() -> None:
    found = speedup_of((1.0, 1.01, 0.99), (2.0, 2.0, 2.0))
    assert found is not None
    assert (found.is_faster, found.is_slower) == (False, True)


def test_fewer_than_three_rounds_have_no_speedup() -> None:
    assert speedup_of((), ()) is None
    assert speedup_of((1.0, 1.0), (1.0, 1.0)) is None


def test_two_rounds_are_enough_where_other_comparisons_say_how_far_they_scatter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the variance that is expected, which is then borrowed whole: 4 degrees of freedom of 1 % squared and one
    of half of that are 5 of 0.9 times 1 % squared, and t is 2.5706."""
    monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.0)
    prior = VarianceEstimate(0.01**2, 4.0)
    ratio = log_ratio((1.0, math.exp(0.01)), (1.0, 1.0), prior)
    assert ratio is not None
    assert (ratio.centre, ratio.freedom) == pytest.approx((0.005, 5))
    assert ratio.margin(0.95) == pytest.approx(2.570582 * 0.01 * math.sqrt(0.9 / 2))
    assert log_ratio((1.0,), (1.0,), prior) is None


def test_the_interval_of_two_rounds_holds_the_truth_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with a scatter of 3 %, which 20 comparisons of three rounds each have shown."""
    monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.0)
    random = np.random.default_rng(2)
    held = []
    for _ in range(TRIALS // 10):
        others = np.exp(0.03 * random.standard_normal((20, 3))).tolist()
        prior = estimate_prior(trimmed_variance([math.log(one) for one in row]) for row in others)
        rows = np.exp(0.03 * random.standard_normal((10, 2))).tolist()
        found = [speedup_of((1.0,) * 2, tuple(row), prior=prior) for row in rows]
        held += [one is not None and one.low <= 1 <= one.high for one in found]
    assert 0.94 <= sum(held) / len(held) <= 0.985


def test_a_round_without_its_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        speedup_of((1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0))


def test_the_interval_is_students(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms 1, 2 and 3: mean 2, standard deviation 1, so the standard error is 1 / sqrt(3); t(0.975, 2) is
    4.3027."""
    monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.0)
    ratio = log_ratio((math.exp(1), math.exp(2), math.exp(3)), (1.0, 1.0, 1.0))
    assert ratio is not None
    assert (ratio.centre, ratio.standard_error, ratio.freedom) == pytest.approx((2.0, 1 / math.sqrt(3), 2))
    assert ratio.margin(0.95) == ratio.margin_by_rounds(0.95) == pytest.approx(4.302653 / math.sqrt(3))


def test_a_higher_confidence_has_a_wider_interval() -> None:
    """t(0.995, 2) is 9.9248."""
    assert LogRatio(2.0, 1.0, 2).margin(0.99) == pytest.approx(9.924843)


def test_of_two_means_as_sure_as_each_other_the_degrees_of_freedom_add() -> None:
    """Welch and Satterthwaite: (1 + 1)^2 / (1 / 3 + 1 / 3) is 6."""
    one, other = LogRatio(2.0, 1.0, 3), LogRatio(0.5, 1.0, 3, process_variance=0.25)
    assert one.minus(other) == LogRatio(1.5, math.sqrt(2), 6, 0.25)


def test_of_two_means_that_do_not_scatter_the_difference_does_not_either() -> None:
    assert LogRatio(2.0, 0.0, 3).minus(LogRatio(2.0, 0.0, 3)) == LogRatio(0.0, 0.0, 6)


def test_what_differs_between_processes_widens_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 % between processes makes sqrt(2) % between two: the interval of rounds that all say 2 reaches 1.96 times as
    far to either side."""
    monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.01)
    found = speedup_of((1.0,) * 3, (0.5,) * 3)
    assert found is not None
    assert math.log(found.low) == pytest.approx(LOG_2 - math.sqrt(2) * 0.0195996)
    assert math.log(found.high) == pytest.approx(LOG_2 + math.sqrt(2) * 0.0195996)
    assert speedup_of((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)) == Speedup(1.0, 1.0, 1.0, 3)


@pytest.mark.parametrize("rounds", [3, 5, 7, 10, 15])
def test_the_interval_holds_the_truth_as_often_as_it_says(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with a scatter of 3 %. In 3000 trials, 95 % come out within 1.2 % (three standard errors) of it; trimmed
    means of so few values are up to 1 % short."""
    monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.0)
    random = np.random.default_rng(rounds)
    seen_s = np.exp(0.03 * random.standard_normal((TRIALS, rounds)))
    found = [speedup_of((1.0,) * rounds, tuple(row)) for row in seen_s.tolist()]
    held = sum(one is not None and one.low <= 1 <= one.high for one in found) / TRIALS
    assert 0.928 <= held <= 0.962


def test_the_centre_is_the_mean_of_the_middle_three_fifths() -> None:
    """Of 1, 2, 3, 6, 90 the mean of 2, 3 and 6. Winsorized they are 2, 2, 3, 6, 6, whose squared distances from their
    mean of 3.8 sum up to 16.8: the standard error is sqrt(16.8 / (3 x 2)), with 3 - 1 degrees of freedom."""
    found = trimmed_mean([90.0, 6.0, 1.0, 3.0, 2.0])
    assert (found.centre, found.standard_error, found.freedom) == pytest.approx((11 / 3, math.sqrt(2.8), 2))


@pytest.mark.parametrize(("values", "left"), [(3, 3), (4, 4), (5, 3), (9, 7), (10, 6), (15, 9)])
def test_a_fifth_is_trimmed_on_either_side(values: int, left: int) -> None:
    """Rounded down, so none of four."""
    assert trimmed_mean([float(value) for value in range(values)]).freedom == left - 1


def test_of_few_values_none_is_trimmed_if_none_may_be() -> None:
    """Mean 20, squared distances 4800: the standard error is sqrt(4800 / (5 x 4))."""
    found = trimmed_mean([0.0, 0.0, 0.0, 20.0, 80.0], share=0.0)
    assert (found.centre, found.standard_error, found.freedom) == pytest.approx((20.0, math.sqrt(240), 4))


@pytest.mark.parametrize("odd_s", [1.1, 30.0])
def test_one_odd_round_of_ten_moves_nothing(odd_s: float) -> None:
    """However long it took."""
    found = log_ratio((1.0,) * 10, (0.5, 0.5, 0.5, odd_s, *(0.5,) * 6))
    assert found is not None
    assert found.centre == pytest.approx(LOG_2)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([0.0, 5.0], [0.0, 5.0]),  # which of them is odd, nobody knows
        ([0.0, 5.5, 1.0], [0.0, 1.0]),
        ([0.0, 1.0, -9.0, 5.0], [0.0, 1.0, 5.0]),  # 9.5 from the median, and 4.5: the farther one
        ([0.0, 3.9, 0.0], [0.0, 3.9, 0.0]),  # less than four standard deviations off
        ([0.0, 1.0, 9.0, 0.0, 1.0], [0.0, 1.0, 9.0, 0.0, 1.0]),  # of five a fifth is trimmed
    ],
)
def test_one_of_three_or_four_pairs_that_lies_far_off_is_left_out(values: list[float], kept: list[float]) -> None:
    assert without_odd(values, VarianceEstimate(1.0, 4)) == kept
    assert without_odd(values, VarianceEstimate(1.0, 3)) == values  # too little is known


@pytest.mark.parametrize(
    ("values", "freedom", "apart"),
    [([0.0, 3.9], 4, False), ([0.0, 4.1], 4, True), ([0.0, 4.1], 3, False), ([0.0, 0.0, 9.0], 4, False)],
)
def test_two_pairs_lie_far_apart(values: list[float], freedom: float, apart: bool) -> None:
    assert are_far_apart(values, VarianceEstimate(1.0, freedom)) is apart


@pytest.mark.parametrize("slow", [3, 4, 5, 6, 7])
def test_a_variant_that_holds_itself_up_is_not_called_faster_than_a_user_finds_it(slow: int) -> None:
    """Bug: of rounds of 100 ms half of which take 200 ms, the fastest third made the speed-up that of 100 ms. The ratio
    of the two mean latencies lies within the interval."""
    random = np.random.default_rng(slow)
    own_s = 0.1 * np.where(np.arange(10) < slow, 2, 1) * np.exp(0.03 * random.standard_normal(10))
    found = speedup_of((0.3,) * 10, own_s.tolist())
    assert found is not None
    assert found.low <= 0.3 / own_s.mean() <= found.high


def test_half_of_the_rounds_count_as_half() -> None:
    """Five of ten take twice as long: the mean logarithm is half of log 2 beyond."""
    found = log_ratio((1.0,) * 10, (1.0, 2.0) * 5)
    assert found is not None
    assert found.centre == pytest.approx(-LOG_2 / 2)


@pytest.mark.parametrize(
    ("low", "high", "is_unclear"),
    [
        (0.5, 2.0, True),
        (0.91, 1.13, True),  # 0.22 wide about 1.02: 10.8 % to either side
        (0.95, 1.05, False),  # no difference of more than 5 %
        (1.1, 4.0, False),  # faster, however much
        (0.1, 0.9, False),  # slower
    ],
)
def test_an_interval_that_is_wide_and_has_one_in_it_tells_nothing(low: float, high: float, is_unclear: bool) -> None:
    """Bug: an interval by pairs of rounds was never called too wide to tell, so it was called no difference."""
    assert Speedup(low, high, 1.0, 3).is_unclear is is_unclear


def test_what_the_run_leads_to_expect_narrows_an_interval_of_three_pairs() -> None:
    """Logarithms 1, 2, 3 have a variance of 1 with 2 degrees of freedom. With the same known by 8 more they are 10, and
    the error is what it was."""
    found = trimmed_mean([1.0, 2.0, 3.0], VarianceEstimate(1.0, 8))
    likeness = 2 * stats.f.sf(1.0, 2, 8)
    assert (found.centre, found.standard_error) == pytest.approx((2.0, 1 / math.sqrt(3)))
    assert found.freedom == pytest.approx(2 + 8 * min(likeness, 1.0))


def test_an_interval_is_not_narrower_than_its_own_scatter_justifies() -> None:
    """A standard deviation of 50 times what the other comparisons have is believed."""
    values = [-0.5, 0.0, 0.5]
    found = trimmed_mean(values, VarianceEstimate(0.01**2, 400))
    assert found.margin(0.95) == pytest.approx(trimmed_mean(values).margin(0.95), rel=0.01)


def test_the_centre_is_what_it_is_without_the_others() -> None:
    values = [0.1, 0.2, 0.4, 0.5, 0.9]
    assert trimmed_mean(values, VarianceEstimate(1.0, 100)).centre == trimmed_mean(values).centre


def test_a_process_compared_with_itself_is_as_fast_whatever_others_scatter() -> None:
    found = speedup_of((1.0, 2.0, 3.0), (1.0, 2.0, 3.0), prior=VarianceEstimate(1.0, 100))
    assert found == Speedup(1.0, 1.0, 1.0, 3)


def test_a_test_of_three_pairs_tells_five_times_as_fast() -> None:
    """Bug: with two degrees of freedom and many comparisons even 5x could not be told. Of 264 comparisons of three
    pairs that scatter by 5 % each is told with a confidence of 1 - 0.005 / 264."""
    random = np.random.default_rng(1)
    logs = (math.log(5) + 0.05 * random.standard_normal((264, 3))).tolist()
    prior = estimate_prior(map(trimmed_variance, logs))
    confidence = 1 - 0.005 / 264
    assert all(one.centre > one.margin(confidence) for one in (trimmed_mean(values, prior) for values in logs))
    assert not any(one.centre > one.margin(confidence) for one in map(trimmed_mean, logs[:10]))
