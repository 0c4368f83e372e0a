from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from families import BY_NAME
from small_models import skip_without_onnx
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    CompileConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    T5Config,
)

from llm_bench_fixtures.measure import memory
from llm_bench_fixtures.measure.fake_model import PassSize
from llm_bench_fixtures.measure.flops import FlopCounter, RoundFlops
from llm_bench_fixtures.measure.passes import CacheBytes, watch_forward_passes
from llm_bench_fixtures.measure.quality import score_windows
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.windows import Window
from llm_bench_fixtures.measure.work import (
    Observed,
    Work,
    begin_observing,
    count_work,
    end_observing,
    observe,
    observe_round,
    roofline_s,
)
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import CacheKind, Padding, Prompts, Workload

MakeRequest = Callable[..., LoadRequest]
FlopsOf = Callable[[PretrainedConfig], FlopCounter]

GPT2 = GPT2Config(vocab_size=101, n_positions=64, n_embd=8, n_layer=3, n_head=2)
LLAMA = LlamaConfig(
    vocab_size=101,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    tie_word_embeddings=False,
)
SHAPES = [
    (1, 1, 0),
    (1, 7, 0),
    (3, 7, 0),
    (1, 1, 7),
    (3, 1, 7),
    (2, 5, 9),
]  # rows, new, cached; none larger than a later one


def gpt2_flops(config: GPT2Config, rows: int, new: int, cached: int) -> int:
    """Two a multiply-add. A layer multiplies each new position by 12 x width x width weights (4 for attention, 8 for
    its MLP), and compares it with, then sums over, all positions attended to: 2 x width each. The output layer comes
    once a row.
    """
    width = config.n_embd
    weights = rows * new * 12 * width**2
    attention = rows * new * (cached + new) * 2 * width
    return 2 * (config.n_layer * (weights + attention) + rows * width * config.vocab_size)


def llama_flops(config: LlamaConfig, rows: int, new: int, cached: int) -> int:
    """As GPT-2's, but keys and values have fewer heads and the MLP has three matrices. In transformers 4 the rotary
    angles are a matrix product too: of each new position with half a head's width of frequencies, once for all layers.
    """
    width, head = config.hidden_size, config.hidden_size // config.num_attention_heads
    attention_weights = 2 * width**2 + 2 * width * config.num_key_value_heads * head
    weights = rows * new * (attention_weights + 3 * width * config.intermediate_size)
    attention = rows * new * (cached + new) * 2 * width
    angles = rows * new * head // 2 if transformers.__version__ < "5" else 0
    return 2 * (config.num_hidden_layers * (weights + attention) + rows * width * config.vocab_size + angles)


def forward(flops: FlopCounter, rows: int, new: int, cached: int) -> int:
    """FLOPs of one pass: a prefill, which attends to the whole buffer of a static cache."""
    workload = Workload(((1,) * new,) * rows, cached + 1, batch_size=rows, cache=CacheKind.STATIC)
    return counted(flops, workload).prefill


def test_the_flops_of_gpt2_are_those_derived_by_hand() -> None:
    flops = FlopCounter(GPT2)
    assert [forward(flops, *shape) for shape in SHAPES] == [gpt2_flops(GPT2, *shape) for shape in SHAPES]


def test_the_flops_of_llama_are_those_derived_by_hand() -> None:
    flops = FlopCounter(LLAMA)
    assert [forward(flops, *shape) for shape in SHAPES] == [llama_flops(LLAMA, *shape) for shape in SHAPES]


def test_a_decode_steps_flops_are_affine_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lengths give every other one: nothing more is counted below what has been counted."""
    flops = FlopCounter(GPT2)
    longest = forward(flops, 2, 1, 40)
    monkeypatch.setattr(FlopCounter, "_count", None)
    shortest = forward(flops, 2, 1, 0)
    for cached in range(41):
        assert forward(flops, 2, 1, cached) == shortest + (longest - shortest) * cached // 40
        assert forward(flops, 2, 1, cached) == gpt2_flops(GPT2, 2, 1, cached)


def test_a_model_that_can_not_be_counted_has_no_flops_and_a_reason() -> None:
    flops = FlopCounter(T5Config())
    assert flops.round(Workload(((1,),), 1, 1)) is None
    assert flops.reason.startswith("the FLOPs of t5 can't be counted: Unrecognized configuration class")


def real_flops(model: TransformersModel, workload: Workload) -> int:
    """Of a real round, counted by torch while it runs, with attention that it can count."""
    with FlopCounterMode(display=False) as counter:
        observe_round(model, workload)
    return int(counter.get_total_flops())


def counted(flops: FlopCounter, workload: Workload) -> RoundFlops:
    found = flops.round(workload)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def flops_of() -> Callable[[PretrainedConfig], FlopCounter]:
    """The counter of a config, the same one each time."""
    counters: dict[str, FlopCounter] = {}
    return lambda config: counters.setdefault(config.model_type, FlopCounter(config))


def eager(model_around: Callable[[Any], TransformersModel], config: PretrainedConfig) -> TransformersModel:
    module = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return model_around(module)


@pytest.mark.parametrize("cache", CacheKind)
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_a_rounds_flops_are_what_torch_counts_while_the_model_runs(
    config: PretrainedConfig, cache: CacheKind, model_around: Callable[[Any], TransformersModel], flops_of: FlopsOf
) -> None:
    """Two batches of different widths, the second one smaller."""
    workload = Workload(((1, 2, 3), (4,), (5, 6, 7, 8, 9)), new_tokens=6, batch_size=2, cache=cache)
    found = counted(flops_of(config), workload)
    assert found.prefill + found.decode == real_flops(eager(model_around, config), workload)


def test_a_window_that_fills_up_midway_is_counted_as_it_is(model_around: Callable[[Any], TransformersModel]) -> None:
    """Steps three to five attend to six positions, not to seven, eight and nine."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = MistralConfig(vocab_size=101, num_hidden_layers=1, sliding_window=6, **sizes)
    workload = Workload(((1, 2, 3, 4), (5,)), new_tokens=6, batch_size=2)
    found = counted(FlopCounter(config), workload)
    assert found.prefill + found.decode == real_flops(eager(model_around, config), workload)
    a_position = 2 * 2 * 2 * config.hidden_size
    without_window = sum(llama_flops(config, 2, 1, cached) for cached in range(4, 9))
    assert found.decode == without_window - (1 + 2 + 3) * a_position


def test_prefill_is_each_batchs_first_pass_and_decode_all_others(flops_of: FlopsOf) -> None:
    found = counted(flops_of(GPT2), Workload(((1, 2, 3), (4,), (5, 6)), new_tokens=3, batch_size=2))
    assert found.prefill == gpt2_flops(GPT2, 2, 3, 0) + gpt2_flops(GPT2, 1, 2, 0)
    steps = [(2, 1, 3), (2, 1, 4), (1, 1, 2), (1, 1, 3)]
    assert found.decode == sum(gpt2_flops(GPT2, *shape) for shape in steps)


def test_prompts_of_many_lengths_are_counted_as_few_times_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: each prompt that was longer than those before it was counted anew, 40 of them for 6 s. Three counts give the
    law, and it is tried at the longest prefill and the longest step."""
    counts: list[PassSize] = []
    count = FlopCounter._count

    def noting(flops: FlopCounter, shape: PassSize) -> int:
        counts.append(shape)
        return count(flops, shape)

    monkeypatch.setattr(FlopCounter, "_count", noting)
    flops = FlopCounter(GPT2)
    counted(flops, Workload(tuple((1,) * length for length in range(1, 9)), 3, 1))
    assert counts == [(64, 40, 0), (1, 1, 0), (1, 2, 0), (1, 1, 1), (64, 1, 39)]
    counted(flops, Workload(((1,) * 37,) * 64, 4, batch_size=64))
    assert len(counts) == 5


def test_a_batch_decodes_as_many_steps_as_its_longest_answer_needs(flops_of: FlopsOf) -> None:
    workload = Workload(((1, 2, 3), (4,), (5, 6)), new_tokens=3, batch_size=2, lengths=(1, 3, 2))
    steps = [(2, 1, 3), (2, 1, 4), (1, 1, 2)]
    assert counted(flops_of(GPT2), workload).decode == sum(gpt2_flops(GPT2, *shape) for shape in steps)


def test_without_a_cache_each_step_goes_over_the_whole_prefix(flops_of: FlopsOf) -> None:
    found = counted(flops_of(GPT2), Workload(((1, 2, 3),), 3, 1, cache=CacheKind.OFF))
    assert found.decode == gpt2_flops(GPT2, 1, 4, 0) + gpt2_flops(GPT2, 1, 5, 0)


def test_a_static_cache_is_attended_to_as_a_whole(flops_of: FlopsOf) -> None:
    """Three prompt tokens and the first two of three new ones make a buffer of five positions."""
    found = counted(flops_of(GPT2), Workload(((1, 2, 3),), 3, 1, cache=CacheKind.STATIC))
    assert found.prefill == gpt2_flops(GPT2, 1, 3, 2)
    assert found.decode == 2 * gpt2_flops(GPT2, 1, 1, 4)


@pytest.mark.parametrize("cache", CacheKind)
def test_a_single_new_token_has_no_decode(cache: CacheKind, flops_of: FlopsOf) -> None:
    assert counted(flops_of(GPT2), Workload(((1, 2, 3),), 1, 1, cache=cache)).decode == 0


# The embedded GPT-2: width 256, four layers; for each position a key and a value of 256 float32 a layer.
POSITION = 4 * 2 * 256 * 4
PAIR = Workload(((1, 2, 3, 4, 5, 6), (7, 8, 9)), new_tokens=5, batch_size=2)
LONGER = Workload((tuple(range(1, 21)), (7, 8, 9)), new_tokens=9, batch_size=2, cache=CacheKind.STATIC)


@pytest.fixture(scope="module")
def tiny_flops(tiny_source: ModelSource) -> FlopCounter:
    return FlopCounter(tiny_source.load_config())


def measure_work(model: TransformersModel, workload: Workload, flops: FlopCounter) -> Work:
    """Run the workload once, watched and not timed, and count. `flops` is of the model's config."""
    return count_work(workload, observe_round(model, workload), flops, model.facts)


@pytest.mark.parametrize(
    ("cache", "held", "read"),
    [
        (CacheKind.DYNAMIC, 10, 7 + 8 + 9 + 10),
        (CacheKind.STATIC, 10, 4 * 10),
        (CacheKind.OFF, 0, 0),
    ],
)
def test_the_work_of_a_round(
    cache: CacheKind, held: int, read: int, tiny_fp32: TransformersModel, tiny_flops: FlopCounter
) -> None:
    """Six columns and five new tokens: after prefill, four steps attend to 7 to 10 positions of two rows."""
    work = measure_work(tiny_fp32, replace(PAIR, cache=cache), tiny_flops)
    assert (work.batches, work.forward_passes, work.decode_passes) == (1, 5, 4)
    assert (work.prompt_tokens, work.new_tokens) == (9, 10)
    assert (work.cache_bytes, work.cache_bytes_read) == (2 * held * POSITION, 2 * read * POSITION)
    assert work.weight_bytes_read == tiny_fp32.facts.weight_bytes_read
    assert work.flops_reason == ""


@pytest.mark.parametrize("variant", ["fp32", "bnb-nf4"])
@pytest.mark.parametrize("cache", CacheKind)
def test_the_same_workload_is_the_same_work(
    variant: str, cache: CacheKind, make_request: MakeRequest, tiny_flops: FlopCounter
) -> None:
    """Whatever ran between: transformers would take the longer one's static cache again."""
    if variant.startswith("bnb"):
        pytest.importorskip("bitsandbytes")
    model = load_variant(make_request(variant)).model
    workload = replace(PAIR, cache=cache)
    first = measure_work(model, workload, tiny_flops)
    measure_work(model, LONGER, tiny_flops)
    assert measure_work(model, workload, tiny_flops) == first


def test_forgetting_the_caches_makes_the_next_one_fit(tiny_fp32: TransformersModel) -> None:
    """Transformers' next one is as large as the largest before it."""
    ids = torch.tensor([[1, 2]])

    def bytes_of_cache(new_tokens: int) -> int:
        with watch_forward_passes(tiny_fp32.module) as held:
            tiny_fp32.generate(ids, torch.ones_like(ids), new_tokens, CacheKind.STATIC)
        return held[-1].keys_and_values

    tiny_fp32.forget_caches()
    assert bytes_of_cache(9) == bytes_of_cache(3) == 10 * POSITION
    tiny_fp32.forget_caches()
    assert bytes_of_cache(3) == 4 * POSITION


def test_an_exported_model_does_the_work_of_the_one_it_is_made_from(
    make_request: MakeRequest, tiny_fp32: TransformersModel, tiny_flops: FlopCounter
) -> None:
    skip_without_onnx()
    exported = load_variant(make_request("ort-fp32")).model
    for cache in (CacheKind.DYNAMIC, CacheKind.OFF):
        workload = replace(PAIR, cache=cache)
        assert measure_work(exported, workload, tiny_flops) == measure_work(tiny_fp32, workload, tiny_flops)


def test_the_digest_is_of_the_new_tokens_not_of_batching_or_padding(
    tiny_fp32: TransformersModel, tiny_flops: FlopCounter, prompts: Prompts
) -> None:
    plain = Workload(prompts.varied(4), new_tokens=8, batch_size=1)
    digests = {
        measure_work(tiny_fp32, workload, tiny_flops).output_digest
        for workload in (plain, replace(plain, batch_size=4, padding=Padding(multiple_of=32)))
    }
    assert len(digests) == 1
    fewer = replace(plain, new_tokens=7)
    assert measure_work(tiny_fp32, fewer, tiny_flops).output_digest not in digests


@pytest.mark.parametrize("name", ["bamba", "falcon_h1"])
def test_a_model_that_gets_its_cache_from_generate_is_counted_with_one(
    name: str, model_around: Callable[[Any], TransformersModel]
) -> None:
    """In transformers 4: without one a decode step would be counted as if it attended to nothing."""
    config = AutoConfig.for_model(**BY_NAME[name].config)
    workload = Workload(((1, 2, 3), (4, 5)), new_tokens=3, batch_size=2)
    found = counted(FlopCounter(config), workload)
    assert found.prefill + found.decode == real_flops(eager(model_around, config), workload)


def test_a_model_that_keeps_its_cache_elsewhere_has_no_flops_and_a_reason() -> None:
    flops = FlopCounter(AutoConfig.for_model(**BY_NAME["mamba"].config))
    assert flops.round(Workload(((1, 2),), 3, 1)) is None
    assert flops.reason.startswith("the FLOPs of mamba can't be counted: ")


def test_work_without_flops_has_the_reason(tiny_fp32: TransformersModel) -> None:
    flops = FlopCounter(T5Config())
    work = count_work(PAIR, Observed("", 5, 0, 0), flops, tiny_fp32.facts)
    assert (work.prefill_flops, work.decode_flops) == (None, None)
    assert work.flops_reason == flops.reason != ""


def test_watching_leaves_a_torch_module_as_it_was(tiny_fp32: TransformersModel) -> None:
    before = set(vars(tiny_fp32.module))
    with pytest.raises(ZeroDivisionError), watch_forward_passes(tiny_fp32.module):
        _ = 1 / 0
    assert set(vars(tiny_fp32.module)) == before
    assert not tiny_fp32.module._forward_hooks


def test_watching_leaves_another_object_as_it_was() -> None:
    class Model:
        def forward(self) -> str:
            return "output"

    model = Model()
    with watch_forward_passes(model) as held:
        assert (model.forward(), model.forward()) == ("output", "output")
    assert (held, vars(model)) == ([CacheBytes(), CacheBytes()], {})


def test_watching_gives_back_a_forward_of_the_objects_own() -> None:
    model = SimpleNamespace(forward=len)
    with watch_forward_passes(model):
        assert model.forward is not len
    assert model.forward is len


class Unwatchable:
    """A module that refuses to be watched, as one whose attributes can't be set does; its rounds are fine."""

    __slots__ = ("generation_config", "model")

    def __init__(self, model: Any) -> None:
        self.model = model

    def forward(self) -> None: ...

    def generate(self, *arguments: Any, **named: Any) -> Any:
        return self.model.generate(*arguments, **named)


def test_a_model_that_can_not_be_watched_has_a_reason_and_its_digest(
    tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is observed must not cost the round that is measured."""
    monkeypatch.setattr(TransformersModel, "forget_caches", lambda _: None)
    observed = observe_round(replace(tiny_fp32, module=Unwatchable(tiny_fp32.module)), PAIR)
    assert observed.forward_passes is None
    assert observed.passes_reason.startswith("float32 can't be watched: ")
    assert observed.output_digest == observe_round(tiny_fp32, PAIR).output_digest


def test_a_model_without_forward_is_not_seen_to_do_anything() -> None:
    with watch_forward_passes(SimpleNamespace()) as held:
        pass
    assert held == []


@pytest.fixture
def compiling(tiny_fp32: TransformersModel) -> Iterator[TransformersModel]:
    """As the compile variants: `generate` compiles the decode steps of a static cache; here without making code."""
    config = CompileConfig(backend="eager")
    config._compile_all_devices = True
    settings = tiny_fp32.module.generation_config
    settings.compile_config, settings.disable_compile = config, False
    module = tiny_fp32.module
    yield tiny_fp32
    settings.compile_config, settings.disable_compile = None, True
    module.__dict__.pop("_compiled_call", None)
    torch.compiler.reset()


def test_compiled_passes_are_seen_once_each(compiling: TransformersModel, tiny_flops: FlopCounter) -> None:
    workload = replace(PAIR, cache=CacheKind.STATIC)
    compiled = [measure_work(compiling, workload, tiny_flops) for _ in range(2)]
    assert "_compiled_call" in vars(compiling.module)
    assert [work.forward_passes for work in compiled] == [5, 5]
    assert [work.cache_bytes_read for work in compiled] == [2 * 40 * POSITION] * 2


@pytest.mark.parametrize(("flops", "moved", "seconds"), [(100, 10, 10), (100, 80, 16), (0, 0, 0)])
def test_the_roofline_is_the_slower_of_computing_and_moving(flops: float, moved: float, seconds: float) -> None:
    assert roofline_s(flops, moved, flops_per_s=10, bytes_per_s=5) == seconds


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
@pytest.mark.parametrize("cache", CacheKind)
def test_a_prompt_that_fills_the_context_is_counted_too(config: PretrainedConfig, cache: CacheKind) -> None:
    """60 tokens and four new ones in a context of 64; a probe longer than that once ended all counting."""
    flops = FlopCounter(config)
    counts = flops.round(Workload((tuple(range(60)),), new_tokens=4, batch_size=1, cache=cache))
    assert flops.reason == ""
    assert counts is not None
    assert counts.prefill > 0
    assert counts.decode > 0


@pytest.mark.parametrize(("batch_size", "cache"), [(1, CacheKind.DYNAMIC), (2, CacheKind.DYNAMIC), (2, CacheKind.OFF)])
def test_a_round_that_is_timed_shows_what_one_of_its_own_does(
    batch_size: int, cache: CacheKind, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    workload = Workload(prompts.varied(4), new_tokens=5, batch_size=batch_size, cache=cache)
    apart = observe(tiny_fp32, workload)
    if not begin_observing(tiny_fp32, workload):
        pytest.skip("this kernel has no high-water mark")
    assert tiny_fp32.module._forward_hooks
    seen = end_observing(tiny_fp32, workload, run_round(tiny_fp32, workload).continuations)
    assert not tiny_fp32.module._forward_hooks
    assert seen.observed == apart.observed
    assert seen.peak.method == apart.peak.method
    assert seen.peak.resident_bytes == pytest.approx(apart.peak.resident_bytes, rel=0.1)


def test_passes_of_answers_of_unlike_lengths_are_each_batchs(
    tiny_fp32: TransformersModel, prompts: Prompts, tiny_flops: FlopCounter
) -> None:
    """A pass for each token of a batch's longest answer: five and two."""
    workload = Workload(prompts.varied(3), new_tokens=5, batch_size=2, lengths=(1, 5, 2))
    observed = observe_round(tiny_fp32, workload)
    work = count_work(workload, observed, tiny_flops, tiny_fp32.facts)
    assert (work.forward_passes, work.new_tokens, work.batches) == (7, 8, 2)
    if not begin_observing(tiny_fp32, workload):
        pytest.skip("this kernel has no high-water mark")
    assert end_observing(tiny_fp32, workload, run_round(tiny_fp32, workload).continuations).observed == observed


def test_what_is_observed_after_scoring_says_so(make_request: MakeRequest, prompts: Prompts) -> None:
    model = load_variant(make_request("fp32")).model
    workload = Workload((prompts.exact(8),), 2, 1)
    before = observe(model, workload)
    score_windows(model, [Window(tuple(range(1, 9)), 1)])
    assert (before.after_scoring, observe(model, workload).after_scoring) == (False, True)


def test_a_watch_that_a_failure_left_ends_with_the_next(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    workload = Workload(prompts.varied(2), new_tokens=5, batch_size=2)
    if not (begin_observing(tiny_fp32, workload) and begin_observing(tiny_fp32, workload)):
        pytest.skip("this kernel has no high-water mark")
    assert len(tiny_fp32.module._forward_hooks) == 1
    seen = end_observing(tiny_fp32, workload, run_round(tiny_fp32, workload).continuations)
    assert seen.observed.forward_passes == 5


def test_where_memory_is_sampled_no_timed_round_is_watched(
    tiny_fp32: TransformersModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CLEAR_REFS", Path("/no/such/file"))
    assert not begin_observing(tiny_fp32, Workload(prompts.varied(2), new_tokens=5, batch_size=2))
    assert not tiny_fp32.module._forward_hooks
