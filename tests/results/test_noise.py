"""What differs by chance, and when a difference may be claimed."""

from __future__ import annotations

import math

import pytest
from run_factory import BLOCKS_S, around, make_block_record, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.results.noise import ASSUMED, ENOUGH_PAIRS, Gain, NoiseFloor, gain, noise_floor
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate

NO_FLOOR = NoiseFloor(0.0, 0)
FLOOR_10 = NoiseFloor(math.log(1.10), 3)


def floor_of(run: Run) -> tuple[float, int]:
    """How far apart identical work comes out, and the pairs that tell."""
    found = noise_floor(run)
    return found.log_ratio, found.pairs


def test_the_floor_is_how_far_identical_work_came_apart() -> None:
    """fp16 that fell back to float32 ran what fp32 ran: 1.3 s against 1.0 s is 30 %."""
    run = make_run(
        [make_record("fp32", 1.0), make_record("fp16", 1.3), make_record("bf16", 2.0)],
        [make_variant(), make_variant("fp16", configuration="configuration of fp32"), make_variant("bf16")],
    )
    floor = noise_floor(run)
    assert floor.pairs == 1
    assert floor.percent == pytest.approx(30)


def test_the_same_workload_in_two_scenarios_is_identical_work() -> None:
    run = make_run([make_record("fp32", 1.0), make_record("fp32", 1.25, scenario="cache", case="dynamic")])
    assert noise_floor(run).percent == pytest.approx(25)


def test_what_was_measured_side_by_side_says_nothing_of_what_was_taken_apart() -> None:
    """fp16 that fell back to float32 is 0.1 % off fp32 in the same blocks; fp32 minutes later is 30 % off."""
    variants = [make_variant(), make_variant("fp16", configuration="configuration of fp32")]
    blocks = [make_block_record(spread=0.0), make_block_record("fp16", 1.001)]
    assert floor_of(make_run(blocks, variants)) == (ASSUMED, 0)
    later = make_block_record(spread=0.0, reference_s=[1.3 * seconds for seconds in BLOCKS_S], case="later")
    floor = noise_floor(make_run([blocks[0], later], variants))
    assert (floor.pairs, floor.percent) == (1, pytest.approx(30))


def test_the_floor_does_not_depend_on_which_came_first() -> None:
    forth = make_run([make_record("fp32", 1.0), make_record("fp32", 1.2, scenario="cache")])
    back = make_run([make_record("fp32", 1.2), make_record("fp32", 1.0, scenario="cache")])
    assert noise_floor(forth).log_ratio == pytest.approx(noise_floor(back).log_ratio)


def test_other_work_is_not_compared() -> None:
    other = make_workload("other")
    run = make_run([make_record("fp32", 1.0), make_record("bf16", 9.0), make_record("fp32", 9.0, workload=other)])
    assert floor_of(run) == (ASSUMED, 0)


def repeated(count: int, last_s: float) -> Run:
    """That many records of the same work, all of 1 s but the last."""
    times_s = [*[1.0] * (count - 1), last_s]
    return make_run([make_record("fp32", time_s, case=str(number)) for number, time_s in enumerate(times_s)])


def test_few_pairs_are_not_trusted_to_be_quiet() -> None:
    """Four records make 6 pairs, five make 10. With fewer than ten, 15 % are assumed."""
    assert floor_of(repeated(4, 1.01)) == (math.log(1.15), 6)
    assert noise_floor(repeated(5, 1.01)).pairs == ENOUGH_PAIRS == 10
    assert noise_floor(repeated(5, 1.01)).percent == pytest.approx(1)


def test_few_pairs_are_believed_to_be_noisy() -> None:
    assert noise_floor(repeated(4, 1.5)).percent == pytest.approx(50)


def test_of_many_pairs_it_is_the_95th_percentile() -> None:
    """Seven records make 21 pairs. One is twice as slow: 15 pairs at 0 and 6 at 2x, and the 20th of 21 counts."""
    floor = noise_floor(repeated(7, 2.0))
    assert floor.pairs == 21
    assert floor.percent == pytest.approx(100)


def test_a_clear_difference_is_claimed() -> None:
    found = gain(make_record("bf16", 0.5), make_record("fp32", 1.0), NO_FLOOR)
    assert found.ratio == pytest.approx(2.0)
    assert found.is_faster
    assert not found.is_slower


@pytest.mark.parametrize("median_s", [0.5, 0.97, 1.0, 1.03, 2.0])
@pytest.mark.parametrize("floor", [NO_FLOOR, FLOOR_10], ids=["no floor", "floor of 10 %"])
def test_swapping_the_two_mirrors_the_claim(median_s: float, floor: NoiseFloor) -> None:
    one, other = make_record("bf16", median_s), make_record("fp32", 1.0)
    forth, back = gain(one, other, floor), gain(other, one, floor)
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert (forth.is_faster, forth.is_slower) == (back.is_slower, back.is_faster)


def test_rounds_that_overlap_are_no_difference() -> None:
    """A ratio of 1.1, but the rounds of each scatter by 40 %."""
    found = gain(
        make_record("bf16", rounds_s=around(1.0, 0.2)), make_record("fp32", rounds_s=around(1.1, 0.2)), NO_FLOOR
    )
    assert found.ratio == pytest.approx(1.1)
    assert not found.is_faster
    assert not found.is_slower


@pytest.mark.parametrize(("median_s", "claimed"), [(1 / 1.09, False), (1 / 1.11, True)])
def test_a_difference_must_exceed_the_floor_too(median_s: float, claimed: bool) -> None:
    """Rounds so steady that Welch's interval excludes no difference in either case."""
    fast, slow = make_record("bf16", rounds_s=around(median_s, 1e-4)), make_record(rounds_s=around(1.0, 1e-4))
    assert gain(fast, slow, NO_FLOOR).is_faster
    assert gain(fast, slow, FLOOR_10).is_faster is claimed
    assert gain(slow, fast, FLOOR_10).is_slower is claimed


@pytest.mark.parametrize("short_side", ["of", "over", "both"])
def test_nothing_is_claimed_with_a_single_round(short_side: str) -> None:
    few = {"of": (1, 5), "over": (5, 1), "both": (1, 1)}[short_side]
    found = gain(
        make_record("bf16", rounds_s=around(0.1)[: few[0]]), make_record(rounds_s=around(1.0)[: few[1]]), NO_FLOOR
    )
    assert not found.is_faster
    assert not found.is_slower


def halves_apart(middle_s: float) -> tuple[float, float]:
    return middle_s * math.exp(0.01), middle_s * math.exp(-0.01)


def test_of_two_rounds_each_only_a_large_difference_is_claimed() -> None:
    """Logarithms 0.02 apart have a variance of 0.0002, and a mean of two of them half of it: the standard error of the
    difference is sqrt(0.0002), with two degrees of freedom, and t(0.995, 2) is 9.92: a ratio of 1.150 is too small."""

    slow = make_record(rounds_s=halves_apart(1.0))
    assert not gain(make_record("bf16", rounds_s=halves_apart(1 / 1.14)), slow, NO_FLOOR).is_faster
    assert gain(make_record("bf16", rounds_s=halves_apart(1 / 1.16)), slow, NO_FLOOR).is_faster


def test_two_rounds_tell_more_where_the_run_shows_how_rounds_scatter() -> None:
    """The same rounds, where all others scatter as much, with 9 degrees of freedom: of these 9 x 2 P(F(2, 9) > 1) = 7.3
    are borrowed, so that there are 9.3, and t(0.995, 9.3) is 3.22: 1.047 is too small."""
    floor = NoiseFloor(0.0, 0, VarianceEstimate(0.0002, 9.0))
    slow = make_record(rounds_s=halves_apart(1.0))
    assert not gain(make_record("bf16", rounds_s=halves_apart(1 / 1.045)), slow, floor).is_faster
    assert gain(make_record("bf16", rounds_s=halves_apart(1 / 1.05)), slow, floor).is_faster


def test_the_scatter_of_rounds_is_that_of_all_records() -> None:
    """Bug: "too few rounds to tell" stood next to a batch of three times the throughput, timed twice.

    The logarithm of a variance of one degree of freedom is log(true) + digamma(1/2) - log(1/2) on average, and
    digamma(1/2) is -gamma - 2 log(2). So true variances that give 0.0002 each are 0.0002 x 2 exp(gamma).
    """
    assert noise_floor(make_run([make_record(), make_record("bf16")])).round_variance == NO_PRIOR
    records = [make_record(case=str(number), rounds_s=halves_apart(1.0 + number)) for number in range(4)]
    found = noise_floor(make_run(records)).round_variance
    assert (found.variance, found.freedom) == (pytest.approx(0.0004 * math.exp(0.577216)), 4)


def test_work_of_unlike_size_is_compared_by_its_new_tokens() -> None:
    """8 tokens in 2 s are 4 a second, 2 in 1 s are 2."""
    large = make_record(workload=make_workload("large", new_tokens=8), rounds_s=around(2.0))
    small = make_record(workload=make_workload("small", new_tokens=2), rounds_s=around(1.0))
    assert gain(large, small, FLOOR_10) == Gain(pytest.approx(2.0), is_faster=True, is_slower=False)
    assert gain(small, large, FLOOR_10).is_slower


def test_work_without_a_token_as_only_a_damaged_file_holds_is_compared_by_its_latency() -> None:
    none, some = (make_record(workload=make_workload(str(tokens), new_tokens=tokens)) for tokens in (0, 8))
    assert gain(none, some, FLOOR_10).ratio == gain(some, none, FLOOR_10).ratio == 1.0


def test_three_rounds_are_enough() -> None:
    found = gain(make_record("bf16", rounds_s=(0.49, 0.5, 0.51)), make_record(rounds_s=(0.99, 1.0, 1.01)), NO_FLOOR)
    assert found.is_faster


def test_rounds_that_do_not_scatter_at_all() -> None:
    same = make_record(rounds_s=(1.0, 1.0, 1.0))
    assert gain(make_record("bf16", rounds_s=(0.5, 0.5, 0.5)), same, NO_FLOOR).is_faster
    equal = gain(make_record("bf16", rounds_s=(1.0, 1.0, 1.0)), same, NO_FLOOR)
    assert (equal.ratio, equal.is_faster, equal.is_slower) == (1.0, False, False)


@pytest.mark.filterwarnings("ignore:Precision loss")
def test_one_side_that_does_not_scatter() -> None:
    found = gain(make_record("bf16", rounds_s=(0.5, 0.5, 0.5)), make_record(rounds_s=(0.99, 1.0, 1.01)), NO_FLOOR)
    assert found.is_faster
