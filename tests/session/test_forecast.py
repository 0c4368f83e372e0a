"""How long a run takes, with numbers derived by hand from a machine of round figures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import Protocol

import pytest

from llm_bench_fixtures.measure.timing import BatchTimes, Round
from llm_bench_fixtures.session.forecast import (
    Forecast,
    MachineSpeed,
    Phases,
    Runner,
    WorkKind,
    load_name,
)
from llm_bench_fixtures.workloads import CacheKind, Padding, Workload, blank


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


MACHINE = MachineSpeed(
    read_bytes_per_s=400.0, flops_per_s=1000.0, copy_bytes_per_s=100.0, hash_bytes_per_s=50.0, call_s=0.0
)
FP32 = Runner(MACHINE, weights=100, layers=1)  # 400 bytes: a second to read; 200 operations a position: 0.2 s


@pytest.fixture
def forecast(clock: Clock) -> Forecast:
    return Forecast(clock)


def test_a_pass_takes_as_long_as_reading_the_weights_or_as_computing() -> None:
    assert FP32.pass_s(1) == 1.0  # reading
    assert FP32.pass_s(10) == 2.0  # computing
    half = Runner(MACHINE, weights=100, layers=1, bytes_per_weight=2, flops_per_s=4000.0)
    assert (half.pass_s(1), half.pass_s(10)) == (0.5, 0.5)


def test_a_few_positions_may_take_longer_to_multiply_than_one() -> None:
    """In float32 torch reads the same weights at another speed: 400 bytes, at 100 a second in place of 400."""
    machine = replace(MACHINE, rows_bytes_per_s=100.0)
    plain = Runner(machine, weights=100, layers=1, is_plain=True)
    assert [plain.pass_s(positions) for positions in (1, 2, 10, 30)] == [1.0, 4.0, 4.0, 6.0]
    assert Runner(machine, weights=100, layers=1).pass_s(2) == 1.0
    assert Runner(MACHINE, weights=100, layers=1, is_plain=True).pass_s(2) == 1.0


def test_small_models_take_what_starting_their_operations_takes() -> None:
    slow = MachineSpeed(400.0, 1000.0, 100.0, 50.0, call_s=0.001)
    small = Runner(slow, weights=100, layers=9)
    assert small.pass_s(1) == pytest.approx(1.0 + 140 * 10 * 0.001)
    padded = Workload((blank(1), blank(2)), new_tokens=2, batch_size=2)  # each pass makes a mask
    assert small.round_s(padded) == pytest.approx(2 * (1.0 + (140 * 10 + 2500) * 0.001))


def test_a_round_is_a_prefill_and_a_pass_for_each_further_token() -> None:
    assert FP32.round_s(Workload((blank(10),), 4, 1)) == 2.0 + 3 * 1.0
    assert FP32.round_s(Workload((blank(10),) * 8, 4, 4)) == 2 * (40 * 0.2 + 3 * 1.0)
    assert FP32.round_s(Workload((blank(10),), 3, 1, cache=CacheKind.OFF)) == pytest.approx((10 + 11 + 12) * 0.2)


def test_a_round_reads_padding_too() -> None:
    """Two rows of 8 columns, at 0.2 s each."""
    assert FP32.round_s(Workload((blank(1), blank(3)), 4, 2, Padding(at_least=8))) == pytest.approx(16 * 0.2 + 3 * 1.0)


def test_batches_are_as_long_as_on_average() -> None:
    """Of 10 and of 30 tokens, with 2 and with 4 new ones: each as if of 20, with 3."""
    unlike = Workload((blank(10), blank(30)), 4, 1, lengths=(2, 4))
    assert FP32.round_s(unlike) == 2 * FP32.round_s(Workload((blank(20),), 3, 1))


def test_a_load_copies_the_weights_and_generates_once() -> None:
    first = Workload((blank(10),), new_tokens=1, batch_size=1)
    assert FP32.load_s(first) == (2 * 400 + 400) / 100 + 2.0
    made = Runner(MACHINE, weights=100, layers=1, bytes_per_weight=1, is_made=True)
    assert made.load_s(first) == (2 * 400 + 100) / 100 + (400 + 100) / 50 + 2.0


def test_each_kind_of_work_is_corrected_by_what_it_took(forecast: Forecast, clock: Clock) -> None:
    for variant in ("fp32", "bf16"):
        forecast.expect(WorkKind.LOADING, variant, 10.0)
        forecast.expect(WorkKind.ROUNDS, variant, 50.0, "batch[8]")
    assert forecast.left_s == 120.0
    with forecast.doing(WorkKind.LOADING, "fp32"):
        clock.advance(20)
    assert forecast.left_by_work == {WorkKind.LOADING: 20.0, WorkKind.ROUNDS: 100.0}
    with forecast.doing(WorkKind.LOADING, "bf16"):
        clock.advance(10)
    with forecast.doing(WorkKind.ROUNDS, "fp32", "bf16", name="batch[8]"):
        clock.advance(80)
    assert forecast.left_s is None
    assert (forecast.correction(WorkKind.LOADING), forecast.correction(WorkKind.ROUNDS)) == (1.5, (0.8 + 6) / (1 + 6))


def test_rounds_are_corrected_by_and_by(forecast: Forecast, clock: Clock) -> None:
    """Each case takes twice as long as expected. The expectation weighs as much as 6 cases, and fades as they do."""
    corrections = []
    for case in range(60):
        forecast.expect(WorkKind.ROUNDS, "fp32", 10.0, str(case))
    for case in range(60):
        with forecast.doing(WorkKind.ROUNDS, "fp32", name=str(case)):
            clock.advance(20)
        corrections.append(forecast.correction(WorkKind.ROUNDS))
    assert corrections[:2] == pytest.approx([1 + 1 / 7, 1 + 1.9 / (1.9 + 5.4)])
    assert corrections[-1] == pytest.approx(2.0, abs=0.01)


def timed(prefill_s: float, *steps_s: float) -> Round:
    tokens_s = tuple(accumulate(steps_s, initial=prefill_s))
    return Round(tokens_s[-1], (BatchTimes(tokens_s, tokens_s[-1]),), ())


def test_a_variants_rounds_correct_its_own_ones_by_the_phase(forecast: Forecast) -> None:
    """A prefill of 10 tokens is expected to take 2 s, a step 1 s; 3 and 4 s are seen."""
    for variant in ("fp32", "bf16"):
        forecast.expect_runner(variant, FP32)
        forecast.expect_passes(WorkKind.ROUNDS, variant, Phases(20.0, 30.0), "batch[8]")
        forecast.expect_rounds(variant, "a", Phases(), Phases(1.0, 1.0), least_s=5.0)  # in any case
    assert forecast.left_by_work == {WorkKind.ROUNDS: 110.0}
    forecast.saw(
        "fp32", Workload((tuple(range(10)),), 3, 1), [timed(2.0, 4.0, 4.0), timed(3.0, 4.0, 4.0), timed(9.0, 8.0, 8.0)]
    )
    forecast.saw("unknown", Workload(((1,),), 1, 1), [timed(3.0)])
    assert forecast.left_by_work == {WorkKind.ROUNDS: 55.0 + (30.0 + 120.0) + 5.5}


def test_the_time_that_rounds_get_comes_after_the_warm_up(forecast: Forecast) -> None:
    """Bug: a warm-up was thought to be part of the 5 s, so that a run took twice as long as it was told."""
    forecast.expect_rounds("fp32", "a", Phases(1.0, 1.0), Phases(1.0, 2.0), least_s=5.0)
    assert (forecast.left_s, forecast.least_rounds_s(["fp32"], "a")) == (7.0, 5.0)


def test_without_a_cache_each_pass_is_a_prefill(forecast: Forecast) -> None:
    forecast.expect_runner("fp32", FP32)
    forecast.expect_passes(WorkKind.ROUNDS, "fp32", Phases(1.0, 1.0), "a")
    workload = Workload((tuple(range(10)),), 3, 1, cache=CacheKind.OFF)  # 10, 11 and 12 positions: 6.6 s
    forecast.saw("fp32", workload, [timed(6.6, 3.3, 3.3)])
    assert forecast.left_s == pytest.approx(2.0 + 1.0)


def test_what_was_seen_last_counts_most(forecast: Forecast) -> None:
    """A pass takes 5 s, then 1 s as expected, and a case counts half as much as the next: (5/2 + 1) / (1/2 + 1)."""
    forecast.expect_runner("fp32", FP32)
    forecast.expect_passes(WorkKind.ROUNDS, "fp32", Phases(decode_s=7.0), "a")
    workload = Workload(((1,),), 2, 1)
    found = []
    for seconds in (5.0, 1.0, 1.0):
        forecast.saw("fp32", workload, [timed(1.0, seconds)])
        found.append(forecast.left_s)
    assert found == pytest.approx([35.0, 7 * 3.5 / 1.5, 7 * 2.75 / 1.75])


def test_of_cases_too_the_last_counts_most(forecast: Forecast, clock: Clock) -> None:
    """Of three that were expected to take 10 s the first took 50, the second 10. By its rounds the variant takes
    (50/2 + 10) / (10/2 + 10) times as long, so that both were expected to take 70/3; they took (0.9 * 50 + 10) /
    (0.9 * 70/3 + 70/3) times that. That has a weight of 1.9 next to 5.4 of the expectation."""
    forecast.expect_runner("fp32", FP32)
    for case in ("a", "b", "c"):
        forecast.expect_passes(WorkKind.ROUNDS, "fp32", Phases(decode_s=10.0), case)
    for case, seconds in (("a", 50.0), ("b", 10.0)):
        with forecast.doing(WorkKind.ROUNDS, "fp32", name=case):
            clock.advance(seconds)
            forecast.saw("fp32", Workload(((1,),), 2, 1), [timed(1.0, seconds / 10)])
    factor = (0.9 * 50 + 10) / (1.9 * 70 / 3)
    assert forecast.left_s == pytest.approx(70 / 3 * (1.9 * factor + 5.4) / (1.9 + 5.4))


def test_what_a_variant_was_found_to_take_is_not_corrected_again(forecast: Forecast, clock: Clock) -> None:
    """Two cases of 10 s each; the first takes 20 s, and its rounds show why: nothing is left for their kind."""
    forecast.expect_runner("fp32", FP32)
    for case in ("a", "b"):
        forecast.expect_passes(WorkKind.ROUNDS, "fp32", Phases(decode_s=10.0), case)
    with forecast.doing(WorkKind.ROUNDS, "fp32", name="a"):
        clock.advance(20)
        forecast.saw("fp32", Workload(((1,),), 2, 1), [timed(1.0, 2.0)])
    assert (forecast.correction(WorkKind.ROUNDS), forecast.left_s) == (1.0, 20.0)


def test_what_goes_on_counts_as_far_as_it_is(forecast: Forecast, clock: Clock) -> None:
    forecast.expect(WorkKind.LOADING, "fp32", 10.0)
    forecast.expect(WorkKind.ROUNDS, "fp32", 5.0, "a")
    with forecast.doing(WorkKind.LOADING, "fp32"):
        clock.advance(4)
        assert forecast.left_s == 11.0
    assert forecast.left_s == 5.0


def test_what_takes_longer_than_expected_corrects_what_is_to_come_at_once(forecast: Forecast, clock: Clock) -> None:
    for variant in ("fp32", "bf16"):
        forecast.expect(WorkKind.LOADING, variant, 10.0)
    with forecast.doing(WorkKind.LOADING, "fp32"):
        clock.advance(40)
        assert forecast.left_s == 40.0
    assert forecast.left_s == 40.0


def test_work_of_the_same_kind_within_another_is_none_of_its_time(forecast: Forecast, clock: Clock) -> None:
    """A variant's sample waits for the reference's. Each takes 10 s."""
    for variant in ("fp32", "int8"):
        for sample in ("1", "2"):
            forecast.expect(WorkKind.QUALITY, variant, 10.0, sample)
    with forecast.doing(WorkKind.QUALITY, "int8", name="1"):
        with forecast.doing(WorkKind.QUALITY, "fp32", name="1"):
            clock.advance(10)
        clock.advance(4)
        assert forecast.left_s == 26
        clock.advance(6)
    assert (forecast.correction(WorkKind.QUALITY), forecast.left_s) == (1.0, 20.0)


def test_pieces_that_are_joined_are_done_together(forecast: Forecast, clock: Clock) -> None:
    for name, seconds in (("", 1.0), ("1", 1.0), ("2", 2.0)):
        forecast.expect(WorkKind.QUALITY, "fp32", seconds, name)
    forecast.expect(WorkKind.QUALITY, "int8", 4.0, "1")
    with forecast.doing(WorkKind.QUALITY, "fp32"):
        forecast.join(WorkKind.QUALITY)
        clock.advance(4)
    assert (forecast.correction(WorkKind.QUALITY), forecast.left_s) == (1.0, 4.0)
    assert forecast.expected_s(WorkKind.QUALITY, "int8") == 4.0


def test_what_is_made_within_a_load_is_none_of_its_time(forecast: Forecast, clock: Clock) -> None:
    forecast.expect(WorkKind.MAKING, "ort", 0.0)
    forecast.expect(WorkKind.LOADING, "ort", 10.0)
    forecast.expect(WorkKind.LOADING, "ort", 10.0, load_name(1))
    with forecast.doing(WorkKind.LOADING, "ort"):
        clock.advance(35)
        forecast.done(WorkKind.MAKING, ["ort"], 30.0)
    assert forecast.correction(WorkKind.LOADING) == 0.5
    assert forecast.left_s == 5.0


def test_a_variant_that_failed_takes_no_more_time(forecast: Forecast) -> None:
    forecast.expect(WorkKind.LOADING, "ort", 10.0)
    forecast.expect(WorkKind.ROUNDS, "ort", 10.0, "a")
    forecast.expect(WorkKind.ROUNDS, "fp32", 10.0, "a")
    forecast.forget("fp32", "b")
    assert forecast.left_s == 30.0
    forecast.forget("ort")
    assert forecast.left_s == 10.0


def test_further_rounds_are_told_besides_the_fewest(forecast: Forecast) -> None:
    for case in ("a", "b"):
        forecast.expect_rounds("fp32", case, Phases(5.0), Phases(10.0), least_s=12.0)
    assert (forecast.timed_s("b".__eq__), forecast.least_rounds_s(["fp32"], "a"), forecast.left_s) == (12.0, 15.0, 34.0)
    forecast.expect(WorkKind.FURTHER, "", 26.0)
    assert forecast.describe(1800.0) == "about 60 s: rounds 34 s, further rounds 26 s"


def test_what_is_said_at_the_start(forecast: Forecast) -> None:
    forecast.expect(WorkKind.MAKING, "ort", 0.0)
    forecast.expect(WorkKind.LOADING, "fp32", 30.0)
    forecast.expect(WorkKind.ROUNDS, "fp32", 200.0, "a")
    assert forecast.describe(1800.0) == "about 4 min: exports 0 s (cached), loading 30 s, rounds 3 min"
    forecast.expect(WorkKind.ROUNDS, "fp32", 2000.0, "b")
    assert forecast.describe(1800.0) == (
        "about 37 min, but the limit is 30 min: exports 0 s (cached), loading 30 s, rounds 37 min. "
        "--llm-time 50m has room for all"
    )
    assert forecast.describe(1800.0, ["-k own", "fewer --llm-variants"]).endswith(
        "rounds 37 min. Shorter: -k own, fewer --llm-variants. --llm-time 50m has room for all"
    )
    assert forecast.describe(math.inf, ["-k own"]).endswith("37 min. Shorter: -k own, --llm-time")


@pytest.mark.parametrize(
    ("seconds", "limit"), [(100, "10m"), (5000, "100m"), (5900, "2h"), (14_000, "5h"), (600_000, "none")]
)
def test_a_limit_with_room_for_all_has_a_fifth_more(forecast: Forecast, seconds: float, limit: str) -> None:
    forecast.expect(WorkKind.ROUNDS, "fp32", seconds, "a")
    assert forecast.describe(60.0).endswith(f"--llm-time {limit} has room for all")
