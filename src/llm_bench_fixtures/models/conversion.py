"""What engines that make a form of their own of a model have in common: its trial, its key, its failures, its facts.

Before any of it is kept, both run the same texts. At the end stands what the models of Optimum's exporters share.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import AnotherModel, BackendUnavailable, LlmBenchError, reason_of
from llm_bench_fixtures.models.artifacts import Artifact, KeyValue, file_digest, made_s_of
from llm_bench_fixtures.models.backend import Backend, Chosen, LoadRequest, installed_versions, unavailable_where
from llm_bench_fixtures.models.device import resident_at_rest
from llm_bench_fixtures.models.peculiarities import expert_count, rotary_limit, shares_keys
from llm_bench_fixtures.models.transformers import TransformersModel, context_of, prepare_for_greedy, source_facts
from llm_bench_fixtures.models.variants import Precision, tolerance_of
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from transformers import PreTrainedModel

    from llm_bench_fixtures.models.model import ModelFacts

engine_on_cpu = partial(Backend, devices=("cpu",), chosen=Chosen.INSTALLED, takes_attention=False)
"""A backend whose engine has a form and an attention of its own, and runs unasked where it is installed."""

TRIAL_VERSION = 3  # raise it where the trial finds more: what was kept before is then made and compared again
LENGTH = 320  # tokens, so that a window of up to 256 shows
BEYOND = 64  # tokens past a longer window
LONGEST = 640
SHOWN = 16  # positions, the last ones, which all that goes before has a part in
MOST_GAP = {Precision.FLOAT32: 0.002, Precision.FLOAT16: 0.04, Precision.BFLOAT16: 0.1}
"""Largest accepted gap, as a share of the largest logit, by the type that the engine was given the weights in. In
float32, 1e-4 was the most of families that are right (llama.cpp's GPT-2, whose GELU is a table in 16 bits; else 1e-6),
0.35 the least of those that aren't. Rounding their weights to bfloat16 moves the families' logits by 0.013 at most,
computing a decode step in it by 0.011."""


@dataclass(frozen=True)
class TextTrial:
    """Texts, and what transformers says after each."""

    texts: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    """Tokens, (1, T) int64 on a CPU, and logits of the last positions: (SHOWN or fewer, V) float32."""

    @classmethod
    def of(cls, module: Any, longest: int = LONGEST) -> TextTrial:
        """Trial from a model of transformers' in float32. longest: tokens that the engine takes."""
        text = module.config.get_text_config()
        lengths = dict.fromkeys(min(length, longest) for length in lengths_for(text))
        texts = [tokens(text.vocab_size, length) for length in lengths]
        return cls(tuple((ids, _shown(logits_of(module, ids))) for ids in texts))

    def check(
        self, what: str, run: Callable[[torch.Tensor], torch.Tensor], given: Precision = Precision.FLOAT32
    ) -> None:
        """Raise AnotherModel where the engine's logits differ by more than float error: what a config asks for and a
        converter passes over is no other speed of the same model.

        what: the engine's form of the model, as the message names it.
        run: gives the logits, (1, T, V), of tokens, (1, T).
        The median of the positions counts: a mixture of experts may choose others where two are close.
        """
        for ids, expected in self.texts:
            differences = (_shown(run(ids)) - expected).abs().amax(dim=1) / expected.abs().amax(dim=1)
            gap, most = float(differences.median()), MOST_GAP[given]
            if not gap <= most:
                raise AnotherModel(
                    f"{what} computes something else than transformers: after the same "
                    f"{ids.shape[1]} tokens, with weights in {given}, its logits differ by {gap:.1%} of the largest, "
                    f"and rounding explains {most:.1%}"
                )


def lengths_for(text: Any) -> tuple[int, ...]:
    """Tokens of a trial's texts for a decoder's config.

    The first goes past its window, where that is short enough, and stays within its context. If that is too long for
    longrope's short factors, a second is as long as these allow. It comes last: transformers 4 leaves the factors of
    the last text in the module, and an export needs the short ones, as after a load.
    """
    window = getattr(text, "sliding_window", None) or 0
    past = window + BEYOND if LENGTH < window + BEYOND <= LONGEST else LENGTH
    length = min(past, context_of(text))
    limit = rotary_limit(text)
    return (length, limit) if limit and limit < length else (length,)


def uncompared(config: Any) -> tuple[str, ...]:
    """Notes on lengths that the context allows and no text of a trial reaches."""
    text = config.get_text_config()
    changes = (
        (getattr(text, "sliding_window", None) or 0, "its sliding window of {:,} tokens"),
        (rotary_limit(text) or 0, "its rotary embedding for texts of over {:,} tokens"),
    )
    reached, context = max(lengths_for(text)), context_of(text)
    return tuple(
        f"{what.format(length)} was not compared with transformers'"
        for length, what in changes
        if reached <= length < context
    )


def tokens(vocabulary: int, length: int) -> torch.Tensor:
    """(1, length) int64, spread over the vocabulary."""
    import torch

    return ((2 * torch.arange(length) + 1) * vocabulary // (2 * length))[None]


def logits_of(module: Any, ids: torch.Tensor) -> torch.Tensor:
    """(1, T, V) of a model of transformers' or Optimum's."""
    import torch

    ids = ids.to(module.device)
    with torch.inference_mode():
        found: torch.Tensor = module(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=shares_keys(module.config)
        ).logits
    return found


def _shown(logits: torch.Tensor) -> torch.Tensor:
    return logits[0, -SHOWN:].float().cpu().clone()


COUNTS_FILE = "facts.json"  # beside what was converted, so that no load has to count it
COUNTS = ("weight_bytes", "weight_bytes_read", "quantized_share")
OUT_OF_ROOM = re.compile("alloc|out of memory|no space left|quota exceeded", re.IGNORECASE)
OF_THE_INSTALLATION = re.compile(
    "read-only file system|too many open files|cannot open shared object"
    "|NO_SUCHFILE|INVALID_PROTOBUF",  # ONNX Runtime's, of missing or torn files
    re.IGNORECASE,
)


def key_of(
    request: LoadRequest, libraries: Iterable[str], more: Iterable[str] = (), given: Path | None = None
) -> dict[str, KeyValue]:
    """Key parts of every artifact of an engine: the weights, the libraries that convert, and the trial it passed.

    more: names of what is counted besides COUNTS and kept beside it, so that one that lacks some is made again.
    given: the file that stands for the source's own.
    """
    with request.progress.activity(Phase.CHECKING, f"reading the weights of {request.source.name}"):
        digest = request.source.digest if given is None else file_digest(given)
    holds = ", ".join((*COUNTS, *more))
    return {"model": digest, "holds": holds, "trial": TRIAL_VERSION, **installed_versions(libraries)}


def write_counts(folder: Path, counts: Sequence[float], **more: object) -> None:
    """Keep what was counted of the model in the folder: COUNTS, and what else its engine has by name."""
    (folder / COUNTS_FILE).write_text(json.dumps(dict(zip(COUNTS, counts, strict=True)) | more))


def read_counts(folder: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((folder / COUNTS_FILE).read_text())
    return counts


def converted_facts(request: LoadRequest, made: Sequence[Artifact], label: str = "") -> ModelFacts:
    """Facts of the source in an engine's own form: in float32, or quantized and multiplied in int8.

    To be asked for before the engine opens that form: memory that the process has by then is not the model's.
    made: what was made for it, what runs last. label: empty where only the opened engine tells what runs.
    """
    before_bytes = resident_at_rest(request.device)
    config, counts = request.source.load_config(), read_counts(made[-1].folder)
    is_quantized = request.variant.quantization is not None
    compute = None if is_quantized else Precision.FLOAT32
    return replace(
        source_facts(request.variant, config, Precision.FLOAT32, label=label, weight_bytes=counts["weight_bytes"]),
        # How much of a mixture of experts a pass reads depends on the engine's form of the model.
        weight_bytes_read=None if expert_count(config) > 1 else counts["weight_bytes_read"],
        quantized_share=counts["quantized_share"] if is_quantized else None,
        compute=compute,
        tolerance=tolerance_of(compute),
        notes=(*dict.fromkeys(artifact.note for artifact in made), *uncompared(config)),
        conversion_s=made_s_of(*made),
        resident_before_load_bytes=before_bytes,
    )


def unavailable_where_it_fails(what: str) -> AbstractContextManager[None]:
    """What the libraries can't do with an architecture is no fault of the run; a broken installation, a full disk or
    memory is.

    what: the failure in words, before its reason. Raises BackendUnavailable.
    """

    def reason(error: Exception) -> str:
        if isinstance(error, LlmBenchError) or tells_of_the_machine(error):
            return ""
        said = reason_of(error).partition(" Status Message:")[0]  # after it a path of the library's own source
        return f"{what}: {said}"

    return unavailable_where(reason)


def tells_of_the_machine(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, is of the installation, the disk or the memory.

    Such a one says nothing of the architecture.
    """
    lacks_a_name = isinstance(error, AttributeError) and isinstance(error.obj, ModuleType)
    is_kind = isinstance(error, (ImportError, OSError, MemoryError)) or lacks_a_name
    if is_kind or any(what.search(str(error)) for what in (OUT_OF_ROOM, OF_THE_INSTALLATION)):
        return True
    return error.__cause__ is not None and tells_of_the_machine(error.__cause__)


EXPORT_TASK = "text-generation-with-past"
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
    if EXPORT_TASK not in tasks:
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
