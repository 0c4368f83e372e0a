"""The speed-up by rounds of the same blocks: values derived by hand, and how often its interval holds the truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from run_factory import around, make_record

from llm_bench_fixtures.results import speedup
from llm_bench_fixtures.results.speedup import (
    LogRatio,
    Speedup,
    disturbed_pairs,
    is_calm,
    log_ratio,
    record_speedup,
    share_blocks,
    speedup_between,
    speedup_of,
    waiting_share,
)

LOG_2 = math.log(2)
TRIALS = 3000


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


def test_a_round_without_its_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        speedup_of((1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0))


def test_the_interval_is_students(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms 1, 2 and 3: mean 2, standard deviation 1, so the standard error is 1 / sqrt(3); t(0.975, 2) is
    4.3027."""
    monkeypatch.setattr(speedup, "PROCESS_DEVIATION", 0.0)
    ratio = log_ratio((math.exp(1), math.exp(2), math.exp(3)), (1.0, 1.0, 1.0))
    assert ratio is not None
    assert (ratio.centre, ratio.standard_error, ratio.freedom) == pytest.approx((2.0, 1 / math.sqrt(3), 2))
    assert ratio.margin(0.95) == ratio.margin_by_rounds(0.95) == pytest.approx(4.302653 / math.sqrt(3))


def test_a_higher_confidence_has_a_wider_interval() -> None:
    """t(0.995, 2) is 9.9248."""
    assert LogRatio(2.0, 1.0, 2).margin(0.99) == pytest.approx(9.924843)


@pytest.mark.parametrize(
    ("round_s", "waited_s", "expected"),
    [(1.0, 0.02, True), (1.0, 0.021, False), (0.001, 0.0003, True), (0.001, 0.00031, False), (1.0, 0.0, True)],
)
def test_a_round_is_calm_up_to_a_share_or_a_moment_of_waiting(round_s: float, waited_s: float, expected: bool) -> None:
    """2 % of its latency, or 0.3 ms."""
    assert is_calm(round_s, waited_s) is expected


@pytest.mark.parametrize(
    ("waited_s", "reference_waited_s", "expected"),
    [((), (), 0), ((0.0, 0.0, 1.0), (), 1), ((0.0, 0.0, 1.0), (1.0, 0.0, 1.0), 2), ((0.0,) * 3, (9.0,) * 3, 3)],
)
def test_a_pair_is_disturbed_if_one_of_its_rounds_is(
    waited_s: tuple[float, ...], reference_waited_s: tuple[float, ...], expected: int
) -> None:
    record = make_record(
        rounds_s=(1.0,) * 3, reference_s=(1.0,) * 3, waited_s=waited_s, reference_waited_s=reference_waited_s
    )
    assert disturbed_pairs(record) == expected


def test_of_two_rounds_it_is_not_told_how_long_their_threads_waited() -> None:
    """Bug: from a single round it was told that threads hold each other up."""
    assert waiting_share((1.0, 1.0), (0.3, 0.3)) is None
    assert waiting_share((1.0, 1.0, 1.0), (0.3, 0.3, 0.1)) == 0.3


def test_a_record_that_was_not_measured_in_blocks_has_no_disturbed_ones() -> None:
    assert disturbed_pairs(make_record(rounds_s=(1.0,) * 3, waited_s=(1.0,) * 3)) == 0


def test_a_record_has_the_speedup_of_what_is_undisturbed() -> None:
    """Whatever its rounds took."""
    record = make_record(rounds_s=(7.0,) * 3, reference_s=(7.0,) * 3, undisturbed_s=(0.5,) * 3)
    found = record_speedup(replace(record, reference_undisturbed_s=(1.0,) * 3))
    assert found is not None
    assert (found.ratio, found.rounds) == (pytest.approx(2.0), 3)


def test_a_record_that_was_not_measured_in_blocks_has_none() -> None:
    assert record_speedup(make_record()) is None


def test_two_records_of_the_same_blocks_are_compared_round_by_round() -> None:
    """Both took twice as long in every other round: their ratio is 2 in each, with no scatter."""
    reference_s = (1.0, 1.0, 1.0, 1.0)
    fast = make_record("bf16", rounds_s=(0.5, 1.0, 0.5, 1.0), reference_s=reference_s)
    slow = make_record("nf4", rounds_s=(1.0, 2.0, 1.0, 2.0), reference_s=reference_s)
    found = speedup_between(fast, slow)
    assert found is not None
    assert (found.ratio, found.rounds) == (pytest.approx(2.0), 4)
    assert math.log(found.high / found.ratio) == pytest.approx(math.sqrt(2) * 1.959964 * speedup.PROCESS_DEVIATION)


def test_a_record_that_was_settled_earlier_is_compared_by_the_reference() -> None:
    """What is undisturbed was found from other rounds, so the rounds don't pair."""
    fast = make_record("bf16", rounds_s=(0.5, 1.0, 0.5, 1.0), reference_s=(1.0,) * 4)
    slow = make_record("nf4", rounds_s=(1.0, 2.0, 1.0), reference_s=(1.0,) * 3)
    found = speedup_between(fast, slow)
    assert found is not None
    assert found.low < 1 < found.high


def test_what_the_references_process_differs_by_counts_for_none_of_two_that_stand_beside_it() -> None:
    """Nothing scatters, so that the interval is what two processes make, not four: 1.96 x 1.41 hundredths."""
    fast = make_record("bf16", rounds_s=(0.5,) * 4, reference_s=(1.0,) * 4)
    slow = make_record("nf4", rounds_s=(1.0,) * 3, reference_s=(1.0,) * 3)
    found = speedup_between(fast, slow)
    assert found is not None
    assert math.log(found.high / found.ratio) == pytest.approx(math.sqrt(2) * 1.959964 * speedup.PROCESS_DEVIATION)


def test_two_records_of_different_blocks_are_compared_by_the_reference() -> None:
    """4 times and twice as fast as the reference. Their errors add as squares."""
    fast = make_record("bf16", rounds_s=(0.25, 0.26, 0.24), reference_s=(1.0,) * 3)
    slow = make_record("nf4", rounds_s=(1.0, 1.06, 0.94), reference_s=(2.0,) * 3)
    found, one, other = speedup_between(fast, slow), record_speedup(fast), record_speedup(slow)
    assert found is not None
    assert one is not None
    assert other is not None
    assert found.ratio == pytest.approx(one.ratio / other.ratio)
    assert found.low * found.high == pytest.approx(found.ratio**2)
    margin, *margins = (math.log(each.high / each.ratio) for each in (found, one, other))
    assert max(margins) / 2 < margin < math.hypot(*margins)  # Student's t of up to four degrees of freedom, not two


def test_of_two_means_as_sure_as_each_other_the_degrees_of_freedom_add() -> None:
    """Welch and Satterthwaite: (1 + 1)^2 / (1 / 3 + 1 / 3) is 6."""
    one, other = LogRatio(2.0, 1.0, 3), LogRatio(0.5, 1.0, 3, process_variance=0.25)
    assert one.minus(other) == LogRatio(1.5, math.sqrt(2), 6, 0.25)


def test_of_two_means_that_do_not_scatter_the_difference_does_not_either() -> None:
    assert LogRatio(2.0, 0.0, 3).minus(LogRatio(2.0, 0.0, 3)) == LogRatio(0.0, 0.0, 6)


def test_a_record_without_blocks_has_no_speedup_over_another() -> None:
    assert speedup_between(make_record("bf16"), make_record(reference_s=around(1.0))) is None


def test_records_share_blocks_where_they_stand_beside_the_same_rounds() -> None:
    one, shorter, other = (make_record(reference_s=seconds) for seconds in ((1.0, 2.0), (1.0,), (2.0, 2.0)))
    assert share_blocks(one, shorter)
    assert not share_blocks(one, other)
    assert not share_blocks(make_record(), make_record())


def test_what_differs_between_processes_widens_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 % between processes makes sqrt(2) % between two: the interval of rounds that all say 2 reaches 1.96 times as
    far to either side."""
    monkeypatch.setattr(speedup, "PROCESS_DEVIATION", 0.01)
    found = speedup_of((1.0,) * 3, (0.5,) * 3)
    assert found is not None
    assert math.log(found.low) == pytest.approx(LOG_2 - math.sqrt(2) * 0.0195996)
    assert math.log(found.high) == pytest.approx(LOG_2 + math.sqrt(2) * 0.0195996)
    assert speedup_of((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)) == Speedup(1.0, 1.0, 1.0, 3)


@pytest.mark.parametrize("rounds", [5, 7, 10, 15])
def test_the_interval_holds_the_truth_as_often_as_it_says(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with a scatter of 3 %. In 3000 trials, 95 % come out within 1.2 % (three standard errors) of it."""
    monkeypatch.setattr(speedup, "PROCESS_DEVIATION", 0.0)
    random = np.random.default_rng(rounds)
    seen_s = np.exp(0.03 * random.standard_normal((TRIALS, rounds)))
    found = [speedup_of((1.0,) * rounds, tuple(row)) for row in seen_s.tolist()]
    held = sum(one is not None and one.low <= 1 <= one.high for one in found) / TRIALS
    assert 0.938 <= held <= 0.962


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
    assert Speedup(1.0, low, high, 3).is_unclear is is_unclear
