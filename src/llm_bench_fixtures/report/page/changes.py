"""The run next to another one: the variants before and now, what changed by cause, and what did not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_bench_fixtures.answer.peaks import WEIGHTS, memory_metric
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.document import facts
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.judged.causes import MOVED, TONES, Cause
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.judged.renderer import causes_table, rows_table
from llm_bench_fixtures.report.judged.rows import JudgedRow
from llm_bench_fixtures.report.page.values import ChangesPart, PageTable, Term
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Table, Tone, metric_column
from llm_bench_fixtures.text import printable

DOUBTS = {Verdict.INCONCLUSIVE: "?", Verdict.NOT_MEASURED: "–", Verdict.NEW: "+", Verdict.VANISHED: "−"}
OF_VARIANT = (WEIGHTS, "perplexity", "top1_agreement")  # metrics of the overview that no test has by itself


def changes_part(findings: Findings, terms: Mapping[str, Term]) -> ChangesPart | None:
    """None where the run stands alone."""
    changes = findings.changes
    if changes is None:
        return None
    tests = [(one.test, one.coverage.value, one.reason) for one in changes.tests]
    moved = [row for row in changes.rows if row.verdict in MOVED]
    return ChangesPart(
        name=changes.name,
        sentence=changes.sentence,
        answer_before=changes.answer_before,
        against=changes.against,
        overview=PageTable("The variants in both runs", _overview(findings, changes), terms),
        moved=_causes("What changed", [one for one in changes.moved if not one.first.is_advisory]),
        advisory=_causes("What changed, advisory", [one for one in changes.moved if one.first.is_advisory]),
        values=PageTable("Values that changed", rows_table(moved)),
        still=_causes("What did not change, or is not known", changes.still),
        tests=PageTable("Tests that one run lacks", Table.of_texts(("test", "is", "because"), tests)),
        notes=tuple(changes.notes),
        facts=tuple(facts(changes.comparison.base)),
    )


def _causes(caption: str, causes: Sequence[Cause]) -> PageTable:
    """The page's filter hides no cause of several variants."""
    of = tuple(one.name if len(one.variants) == 1 else "" for one in causes)
    return PageTable(caption, causes_table(causes), of=of)


def _overview(findings: Findings, changes: Changes) -> Table:
    """A row a variant of both runs, on the workload of the first table: before, now, and the verdict's colour."""
    judged = {(one.test or one.variant, one.metric.name): one for one in changes.rows}
    names = ("speedup", "latency_s", memory_metric(findings), *OF_VARIANT)
    shown = [findings.metrics[name] for name in dict.fromkeys(names)]
    rows = []
    for variant, record in findings.common.items():
        subjects = (variant if one.name in OF_VARIANT else printable(record.test) for one in shown)
        found = [judged.get((subject, one.name)) for subject, one in zip(subjects, shown, strict=True)]
        if any(found):
            rows.append((Cell(variant), *map(_both, found)))
    table = Table((Column(VARIANT), *map(metric_column, shown)), tuple(rows))
    return table.with_columns(at for at in range(len(shown) + 1) if not all(row[at].is_missing for row in rows))


def _both(one: JudgedRow | None) -> Cell:
    """The value now, and below it the one before with the change; grey where neither better nor worse is shown."""
    if one is None:
        return Cell()
    if one.base == one.head:
        return Cell(one.after, rank=one.head, note="the same", tone=Tone.SAME)
    note = f"was {one.before}, {one.change} {DOUBTS.get(one.verdict, '')}".rstrip()
    return Cell(one.after, rank=one.head, note=note, tone=TONES.get(one.verdict, Tone.SAME))
