from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, cast

import pytest
import torch

from llm_bench_fixtures.device import Device
from llm_bench_fixtures.errors import GenerationMismatch
from llm_bench_fixtures.measure.timing import Round, continuations, run_round
from llm_bench_fixtures.models import LoadedModel
from llm_bench_fixtures.workloads import Batch, CacheKind, Padding, Prompts, Side, Workload, make_batches, pad_batch

ModelAround = Callable[[Any], LoadedModel]
WORKLOAD = Workload(((1, 2, 3), (4,), (5, 6, 7, 8)), new_tokens=4, batch_size=2)


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class CountingModel:
    """Continues each row by 100, 101, ... and lets the clock tick 10 ms a token."""

    def __init__(self, tick: Callable[[float], None] = lambda seconds: None, missing: int = 0) -> None:
        self.tick = tick
        self.missing = missing
        self.asked: list[dict[str, Any]] = []

    def generate(self, input_ids: torch.Tensor, **how: Any) -> torch.Tensor:
        self.asked.append(how)
        new_tokens = how["max_new_tokens"] - self.missing
        self.tick(0.010 * new_tokens * len(input_ids))
        new = torch.arange(100, 100 + new_tokens).expand(len(input_ids), -1)
        return torch.cat([input_ids, new], dim=1)


def batches_of(workload: Workload) -> list[Batch]:
    return make_batches(workload, pad_token_id=0, device="cpu")


def test_a_clock_that_ticks_10_ms_a_token_gives_each_batchs_seconds(clock: Clock, model_around: ModelAround) -> None:
    """Four new tokens of two prompts, then of one."""
    model = model_around(CountingModel(clock.advance))
    done = run_round(model, batches_of(WORKLOAD), new_tokens=4, cache=CacheKind.DYNAMIC, clock=clock)
    assert done.batch_s == pytest.approx((0.080, 0.040))


def test_each_clock_reading_comes_after_the_device_is_idle(cpu: Device, model_around: ModelAround) -> None:
    events: list[str] = []

    class WatchedDevice:
        def synchronize(self) -> None:
            events.append("synchronize")

    def clock() -> float:
        events.append("clock")
        return 0.0

    model = model_around(CountingModel(lambda seconds: events.append("generate")))
    model = replace(model, device=cast(Device, WatchedDevice()))
    run_round(model, batches_of(WORKLOAD), new_tokens=1, cache=CacheKind.DYNAMIC, clock=clock)
    one_batch = ["clock", "generate", "synchronize", "clock"]
    assert events == ["synchronize", *one_batch, *one_batch]


def test_generate_is_asked_for_exactly_the_new_tokens_and_the_mask(model_around: ModelAround) -> None:
    module = CountingModel()
    batch, _ = batches_of(WORKLOAD)
    run_round(model_around(module), [batch], new_tokens=4, cache=CacheKind.DYNAMIC)
    (how,) = module.asked
    assert (how["min_new_tokens"], how["max_new_tokens"]) == (4, 4)
    assert how["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]


@pytest.mark.parametrize(
    ("cache", "use_cache", "implementation"),
    [(CacheKind.DYNAMIC, True, None), (CacheKind.STATIC, True, "static"), (CacheKind.OFF, False, None)],
)
def test_each_kind_of_cache_is_what_generate_is_asked_for(
    cache: CacheKind, use_cache: bool, implementation: str | None, model_around: ModelAround
) -> None:
    module = CountingModel()
    run_round(model_around(module), batches_of(WORKLOAD)[:1], new_tokens=1, cache=cache)
    (how,) = module.asked
    assert (how["use_cache"], how.get("cache_implementation")) == (use_cache, implementation)


def test_continuations_are_the_new_tokens_of_each_prompt_in_order(model_around: ModelAround) -> None:
    batches = batches_of(WORKLOAD)
    done = run_round(model_around(CountingModel()), batches, new_tokens=4, cache=CacheKind.DYNAMIC)
    assert continuations(done, batches, new_tokens=4) == [(100, 101, 102, 103)] * 3


def test_a_model_that_stops_early_is_a_mismatch_with_both_counts(model_around: ModelAround) -> None:
    batches = batches_of(WORKLOAD)
    done = run_round(model_around(CountingModel(missing=1)), batches, new_tokens=4, cache=CacheKind.DYNAMIC)
    with pytest.raises(GenerationMismatch, match=r"\[3\] new tokens where 4 were asked for"):
        continuations(done, batches, new_tokens=4)


def test_a_round_that_lost_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        continuations(Round((), ()), batches_of(WORKLOAD), new_tokens=4)


def greedy(model: LoadedModel, workload: Workload) -> list[tuple[int, ...]]:
    batches = make_batches(workload, model.tokenizer.pad_token_id, model.device.name)
    done = run_round(model, batches, workload.new_tokens, workload.cache)
    return continuations(done, batches, workload.new_tokens)


@pytest.fixture(scope="module")
def unpadded(tiny_fp32: LoadedModel, prompts: Prompts) -> list[tuple[int, ...]]:
    return greedy(tiny_fp32, Workload(prompts.varied(), new_tokens=12, batch_size=1))


@pytest.mark.parametrize(
    ("batch_size", "padding"), [(8, Padding()), (3, Padding(multiple_of=32)), (1, Padding(at_least=100))]
)
def test_left_padding_with_a_mask_changes_no_greedy_token(
    batch_size: int,
    padding: Padding,
    tiny_fp32: LoadedModel,
    prompts: Prompts,
    unpadded: list[tuple[int, ...]],
) -> None:
    assert greedy(tiny_fp32, Workload(prompts.varied(), 12, batch_size, padding)) == unpadded


@pytest.mark.parametrize("cache", [CacheKind.STATIC, CacheKind.OFF])
def test_the_cache_changes_no_greedy_token_in_float32(
    cache: CacheKind, tiny_fp32: LoadedModel, prompts: Prompts, unpadded: list[tuple[int, ...]]
) -> None:
    assert greedy(tiny_fp32, Workload(prompts.varied(), 12, batch_size=8, cache=cache)) == unpadded


def test_left_padding_with_a_mask_changes_no_logit(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
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


def test_a_repeated_round_gives_the_same_tokens(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
    workload = Workload(prompts.varied(4), new_tokens=8, batch_size=4)
    assert greedy(tiny_fp32, workload) == greedy(tiny_fp32, workload)
