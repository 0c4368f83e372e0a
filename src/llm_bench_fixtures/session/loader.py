"""Loads the variants of a run, as many at a time as fit in memory, and tells the results each one's status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, NotCausal, TimeUp, named
from llm_bench_fixtures.measure.limits import measure_places, rate_of_all
from llm_bench_fixtures.measure.pass_memory import pass_memory, running_of
from llm_bench_fixtures.measure.quality import BATCH_ELEMENTS
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.windows import USUAL_WINDOW, WindowPlan, plan_windows
from llm_bench_fixtures.models.backend import Backend, LoadRequest, Storage, first_missing
from llm_bench_fixtures.models.backends import BACKENDS, find_backend
from llm_bench_fixtures.models.checks import check_causal
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.lineup import Lineup, apart, plan_lineup
from llm_bench_fixtures.models.loading import IsolatedModel, load_variant, translate_out_of_memory
from llm_bench_fixtures.models.model import ModelFacts
from llm_bench_fixtures.models.needs import (
    NOTHING,
    MemoryNeed,
    ModelShape,
    Parts,
    PassMemory,
    RoundSize,
    parts_of,
    predict,
)
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import modeling_module
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.processes.launch import await_imports, can_fork, start_importing
from llm_bench_fixtures.processes.scratch import ScratchFolder
from llm_bench_fixtures.progress import Milestone, Phase, about
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Status, VariantResult
from llm_bench_fixtures.session.forecast import WorkKind, load_name
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import VARIED_LENGTHS, Workload

FIRST_PROMPT_TOKENS = 64  # prompt tokens of a process's first generate
USUAL_CORPUS = 8192  # tokens; the built-in corpus has no more in any tokenizer of text
MEASURING = (
    "llm_bench_fixtures.models.loading",
    "llm_bench_fixtures.measure.turns",
    "llm_bench_fixtures.measure.choices",
    "llm_bench_fixtures.measure.quality",
)
NOT_YET = "not scored yet"  # note on a variant's quality
MAKING = (Phase.EXPORTING, Phase.QUANTIZING, Phase.CALIBRATING, Phase.COMPILING)


def _unloaded(variant: Variant, parts: Parts | None = None) -> VariantResult:
    """Result that stands for a variant until the load has ended."""
    return VariantResult(
        variant.id,
        variant.description,
        variant.backend,
        Status.ERROR,
        "the load was interrupted",
        base=variant.base,
        quantized=variant.quantization is not None,
        threads=variant.threads,
        threads_of=variant.threads_of,
        is_passive=variant.is_passive,
        parts=parts,
    )


def _as_loaded(parts: Parts | None, facts: ModelFacts) -> Parts | None:
    """Parts with what the process had taken before the load for itself, in place of a guess."""
    before, libraries = facts.resident_before_load_bytes, facts.libraries_before_load_bytes
    return replace(parts, process=before - libraries) if parts and libraries is not None else parts


def _backend_of(variant: Variant) -> Backend | None:
    """None where it isn't there, which is told of when the variant is loaded."""
    with suppress(Exception):
        return find_backend(variant.backend)
    return None


@dataclass(eq=False)
class VariantLoader:
    """Loads variants as they are asked for, and closes those that leave for others."""

    _setup: Setup
    _results: RunBuilder
    _keep_traceback: Callable[[str], str] = lambda _: ""
    """As in `IsolatedModel`."""

    def __post_init__(self) -> None:
        self._setup.progress.admit = self._admit
        self._loading = ""  # the variant that is being loaded
        self._made_before_s = 0.0  # seconds that the loads before it made artifacts
        self.before_closing: Callable[[Collection[str]], None] = lambda _: None
        """Called with the ids of variants that leave for others."""
        self.lineup = Lineup(())
        """Without groups until `plan`."""
        self._group: tuple[Variant, ...] = ()
        self._loaded: dict[str, ModelHandle] = {}
        self._failed: dict[str, Exception] = {}
        self._tight: dict[str, str] = {}  # which others were closed for a variant, by variant
        self._rises: dict[str, int] = {}  # bytes beyond the plan that the loaded variants have taken, by variant
        self._loads: Counter[str] = Counter()  # how often each was loaded in this session
        self.restored: frozenset[str] = frozenset()
        """The variants whose results are those of an earlier session."""
        self._refused: NotCausal | None = None  # what is wrong with the model of --llm-model, in whatever variant
        self.windows: WindowPlan | None = None  # in which variants are scored

    def plan(self, variants: Sequence[Variant]) -> Lineup:
        """Decide which of them are loaded together. The reference is the first, if it is among them."""
        setup = self._setup
        forks = can_fork(on_cpu=setup.on_cpu) and not setup.settings.in_process
        if forks:
            start_importing(self._imports(variants), on_cpu=True)
        else:
            _ = setup.limits
        _ = setup.source  # the source is tried out in such a process
        _ = setup.free_bytes
        if not setup.settings.memory_share or setup.settings.device_map is not None:
            self.lineup = apart(variants)
        else:
            budget = int(setup.free_bytes * setup.settings.memory_share)
            needs = {variant.id: self._need(variant) for variant in variants}
            self.lineup = plan_lineup(variants, self._results.reference, needs, budget)
        if forks and setup.settings.limits_time and setup.known_limits is None:
            with setup.progress.activity(Phase.IMPORTING, "importing what the variants need"):
                await_imports(on_cpu=True)
        _ = setup.limits  # while nothing else runs
        return self.lineup

    def _need(self, variant: Variant) -> MemoryNeed:
        """Memory of this machine that the variant needs: nothing where it can't run here."""
        source, storage = self._setup.source, self._storage(variant)
        if storage is None:
            return NOTHING
        seen, rounds = self._passes(variant, storage), self._largest_rounds()
        return predict(self._shape, storage, rounds, seen, on_cpu=self._setup.on_cpu, stored=source.stored_dtype)

    def _parts(self, variant: Variant) -> Parts | None:
        """Bytes that the variant takes, by what they grow with, in a run that is planned; None where it takes nothing
        here."""
        storage = self._storage(variant) if self.lineup.groups and variant.backend in BACKENDS else None
        if storage is None:
            return None
        seen, context = self._passes(variant, storage), context_of(self._setup.source.load_config().get_text_config())
        return parts_of(self._shape, storage, seen, on_cpu=self._setup.on_cpu, context=context)

    def _storage(self, variant: Variant) -> Storage | None:
        """None where the variant can't run here, or another program runs it."""
        setup, backend = self._setup, _backend_of(variant)
        if backend is None or backend.is_served or first_missing(backend.modules):
            return None
        if setup.source.quantized is not None and not backend.takes_quantized:
            return None
        with suppress(BackendUnavailable):
            return backend.storage_of(variant, setup.device)
        return None

    def _passes(self, variant: Variant, storage: Storage) -> PassMemory | None:
        """Memory that the model's own code takes, run as the variant runs it; None where that can't be seen."""
        source, named = self._setup.source, variant.attention or self._setup.settings.attention
        attention = named if find_backend(variant.backend).takes_attention else ""
        return pass_memory(source.load_config(), running_of(variant, storage, attention), source.trust_remote_code)

    @cached_property
    def _shape(self) -> ModelShape:
        source = self._setup.source
        return ModelShape.of(source.load_config(), replace(source.footprint, weights=source.weights))

    def _largest_rounds(self) -> list[RoundSize]:
        """Largest rounds of the default suite (the largest batch, the longest prompt, and what is scored at a time) and
        of the user's own prompts."""
        settings, vocabulary, own = self._setup.settings, max(self._shape.vocabulary, 1), self._setup.own
        batch = RoundSize(max(settings.batch_sizes), max(VARIED_LENGTHS), settings.new_tokens)
        longest = RoundSize(1, max(FIRST_PROMPT_TOKENS, *settings.prompt_lengths), settings.new_tokens)
        largest = [batch, longest, *(own.rounds if own else ())]
        if self._setup.source.random_weights:
            return largest
        window = plan_windows(settings).window or USUAL_WINDOW
        return [*largest, RoundSize(1, max(window, min(BATCH_ELEMENTS // vocabulary, USUAL_CORPUS)))]

    def _imports(self, variants: Sequence[Variant]) -> tuple[str, ...]:
        """Modules that the variants' processes need: their engines', the candidates' code, and what measures."""
        imports = chain.from_iterable(backend.imports for backend in filter(None, map(_backend_of, variants)))
        named = (*map(modeling_module, self._setup.settings.model), *MEASURING, *imports)
        return tuple(dict.fromkeys(filter(None, named)))

    def load(self, variant: Variant) -> ModelHandle:
        """The loaded variant; those that aren't in its group are closed. Raises what its load raised, also when it is
        asked for again; NotReached where the run has no time for it."""
        if variant.id not in self._loaded and variant.id not in self._failed:
            self._check_time(variant)
            self._enter(variant)
        if variant.id in self._failed:
            raise self._failed[variant.id]
        if variant.id not in self._loaded:
            self._make_room(variant)
            self._loading, self._made_before_s = variant.id, self._making_s
            forecast, name = self._setup.forecast, load_name(self._loads[variant.id])
            try:
                with (
                    self._setup.progress.part(Milestone.VARIANT),
                    forecast.doing(WorkKind.LOADING, variant.id, name=name),
                ):
                    self._loaded[variant.id] = self._load(variant)
                    forecast.done(WorkKind.MAKING, [variant.id], self._making_s - self._made_before_s)
            except Exception:
                forecast.forget(variant.id)
                raise
            self._loads[variant.id] += 1
        return self._loaded[variant.id]

    def _check_time(self, variant: Variant) -> None:
        """Raise NotReached, and note it, where loading the variant, and then its first case next to those of its group
        that are loaded, isn't expected to fit in the time that is left."""
        if not self._setup.deadline.is_limited:
            return
        forecast, case = self._setup.forecast, self._setup.forecast.first_case(variant.id)
        loading_s = forecast.expected_s(WorkKind.LOADING, variant.id, load_name(self._loads[variant.id]))
        making_s = forecast.expected_s(WorkKind.MAKING, variant.id)
        beside = {member.id for member in self._group_of(variant)} & self._loaded.keys()
        expected_s = loading_s + making_s + forecast.least_rounds_s({*beside, variant.id}, case)
        if self._setup.deadline.fits(expected_s):
            return
        is_plain = self._setup.deadline.is_over and self._results.has_variants  # else the first says what would fit
        step = f"loading {variant.id}" + (" with its first case" if case else "")
        error = self._setup.deadline.not_reached() if is_plain else self._setup.deadline.too_long(step, expected_s)
        forecast.forget(variant.id)
        if not self._has_results(variant):
            unloaded = _unloaded(variant, self._parts(variant))
            self._results.add_variant(replace(unloaded, status=Status.NOT_REACHED, reason=error.why))
        self._failed[variant.id] = error
        raise error

    def _admit(self, phase: Phase) -> None:
        """Raise TimeUp before an engine's form of the model is made that isn't expected to fit in the time that is
        left."""
        made_s = self._making_s - self._made_before_s
        expected_s = self._setup.forecast.expected_s(WorkKind.MAKING, self._loading) - made_s
        if phase in MAKING and not self._setup.deadline.fits(expected_s):
            raise TimeUp(f"{phase} takes longer than what was left of the time")

    def beside(self, variant: Variant) -> ModelHandle | None:
        """The variant, loaded if need be, if it is in the group that is loaded and there is room; else None. None, too,
        where it can't be loaded, which its own test says."""
        with suppress(Exception):
            return self.load(variant) if variant in self._group and self._has_room(variant) else None
        return None

    def reference(self) -> ModelHandle | None:
        """The reference, if it is in the group that is loaded and can run."""
        with suppress(Exception):  # the test itself says it
            return self.load(self._references[0]) if self._references else None
        return None

    @property
    def _references(self) -> list[Variant]:
        """The reference, if it is in the group that is loaded; else none."""
        return [variant for variant in self._group if variant.id == self._results.reference]

    @contextmanager
    def making_room(self, variant: Variant, largest: RoundSize) -> Iterator[Callable[[Variant], bool]]:
        """The block measures the variant next to the reference, on rounds that may be larger than those of the plan.
        Others are closed until these two have room. The block gets what tells, of one other after another, whether it
        has room beside all before it.

        Their processes keep that memory. Where it leaves too little for the whole group, such processes are closed
        after the block, the reference's last.
        """
        both = {one.id: one for one in (*self._references, variant)}
        rises = {name: self._kept_rise(one, largest) for name, one in both.items()}

        def fits(names: Collection[str]) -> bool:
            more = sum({**self._rises, **rises}.values())
            return not more or self.lineup.fits(names, more)

        def has_room(other: Variant) -> bool:
            if other not in self._group:
                return False
            rises[other.id] = self._kept_rise(other, largest)
            if not fits({*self._loaded, *rises}):
                del rises[other.id]
            return other.id in rises

        others = [name for name in self._loaded if name not in both]
        while others and not fits({*self._loaded, *rises}):
            self._close([others.pop()])
        try:
            yield has_room
        finally:
            self._rises |= {name: rise for name, rise in rises.items() if name in self._loaded}
        group = {member.id for member in self._group} - self._failed.keys()
        risen = sorted((name for name, rise in self._rises.items() if rise), key=self._results.reference.__eq__)
        while risen and not self.lineup.holds(group, sum(self._rises.values())):
            self._close([risen.pop(0)])

    def keeps_all(self, largest: Mapping[Variant, RoundSize]) -> bool:
        """Whether all that are loaded have room when these variants run such rounds. If so, it is noted that their
        processes keep that memory."""
        rises = {**self._rises, **{one.id: self._kept_rise(one, round_) for one, round_ in largest.items()}}
        if not self.lineup.holds(self._loaded.keys(), sum(rises.values())):
            return False
        self._rises = rises
        return True

    def _kept_rise(self, variant: Variant, largest: RoundSize) -> int:
        """Bytes beyond the plan that the variant's process has once it has run such rounds."""
        return max(self._rises.get(variant.id, 0), self._rise(variant, largest))

    def _rise(self, variant: Variant, largest: RoundSize) -> int:
        """Bytes that such rounds take of the variant's memory beyond those that were planned; 0 where nothing tells."""
        parts = self._parts(variant)
        if parts is None:
            return 0
        planned = max(parts.round(one) for one in self._largest_rounds() if one.new)
        return max(parts.round(largest) - planned, 0)

    @property
    def loaded(self) -> tuple[ModelHandle, ...]:
        """Loaded models: the reference first, and then the fastest so far, whose quality matters most."""

        def place(model: ModelHandle) -> tuple[bool, float]:
            return model.variant.id != self._results.reference, self._results.usual_s(model.variant.id)

        return tuple(sorted(self._loaded.values(), key=place))

    @property
    def known(self) -> tuple[Variant, ...]:
        """Variants of the plan, each once."""
        return tuple(dict.fromkeys(chain.from_iterable(self.lineup.groups)))

    def close(self) -> None:
        """Close all that are loaded."""
        for model in self._loaded.values():
            model.close()
        self._loaded.clear()
        self._rises.clear()

    def kill(self) -> None:
        """End the processes of all that are loaded, whatever they are doing."""
        for model in self._loaded.values():
            model.kill()

    def _enter(self, variant: Variant) -> None:
        """Make the variant's group the one that is loaded, beginning with what has to be made before others are."""
        if variant in self._group:
            return
        self._group = self._group_of(variant)
        leaving = self._loaded.keys() - {member.id for member in self._group}
        if leaving:
            self._close(leaving)
        for member in self.lineup.made_first(self._group):
            with suppress(Exception):  # the test itself says it
                self.load(member)

    def _group_of(self, variant: Variant) -> tuple[Variant, ...]:
        return next((group for group in self.lineup.groups if variant in group), (variant,))

    def _close(self, names: Collection[str]) -> None:
        self.before_closing(names)
        for name in names:
            self._rises.pop(name, None)
            self._loaded.pop(name).close()

    def _has_room(self, variant: Variant) -> bool:
        """Whether it is loaded, or the free memory holds it: those that are loaded may take more than was predicted."""
        return variant.id in self._loaded or self.lineup.need(variant).peak <= self._setup.device.free_bytes

    def _make_room(self, variant: Variant) -> None:
        """Close others of its group, the reference last, until the free memory holds the variant."""
        closed: list[str] = []
        while self._loaded and not self._has_room(variant):
            reference = self._results.reference
            closed.append(next((one for one in reversed(self._loaded) if one != reference), reference))
            self._close(closed[-1:])
        if closed:
            self._tight[variant.id] = (
                f"{', '.join(closed)} had to make room for it in memory: they take more than was planned, or other "
                "programs do; give fewer variants, or less of the memory with --llm-memory-share"
            )

    def _load(self, variant: Variant) -> ModelHandle:
        """Load a variant; one that was loaded before, and then closed, is described already. The results get its
        status, also where this raises."""
        if self._has_results(variant):
            with self._setup.deadline.reaching():
                return self._reopen(variant)
        result = _unloaded(variant, self._parts(variant))
        self._results.add_variant(result)
        began_s = self._setup.deadline.clock()
        try:
            return self._load_and_describe(variant, result)
        except TimeUp as cut:
            stopped = f"loading {variant.id} was stopped after {about(self._setup.deadline.clock() - began_s)}"
            error = self._setup.deadline.not_reached(str(cut) or stopped)
            self._results.add_variant(replace(result, status=Status.NOT_REACHED, reason=error.why))
            self._failed[variant.id] = error
            raise error from None
        except BackendUnavailable as error:
            self._results.add_variant(replace(result, status=Status.SKIPPED, reason=str(error)))
            self._failed[variant.id] = error
            raise
        except Exception as error:
            self._results.add_variant(replace(result, reason=named(error)))
            self._setup.device.release_cached_memory()
            self._failed[variant.id] = error
            raise

    def _has_results(self, variant: Variant) -> bool:
        """Whether it was loaded before, in this session or in an earlier one that this one goes on with."""
        return variant.id in self._loads or variant.id in self.restored

    def _reopen(self, variant: Variant) -> ModelHandle:
        """Raises InvalidSetting where it isn't what was measured of it."""
        model = self._open(variant)
        known, found = self._results.variant(variant.id).configuration, model.facts.configuration
        if variant.id not in self._loads and found != known:
            model.close()
            raise InvalidSetting(f"{variant.id} was measured as {known}, and is {found} now: leave --llm-resume out")
        self.windows = plan_windows(self._setup.settings).resolved(model.facts.context_length)
        return model

    def _load_and_describe(self, variant: Variant, result: VariantResult) -> ModelHandle:
        if self._refused is not None and variant.backend in BACKENDS:
            raise self._refused
        model = self._open(variant)
        try:
            with translate_out_of_memory(variant.id):
                self._results.add_variant(self._describe(result, model))
        except BaseException as error:
            model.close()
            if isinstance(error, NotCausal) and model.facts.runs_source:
                self._refused = error
            raise
        return model

    def _open(self, variant: Variant) -> ModelHandle:
        setup = self._setup
        _ = setup.limits  # before any model takes its share of the machine
        request = LoadRequest(variant, setup.source, setup.device, setup.settings, setup.store, setup.progress)
        load = load_variant if setup.settings.in_process else self._load_apart
        if setup.settings.device_map is None:
            return load(request)
        folder = ScratchFolder("offload")
        try:
            model = load(replace(request, offload=folder.path))
        except BaseException:
            folder.close()
            raise
        model.offload = folder
        return model

    def _load_apart(self, request: LoadRequest) -> IsolatedModel:
        """Load in a process that has made no artifact, because calibrating one generates and leaves memory behind."""
        before_s = self._making_s
        model = IsolatedModel(request, self._keep_traceback)
        if self._making_s > before_s:
            model.close()
            notes = model.facts.notes  # the next process finds in the cache what this one has made
            model = IsolatedModel(request, self._keep_traceback)
            model.facts = replace(model.facts, notes=notes)
        return model

    @property
    def _making_s(self) -> float:
        return sum(self._setup.progress.phase_s[phase] for phase in MAKING)

    def _describe(self, result: VariantResult, model: ModelHandle) -> VariantResult:
        setup, facts, limits = self._setup, model.facts, self._setup.limits
        places, usual = facts.weight_bytes_by_device, limits.read_bytes_per_s if limits else None
        has_first = not setup.settings.in_process and not facts.is_remote
        first_generate_s = self._first_generate_s(model) if has_first else None
        with quiet_libraries():
            model.call(check_causal)
            rates = self._read_bytes_per_s(model) if places else {}
        tight = self._tight.get(model.variant.id, "")
        crowded = setup.threads_warning if model.variant.threads is None else ""
        self.windows = plan_windows(setup.settings).resolved(facts.context_length)
        described = replace(
            result,
            status=Status.MEASURED,
            reason="",
            label=facts.label,
            configuration=facts.configuration,
            weight_bytes=facts.weight_bytes,
            weight_bytes_by_device=places,
            parts=_as_loaded(result.parts, facts) if facts.runs_source and len(places) < 2 else None,
            quantized_share=facts.quantized_share,
            quality_note="random weights" if setup.source.random_weights else NOT_YET,
            notes=tuple(filter(None, (tight, crowded, *setup.source.notes, *facts.notes))),
        )
        if facts.is_remote:
            return described
        return replace(
            described,
            load_s=facts.load_s,
            compile_s=facts.compile_s,
            conversion_s=facts.conversion_s,
            first_generate_s=first_generate_s,
            resident_before_load_bytes=None if setup.settings.in_process else facts.resident_before_load_bytes,
            read_bytes_per_s=rate_of_all(places, rates, setup.device) if rates else usual,
            read_bytes_per_s_by_device=rates,
            matmul_flops_per_s=limits.matmul_flops_per_s.get(facts.compute) if limits and facts.compute else None,
        )

    def _read_bytes_per_s(self, model: ModelHandle) -> Mapping[str, float]:
        """How fast each place gives the weights that lie there; nothing where --llm-limits-time is 0."""
        setup, limits = self._setup, self._setup.limits
        known = {setup.device.name: limits.read_bytes_per_s} if limits else {}
        with setup.progress.counted(Phase.MEASURING_LIMITS):
            return model.call(measure_places, setup.settings.limits_time, known)

    def _first_generate_s(self, model: ModelHandle) -> float | None:
        """Seconds of the first generate of a process that has loaded the model and done nothing else with it yet. None
        where no prompt fits."""
        new_tokens = self._setup.settings.new_tokens
        tokens = min(FIRST_PROMPT_TOKENS, model.facts.context_length - new_tokens)
        if tokens < 1:
            return None
        workload = Workload((self._setup.prompts_of(model).plain(tokens),), new_tokens, batch_size=1)
        with self._setup.progress.counted(Phase.GENERATING):
            done = model.call(run_round, workload)
        self._setup.forecast.saw(model.variant.id, workload, [done])
        return done.latency_s
