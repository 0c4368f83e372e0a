from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, Protocol, cast

import pytest
import torch
from small_models import skip_without_onnx

from llm_bench_fixtures.errors import GenerationMismatch
from llm_bench_fixtures.measure import timing
from llm_bench_fixtures.measure.timing import (
    WAKING_S,
    BatchTimes,
    Pauses,
    Round,
    batches_of,
    run_round,
    without_cold_steps,
    without_preemptions,
)
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import CacheKind, Padding, Prompts, Side, TokenIds, Workload, pad_batch

MakeRequest = Callable[..., LoadRequest]
ModelAround = Callable[[Any], TransformersModel]
WORKLOAD = Workload(((1, 2, 3), (4,), (5, 6, 7, 8)), new_tokens=4, batch_size=2)


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


NO_STREAMER = SimpleNamespace(put=lambda _: None, end=lambda: None)


class CountingModel:
    """Continues each row by 100, 101, ...; 50 ms to the first token of a row, 10 ms to each later one."""

    def __init__(self, tick: Callable[[float], None] = lambda seconds: None, missing: int = 0) -> None:
        self.tick = tick
        self.missing = missing
        self.asked: list[dict[str, Any]] = []

    def generate(self, input_ids: torch.Tensor, **how: Any) -> torch.Tensor:
        self.asked.append(how)
        new_tokens = how["max_new_tokens"] - self.missing
        streamer, criteria = how.get("streamer", NO_STREAMER), how.get("stopping_criteria", ())
        streamer.put(input_ids)
        for index in range(new_tokens):
            self.tick((0.010 if index else 0.050) * len(input_ids))
            streamer.put(input_ids[:, -1])
            assert not any(criterion(input_ids, None) for criterion in criteria)
        streamer.end()
        self.tick(0.003)  # what generate does once it has its tokens
        new = torch.arange(100, 100 + new_tokens).expand(len(input_ids), -1)
        return torch.cat([input_ids, new], dim=1)


def test_known_steps_give_known_times(clock: Clock, model_around: ModelAround) -> None:
    """Two prompts take twice as long as one here: first token after 100 ms, then one each 20 ms; 50 and 10 for one."""
    done = run_round(model_around(CountingModel(clock.advance)), WORKLOAD, clock)
    both, one = done.batches
    assert both.tokens_s == pytest.approx((0.100, 0.120, 0.140, 0.160))
    assert one.tokens_s == pytest.approx((0.050, 0.060, 0.070, 0.080))
    assert (both.end_s, one.end_s) == pytest.approx((0.163, 0.083))
    assert done.latency_s == pytest.approx(0.163 + 0.083)


def test_a_batch_generates_as_many_tokens_as_its_longest_answer_has(clock: Clock, model_around: ModelAround) -> None:
    """Four tokens of two prompts and two of one: 160 ms and 3 ms, then 60 ms and 3 ms."""
    workload = replace(WORKLOAD, lengths=(1, 4, 2))
    done = run_round(model_around(CountingModel(clock.advance)), workload, clock)
    assert [len(batch.tokens_s) for batch in done.batches] == [4, 2]
    assert done.latency_s == pytest.approx(0.163 + 0.063)
    assert done.continuations == ((100,), (100, 101, 102, 103), (100, 101))


def test_the_clock_is_read_on_an_idle_device(model_around: ModelAround) -> None:
    events: list[str] = []

    class WatchedDevice:
        kind = DeviceKind.CPU
        name = "cpu"

        def synchronize(self) -> None:
            events.append("idle")

    def clock() -> float:
        events.append("clock")
        return 0.0

    model = model_around(CountingModel(lambda seconds: events.append("work")))
    run_round(replace(model, device=cast(Device, WatchedDevice())), replace(WORKLOAD, new_tokens=1), clock)
    started, token = ["clock", "clock"], ["work", "clock", "work"]  # of the batch, of its first token
    one_batch = [*started, *token, "idle", "clock"]
    assert events == ["idle", "clock", *one_batch, *one_batch]


def test_on_cuda_events_are_queued_and_nothing_waits_for_a_token(
    monkeypatch: pytest.MonkeyPatch, model_around: ModelAround
) -> None:
    """The device's own times, read when the call is over: event n is recorded at 10·n ms."""
    queued: list[int] = []
    idle: list[int] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            self.at_ms = 10.0 * len(queued)
            queued.append(len(idle))

        def elapsed_time(self, other: Event) -> float:
            return other.at_ms - self.at_ms

    class CudaDevice:
        kind = DeviceKind.CUDA
        name = "cpu"  # where the tensors of this test are

        def synchronize(self) -> None:
            idle.append(len(queued))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    counting = CountingModel()
    model = replace(model_around(counting), device=cast(Device, CudaDevice()))
    done = run_round(model, replace(WORKLOAD, prompts=((1, 2),), batch_size=1))
    assert "streamer" not in counting.asked[0]  # it is handed each token in the CPU's memory
    assert done.batches[0].tokens_s == pytest.approx((0.010, 0.020, 0.030, 0.040))
    assert idle == [0, 5]  # before the start, and after all five events


@pytest.mark.parametrize(("calls", "told"), [(0, "0 times"), (3, "3 times"), (5, "5 times")])
def test_a_backend_that_does_not_tell_of_each_token_is_refused(
    calls: int, told: str, model_around: ModelAround
) -> None:
    """Its TPOT would be wrong without a word."""

    class Forgetful(CountingModel):
        def generate(self, input_ids: torch.Tensor, **how: Any) -> torch.Tensor:
            streamer = how.pop("streamer")
            for _ in range(1 + calls):  # the prompt comes first
                streamer.put(input_ids)
            return super().generate(input_ids, **how)

    with pytest.raises(GenerationMismatch, match=f"on_token {told} for 4 new tokens"):
        run_round(model_around(Forgetful()), WORKLOAD)


def test_a_step_that_sleeps_shows_in_the_gaps_and_not_before_the_first_token(
    clock: Clock, model_around: ModelAround
) -> None:
    class SlowDecode(CountingModel):
        def generate(self, input_ids: torch.Tensor, **how: Any) -> torch.Tensor:
            quick = self.tick
            self.tick = lambda seconds: quick(seconds + 0.002 if seconds == 0.010 else seconds)
            return super().generate(input_ids, **how)

    workload = replace(WORKLOAD, prompts=((1, 2),), batch_size=1)
    usual, slow = (
        run_round(model_around(kind(clock.advance)), workload, clock).batches[0].tokens_s
        for kind in (CountingModel, SlowDecode)
    )
    assert slow[0] == pytest.approx(usual[0])
    assert (slow[-1] - slow[0]) / 3 - (usual[-1] - usual[0]) / 3 == pytest.approx(0.002)


def test_a_real_step_that_sleeps_is_in_every_gap(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """A sleep is never shorter than it was asked to be, and this one is many times a step of the embedded model; the
    first pass, over the whole prompt, has none.
    """

    def sleep(module: torch.nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        if given["input_ids"].shape[1] == 1:
            time.sleep(0.1)

    hook = tiny_fp32.module.register_forward_pre_hook(sleep, with_kwargs=True)
    try:
        (batch,) = run_round(tiny_fp32, Workload((prompts.exact(8),), new_tokens=6, batch_size=1)).batches
    finally:
        hook.remove()
    assert all(after - before >= 0.1 for before, after in pairwise(batch.tokens_s))


def test_generate_is_asked_for_exactly_the_new_tokens_and_the_mask(model_around: ModelAround) -> None:
    module = CountingModel()
    run_round(model_around(module), WORKLOAD)
    how, _ = module.asked
    assert how["max_new_tokens"] == 4
    assert how["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]


def test_the_tensors_of_a_workload_are_made_once(model_around: ModelAround) -> None:
    model = model_around(CountingModel())
    first = batches_of(model, WORKLOAD)
    assert batches_of(model, replace(WORKLOAD)) is first
    assert batches_of(model, replace(WORKLOAD, padding=Padding(Side.RIGHT))) is not first


@pytest.mark.parametrize(
    ("cache", "use_cache", "implementation"),
    [(CacheKind.DYNAMIC, True, None), (CacheKind.STATIC, True, "static"), (CacheKind.OFF, False, None)],
)
def test_each_kind_of_cache_is_what_generate_is_asked_for(
    cache: CacheKind, use_cache: bool, implementation: str | None, model_around: ModelAround
) -> None:
    module = CountingModel()
    run_round(model_around(module), replace(WORKLOAD, cache=cache))
    how = module.asked[0]
    assert (how["use_cache"], how.get("cache_implementation")) == (use_cache, implementation)


def test_continuations_are_the_new_tokens_of_each_prompt_in_order(model_around: ModelAround) -> None:
    assert run_round(model_around(CountingModel()), WORKLOAD).continuations == ((100, 101, 102, 103),) * 3


def test_a_model_that_stops_early_is_a_mismatch_with_both_counts(model_around: ModelAround) -> None:
    with pytest.raises(GenerationMismatch, match=r"\[3\] new tokens where 4 were asked for"):
        run_round(model_around(CountingModel(missing=1)), WORKLOAD)


def greedy(model: TransformersModel, workload: Workload) -> tuple[TokenIds, ...]:
    return run_round(model, workload).continuations


@pytest.mark.parametrize("variant", ["fp32", "bf16", "autocast-bf16", "bnb-int8", "bnb-nf4", "ort-fp32"])
@pytest.mark.parametrize("cache", list(CacheKind))
def test_every_token_has_its_time_within_the_call(
    variant: str, cache: CacheKind, make_request: MakeRequest, prompts: Prompts
) -> None:
    if variant.startswith("ort"):
        skip_without_onnx()
    model = load_variant(make_request(variant)).model
    if cache not in model.facts.cache_kinds:
        pytest.skip("no such cache")
    done = run_round(model, Workload(prompts.varied(3), new_tokens=5, batch_size=2, cache=cache))
    for batch in done.batches:
        assert len(batch.tokens_s) == 5
        assert list(batch.tokens_s) == sorted(batch.tokens_s)
        assert batch.tokens_s[0] > 0
        assert batch.tokens_s[-1] < batch.end_s <= done.latency_s


@pytest.fixture(scope="module")
def unpadded(tiny_fp32: TransformersModel, prompts: Prompts) -> tuple[TokenIds, ...]:
    return greedy(tiny_fp32, Workload(prompts.varied(), new_tokens=12, batch_size=1))


@pytest.mark.parametrize(
    ("batch_size", "padding"), [(8, Padding()), (3, Padding(multiple_of=32)), (1, Padding(at_least=100))]
)
def test_left_padding_with_a_mask_changes_no_greedy_token(
    batch_size: int,
    padding: Padding,
    tiny_fp32: TransformersModel,
    prompts: Prompts,
    unpadded: tuple[TokenIds, ...],
) -> None:
    assert greedy(tiny_fp32, Workload(prompts.varied(), 12, batch_size, padding)) == unpadded


@pytest.mark.parametrize("cache", [CacheKind.STATIC, CacheKind.OFF])
def test_the_cache_changes_no_greedy_token_in_float32(
    cache: CacheKind, tiny_fp32: TransformersModel, prompts: Prompts, unpadded: tuple[TokenIds, ...]
) -> None:
    assert greedy(tiny_fp32, Workload(prompts.varied(), 12, batch_size=8, cache=cache)) == unpadded


def test_left_padding_with_a_mask_changes_no_logit(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """As `generate` feeds it: positions count from the first token that isn't padding."""
    ids = prompts.exact(20)
    plain, padded = (pad_batch([ids], width, Side.LEFT, 0, "cpu") for width in (20, 33))
    positions = (padded.attention_mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        expected = tiny_fp32.module(plain.input_ids).logits[0, -1]
        actual = tiny_fp32.module(
            padded.input_ids, attention_mask=padded.attention_mask, position_ids=positions
        ).logits[0, -1]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_repeated_round_gives_the_same_tokens(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    workload = Workload(prompts.varied(4), new_tokens=8, batch_size=4)
    assert greedy(tiny_fp32, workload) == greedy(tiny_fp32, workload)


def test_decode_steps_are_within_their_batch() -> None:
    """Tokens after 1, 2 and 4 s, and after 1 and 1.5 s; the last one's way to the batch's end is no step."""
    batches = (BatchTimes((1.0, 2.0, 4.0), 5.0), BatchTimes((1.0, 1.5), 2.0))
    assert Round(7.5, batches, ()).decode_steps_s == (1.0, 2.0, 0.5)
    assert Round(0.5, (BatchTimes((0.5,), 0.5),), ()).decode_steps_s == ()


def test_the_first_step_after_a_pause_counts_as_the_mean_of_its_slice() -> None:
    """By hand: tokens at 1, 2, 3, then after a pause steps of 5, 1 and 3, after another one of 9 alone, and 1 s more.
    The 5 becomes 2, and the 9 stays, so that the round is 3 s shorter."""
    batch = BatchTimes((1.0, 2.0, 3.0, 8.0, 9.0, 12.0, 21.0), 22.0, paused_after=(2, 5))
    done = without_cold_steps(Round(22.5, (batch,), ()))
    (warm,) = done.batches
    assert warm.tokens_s == (1.0, 2.0, 3.0, 5.0, 6.0, 9.0, 18.0)
    assert warm.end_s == 19.0
    assert (done.latency_s, done.cold_steps) == (19.5, 1)


def test_all_steps_that_begin_within_ten_milliseconds_of_a_pause_are_cold() -> None:
    """Steps of 4, 3, 3 and 3 ms after a pause begin 0, 4, 7 and 10 ms after it; two of 2 ms follow."""
    steps_s = (0.004, 0.003, 0.003, 0.003, 0.002, 0.002)
    tokens_s = tuple(accumulate(steps_s, initial=0.1))
    done = without_cold_steps(Round(1.0, (BatchTimes(tokens_s, tokens_s[-1], (0,)),), ()))
    mean_s = (0.003 + 0.002 + 0.002) / 3
    assert done.decode_steps_s == pytest.approx((mean_s,) * 3 + (0.003, 0.002, 0.002))
    assert done.cold_steps == 3


def test_where_all_steps_are_cold_the_last_one_stands_for_them() -> None:
    batch = BatchTimes((0.1, 0.104, 0.107, 0.109), 0.109, (0,))
    done = without_cold_steps(Round(1.0, (batch,), ()))
    (warm,) = done.batches
    assert Round(1.0, (warm,), ()).decode_steps_s == pytest.approx((0.002,) * 3)
    assert done.cold_steps == 2


@pytest.mark.parametrize("paused_after", [(), (2,)], ids=["no pause", "a pause after the last token"])
def test_where_no_step_is_cold_the_round_is_as_it_was(paused_after: tuple[int, ...]) -> None:
    done = Round(4.5, (BatchTimes((1.0, 2.0, 3.0), 4.0, paused_after),), ())
    assert without_cold_steps(done) == done


def test_a_slice_that_ends_with_its_batch_is_no_longer_than_that() -> None:
    """The step after the pause is 4, the one beside it 2; the next batch, which begins in the same slice, has none."""
    batches = (BatchTimes((1.0, 5.0, 7.0), 8.0, paused_after=(0,)), BatchTimes((1.0, 3.0, 5.0), 6.0, began_s=8.0))
    warm = without_cold_steps(Round(14.0, batches, ()))
    assert (warm.batches[0].tokens_s, warm.latency_s) == ((1.0, 3.0, 5.0), 12.0)
    assert warm.batches[1] == replace(batches[1], began_s=6.0)


def test_energy_is_that_of_the_rounds_own_slices(
    tiny_fp32: TransformersModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watt all the time; the others use 100 J in each of two pauses."""
    used = SimpleNamespace(joules=0.0, read=lambda: used.joules)

    def pause() -> None:
        used.joules += 100.0

    monkeypatch.setattr(timing, "energy_meter", lambda _: used)
    workload = Workload((prompts.exact(6),), new_tokens=6, batch_size=1)
    assert run_round(tiny_fp32, workload, pauses=Pauses(pause, 2)).energy_j == 0.0
    used.read = lambda: math.nan
    assert run_round(tiny_fp32, workload, pauses=Pauses(pause, 2)).energy_j is None


def test_what_a_process_is_suspended_for_is_no_time_of_its_round() -> None:
    """Two batches of 4 s from 100 s on. It is suspended for 1 s within the first one's second step, for 0.5 s between
    its last token and its end, and for 2 s within the second one's prefill; what lies outside counts for nothing."""
    first = BatchTimes((1.0, 3.0), 4.0)
    second = BatchTimes((3.5,), 4.0, began_s=4.0)
    done = Round(8.0, (first, second), (), waited_s=0.01, began_s=100.0)
    suspended = [(98.0, 99.0), (101.5, 102.5), (103.25, 103.75), (104.5, 106.5), (108.25, 109.0)]
    own = without_preemptions(done, suspended)
    assert own.latency_s == pytest.approx(4.5)
    assert own.batches[0].tokens_s == pytest.approx((1.0, 2.0))
    assert own.batches[0].end_s == pytest.approx(2.5)
    assert own.batches[1].began_s == pytest.approx(2.5)
    assert own.batches[1].tokens_s == pytest.approx((1.5,))
    assert own.batches[1].end_s == pytest.approx(2.0)
    assert own.pauses == 3
    assert own.waited_s == pytest.approx(0.01 - 3 * WAKING_S)


def test_a_batch_begins_earlier_without_the_cold_steps_of_those_before_it() -> None:
    """The first batch's step after a pause took 6 ms in place of 4."""
    first = BatchTimes((0.1, 0.106, 0.110, 0.114, 0.118), 0.12, paused_after=(0,))
    done = without_cold_steps(Round(0.24, (first, replace(first, paused_after=(), began_s=0.12)), ()))
    assert done.batches[1].began_s == pytest.approx(0.12 - (first.end_s - done.batches[0].end_s))
    assert done.batches[1].began_s < 0.12


def test_a_round_knows_when_it_and_its_batches_began(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    before_s = time.perf_counter()
    done = run_round(tiny_fp32, Workload(prompts.varied(4), new_tokens=3, batch_size=2))
    assert before_s <= done.began_s <= time.perf_counter() - done.latency_s
    first, second = done.batches
    assert first.end_s <= second.began_s <= done.latency_s - second.end_s
