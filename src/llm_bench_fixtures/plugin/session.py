"""One benchmark session: finds the model once, loads one variant at a time, and gathers the results."""

from __future__ import annotations

import math
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.measure.divergence import divergent_share, first_divergence
from llm_bench_fixtures.measure.energy import energy_meter
from llm_bench_fixtures.measure.flops import FlopCounter
from llm_bench_fixtures.measure.limits import MachineLimits, measure_limits
from llm_bench_fixtures.measure.reference_files import is_kept
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.windows import plan_windows
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import known_libraries
from llm_bench_fixtures.models.candidates import find_source
from llm_bench_fixtures.models.device import Device, resolve_device
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.isolated import IsolatedModel
from llm_bench_fixtures.models.loading import LoadRequest, load_variant, translate_out_of_memory
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.models.versions import MEASURING, installed_versions
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Provenance, Run, Status, VariantResult
from llm_bench_fixtures.results.storage import RESULTS_FILE, write_run
from llm_bench_fixtures.workloads import Corpus, Prompts, TokenIds, Workload, read_corpus

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.windows import WindowPlan
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.options.settings import Settings

FIRST_PROMPT_TOKENS = 64  # of the first generate of a process

Scorer = Callable[[ModelHandle, Corpus], Sequence[Mapping[str, float]]]


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
        self._windows: WindowPlan | None = None
        self._notes: dict[str, tuple[str, ...]] = {}
        self._loss_blocks: dict[str, tuple[float, ...]] = {}
        self._reference_texts: dict[str, tuple[TokenIds, ...]] = {}

    @cached_property
    def device(self) -> Device:
        """Raises InvalidSetting where the device that was asked for isn't here."""
        with self.progress.activity(Phase.IMPORTING, "importing torch"):
            device = resolve_device(self.settings.device)
            if not self.settings.isolate:
                device.synchronize()  # sets an accelerator up, so that no model's load_s holds that
        return device

    @cached_property
    def ceilings(self) -> MachineLimits | None:
        """What this machine can do; None where --llm-limits-time is 0."""
        budget_s = self.settings.limits_time
        if not budget_s:
            return None
        with self.progress.activity(
            Phase.MEASURING_LIMITS, "measuring how fast this machine reads memory and multiplies"
        ):
            return measure_limits(self.device, Precision, budget_s)

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

    def prompts_of(self, model: ModelHandle) -> Prompts:
        """Prompts in the model's own tokens."""
        return self.prompts if model.facts.runs_source else model.prompts

    def load(self, variant: Variant) -> ModelHandle:
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

    def _load_and_describe(self, variant: Variant, result: VariantResult) -> ModelHandle:
        _ = self.ceilings  # before any model takes its share of the machine
        request = LoadRequest(variant, self.source, self.device, self.settings, self.store, self.progress)
        model: ModelHandle = self._isolate(request) if self.settings.isolate else load_variant(request)
        try:
            with translate_out_of_memory(f"scoring {variant.id}"):
                self.results.add_variant(self._describe(result, model))
        except BaseException:
            model.close()
            raise
        return model

    def _describe(self, result: VariantResult, model: ModelHandle) -> VariantResult:
        facts = model.facts
        first_generate_s = self._first_generate_s(model) if self.settings.isolate else None
        quality, quality_note = self._quality(model)
        self._windows = plan_windows(self.settings).resolved(facts.context_length)
        ceilings = self.ceilings
        return replace(
            result,
            status=Status.MEASURED,
            reason="",
            label=facts.label,
            configuration=facts.configuration,
            load_s=facts.load_s,
            first_generate_s=first_generate_s,
            weight_bytes=facts.weight_bytes,
            read_bytes_per_s=ceilings.read_bytes_per_s if ceilings else None,
            matmul_flops_per_s=ceilings.matmul_flops_per_s.get(facts.compute) if ceilings and facts.compute else None,
            quality=quality,
            quality_note=quality_note,
            loss_blocks=self._loss_blocks.get(model.variant.id, ()),
            notes=(*self.source.notes, *facts.notes, *self._notes.get(model.variant.id, ())),
        )

    def _isolate(self, request: LoadRequest) -> IsolatedModel:
        """In a process that has made no artifact: calibrating one generates, and leaves memory behind."""
        before_s = self._making_s
        model = IsolatedModel(request)
        if self._making_s > before_s:
            model.close()
            model = IsolatedModel(request)
        return model

    @property
    def _making_s(self) -> float:
        return sum(self.progress.phase_s[phase] for phase in (Phase.EXPORTING, Phase.QUANTIZING, Phase.CALIBRATING))

    def _first_generate_s(self, model: ModelHandle) -> float | None:
        """Of a process that has loaded the model and done nothing else with it yet. None where no prompt fits."""
        tokens = min(FIRST_PROMPT_TOKENS, model.facts.context_length - self.settings.new_tokens)
        if tokens < 1:
            return None
        workload = Workload((self.prompts_of(model).exact(tokens),), self.settings.new_tokens, batch_size=1)
        with self.progress.counted(Phase.GENERATING):
            return model.call(run_round, workload).latency_s

    def _quality(self, model: ModelHandle) -> tuple[dict[str, float], str]:
        """Quality metrics by name, and why some or all are missing."""
        if self.source.random_weights:
            return {}, "random weights"
        text = f"scoring {model.variant.id} on the {self.corpus.name}"
        with self.progress.activity(Phase.SCORING, text), quiet_libraries():
            scored = self._score(model, self.corpus)
        values = {name: value for part in scored for name, value in part.items()}
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        lost = sorted(values.keys() - finite.keys())
        return finite, f"not finite: {', '.join(lost)}" if lost else ""

    def compare_texts(self, variant: Variant, workload: Workload, texts: Sequence[TokenIds]) -> dict[str, float]:
        """How far the continuations agree with the reference's of the same workload; nothing where it ran none.

        The reference's own are kept for those that come after it.
        """
        if variant.id == self.results.reference:
            self._reference_texts[workload.digest] = tuple(texts)
            return {}
        reference = self._reference_texts.get(workload.digest)
        if reference is None:
            return {}
        pairs = list(zip(reference, texts, strict=True))
        return {
            "first_divergent_token": fmean(first_divergence(*pair) for pair in pairs),
            "divergent_share": fmean(divergent_share(*pair) for pair in pairs),
        }

    @cached_property
    def flops(self) -> FlopCounter:
        """Counts for the model's architecture; what has been counted for one variant serves the others."""
        return FlopCounter(self.source.load_config(), self.source.trust_remote_code)

    @property
    def _energy(self) -> str:
        """Where joules were read, or why they weren't."""
        meter = energy_meter(self.device)
        return meter.source or f"not measured: {meter.reason}"

    def reference_folders(self, variant: Variant) -> tuple[Path | None, Path | None]:
        """Where to keep the variant's distributions, and those to compare it with; None where that is not to be done.

        The reference's are kept, and every other's are compared with them where they are there.
        """
        folder = Path(self._temporary.name)
        if variant.id == self.results.reference:
            return folder, None
        return None, folder if is_kept(folder) else None

    def note_loss_blocks(self, variant: Variant, blocks: tuple[float, ...]) -> None:
        """What its loss was along the corpus, in nats per token; none where it isn't finite everywhere."""
        self._loss_blocks[variant.id] = blocks if all(map(math.isfinite, blocks)) else ()

    def note(self, variant: Variant, text: str) -> None:
        """Something more for the report to say of the variant."""
        self._notes[variant.id] = (*self._notes.get(variant.id, ()), text)

    def close(self) -> None:
        """Remove the session's temporary files."""
        if "_temporary" in vars(self):
            self._temporary.cleanup()

    @cached_property
    def _temporary(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="llm-bench-")

    @property
    def _window_text(self) -> str:
        return f", in {self._windows.description}" if self._windows else ""

    @property
    def provenance(self) -> Provenance:
        import torch

        ceilings = vars(self).get("ceilings")  # a report must not begin to measure
        return Provenance(
            started=self._started.isoformat(timespec="seconds"),
            model=self.source.name,
            random_weights=self.source.random_weights,
            device=self.device.name,
            hardware=self.device.hardware,
            threads=torch.get_num_threads(),
            platform=platform.platform(),
            python=platform.python_version(),
            libraries=installed_versions((*MEASURING[:1], *known_libraries(), *MEASURING[1:])),
            commit=_known(self.commit.get("id")),
            branch=_known(self.commit.get("branch")),
            dirty=bool(self.commit.get("dirty")),
            corpus=f"{self.corpus.name} ({self.corpus.digest}){self._window_text}",
            command=" ".join(["pytest", *map(shlex.quote, sys.argv[1:])]),
            isolated=self.settings.isolate,
            energy=self._energy,
            passed_over=tuple(f"{name}: {reason}" for name, reason in self.source.passed_over),
            read_bytes_per_s=ceilings.read_bytes_per_s if ceilings else None,
            matmul_flops_per_s={dtype.value: rate for dtype, rate in ceilings.matmul_flops_per_s.items()}
            if ceilings
            else {},
        )

    def run(self, *, interrupted: bool = False) -> Run:
        """The results so far."""
        return self.results.build(self.provenance, self.progress.phase_s, interrupted=interrupted)

    def save(self) -> None:
        """Write the results so far, so that they outlast a process that is killed."""
        self.settings.report.mkdir(parents=True, exist_ok=True)
        write_run(self.run(interrupted=True), self.settings.report / RESULTS_FILE)


def _known(text: object) -> str:
    """pytest-benchmark says "unknown" and the like outside a repository, and where no branch is checked out."""
    return "" if text in (None, "unknown", "(unknown)", "unversioned", "(detached head)") else str(text)
