"""The speed-ups of every case: a row a case, a column a variant."""

from __future__ import annotations

from dataclasses import replace

from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import Cell, Column, Table, Tone
from llm_bench_fixtures.report.tables.values import times_cell
from llm_bench_fixtures.report.words.workload import title_of
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.record import Record, Run, Scenario
from llm_bench_fixtures.results.speedup import record_speedup

SCENARIO, CASE = "scenario", "case"


def scenarios_of(run: Run) -> dict[str, Scenario]:
    """By name, those that the run names, in its order; then any others that records are of."""
    named = {one.name: one for one in run.scenarios}
    return named | {one.scenario: Scenario(one.scenario) for one in run.records if one.scenario not in named}


def cases_table(findings: Findings) -> Table:
    """Columns: the scenario, the case, and each variant that was measured, named by its id; cases in the scenarios'
    order.

    A variant's cell is its speed-up over the reference in this case, with the 95 % interval, and better or worse where
    the whole interval is on one side of 1. The reference's column, and a cell without a speed-up, are latencies: their
    notation is SECONDS. `Cell()` where a variant didn't run the case.
    """
    run = findings.run
    records = {(one.scenario, one.case, one.variant): one for one in run.measured()}
    variants = [one.id for one in run.variants if any(one.id == variant for *_, variant in records)]
    scenarios = scenarios_of(run)
    order = list(scenarios)
    places = sorted(dict.fromkeys(place[:2] for place in records), key=lambda place: order.index(place[0]))
    rows = (
        (
            Cell(title_of(scenarios[scenario])),
            Cell(case),
            *(_cell(records.get((scenario, case, name)), findings) for name in variants),
        )
        for scenario, case in places
    )
    notations = (Notation.SECONDS if name == run.reference else Notation.TIMES for name in variants)
    return Table((Column(SCENARIO), Column(CASE), *map(Column, variants, notations)), tuple(rows))


def _cell(record: Record | None, findings: Findings) -> Cell:
    if record is None:
        return Cell()
    found = None if record.variant == findings.run.reference else record_speedup(record)
    if found is None:
        return Cell(value=record.median_s, notation=Notation.SECONDS)
    tone = Tone.BETTER if found.is_faster else Tone.WORSE if found.is_slower else None
    return replace(times_cell(found), tone=None if findings.ran_the_reference(record.variant) else tone)
