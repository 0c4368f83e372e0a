"""A model of transformers' whose decode steps run compiled, in two graphs for all workloads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.conversion import TextTrial, tokens
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    import torch

SHAPES = ((1, 8), (2, 8), (1, 21), (3, 40))  # prompts, and tokens of each: unlike in what code may be specialized for
MOST_TOKENS = max(columns for _, columns in SHAPES)
NEW_TOKENS = 3  # two of them by decode steps
MOST_ROUNDS = 3  # of all shapes, until nothing more is compiled


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


def refusing_endless_compiling() -> AbstractContextManager[object]:
    """Within it, code that would be compiled again and again raises an error. By itself torch would run it as it is."""
    import torch._dynamo.config

    patched: AbstractContextManager[object] = torch._dynamo.config.patch(fail_on_recompile_limit_hit=True)
    return patched


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
