"""One benchmark session: finds the model once, loads one variant at a time, and gathers the results."""

from __future__ import annotations

import math
import platform
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.artifacts import ArtifactStore
from llm_bench_fixtures.backends import load_variant, translate_out_of_memory
from llm_bench_fixtures.device import Device, resolve_device
from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.measure.quality import resolve_windows
from llm_bench_fixtures.models import LoadedModel, LoadRequest, ModelSource, find_source
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.quiet import quiet_libraries
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Provenance, Run, Status, VariantResult
from llm_bench_fixtures.results.storage import RESULTS_FILE, write_run
from llm_bench_fixtures.versions import installed_versions
from llm_bench_fixtures.workloads import Corpus, Prompts, read_corpus

if TYPE_CHECKING:
    from llm_bench_fixtures.settings import Settings
    from llm_bench_fixtures.variants import Variant

Scorer = Callable[[LoadedModel, Corpus], Sequence[Mapping[str, float]]]


class BenchSession:
    """What a run's tests share. Nothing is found or loaded before it is asked for.

    score: gives the quality metrics of a loaded model over a corpus, from as many sources as there are.
    commit: tells the commit that is measured: `id`, `branch` and `dirty`.
    """

    def __init__(
        self,
        settings: Settings,
        reference: str,
        progress: Progress,
        score: Scorer,
        commit: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.settings = settings
        self.progress = progress
        self.results = RunBuilder(reference)
        self._score = score
        self._ask_commit = commit
        self._started = datetime.now(UTC)
        self._windows: tuple[int, int] | None = None

    @cached_property
    def device(self) -> Device:
        """Raises InvalidSetting where the device that was asked for isn't here."""
        with self.progress.activity(Phase.IMPORTING, "importing torch"):
            device = resolve_device(self.settings.device)
            device.synchronize()  # sets an accelerator up, so that no model's load_s holds that
        return device

    @cached_property
    def store(self) -> ArtifactStore:
        return ArtifactStore(self.settings.cache_dir, self.progress)

    @cached_property
    def source(self) -> ModelSource:
        """Raises NoCandidateLoaded."""
        with self.progress.activity(Phase.LOADING, f"finding {', '.join(self.settings.model)}"):
            return find_source(self.settings, self.store)

    @cached_property
    def corpus(self) -> Corpus:
        return read_corpus(self.settings.corpus)

    @cached_property
    def commit(self) -> Mapping[str, Any]:
        return self._ask_commit()

    @cached_property
    def prompts(self) -> Prompts:
        return Prompts(self.source.load_tokenizer())

    def load(self, variant: Variant) -> LoadedModel:
        """Load and score a variant; what becomes of it stands in the results, also where this raises."""
        result = VariantResult(
            variant.id,
            variant.description,
            variant.backend,
            Status.ERROR,
            "the load was interrupted",
            base=variant.base,
            quantized=variant.quantization is not None,
        )
        self.results.add_variant(result)
        try:
            return self._load_and_describe(variant, result)
        except BackendUnavailable as error:
            self.results.add_variant(replace(result, status=Status.SKIPPED, reason=str(error)))
            raise
        except Exception as error:
            self.results.add_variant(replace(result, reason=f"{type(error).__name__}: {error}"))
            self.device.release_cached_memory()
            raise

    def _load_and_describe(self, variant: Variant, result: VariantResult) -> LoadedModel:
        model = load_variant(LoadRequest(variant, self.source, self.device, self.settings, self.store, self.progress))
        try:
            with translate_out_of_memory(f"scoring {variant.id}"):
                self.results.add_variant(self._describe(result, model))
        except BaseException:
            model.close()
            raise
        return model

    def _describe(self, result: VariantResult, model: LoadedModel) -> VariantResult:
        quality, quality_note = self._quality(model)
        self._windows = resolve_windows(self.settings.window, self.settings.stride, model.context_length)
        return replace(
            result,
            status=Status.MEASURED,
            reason="",
            label=model.label,
            configuration=model.configuration,
            load_s=model.load_s,
            weight_bytes=model.weight_bytes,
            quality=quality,
            quality_note=quality_note,
            notes=(*self.source.notes, *model.notes),
        )

    def _quality(self, model: LoadedModel) -> tuple[dict[str, float], str]:
        """Quality metrics by name, and why there are none where there are none."""
        if self.source.random_weights:
            return {}, "random weights"
        text = f"scoring {model.variant.id} on the {self.corpus.name}"
        with self.progress.activity(Phase.SCORING, text), quiet_libraries():
            scored = self._score(model, self.corpus)
        values = {name: value for part in scored for name, value in part.items()}
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        lost = sorted(values.keys() - finite.keys())
        return finite, f"not finite: {', '.join(lost)}" if lost else ""

    @property
    def _window_text(self) -> str:
        if self._windows is None:
            return ""
        window, stride = self._windows
        return f", in windows of {window} tokens, {stride} apart"

    @property
    def provenance(self) -> Provenance:
        import torch

        return Provenance(
            started=self._started.isoformat(timespec="seconds"),
            model=self.source.name,
            random_weights=self.source.random_weights,
            device=self.device.name,
            hardware=self.device.hardware,
            threads=torch.get_num_threads(),
            platform=platform.platform(),
            python=platform.python_version(),
            libraries=installed_versions(),
            commit=_known(self.commit.get("id")),
            branch=_known(self.commit.get("branch")),
            dirty=bool(self.commit.get("dirty")),
            corpus=f"{self.corpus.name} ({self.corpus.digest}){self._window_text}",
            command=" ".join(["pytest", *map(shlex.quote, sys.argv[1:])]),
        )

    def run(self, *, interrupted: bool = False) -> Run:
        """The results so far."""
        return self.results.build(self.provenance, self.progress.phase_s, interrupted=interrupted)

    def save(self) -> None:
        """Write the results so far, so that they outlast a process that is killed."""
        self.settings.report.mkdir(parents=True, exist_ok=True)
        write_run(self.run(interrupted=True), self.settings.report / RESULTS_FILE)


def _known(text: object) -> str:
    """pytest-benchmark says "unknown" and "(unknown)" outside a repository."""
    return "" if text in (None, "unknown", "(unknown)", "unversioned") else str(text)
