"""Gathers a run's results while it goes on, so that what has finished is kept when the run ends early.

Whatever comes in, its texts are cut here to what readers take: an assertion may compare millions of characters, and a
server, a hook or a test's parameter may have as many.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from llm_bench_fixtures.measure.equivalence import Equivalence
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.plausible import bounded
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status, VariantResult
from llm_bench_fixtures.results.speedup import with_expected_variance


class RunBuilder:
    """Keeps variants and records in the order in which they came. One that comes again replaces the first."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self.scenarios: tuple[Scenario, ...] = ()  # how the report shows them, in its order
        self._started = time.perf_counter()
        self._variants: dict[str, VariantResult] = {}
        self._records: dict[str, Record] = {}
        self._instrumentation_ratios: dict[str, tuple[float, ...]] = {}
        self._loads: dict[tuple[str, float, int, int], LoadPoint] = {}

    @property
    def has_variants(self) -> bool:
        """Whether the run loaded a model, or tried to."""
        return bool(self._variants)

    @property
    def variants(self) -> tuple[VariantResult, ...]:
        """Those that began to load."""
        return tuple(self._variants.values())

    def variant(self, identifier: str) -> VariantResult:
        """What is known of the variant. Raises KeyError for one that never began to load."""
        return self._variants[identifier]

    def add_variant(self, variant: VariantResult) -> None:
        """Keep the variant in place of one of the same id."""
        variant = bounded(variant)
        self._variants[variant.id] = variant

    def add_equivalence(self, identifier: str, found: Equivalence) -> None:
        """Add the result of one execution mode. Raises KeyError for a variant that never began to load."""
        variant = self._variants[identifier]
        self.add_variant(replace(variant, equivalence=(*variant.equivalence, found)))

    def add_instrumentation(self, identifier: str, ratios: tuple[float, ...]) -> None:
        """Keep what taking the tokens' times costs the variant, as in Run.instrumentation_ratios."""
        self._instrumentation_ratios[identifier] = ratios

    def add_load(self, point: LoadPoint) -> None:
        """Keep what a rate of requests made of a server, in place of one of the same test, rate and lengths."""
        point = bounded(point)
        self._loads[point.test, point.rate_per_s, point.prompt_tokens, point.new_tokens] = point

    def add_record(self, record: Record) -> None:
        """Keep the record in place of one of the same test."""
        record = bounded(record)
        self._records[record.test] = record

    def add_unmeasured(self, record: Record) -> None:
        """Keep a skip or an error. What was measured before a test failed stays, with the new status and reason; what
        was measured and had no time for more stays measured."""
        record = bounded(record)
        measured = self._records.get(record.test, record)
        is_done = record.status is Status.NOT_REACHED and measured.status is Status.MEASURED
        status = Status.MEASURED if is_done else record.status
        self._records[record.test] = replace(measured, status=status, reason=record.reason)

    def build(self, provenance: Provenance, phase_s: Mapping[Phase, float], *, interrupted: bool = False) -> Run:
        """The run so far."""
        return Run(
            provenance=bounded(provenance),
            reference=self.reference,
            variants=tuple(self._variants.values()),
            records=with_expected_variance(self._records.values()),
            session_s=time.perf_counter() - self._started,
            phase_s={phase.value: seconds for phase, seconds in phase_s.items()},
            interrupted=interrupted,
            instrumentation_ratios=dict(self._instrumentation_ratios),
            loads=tuple(self._loads.values()),
            scenarios=bounded(self.scenarios),
        )
