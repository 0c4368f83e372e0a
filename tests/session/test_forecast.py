"""How long a run takes, with numbers derived by hand from a machine of round figures."""

from __future__ import annotations

from typing import Protocol

import pytest

from llm_bench_fixtures.session.forecast import AGAIN, Forecast, Machine, Made, Runner, Shape, Work, making_s


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


MACHINE = Machine(read_bytes_per_s=400.0, flops_per_s=1000.0, copy_bytes_per_s=100.0, hash_bytes_per_s=50.0, call_s=0.0)
FP32 = Runner(MACHINE, weights=100, layers=1)  # 400 bytes: a second to read; 200 operations a position: 0.2 s


@pytest.fixture
def forecast(clock: Clock) -> Forecast:
    return Forecast(clock)


def test_a_pass_takes_as_long_as_reading_the_weights_or_as_computing() -> None:
    assert FP32.pass_s(1) == 1.0  # reading
    assert FP32.pass_s(10) == 2.0  # computing
    half = Runner(MACHINE, weights=100, layers=1, bytes_per_weight=2, flops_per_s=4000.0)
    assert (half.pass_s(1), half.pass_s(10)) == (0.5, 0.5)


def test_small_models_take_what_starting_their_operations_takes() -> None:
    slow = Machine(400.0, 1000.0, 100.0, 50.0, call_s=0.001)
    assert Runner(slow, weights=100, layers=9).pass_s(1) == pytest.approx(1.0 + 60 * 10 * 0.001)


def test_a_round_is_a_prefill_and_a_pass_for_each_further_token() -> None:
    assert FP32.round_s(Shape(tokens=10, new_tokens=4)) == 2.0 + 3 * 1.0
    assert FP32.round_s(Shape(tokens=10, new_tokens=4, prompts=8, batch_size=4)) == 2 * (40 * 0.2 + 3 * 1.0)
    assert FP32.round_s(Shape(tokens=10, new_tokens=3, has_no_cache=True)) == pytest.approx((10 + 11 + 12) * 0.2)


def test_a_load_copies_the_weights_and_generates_once() -> None:
    first = Shape(tokens=10, new_tokens=1)
    assert FP32.load_s(first) == (2 * 400 + 400) / 100 + 2.0
    made = Runner(MACHINE, weights=100, layers=1, bytes_per_weight=1, is_made=True)
    assert made.load_s(first) == (2 * 400 + 100) / 100 + (400 + 100) / 50 + 2.0


def test_quality_is_as_many_passes_as_there_are_windows() -> None:
    assert FP32.quality_s(positions=100, passes=2) == 2 * 50 * 0.2
    assert FP32.quality_s(0, 0) == 0


def made(model: str, weights: int, seconds: float, is_current: bool = True) -> Made:
    return Made("ort", model, weights, seconds, is_current)


def test_what_is_there_is_not_made_again() -> None:
    assert making_s("ort", "mine", 100, [made("mine", 100, 30.0)], 7.0) == 0


def test_making_takes_as_long_as_the_last_time_or_as_of_the_nearest_model() -> None:
    stale, small, large = made("mine", 100, 30.0, is_current=False), made("s", 10, 5.0), made("l", 200, 40.0)
    assert making_s("ort", "mine", 100, [stale, small], 7.0) == 30.0
    assert making_s("ort", "mine", 100, [small, large], 7.0) == 20.0
    assert making_s("other", "mine", 100, [small, large], 7.0) == 7.0


def test_each_kind_of_work_is_corrected_by_what_it_took(forecast: Forecast, clock: Clock) -> None:
    for variant in ("fp32", "bf16"):
        forecast.expect(Work.LOADING, variant, 10.0)
        forecast.expect(Work.ROUNDS, variant, 50.0, "batch[8]")
    assert forecast.left_s == 120.0
    with forecast.doing(Work.LOADING, "fp32"):
        clock.advance(20)
    assert forecast.left_by_work == {Work.LOADING: 20.0, Work.ROUNDS: 100.0}
    with forecast.doing(Work.LOADING, "bf16"):
        clock.advance(10)
    with forecast.doing(Work.ROUNDS, "fp32", "bf16", name="batch[8]"):
        clock.advance(80)
    assert forecast.left_s is None
    assert (forecast.correction(Work.LOADING), forecast.correction(Work.ROUNDS)) == (1.5, 0.8)


def test_a_variants_first_steps_correct_its_own_rounds(forecast: Forecast) -> None:
    for variant in ("fp32", "bf16"):
        forecast.expect_step(variant, 0.1)
        forecast.expect(Work.LOADING, variant, 10.0)
        forecast.expect_rounds(variant, 50.0, 1.0, "batch[8]")
        forecast.expect_rounds(variant, 2.0, 5.0, "a")  # which gets 5 s in any case
    assert forecast.left_by_work == {Work.LOADING: 20.0, Work.ROUNDS: 110.0}
    forecast.saw_step("fp32", 0.3)
    forecast.saw_step("unknown", 0.3)
    assert forecast.left_by_work == {Work.LOADING: 20.0, Work.ROUNDS: 211.0}
    forecast.saw_step("fp32", 0.3)  # of a second load
    assert forecast.left_by_work[Work.ROUNDS] == 211.0


def test_what_goes_on_counts_as_far_as_it_is(forecast: Forecast, clock: Clock) -> None:
    forecast.expect(Work.LOADING, "fp32", 10.0)
    forecast.expect(Work.ROUNDS, "fp32", 5.0, "a")
    with forecast.doing(Work.LOADING, "fp32"):
        clock.advance(4)
        assert forecast.left_s == 11.0
    assert forecast.left_s == 5.0


def test_what_takes_longer_than_expected_corrects_what_is_to_come_at_once(forecast: Forecast, clock: Clock) -> None:
    for variant in ("fp32", "bf16"):
        forecast.expect(Work.LOADING, variant, 10.0)
    with forecast.doing(Work.LOADING, "fp32"):
        clock.advance(40)
        assert forecast.left_s == 40.0
    assert forecast.left_s == 40.0


def test_what_is_made_within_a_load_is_none_of_its_time(forecast: Forecast, clock: Clock) -> None:
    forecast.expect(Work.MAKING, "ort", 0.0)
    forecast.expect(Work.LOADING, "ort", 10.0)
    forecast.expect(Work.LOADING, "ort", 10.0, AGAIN)
    with forecast.doing(Work.LOADING, "ort"):
        clock.advance(35)
        forecast.done(Work.MAKING, ["ort"], 30.0)
    assert forecast.correction(Work.LOADING) == 0.5
    assert forecast.left_s == 5.0


def test_a_variant_that_failed_takes_no_more_time(forecast: Forecast) -> None:
    forecast.expect(Work.LOADING, "ort", 10.0)
    forecast.expect(Work.ROUNDS, "ort", 10.0, "a")
    forecast.expect(Work.ROUNDS, "fp32", 10.0, "a")
    forecast.forget("fp32", "b")
    assert forecast.left_s == 30.0
    forecast.forget("ort")
    assert forecast.left_s == 10.0


def test_what_is_said_at_the_start(forecast: Forecast) -> None:
    forecast.expect(Work.MAKING, "ort", 0.0)
    forecast.expect(Work.LOADING, "fp32", 30.0)
    forecast.expect(Work.ROUNDS, "fp32", 200.0, "a")
    assert forecast.describe(1800.0) == "about 4 min: exports 0 s (cached), loading 30 s, rounds 3 min"
    forecast.expect(Work.ROUNDS, "fp32", 2000.0, "b")
    assert forecast.describe(1800.0) == (
        "about 37 min, of which 30 min are given: exports 0 s (cached), loading 30 s, rounds 37 min. "
        'Shorter: -k "prompt_length or batch", fewer --llm-variants, or --llm-time'
    )
