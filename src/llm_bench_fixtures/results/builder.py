"""Gathers a run's results while it goes on, so that what has finished is kept when the run ends early.

Whatever comes in, its texts are cut here to what readers take: an assertion may compare millions of characters, and a
server, a hook or a test's parameter may have as many.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import geometric_mean

from llm_bench_fixtures.measure.equivalence import Equivalence
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.pooled import OF_QUALITY, summed
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status, VariantResult
from llm_bench_fixtures.results.speedup import with_expected_variance
from llm_bench_fixtures.results.storage import with_texts_cut

DONE = (Status.MEASURED, Status.SKIPPED)  # what a session that goes on with another doesn't do again


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
        self._checked: dict[str, str] = {}
        self._before: Run | None = None
        self._own: set[str] = set()  # tests that this session has measured

    def go_on_with(self, before: Run) -> None:
        """Begin with what an earlier session has. What is measured again replaces it."""
        self._before = before
        known = [one for one in before.variants if one.status in DONE]
        self._variants = {one.id: replace(one, equivalence=()) for one in known}
        done = [one for one in before.records if one.status in DONE and one.variant in self._variants]
        self._records = {one.test: replace(one, metrics={}) for one in done}  # metrics follow from the rest
        self._instrumentation_ratios = dict(before.instrumentation_ratios)
        self._loads = {_place(point): point for point in before.loads}
        self._checked = dict(before.checked)
        self.scenarios = tuple(dict.fromkeys((*self.scenarios, *before.scenarios)))

    @property
    def has_variants(self) -> bool:
        """Whether the run loaded a model, or tried to."""
        return bool(self._variants)

    @property
    def variants(self) -> tuple[VariantResult, ...]:
        """Variants that began to load."""
        return tuple(self._variants.values())

    def variant(self, identifier: str) -> VariantResult:
        """Result of the variant so far. Raises KeyError for one that never began to load."""
        return self._variants[identifier]

    def record(self, test: str) -> Record:
        """Record of a benchmark so far. Raises KeyError for one that has none."""
        return self._records[with_texts_cut(test)]

    def usual_s(self, identifier: str) -> float:
        """Geometric mean of the latencies of the variant's benchmarks so far; infinite where there are none."""
        known = [one.median_s for one in self._records.values() if one.variant == identifier and one.rounds_s]
        return geometric_mean(known) if known else math.inf

    def same_but_for_threads(self, identifier: str) -> VariantResult | None:
        """Result of the variant that differs from this one in threads only, whose quality is the same; None without."""
        base = self._variants.get(self._variants[identifier].threads_of or "")
        return base if base is not None and base.status is Status.MEASURED else None

    def add_variant(self, variant: VariantResult) -> None:
        """Keep the variant in place of one of the same id."""
        variant = with_texts_cut(variant)
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
        point = with_texts_cut(point)
        self._loads[_place(point)] = point

    def add_checked(self, test: str, reason: str) -> None:
        """Note that a test that is no benchmark ended, as in Run.checked."""
        self._checked[with_texts_cut(test)] = with_texts_cut(reason)

    def add_record(self, record: Record) -> None:
        """Keep the record in place of one of the same test."""
        record = with_texts_cut(record)
        self._own.add(record.test)
        self._records[record.test] = record

    def add_unmeasured(self, record: Record) -> None:
        """Keep a skip or an error. What was measured before a test failed stays, with the new status and reason; what
        was measured and had no time for more stays measured."""
        record = with_texts_cut(record)
        measured = self._records.get(record.test, record)
        is_done = record.status is Status.NOT_REACHED and measured.status is Status.MEASURED
        status = Status.MEASURED if is_done else record.status
        self._records[record.test] = replace(measured, status=status, reason=record.reason)

    def build(self, provenance: Provenance, phase_s: Mapping[Phase, float], *, interrupted: bool = False) -> Run:
        """The run so far."""
        before, phases = self._before, {phase.value: seconds for phase, seconds in phase_s.items()}
        kept = {test for test, one in self._records.items() if one.status is Status.MEASURED} - self._own
        return Run(
            provenance=with_texts_cut(provenance),
            reference=self.reference,
            variants=tuple(self._with_quality(self._with_equivalence(one)) for one in self._variants.values()),
            records=with_expected_variance(self._records.values()),
            session_s=time.perf_counter() - self._started + (before.session_s if before else 0.0),
            phase_s=summed([before.phase_s, phases] if before else [phases]),
            interrupted=interrupted,
            instrumentation_ratios=dict(self._instrumentation_ratios),
            loads=tuple(self._loads.values()),
            scenarios=with_texts_cut(self.scenarios),
            checked=dict(self._checked),
            earlier=tuple(before.sessions(kept)) if before else (),
        )

    def _with_quality(self, variant: VariantResult) -> VariantResult:
        """The variant with the quality of the one that differs in threads only."""
        base = self.same_but_for_threads(variant.id)
        if base is None or variant.status is not Status.MEASURED:
            return variant
        note = base.quality_note or f"that of {base.id}, which has the same weights"
        return replace(variant, **{name: getattr(base, name) for name in OF_QUALITY} | {"quality_note": note})

    def _with_equivalence(self, variant: VariantResult) -> VariantResult:
        """Variant with what an earlier session found of the execution modes that this one has not compared."""
        earlier = self._before.variant(variant.id) if self._before else None
        modes = {one.mode for one in variant.equivalence}
        kept = tuple(one for one in earlier.equivalence if one.mode not in modes) if earlier else ()
        return replace(variant, equivalence=(*kept, *variant.equivalence)) if kept else variant


def _place(point: LoadPoint) -> tuple[str, float, int, int]:
    return point.test, point.rate_per_s, point.prompt_tokens, point.new_tokens
