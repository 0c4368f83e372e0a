"""`Record`, `VariantResult` and `Run`: what was measured, stored as it was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SCHEMA_VERSION = 1


class Status(StrEnum):
    """What became of a benchmark or a variant."""

    MEASURED = "measured"
    NOT_MEASURED = "not measured"  # it ran, but nothing was timed, as under --benchmark-disable
    SKIPPED = "skipped"
    ERROR = "error"


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
class Record:
    """Everything measured for one benchmark: one test with one set of parameters on one variant.

    case: the value of what the scenario changes. rounds_s: each round's latency in seconds.
    batches_s: for each round, the seconds of each batch. batch_rows: prompts in each batch.
    outputs: the generated text of each prompt. extra: further metrics by name.
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
    batch_rows: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ()
    extra: Mapping[str, float] = field(default_factory=dict)

    @property
    def quartiles_s(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the rounds. Raises ValueError where there are none."""
        if not self.rounds_s:
            raise ValueError(f"{self.test} has no timed rounds")
        if len(self.rounds_s) == 1:
            return (*self.rounds_s, *self.rounds_s, *self.rounds_s)
        low, median, high = statistics.quantiles(self.rounds_s, n=4, method="inclusive")
        return low, median, high

    @property
    def median_s(self) -> float:
        """Median latency of the rounds. Raises ValueError where there are none."""
        return self.quartiles_s[1]


@dataclass(frozen=True)
class VariantResult:
    """What is known of a variant apart from its benchmarks.

    label: what actually ran, for people. configuration: the same for two variants that ran the same thing, whatever
    was asked for. quality: metrics over the corpus by name; quality_note says why there are none.
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
    weight_bytes: int | None = None
    quality: Mapping[str, float] = field(default_factory=dict)
    quality_note: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Where a run's numbers come from. `started` is ISO 8601 in UTC."""

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


@dataclass(frozen=True)
class Run:
    """The records of one session. phase_s: seconds by what the session spent them on."""

    provenance: Provenance
    reference: str
    variants: tuple[VariantResult, ...]
    records: tuple[Record, ...]
    session_s: float = 0.0
    phase_s: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False

    def variant(self, identifier: str) -> VariantResult | None:
        return next((variant for variant in self.variants if variant.id == identifier), None)

    def measured(self, scenario: str | None = None) -> list[Record]:
        """The records that hold timings, of one scenario or of all."""
        return [
            record
            for record in self.records
            if record.status is Status.MEASURED and scenario in (None, record.scenario)
        ]
