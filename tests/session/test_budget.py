"""How the time of a run is dealt out, with sums that can be done in the head."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.session.budget import TimeBudget, benchmark_s, times_of_cases


def budget(benchmarks: int, each_s: float = 2.0) -> TimeBudget:
    made = TimeBudget(each_s)
    made.expect([1.0] * benchmarks)
    return made


def test_a_case_gets_the_time_of_each_of_its_benchmarks() -> None:
    assert budget(10).share_s(3) == pytest.approx(6.0)


def test_what_one_case_leaves_goes_to_those_after_it_in_equal_parts() -> None:
    """Of 20 s for ten benchmarks, two take 0.8 s and leave 19.2 s for eight: 2.4 s each."""
    dealt = budget(10)
    dealt.spend(2, 0.8)
    assert dealt.share_s(1) == pytest.approx(2.4)
    assert dealt.share_s(4) == pytest.approx(9.6)


def test_what_a_case_overspends_is_taken_from_those_after_it() -> None:
    """Of 20 s for ten, five take 12 s and leave 8 s for five."""
    dealt = budget(10)
    dealt.spend(5, 12.0)
    assert dealt.share_s(5) == pytest.approx(8.0)


def test_a_benchmark_of_twice_the_weight_gets_twice_the_time() -> None:
    """Of 12 s for six, two of weight 2 get 3 s each and four 1.5 s."""
    dealt = TimeBudget(2.0)
    dealt.expect([1.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    assert dealt.share_s(2, weight=2.0) == pytest.approx(6.0)
    assert dealt.share_s(4) == pytest.approx(6.0)
    dealt.spend(2, 2.0, weight=2.0)
    assert dealt.share_s(4) == pytest.approx(10.0)


def test_all_of_one_weight_get_as_much_as_without() -> None:
    dealt = TimeBudget(2.0)
    dealt.expect([2.0] * 10)
    assert dealt.share_s(3, weight=2.0) == pytest.approx(6.0)


def test_none_gets_less_than_a_quarter_of_its_own_time() -> None:
    dealt = budget(10)
    dealt.spend(5, 100.0)
    assert dealt.share_s(2) == pytest.approx(1.0)


def test_more_benchmarks_than_were_expected_still_get_time() -> None:
    """As where a test calls `llm_benchmark` twice."""
    dealt = budget(1)
    dealt.spend(1, 2.0)
    assert dealt.share_s(1) == pytest.approx(2.0)
    dealt.spend(1, 2.0)
    assert dealt.share_s(1) == pytest.approx(2.0)


def test_no_time_at_all_is_no_time_for_any() -> None:
    assert budget(10, each_s=0.0).share_s(3) == 0
    assert budget(10, each_s=0.0).patience_s(10) == 0


def test_a_share_of_the_rounds_time_may_be_waited() -> None:
    """Ten benchmarks of 1 s may lose their 10 s together once more; a case of all of them may lose all of it."""
    dealt = budget(10, each_s=1.0)
    assert dealt.patience_s(10) == pytest.approx(10.0)
    dealt.wait(1.0, found_calm=True)
    assert dealt.patience_s(10) == pytest.approx(9.0)


def test_a_case_may_lose_twice_its_share_of_what_is_left() -> None:
    """Of 100 s for a hundred benchmarks, three have 3 s as their share; with twice the weight of others, 6 s."""
    dealt = budget(100, each_s=1.0)
    assert dealt.patience_s(3) == pytest.approx(6.0)
    assert dealt.patience_s(3, weight=2.0) == pytest.approx(12.0)


def test_patience_in_vain_halves_what_is_left_of_it() -> None:
    """Of 100 s a case of ten among a hundred loses 20 s: half of 80 is left for the other ninety. The next ten may lose
    twice their share of it, 80/9 s."""
    dealt = budget(100, each_s=1.0)
    dealt.wait(dealt.patience_s(10), found_calm=False)
    dealt.spend(10, 10.0)
    assert dealt.patience_s(10) == pytest.approx(80 / 9)


@pytest.mark.parametrize(
    ("max_noise", "seconds"), [(0.03, 0.35), (0.01, 3.15), (0.001, 35.0), (0.1, 0.35), (0.0, 0.35)]
)
def test_a_narrower_interval_gets_the_square_of_the_time(max_noise: float, seconds: float) -> None:
    """±1 % is three times as narrow as the default. No narrower one gets over a hundred times as much."""
    assert benchmark_s(max_noise) == pytest.approx(seconds)


def test_where_the_runs_time_is_short_all_share_half_of_what_is_left() -> None:
    """Ten benchmarks of 2 s, and 10 s left: 5 s for their rounds, 0.5 s each; with none left, only the least rounds."""
    left_s = [10.0]
    dealt = TimeBudget(2.0, lambda: left_s[0])
    dealt.expect([1.0] * 10)
    assert dealt.share_s(3) == pytest.approx(1.5)
    assert dealt.patience_s(3) == pytest.approx(1.5)
    dealt.spend(5, 5.0)
    assert dealt.share_s(5) == pytest.approx(5.0)
    left_s[0] = 0.0
    assert dealt.share_s(5) == dealt.patience_s(5) == 0


def test_what_an_earlier_session_measured_gets_no_time_and_leaves_none() -> None:
    """Of ten for 2 s each, three are left with 6 s."""
    dealt = budget(10)
    dealt.forgo([1.0] * 7)
    assert dealt.share_s(3) == pytest.approx(6.0)
    assert dealt.patience_s(3) == pytest.approx(6.0)


def test_a_case_of_rounds_eight_times_as_long_gets_twice_the_time() -> None:
    """9 s in all and 3 more: the cube roots of 1 and 8 share 12 s as 4 and 8."""
    assert times_of_cases([(1.0, 1), (8.0, 1)], 3.0, 5.0) == pytest.approx([4.0, 1.0])


def test_what_one_case_may_not_have_goes_to_the_others() -> None:
    """Of 18 s the short one would get 6."""
    assert times_of_cases([(1.0, 1), (8.0, 1)], 9.0, 5.0) == pytest.approx([5.0, 13 / 8])
    assert times_of_cases([(1.0, 1), (8.0, 1)], 99.0, 5.0) == pytest.approx([5.0, 5.0])


def test_no_case_gets_less_than_its_first_rounds() -> None:
    """Of 1 and 27 s, and 1 s more: by cube roots the long one would get 21.75 s."""
    assert times_of_cases([(1.0, 1), (27.0, 1)], 1.0, 5.0) == pytest.approx([2.0, 1.0])


def test_none_gets_more_where_nothing_is_left() -> None:
    assert times_of_cases([(1.0, 1), (2.0, 1)], 0.0, 5.0) == pytest.approx([1.0, 1.0])
    assert times_of_cases([(1.0, 1), (2.0, 1)], -5.0, 5.0) == pytest.approx([1.0, 1.0])
    assert times_of_cases([], 5.0, 5.0) == []


def test_a_case_of_more_variants_gets_more() -> None:
    """One round of either takes as long; eight speed-ups count for four times the time of one."""
    assert times_of_cases([(8.0, 1), (8.0, 8)], 24.0, 5.0) == pytest.approx([1.0, 4.0])
    assert times_of_cases([(8.0, 1), (8.0, 8)], 29.0, 5.0) == pytest.approx([9 / 8, 36 / 8])


def test_rounds_by_cube_roots_make_the_mean_interval_the_narrowest() -> None:
    """Against all other ways to share the same time."""

    def width(short_s: float) -> float:
        return (1.0 / short_s) ** 0.5 + (2.0 / (7.0 - short_s)) ** 0.5

    short, _ = times_of_cases([(1.0, 1), (2.0, 1)], 4.0, 5.0)
    assert width(short) <= min(width(tenths / 10) for tenths in range(10, 51)) + 1e-6
