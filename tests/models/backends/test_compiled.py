from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from families import BY_NAME
from torch._dynamo.utils import counters

from llm_bench_fixtures.errors import AnotherModel, BackendUnavailable
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, check_equivalence
from llm_bench_fixtures.models.backends import CATALOGUE, compiled
from llm_bench_fixtures.models.backends.compiled import CompiledModel, check, check_steps, settle
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.session.loader import MAKING
from llm_bench_fixtures.workloads import CacheKind, Side, pad_batch

MakeRequest = Callable[..., LoadRequest]
PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23), (31, 32, 33, 34, 35))
NEW_TOKENS = 6
(VARIANT,) = (variant for variant in CATALOGUE if variant.id == "compile-fp32")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    with quiet_libraries():
        return BY_NAME["llama"].build(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def progress() -> Progress:
    return Progress()


@pytest.fixture(scope="module")
def model(make_request: MakeRequest, llama: ModelSource, progress: Progress) -> Iterator[CompiledModel]:
    loaded = load_variant(make_request("compile-fp32", llama, progress))
    yield cast(CompiledModel, loaded.model)
    loaded.close()


def continuation(model: Any, rows: tuple[tuple[int, ...], ...], cache: CacheKind) -> list[list[int]]:
    width = max(map(len, rows))
    batch = pad_batch(rows, width, Side.LEFT, model.tokenizer.pad_token_id, "cpu")
    output: torch.Tensor = model.generate(batch.input_ids, batch.attention_mask, NEW_TOKENS, cache)
    return output[:, width:].tolist()


@needs_compiler
@pytest.mark.nightly("it compiles two graphs")
def test_a_compiled_model_continues_as_float32_does_and_compiles_nothing_more(
    model: CompiledModel, make_request: MakeRequest, llama: ModelSource
) -> None:
    """Each prompt alone and all in a batch padded on the left: shapes that the load didn't generate in."""
    plain = load_variant(make_request("fp32", llama)).model
    graphs = counters["stats"]["unique_graphs"]
    for rows in (PROMPTS, *((prompt,) for prompt in PROMPTS)):
        expected = continuation(plain, rows, CacheKind.DYNAMIC)
        for cache in CacheKind:
            model.forget_caches()
            assert continuation(model, rows, cache) == expected
    assert counters["stats"]["unique_graphs"] == graphs
    verdicts = {found.verdict for found in check_equivalence(model, PROMPTS, NEW_TOKENS)}
    assert verdicts <= {EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE}


@needs_compiler
@pytest.mark.nightly("it compiles two graphs")
def test_compiling_is_a_figure_of_its_own_and_is_done_once(
    model: CompiledModel, make_request: MakeRequest, llama: ModelSource, progress: Progress
) -> None:
    """The second load finds the code, and tells the seconds of the first. `load_s` is without either's, so that it is
    the same with a full cache as with an empty one; and the second counts as having made nothing."""
    facts = model.facts
    assert facts.compile_s == pytest.approx(progress.phase_s[Phase.COMPILING], abs=0.5)
    assert facts.label == "float32, torch.compile of the decode step, static cache"
    assert facts.notes[0].startswith("compiled in this run, in ")
    torch.compiler.reset()
    second = Progress()
    again = load_variant(make_request("compile-fp32", llama, second))
    assert again.facts.compile_s == facts.compile_s
    assert again.facts.notes[0].startswith("its code is from the cache: compiling it took ")
    assert 0 < second.phase_s[Phase.LOADING_CODE] < facts.compile_s
    assert not any(second.phase_s[phase] for phase in MAKING)
    assert again.facts.load_s == second.phase_s[Phase.LOADING]


@needs_compiler
@pytest.mark.nightly("it compiles two graphs")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_embedded_model_gives_the_same_answers_compiled(precision: str, make_request: MakeRequest) -> None:
    plain, model = (load_variant(make_request(name)).model for name in (precision, f"compile-{precision}"))
    if precision == "fp32":  # bfloat16's are ties here and there
        for rows in (PROMPTS, PROMPTS[:1]):
            assert continuation(model, rows, CacheKind.DYNAMIC) == continuation(plain, rows, CacheKind.DYNAMIC)
    verdicts = {found.verdict for found in check_equivalence(model, PROMPTS, NEW_TOKENS)}
    assert verdicts <= {EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE}


def test_a_model_without_a_static_cache_is_unavailable(make_request: MakeRequest, tmp_path: Path) -> None:
    with quiet_libraries():
        source = BY_NAME["falcon-alibi"].build(tmp_path)
    with pytest.raises(BackendUnavailable, match=r"^transformers has no static cache for falcon models$"):
        compiled.load(make_request("compile-fp32", source))


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_compiled_steps_that_give_other_logits_are_another_model(
    gap: float, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded model as it is, whose steps give what a pass over all tokens gives, and one that is off by 1."""
    plain = load_variant(make_request("fp32")).model
    model = CompiledModel(**{**vars(plain), "compile_config": None})
    generate = TransformersModel.generate_with_logits

    def off(self: TransformersModel, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        sequences, steps = generate(self, *given)
        return sequences, steps + gap

    monkeypatch.setattr(TransformersModel, "generate_with_logits", off)
    if gap == 0:
        check_steps(model)
    else:
        with pytest.raises(AnotherModel, match=r"^torch.compile.s code computes something else "):
            check_steps(model)


class Counting:
    """Stands for a model each of whose generates compiles so many graphs, as long as it has some left."""

    def __init__(self, graphs: int) -> None:
        self.graphs = graphs
        self.device = SimpleNamespace(name="cpu")
        self.facts = SimpleNamespace(context_length=64)

    def forget_caches(self) -> None: ...

    def generate(self, *_: object) -> None:
        if self.graphs:
            self.graphs -= 1
            counters["stats"]["unique_graphs"] += 1


@pytest.mark.parametrize(
    ("graphs", "reason"),
    [
        (1000, "torch.compile makes ever more code of this model: 12 graphs, and no end"),
        (0, "transformers compiles nothing of this model"),
    ],
)
def test_a_model_that_never_settles_or_is_never_compiled_is_unavailable(graphs: int, reason: str) -> None:
    """Three rounds of four shapes."""
    with pytest.raises(BackendUnavailable) as caught:
        settle(cast(CompiledModel, Counting(graphs)))
    assert str(caught.value) == reason


def test_code_that_is_not_in_torchs_cache_is_counted() -> None:
    class Missing(Counting):
        def generate(self, *_: object) -> None:
            counters["inductor"]["fxgraph_cache_miss"] += self.graphs > 0
            super().generate()

    assert settle(cast(CompiledModel, Missing(3))) == 3
    assert settle(cast(CompiledModel, Counting(3))) == 0


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("compiler", "torch.compile needs a C++ compiler, and there is no no-such-compiler: apt install g++, or name "),
        ("headers", "torch.compile needs Python.h, which is not in "),
        ("triton", "torch.compile needs triton on this device: pip install triton"),
    ],
)
def test_what_compiling_needs_is_said(
    missing: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = DeviceKind.CUDA if missing == "triton" else DeviceKind.CPU
    monkeypatch.setenv("CXX", "no-such-compiler" if missing == "compiler" else "sh")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable) as caught:
        check(VARIANT, Device(kind, kind.value, "a device"))
    assert str(caught.value).startswith(reason)
