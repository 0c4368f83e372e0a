"""What is kept between two forward passes, by hand: keys and values apart from states, and never an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache, MistralConfig, StaticCache

from llm_bench_fixtures.measure.passes import CacheBytes, bytes_after
from llm_bench_fixtures.measure.work import Observed, passes_of
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Prompts, Side, pad_batch


def cache_bytes(cache: object) -> CacheBytes:
    return bytes_after(SimpleNamespace(past_key_values=cache))


def test_no_cache_has_no_bytes() -> None:
    assert cache_bytes(None) == CacheBytes(0, 0)


def test_tuples_of_keys_and_values_are_summed_and_a_shared_storage_counted_once() -> None:
    """As Optimum returns them: a pair a layer. 2 x 3 float32 have 24 bytes."""
    keys, values = torch.zeros(2, 3), torch.zeros(2, 3)
    assert cache_bytes(((keys, values), (keys, values.T))) == CacheBytes(48)


def test_a_layer_that_holds_nothing_yet_has_no_bytes() -> None:
    assert cache_bytes(SimpleNamespace(layers=[SimpleNamespace(keys=None, values=None)])) == CacheBytes(0, 0)


def test_a_layer_with_another_state_than_keys_has_the_bytes_of_its_tensors() -> None:
    layer = SimpleNamespace(conv=torch.zeros(4), states=[torch.zeros(2), None], more={0: torch.zeros(1)}, seen=7)
    assert cache_bytes(SimpleNamespace(layers=[layer])) == CacheBytes(0, 28)


def test_a_cache_without_layers_has_the_bytes_of_its_tensors() -> None:
    cache = SimpleNamespace(key_cache=[torch.zeros(4)], value_cache=[torch.zeros(4)], dtype=torch.float32)
    assert cache_bytes(cache) == CacheBytes(32, 0)


def test_a_hybrid_cache_has_both_beside_what_is_no_tensor() -> None:
    """Texts, numbers and devices in lists once ended the benchmark: "vars() argument must have __dict__ attribute"."""
    cache = SimpleNamespace(
        layer_types=["conv", "full_attention"],
        transformer_layers=[1],
        device=torch.device("cpu"),
        positions=torch.zeros(100, dtype=torch.int64),
        conv_states=[torch.zeros(3), None],
        key_cache=[torch.tensor([]), torch.zeros(5)],
        value_cache={0: torch.tensor([]), 1: torch.zeros(5)},
    )
    cache.itself = cache
    assert cache_bytes(cache) == CacheBytes(40, 12)


@pytest.mark.parametrize("name", ["cache_params", "state"])
def test_states_beside_the_cache_are_states(name: str) -> None:
    """Mamba's and RWKV's outputs, which have no past_key_values, were shown as a KV cache of 0 B."""
    held = [torch.zeros(4), torch.zeros(2)] if name == "state" else SimpleNamespace(ssm_states=torch.zeros(6))
    assert bytes_after(SimpleNamespace(**{name: held})) == CacheBytes(0, 24)


class Sulking:
    """A cache that can't be looked into."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("leave me alone\nplease")


def test_a_cache_that_can_not_be_counted_is_a_reason_and_no_error() -> None:
    found = bytes_after(SimpleNamespace(past_key_values=Sulking()))
    assert found.reason == "its cache can't be counted: RuntimeError: leave me alone"
    observed = passes_of("digest", [[CacheBytes(8), found]], keeps_cache=True)
    assert observed == Observed("digest", 2, cache_reason=found.reason)


def test_a_sliding_window_counts_what_it_keeps_of_a_longer_tensor() -> None:
    """Seven positions go in, the last four stay: two heads of eight float32 each, keys and values."""
    config = MistralConfig(num_hidden_layers=1, sliding_window=5)
    cache = DynamicCache(config=config)
    states = torch.zeros(1, 2, 7, 8)
    cache.update(states, states.clone(), 0)
    assert cache_bytes(cache) == CacheBytes(2 * 4 * 2 * 8 * 4)


# The embedded model keeps, for each position, a key and a value of 256 float32 in each of four layers.
POSITION = 4 * 2 * 256 * 4


def test_the_dynamic_cache_of_generate_holds_every_position_but_the_last_token(
    tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    batch = pad_batch([prompts.exact(10)] * 3, 10, Side.LEFT, 0, "cpu")
    done = tiny_fp32.module.generate(
        batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=4, return_dict_in_generate=True
    )
    assert isinstance(done.past_key_values, DynamicCache)
    assert cache_bytes(done.past_key_values) == CacheBytes(3 * (10 + 4 - 1) * POSITION)


def test_a_static_cache_has_the_bytes_of_its_whole_buffer(tiny_fp32: TransformersModel) -> None:
    cache = StaticCache(config=tiny_fp32.module.config, max_cache_len=32)
    assert cache_bytes(cache) == CacheBytes(0)
    with torch.inference_mode():
        tiny_fp32.module(torch.tensor([[1, 2]]), past_key_values=cache, cache_position=torch.arange(2))
    assert cache_bytes(cache) == CacheBytes(32 * POSITION)


KEYS, STATES, NOTHING = CacheBytes(8, 0), CacheBytes(0, 8), CacheBytes(0, 0)


@pytest.mark.parametrize(
    ("held", "keeps_cache", "expected"),
    [
        ([KEYS, CacheBytes(12, 0)], True, Observed("", 2, 12, 12, 0)),
        ([CacheBytes(8, 4), CacheBytes(9, 4)], True, Observed("", 2, 9, 9, 4)),
        (
            [STATES, STATES],
            True,
            Observed("", 2, None, None, 8, "", "the model keeps states of recurrent layers, and no keys and values"),
        ),
        ([NOTHING, NOTHING], True, Observed("", 2, cache_reason="the model keeps its cache where it can't be seen")),
        ([NOTHING, NOTHING], False, Observed("", 2, 0, 0, 0)),
    ],
    ids=["keys", "both", "states", "unseen", "told to keep nothing"],
)
def test_what_passes_keep(held: list[CacheBytes], keeps_cache: bool, expected: Observed) -> None:
    """Of what is kept for the next step, the most; and what all steps after the first read."""
    assert passes_of("", [held], keeps_cache=keeps_cache) == expected
