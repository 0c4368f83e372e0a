"""`Record`, `VariantResult` and `Run`: what was measured, stored as it was measured."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Generic

from msgspec import Meta
from typing_extensions import TypeVar  # one with a default

from llm_bench_fixtures.measure.equivalence import Equivalence
from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.models.needs import Parts
from llm_bench_fixtures.reading import Count, Duration, Figure, Name, Offset, Ratio, Text
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate
from llm_bench_fixtures.statistics.spread import quartiles
from llm_bench_fixtures.workloads import CacheKind

SCHEMA_VERSION = 4
MOST_VARIANTS, MOST_RECORDS = 200, 20_000


class Status(StrEnum):
    """Whether a benchmark or a variant was measured, and how it ended if not."""

    MEASURED = "measured"
    NOT_MEASURED = "not measured"  # the test ran, but nothing was timed, as under --benchmark-disable
    SKIPPED = "skipped"
    ERROR = "error"
    NOT_REACHED = "not reached"  # within the run's time


class RunState(StrEnum):
    """Whether a run is fit to be compared with: only a complete one is."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    NOT_MEASURED = "not measured"
    REGRESSED = "regressed"
    REFUSED = "refused"  # refused by a gate, for another reason than a regression


@dataclass(frozen=True)
class WorkloadFacts:
    """Counts and settings of one round; token counts are over all prompts."""

    digest: Text
    """Digest of everything that was run: two workloads are the same where their digests are."""
    prompts_digest: Text
    """Digest of the prompts and the number of new tokens only."""
    prompts: Count
    batch_size: Count
    prompt_tokens: Count
    """Tokens without padding."""
    padded_tokens: Count
    """Padding tokens alone."""
    new_tokens: Count
    cache: Text
    padding_side: Text
    longest_prompt: Count | None = None
    """Tokens per prompt of the longest batch, padding included; None in older files."""
    longest_new: Count | None = None
    """New tokens of each prompt of that batch, up to its longest answer."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one prompt with the default cache."""
        return self.prompts == 1 and self.cache == CacheKind.DYNAMIC


@dataclass(frozen=True)
class MemoryFacts:
    """Peaks of memory during one round, measured in a pass of its own."""

    peak_resident_bytes: int
    """Peak of the process, as a rise over what it had before the model was loaded."""
    cuda_allocated_bytes: int | None = None
    """torch's peak of allocated memory; None without CUDA."""
    cuda_reserved_bytes: int | None = None
    """torch's peak of reserved memory; None without CUDA."""
    method: Text = ""
    """How the resident peak was found."""
    library_bytes: int | None = None
    """Pages of libraries' files within the resident peak, as a rise over the process before the load. None where the
    system doesn't tell."""
    cuda_by_device: Mapping[Text, Count] = field(default_factory=dict)
    """Peak of each device's own allocated memory."""
    after_scoring: bool = False
    """Whether the process had scored texts before: peaks hold what its libraries keep of that."""

    @property
    def own_bytes(self) -> int:
        """The resident peak without pages of libraries' files, where the system tells these apart."""
        return max(self.peak_resident_bytes - (self.library_bytes or 0), 0)


@dataclass(frozen=True)
class RecordHead:
    """Identity and status of a benchmark: all that lists of runs read of a record.

    A benchmark is one test with one set of parameters on one variant.
    """

    test: Name
    """The test's node id in pytest."""
    scenario: Name
    case: Name
    """The value of what the scenario changes."""
    variant: Name
    """The variant's id."""
    status: Status


@dataclass(frozen=True)
class Record(RecordHead):
    """Everything that was measured for one benchmark.

    pytest-benchmark's storage keeps the times of batches and tokens and the texts only where it is asked to.
    """

    reason: Text = ""
    """Why it was skipped, or failed; of a measured one, which values are missing and why."""
    workload: WorkloadFacts | None = None
    """None where the test never came to run one."""
    rounds_s: tuple[Duration, ...] = ()
    """Seconds of each round."""
    probe_s: tuple[tuple[Duration, Duration], ...] = ()
    """Seconds of the fixed probe before each round: its matrix product, and its read of memory."""
    waited_s: tuple[Offset, ...] = ()
    """Seconds that each round's threads waited for a core, summed; empty where the system doesn't tell."""
    reference_s: tuple[Duration, ...] = ()
    """Seconds of the reference's round of the same number in the same block, one per round; empty where it wasn't
    measured in blocks."""
    reference_waited_s: tuple[Offset, ...] = ()
    """Seconds that the threads of each of the reference's rounds waited for a core, summed."""
    core_to_core: tuple[Ratio, ...] = ()
    """Time in which a core read what another had just written, over that in which it read it again: mean of the looks
    in each round's block; empty where these were too few."""
    expected_variance: VarianceEstimate = NO_PRIOR
    """Expected variance of the log ratio of a pair of rounds, estimated from the run's other comparisons. Empty until
    the run is built, and where the record wasn't measured in blocks."""
    drift: VarianceEstimate = NO_PRIOR
    """Variance of the log ratio between the variant's cases beyond that of their rounds, as a machine's state drifts.
    0 where none is found, or too few cases are alike."""
    gate: Mapping[Text, Text] = field(default_factory=dict)
    """The changes that the test's marker allows, by metric or kind of metrics."""

    batches_s: tuple[tuple[float, ...], ...] = ()
    """Seconds of each batch, by round."""
    tokens_s: tuple[tuple[Annotated[tuple[Duration, ...], Meta(min_length=1)], ...], ...] = ()
    """Seconds from the batch's start to each of its new tokens, by round and batch."""
    batch_rows: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    """Prompts in each batch."""
    pauses: Count = 0
    """How often its rounds paused, in which others had their turn: 0 where each was a turn."""
    cold_steps: Count = 0
    """How many decode steps count as the mean of those after them, as a pause had made them cold."""
    bound_rounds: Count = 0
    """How many rounds the threads that compute had a core each in."""
    crowded_rounds: Count = 0
    """How many more rounds were run, and are left out because other programs ran in their blocks."""
    energy_j: tuple[Figure, ...] = ()
    """Joules of the whole machine, one per round; empty where it has no counter."""
    work: Work | None = None
    """Exact counts of one round."""
    memory: MemoryFacts | None = None
    outputs: tuple[Text, ...] = ()
    """The generated text of each prompt."""
    extra: Mapping[Name, Figure] = field(default_factory=dict)
    """Further metrics by name, such as a project's own."""
    metrics: Mapping[Name, Figure] = field(default_factory=dict, compare=False)
    """Every metric by name, as it was saved: empty in a run that is being measured. They stand in for times of batches
    and tokens that were not saved."""

    @property
    def quartiles_s(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the rounds. Raises ValueError where there are none."""
        if not self.rounds_s:
            raise ValueError(f"{self.test} has no timed rounds")
        return quartiles(self.rounds_s)

    @property
    def is_after_scoring(self) -> bool:
        """Whether its peaks of memory hold what libraries keep of having scored texts."""
        return self.memory is not None and self.memory.after_scoring

    @property
    def tokens_per_s(self) -> float | None:
        """New tokens of all prompts together in a second of the median round; None without rounds or a workload."""
        return self.workload.new_tokens / self.median_s if self.workload and self.rounds_s else None

    @property
    def facts(self) -> WorkloadFacts:
        """Facts of its workload. Raises ValueError where it never came to run one."""
        if self.workload is None:
            raise ValueError(f"{self.test} has no workload")
        return self.workload

    @property
    def digest(self) -> str:
        """Digest of its workload; empty where it never came to run one."""
        return self.workload.digest if self.workload else ""

    @property
    def median_s(self) -> float:
        """Median latency of the rounds. Raises ValueError where there are none."""
        return self.quartiles_s[1]

    @property
    def by_run(self) -> tuple[Record | None, ...]:
        """Itself; where several runs are pooled, the record in each of them, and None for a run that lacks it."""
        return (self,)


@dataclass(frozen=True)
class VariantResult:
    """Facts of a variant apart from its benchmarks."""

    id: Name
    description: Text
    backend: Text
    status: Status
    reason: Text = ""
    """Why it was skipped, or failed."""
    label: Text = ""
    """Label of what actually ran, for people."""
    configuration: Text = ""
    """Description of what actually ran: equal for two variants that ran the same thing, whatever was asked for."""
    base: Name | None = None
    """The id of the variant that this one is a cheaper form of."""
    quantized: bool = False
    threads: Count | None = None
    """Number of threads; None: the provenance's."""
    threads_of: Name | None = None
    """Id of the variant that differs from it only in the number of threads, or in how they wait."""
    is_passive: bool = False
    """Whether its threads sleep while they wait for work."""
    load_s: Figure | None = None
    compile_s: Figure | None = None
    """Seconds of compiling in this run, or in the one whose code it reuses; None where nothing is compiled."""
    conversion_s: Figure | None = None
    """Seconds that making the engine's own form of the model took, whenever it was made; None where it has none."""
    first_generate_s: Figure | None = None
    """Seconds of the first `generate` of a fresh process; None where the variant had no process of its own."""
    weight_bytes: Count | None = None
    parts: Parts | None = None
    """Bytes that it is predicted to take, by what they grow with; None where nothing predicts them."""
    quantized_share: Figure | None = None
    """Share of all weights that are stored in fewer bits; None where none are, or where it isn't told."""
    resident_before_load_bytes: Count | None = None
    """Resident memory of the variant's own process before it loaded the model: mostly libraries. None where the variant
    had no process of its own."""
    matmul_flops_per_s: Figure | None = None
    """The most that this machine computes in the dtype that the variant computes in; None where it was not measured."""
    read_bytes_per_s: Figure | None = None
    """The most that this machine reads from memory; None where it was not measured. Of weights that are spread, bytes
    per second at which all are read once."""
    weight_bytes_by_device: Mapping[Name, Count] = field(default_factory=dict)
    """Weight bytes by the place that they lie in; empty where nobody asked to spread them."""
    read_bytes_per_s_by_device: Mapping[Name, Figure] = field(default_factory=dict)
    """Speed at which weights come from each of these places; empty where it was not measured."""
    quality: Mapping[Name, Figure] = field(default_factory=dict)
    """Metrics over the corpus, by name."""
    quality_note: Text = ""
    """Why some or all of the metrics of quality are missing."""
    unscored: bool = False
    """Whether the run had no time to measure its quality."""
    loss_blocks: tuple[Figure, ...] = ()
    """Nats per token of each of about a hundred stretches of the corpus, in its order."""
    item_blocks: Mapping[Name, tuple[Figure, ...]] = field(default_factory=dict)
    """Means of a metric over each of about a hundred stretches of a task's items, in their order, by metric."""
    notes: tuple[Text, ...] = ()
    """Notes taken while it was loaded, such as on files that were made in this run."""
    equivalence: tuple[Equivalence, ...] = ()
    """Whether its text depends on how it is run."""


@dataclass(frozen=True)
class Blessing:
    """Says that a run is accepted as a baseline, whatever its state."""

    reason: Text
    when: Text
    """ISO 8601 in UTC."""


RecordT = TypeVar("RecordT", bound=RecordHead, covariant=True, default=Record)


@dataclass(frozen=True)
class Scenario:
    """How the report shows a scenario."""

    name: Text
    title: Text = ""
    """Title of its section; empty for one that is made of the name."""
    columns: tuple[Text, ...] = ()
    """The metrics, by name, that its table shows beside the latency; empty for the usual ones."""


@dataclass(frozen=True)
class Session:
    """A session that a later one went on with, or that was merged with it."""

    started: Text
    """ISO 8601 in UTC."""
    tests: tuple[Name, ...]
    """The benchmarks whose figures are its own."""


@dataclass(frozen=True)
class Run(Generic[RecordT]):
    """One session, as it was measured or read from a file: what it ran on, its variants and its records.

    What needs no more of the records is read as Run[RecordHead].
    """

    provenance: Provenance
    reference: Text
    """The id of the variant that the others' quality is compared with."""
    variants: Annotated[tuple[VariantResult, ...], Meta(max_length=MOST_VARIANTS)]
    records: Annotated[tuple[RecordT, ...], Meta(max_length=MOST_RECORDS)]
    session_s: Figure = 0.0
    """Seconds of the whole session; of a resumed or merged run, of all its sessions."""
    time_limit_s: Figure | None = None
    """Seconds that the session was allowed to take; None: as many as it needed."""
    phase_s: Mapping[Text, Figure] = field(default_factory=dict)
    """Seconds by what the session spent them on."""
    interrupted: bool = False
    instrumentation_ratios: Mapping[Text, tuple[Figure, ...]] = field(default_factory=dict)
    """Ratios by variant, one per pair of the same `generate`: seconds with token times taken over seconds without."""
    loads: tuple[LoadPoint, ...] = ()
    """Measurements of servers under load, by rate."""
    selection: tuple[Text, ...] = ()
    """Parts of the command line that narrowed the tests."""
    failed_tests: Count = 0
    """How many tests failed, measured or not."""
    regressed: bool = False
    """A gate found the run worse than its baseline."""
    refused: Text = ""
    """Why a gate refused the run, if not for a regression."""
    scenarios: tuple[Scenario, ...] = ()
    """How the report shows those that were collected, in its order."""
    checked: Mapping[Name, Text] = field(default_factory=dict)
    """Tests on a variant that are no benchmarks: empty for one that passed, the reason for one that was skipped."""
    earlier: tuple[Session, ...] = ()
    """The sessions before this one, with which it went on, or which were merged with it."""
    blessing: Blessing | None = None
    version: int = SCHEMA_VERSION
    """Version of the schema."""
    source: str = field(default="", compare=False)
    """The file that it was read from, or what a run that is not saved is called; in no file."""

    @property
    def is_baseline(self) -> bool:
        """Whether it may be compared with without being named."""
        return self.state is RunState.COMPLETE or self.blessing is not None

    @property
    def state(self) -> RunState:
        """The first that is true of the run, in this order: interrupted, failed, not measured, regressed, refused."""
        if self.interrupted:
            return RunState.INTERRUPTED
        if self.failed_tests:
            return RunState.FAILED
        if not self.measured():
            return RunState.NOT_MEASURED
        if self.regressed:
            return RunState.REGRESSED
        return RunState.REFUSED if self.refused else RunState.COMPLETE

    @property
    def loaded(self) -> list[VariantResult]:
        """The variants that loaded: what they ran has a label."""
        return [variant for variant in self.variants if variant.label]

    def variant(self, identifier: str) -> VariantResult | None:
        """The variant of that id; None where the run has none."""
        return next((variant for variant in self.variants if variant.id == identifier), None)

    def measured(self, scenario: str | None = None) -> list[RecordT]:
        """The records that hold timings, of one scenario or of all."""
        return [one for one in self.records if one.status is Status.MEASURED and scenario in (None, one.scenario)]

    def not_reached(self) -> list[RecordT]:
        """The records that the run had no time for."""
        return [one for one in self.records if one.status is Status.NOT_REACHED]

    def sessions(self, kept: Container[str]) -> Iterator[Session]:
        """The sessions that made it, its own last, with those of their tests that are kept; none without any."""
        earlier = {test for session in self.earlier for test in session.tests}
        own = Session(self.provenance.started, tuple(one.test for one in self.measured() if one.test not in earlier))
        for session in (*self.earlier, own):
            if tests := tuple(test for test in session.tests if test in kept):
                yield replace(session, tests=tests)
