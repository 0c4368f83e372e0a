"""`Record`, `VariantResult` and `Run`: what was measured, stored as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_bench_fixtures.measure.equivalence import Equivalence
from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.spread import quartiles

SCHEMA_VERSION = 3


class Status(StrEnum):
    """What became of a benchmark or a variant."""

    MEASURED = "measured"
    NOT_MEASURED = "not measured"  # it ran, but nothing was timed, as under --benchmark-disable
    SKIPPED = "skipped"
    ERROR = "error"


class RunState(StrEnum):
    """Whether a run is fit to be compared with: only a complete one is."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    NOT_MEASURED = "not measured"
    REGRESSED = "regressed"
    REFUSED = "refused"  # by a gate, for another reason than a regression


def run_state(*, interrupted: bool, failed_tests: int, measured: int, regressed: bool, refused: str) -> RunState:
    """The worst that is true of a run; `measured` counts its records with timings."""
    if interrupted:
        return RunState.INTERRUPTED
    if failed_tests:
        return RunState.FAILED
    if not measured:
        return RunState.NOT_MEASURED
    if regressed:
        return RunState.REGRESSED
    return RunState.REFUSED if refused else RunState.COMPLETE


@dataclass(frozen=True)
class WorkloadFacts:
    """What was run, in numbers. Token counts are of one round, over all prompts.

    digest: of all of it. prompts_digest: of the prompts and the number of new tokens only.
    """

    digest: str
    prompts_digest: str
    prompts: int
    batch_size: int
    prompt_tokens: int
    padded_tokens: int
    new_tokens: int
    cache: str
    padding_side: str


@dataclass(frozen=True)
class MemoryFacts:
    """Peaks of memory during one round, measured in a pass of its own.

    peak_resident_bytes: of the process, as a rise over before the load; method: how that was found. The CUDA peaks are
    torch's, None elsewhere.
    """

    peak_resident_bytes: int
    cuda_allocated_bytes: int | None = None
    cuda_reserved_bytes: int | None = None
    method: str = ""


@dataclass(frozen=True)
class Record:
    """Everything measured for one benchmark: one test with one set of parameters on one variant.

    case: the value of what the scenario changes. rounds_s: each round's latency in seconds.
    batches_s: for each round, the seconds of each batch. batch_rows: prompts in each batch.
    tokens_s: for each round and batch, the seconds from the batch's start to each of its new tokens.
    energy_j: for each round, the joules of the whole machine, or none where it has no counter.
    probe_s: for each round, the seconds of the fixed probe run before it: its matrix product, and its read of memory.
    work: exact counts of one round.
    outputs: the generated text of each prompt. extra: further metrics by name. gate: the changes that the test's marker
    allows, by metric or kind of metrics.
    """

    test: str
    scenario: str
    case: str
    variant: str
    status: Status
    reason: str = ""
    workload: WorkloadFacts | None = None
    rounds_s: tuple[float, ...] = ()
    batches_s: tuple[tuple[float, ...], ...] = ()
    tokens_s: tuple[tuple[tuple[float, ...], ...], ...] = ()
    batch_rows: tuple[int, ...] = ()
    energy_j: tuple[float, ...] = ()
    probe_s: tuple[tuple[float, float], ...] = ()
    work: Work | None = None
    memory: MemoryFacts | None = None
    outputs: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict)
    gate: Mapping[str, str] = field(default_factory=dict)

    @property
    def quartiles_s(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the rounds. Raises ValueError where there are none."""
        if not self.rounds_s:
            raise ValueError(f"{self.test} has no timed rounds")
        return quartiles(self.rounds_s)

    @property
    def median_s(self) -> float:
        """Median latency of the rounds. Raises ValueError where there are none."""
        return self.quartiles_s[1]


@dataclass(frozen=True)
class VariantResult:
    """What is known of a variant apart from its benchmarks.

    label: what actually ran, for people. configuration: the same for two variants that ran the same thing, whatever
    was asked for. quality: metrics over the corpus by name; quality_note says why some or all are missing.
    first_generate_s: the first `generate` of a fresh process, None where the variant had none of its own.
    matmul_flops_per_s: what this machine reaches in the dtype that the variant computes in; None where it was not
    measured. read_bytes_per_s: at which it reads memory.
    loss_blocks: nats per token of each of some hundred stretches of the corpus, in its order.
    equivalence: whether its text depends on how it is run.
    """

    id: str
    description: str
    backend: str
    status: Status
    reason: str = ""
    label: str = ""
    configuration: str = ""
    base: str | None = None
    quantized: bool = False
    load_s: float | None = None
    first_generate_s: float | None = None
    weight_bytes: int | None = None
    matmul_flops_per_s: float | None = None
    read_bytes_per_s: float | None = None
    quality: Mapping[str, float] = field(default_factory=dict)
    quality_note: str = ""
    loss_blocks: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    equivalence: tuple[Equivalence, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Where a run's numbers come from.

    started: ISO 8601 in UTC. isolated: each variant ran in a process of its own. energy: where joules were read, or why
    they weren't. passed_over: candidates for the model that were not used, with the reason. read_bytes_per_s,
    matmul_flops_per_s (by dtype): the machine's limits as measured in this run.
    """

    started: str
    model: str
    random_weights: bool
    device: str
    hardware: str
    threads: int
    platform: str
    python: str
    libraries: Mapping[str, str]
    commit: str = ""
    branch: str = ""
    dirty: bool = False
    corpus: str = ""
    command: str = ""
    isolated: bool = False
    energy: str = ""
    passed_over: tuple[str, ...] = ()
    read_bytes_per_s: float | None = None
    matmul_flops_per_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """How the report shows a scenario."""

    name: str
    title: str = ""
    """Of its section; empty for one that is made of the name."""
    columns: tuple[str, ...] = ()
    """The metrics, by name, that its table shows beside the latency; empty for the usual ones."""


@dataclass(frozen=True)
class Run:
    """The records of one session.

    phase_s: seconds by what the session spent them on. instrumentation_ratios: by variant, of pairs of the same
    `generate`, seconds with its tokens' times taken / without. selection: what of the command line narrowed the tests.
    failed_tests: how many failed, measured or not. regressed: a gate found it worse than its baseline. refused: for
    what else a gate turned it down. scenarios: how those that were collected are shown, in the order of the report.
    """

    provenance: Provenance
    reference: str
    variants: tuple[VariantResult, ...]
    records: tuple[Record, ...]
    session_s: float = 0.0
    phase_s: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    instrumentation_ratios: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    selection: tuple[str, ...] = ()
    failed_tests: int = 0
    regressed: bool = False
    refused: str = ""
    scenarios: tuple[Scenario, ...] = ()

    @property
    def state(self) -> RunState:
        return run_state(
            interrupted=self.interrupted,
            failed_tests=self.failed_tests,
            measured=len(self.measured()),
            regressed=self.regressed,
            refused=self.refused,
        )

    def variant(self, identifier: str) -> VariantResult | None:
        return next((variant for variant in self.variants if variant.id == identifier), None)

    def measured(self, scenario: str | None = None) -> list[Record]:
        """The records that hold timings, of one scenario or of all."""
        return [
            record
            for record in self.records
            if record.status is Status.MEASURED and scenario in (None, record.scenario)
        ]
