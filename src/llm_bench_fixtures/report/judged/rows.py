"""What was judged, a row for each verdict: of two saved runs, and of two versions in turns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.words.workload import title_of
from llm_bench_fixtures.results.formatting import MISSING, format_change, with_unit
from llm_bench_fixtures.results.metrics import Force, Metric
from llm_bench_fixtures.results.record import Scenario
from llm_bench_fixtures.text import printable


@dataclass(frozen=True)
class JudgedRow:
    """The verdict on one metric of one test, or of all tests of a variant together."""

    variant: str
    """Its id; empty for all variants."""
    metric: Metric
    verdict: Verdict
    backend: str = ""
    benchmark: str = ""
    """The test's scenario and case; empty where the verdict is on all the variant's tests."""
    test: str = ""
    """The test's node id; empty likewise."""
    base: float | None = None
    """The value before; None where it is unknown."""
    head: float | None = None
    ratio: float | None = None
    """The change that is judged."""
    raw_ratio: float | None = None
    """The change without what the probe saw of the machine, where that differs."""
    interval: tuple[float, float] | None = None
    """Ends of the ratio's interval; None where none is known, or the value is exact."""
    is_advisory: bool = False
    """Whether it fails no gate."""
    allowed: str = ""
    """The change that its rule allows."""
    reason: str = ""
    """Why it was not judged, or why the value vanished."""

    @property
    def before(self) -> str:
        return with_unit(self.base, self.metric)

    @property
    def after(self) -> str:
        return with_unit(self.head, self.metric)

    @property
    def change(self) -> str:
        """The relative change with its sign."""
        if self.ratio is None:
            return MISSING
        raw = f" (raw {format_change(self.raw_ratio)})" if self.raw_ratio is not None else ""
        return f"{format_change(self.ratio)}{raw}"

    @property
    def interval_text(self) -> str:
        """The ends of the change's interval: "+8.7 % to +43.8 %"; empty where it has no width."""
        low, high = map(format_change, self.interval or (1.0, 1.0))
        return f"{low} to {high}" if low != high else ""

    def as_json(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"metric": self.metric.name}


def rows_of(comparison: Comparison) -> tuple[JudgedRow, ...]:
    """One row for each value that a rule is on."""
    run = comparison.head
    records = {record.test: record for record in run.records}
    scenarios = {scenario.name: scenario for scenario in run.scenarios}
    backends = {variant.id: variant.backend for variant in run.variants}

    def row(one: Judgement) -> JudgedRow:
        record = records.get(one.subject)
        variant = record.variant if record else one.subject
        scenario = scenarios.get(record.scenario, Scenario(record.scenario)) if record else None
        place = ": ".join(filter(None, (title_of(scenario), record.case))) if scenario and record else ""
        return JudgedRow(
            variant=printable(variant),
            metric=one.metric,
            verdict=one.verdict,
            backend=backends.get(variant, ""),
            benchmark=printable(place),
            test=printable(record.test) if record else "",
            base=one.base,
            head=one.head,
            ratio=one.ratio,
            raw_ratio=one.raw_ratio if one.slowdown != 1.0 else None,
            interval=one.interval,
            is_advisory=not one.is_blocking,
            allowed=one.rule.describe(one.metric),
            reason=printable(one.reason),
        )

    return tuple(row(one) for one in comparison.judgements if one.rule.force is not Force.OFF)
