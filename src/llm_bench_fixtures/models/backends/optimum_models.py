"""What the models of Optimum's exporters have in common, whichever engine runs them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.conversion import TextTrial, logits_of, unavailable_where_it_fails
from llm_bench_fixtures.models.transformers import TransformersModel, prepare_for_greedy

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from llm_bench_fixtures.models.backend import LoadRequest

TASK = "text-generation-with-past"
NEEDS_TRANSFORMERS_4 = "it takes transformers 4.57, because optimum-onnx 0.1.0 allows no newer one"


def check_exportable(model_type: str, engine: str) -> None:
    """Raise BackendUnavailable for an architecture that Optimum has no export for. engine: "ONNX" or "OpenVINO"."""
    from optimum.exporters.tasks import TasksManager

    exporter = engine.lower()
    unbind_partials(importlib.import_module(f"optimum.exporters.{exporter}.model_configs"))  # registers them
    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(model_type, exporter, library_name="transformers")
    except KeyError:
        tasks = {}
    if TASK not in tasks:
        raise BackendUnavailable(f"Optimum has no {engine} export for {model_type} models")


@contextmanager
def plain_embedding(module: PreTrainedModel) -> Iterator[None]:
    """Optimum keeps one of two tied matrices where the embedding's class is called Embedding: not Gemma 3's, which is
    derived from that. Until the end it has this name."""
    kind = type(module.get_input_embeddings())
    name, kind.__name__ = kind.__name__, "Embedding"
    try:
        yield
    finally:
        kind.__name__ = name


def unbind_partials(module: ModuleType) -> None:
    """Let the classes of a module call a partial that they hold as Optimum 2.1 means it: Python 3.14 adds `self`."""
    for owner in [one for one in vars(module).values() if isinstance(one, type)]:
        held = vars(owner).get("NORMALIZED_CONFIG_CLASS")
        if isinstance(held, partial):
            owner.NORMALIZED_CONFIG_CLASS = staticmethod(held)  # type: ignore[attr-defined]


def try_converted(
    request: LoadRequest, engine: str, open_module: Callable[[], Any], trial: TextTrial | None = None
) -> Any:
    """Generate two tokens for two rows with what was converted, and hold it against the trial, so that one that fails
    isn't kept. Returns it, opened.

    Raises BackendUnavailable for one that doesn't run, AnotherModel for one that fails the trial.
    """
    import torch

    with unavailable_where_it_fails(f"{engine} doesn't run {request.source.model_type} models as converted"):
        module = open_module()
        prepare_for_greedy(module, request.source.load_tokenizer())
        ids = torch.ones(2, 3, dtype=torch.int64, device=request.device.name)
        module.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=2)
        if trial is not None:
            trial.check(f"{engine}'s conversion", partial(logits_of, module))
        return module


class HoardingModel(TransformersModel):
    """One of Optimum's models, whose engine keeps the memory that its runs took."""

    _has_run = False

    def _generate(self, *arguments: Any, **named: Any) -> Any:
        self._has_run = True
        return super()._generate(*arguments, **named)

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self._has_run = True
        return super().logits(input_ids, attention_mask)

    def forget_caches(self) -> None:
        """As `Model.forget_caches`, with what the engine keeps."""
        super().forget_caches()
        if self._has_run:
            self.give_back()
        self._has_run = False

    def give_back(self) -> None:
        """Have the engine release what it keeps of earlier runs."""
        raise NotImplementedError
