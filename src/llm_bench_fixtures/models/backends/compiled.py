"""torch.compile: transformers' `generate` with a static cache, each of whose decode steps runs compiled.

This is transformers' own way to compile: the prefill runs as it does without, because each length of a prompt would be
compiled anew. The number of prompts and the cache's length are variables of the compiled code, so that two graphs, of
one prompt and of several, serve all workloads, and both are compiled before the model is given out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import sysconfig
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, first_line
from llm_bench_fixtures.models.backend import Backend, Chosen, Storage, installed_versions, unavailable_where
from llm_bench_fixtures.models.backends import torch as torch_backend
from llm_bench_fixtures.models.conversion import TextTrial, tokens
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.processes.environment import setting
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.artifacts import Key
    from llm_bench_fixtures.models.backend import LoadRequest

VARIANTS = (
    Variant("compile-fp32", "compiled", "float32 weights, decode steps compiled, static cache"),
    Variant("compile-bf16", "compiled", "bfloat16 weights, decode steps compiled, static cache", Precision.BFLOAT16),
)

SECONDS_FILE = "seconds.json"
NOT_COMPILED = (
    "its decode steps alone are compiled: not its prefill, the passes that score it, or anything without a cache; what "
    "runs with the usual cache has the static one"
)

SHAPES = ((1, 8), (2, 8), (1, 21), (3, 40))  # prompts, and tokens of each: unlike in what code may be specialized for
MOST_TOKENS = max(columns for _, columns in SHAPES)
NEW_TOKENS = 3  # two of them by decode steps
MOST_ROUNDS = 3  # rounds over all shapes, until nothing more is compiled


def check(variant: Variant, device: Device) -> None:
    if device.kind == "cuda" and importlib.util.find_spec("triton") is None:
        raise BackendUnavailable("torch.compile needs triton on this device: pip install triton")
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise BackendUnavailable(
            f"torch.compile needs a C++ compiler, and there is no {compiler}: apt install g++, or name another one by "
            "the environment variable CXX"
        )
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise BackendUnavailable(f"torch.compile needs Python.h, which is not in {headers}: apt install python3-dev")


def load(request: LoadRequest) -> CompiledModel:
    """Raises BackendUnavailable where the model's decode step can't be compiled once and for all, AnotherModel where
    the compiled one computes something else."""
    import torch._dynamo.config
    from transformers import CompileConfig

    plain = torch_backend.load_source_model(request)
    if CacheKind.STATIC not in plain.facts.cache_kinds:
        raise BackendUnavailable(f"transformers has no static cache for {request.source.model_type} models")
    on_cpu = request.device.kind is DeviceKind.CPU
    config = CompileConfig(dynamic=True, mode="default" if on_cpu else "reduce-overhead")
    config._compile_all_devices = True  # else transformers compiles on accelerators only
    model = CompiledModel(**vars(plain), compile_config=config)
    # An error where torch would give up compiling a piece of code again and run it uncompiled.
    model.running = partial(torch._dynamo.config.patch, fail_on_recompile_limit_hit=True)
    compile_s, note = _compile(request, model)
    label = f"{plain.facts.label}, torch.compile of the decode step, static cache"
    model.facts = replace(plain.facts, label=label, compile_s=compile_s, notes=(*plain.facts.notes, note, NOT_COMPILED))
    return model


def _compile(request: LoadRequest, model: CompiledModel) -> tuple[float, str]:
    """Compile for all shapes, or load what an earlier run has compiled. Seconds of compiling, and what to tell of it.

    Raises BackendUnavailable, and AnotherModel for code that computes something else.
    """
    folder = request.store.workspace("compiled", _key(request))
    kept_s = _kept_seconds(folder)
    began_s = time.perf_counter()
    with (
        _activity(request, is_kept=kept_s is not None),
        setting("TORCHINDUCTOR_CACHE_DIR", str(folder)),
        unavailable_where(partial(_why_not_compiled, request)),
    ):
        missing = settle(model)
        took_s = time.perf_counter() - began_s
        check_steps(model)
    if kept_s is not None and not missing:
        return kept_s, f"its code is from the cache: compiling it took {kept_s:.0f} s, loading it {took_s:.0f} s"
    with _activity(request, is_kept=False):  # also where code that was to be kept turned out to be missing
        (folder / SECONDS_FILE).write_text(json.dumps(took_s))
    return took_s, f"compiled in this run, in {took_s:.0f} s"


def _activity(request: LoadRequest, *, is_kept: bool) -> AbstractContextManager[None]:
    """A phase of its own, so that neither compiling nor loading what was compiled is in `load_s`; and what has only
    loaded it has made nothing, and is a process to measure in."""
    phase, what = (Phase.LOADING_CODE, "loading the compiled code of") if is_kept else (Phase.COMPILING, "compiling")
    return request.progress.activity(phase, f"{what} {request.variant.id}")


def _key(request: LoadRequest) -> Key:
    """Key of what decides how long it takes to compile. What decides the code is torch's to know."""
    import torch

    return {
        "config": request.source.load_config().to_json_string(use_diff=False),
        "dtype": str(request.variant.precision),
        "device": request.device.hardware,
        "threads": torch.get_num_threads(),
        **installed_versions(("torch", "transformers", "triton")),
    }


def _kept_seconds(folder: Path) -> float | None:
    try:
        return float(json.loads((folder / SECONDS_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _why_not_compiled(request: LoadRequest, error: Exception) -> str:
    """What torch can't compile of an architecture; empty for another error, of a full disk or memory."""
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import CppCompileError, InductorError

    if not isinstance(error, (TorchDynamoException, InductorError, CppCompileError)):
        return ""
    what = f"torch.compile can't compile {request.source.model_type} models"
    return f"{what}: {type(error).__name__}: {first_line(error)}"


def _storage(variant: Variant, device: Device) -> Storage:
    """A process of its own compiles, which loads the model, too."""
    found = torch_backend.storage(variant, device)
    return replace(found, making=found.matrices)


@dataclass(eq=False)
class CompiledModel(TransformersModel):
    """Generates with a static cache and compiled decode steps; without a cache as it is."""

    compile_config: Any = None
    """A CompileConfig of transformers'."""

    def _generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind, **more: Any
    ) -> Any:
        if cache is not CacheKind.OFF:
            cache = CacheKind.STATIC
            more |= {"compile_config": self.compile_config, "disable_compile": False}
        return super()._generate(input_ids, attention_mask, new_tokens, cache, **more)

    def close(self) -> None:
        import torch

        super().close()
        torch.compiler.reset()


def settle(model: CompiledModel) -> int:
    """Generate in unlike shapes until nothing more is compiled; how many graphs were not in torch's cache.

    Raises BackendUnavailable where there is no end to it, and where transformers compiles nothing.
    """
    from torch._dynamo.utils import counters

    stats, caching = counters["stats"], counters["inductor"]
    first, missed = stats["unique_graphs"], caching["fxgraph_cache_miss"]
    for _ in range(MOST_ROUNDS):
        before = stats["unique_graphs"]
        _generate_each_shape(model)
        if stats["unique_graphs"] == before:
            break
    else:
        number = stats["unique_graphs"] - first
        raise BackendUnavailable(f"torch.compile makes ever more code of this model: {number} graphs, and no end")
    if stats["unique_graphs"] == first:
        raise BackendUnavailable("transformers compiles nothing of this model")
    return int(caching["fxgraph_cache_miss"] - missed)


def check_steps(model: CompiledModel) -> None:
    """Raise AnotherModel where the compiled steps' logits are not those of a plain pass over the same tokens."""
    import torch

    prompt = tokens(model.facts.vocabulary, min(MOST_TOKENS, model.facts.context_length - NEW_TOKENS))
    prompt = prompt.to(model.device.name)
    continued, steps = model.generate_with_logits(prompt, torch.ones_like(prompt), NEW_TOKENS, CacheKind.STATIC)
    model.forget_caches()
    ids = continued[:, :-1]
    plain = model.logits(ids, torch.ones_like(ids))
    trial = TextTrial(((ids, plain[0, -NEW_TOKENS:].float().cpu()),))
    trial.check("torch.compile's code", lambda _: steps, model.variant.precision)


def _generate_each_shape(model: CompiledModel) -> None:
    import torch

    longest = model.facts.context_length - NEW_TOKENS
    for rows, columns in SHAPES:
        ids = torch.ones(rows, min(columns, longest), dtype=torch.int64, device=model.device.name)
        model.forget_caches()
        model.generate(ids, torch.ones_like(ids), NEW_TOKENS, CacheKind.STATIC)
    model.forget_caches()


BACKEND = Backend(
    load,
    check,
    torch_backend.prepare,
    devices=("cpu", "cuda"),
    imports=("torch._inductor.compile_fx",),
    storage=_storage,
    variants=VARIANTS,
    chosen=Chosen.NAMED,
    loggers=("torch._dynamo", "torch._inductor"),
)
