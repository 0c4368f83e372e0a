"""The run beside another one: the variants before and now, every value that changed, and those that did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llm_bench_fixtures.answer.peaks import WEIGHTS, memory_metric
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.changes import TONES, Change, Changes
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.values import Cell, ChangesPart, Head, PageTable, Row, Term
from llm_bench_fixtures.report.sections import facts
from llm_bench_fixtures.results.formatting import MISSING
from llm_bench_fixtures.text import printable

SIGNS = {
    Verdict.UNCHANGED: "=",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_MEASURED: "–",
    Verdict.NEW: "+",
    Verdict.VANISHED: "−",
}  # the others have that of their tone
SAME = "same"  # the tone of what is neither better nor worse
ALL_TESTS = "all"  # of a value that is the same for all tests of the variant
OF_VARIANT = (WEIGHTS, "perplexity", "top1_agreement")  # metrics of the overview that no test has by itself


def changes_part(findings: Findings, terms: Mapping[str, Term]) -> ChangesPart | None:
    """None where the run stands alone."""
    changes = findings.changes
    if changes is None:
        return None
    return ChangesPart(
        name=changes.name,
        sentence=changes.sentence,
        answer_before=changes.answer_before,
        against=changes.against,
        overview=_overview(findings, changes, terms),
        moved=_table("Values that changed", [one for one in changes.moved if not one.is_advisory]),
        told=_table("Values that changed and fail no gate", [one for one in changes.moved if one.is_advisory]),
        still=_table("Values that did not, or can't be told", changes.still),
        values=f"{sum(1 + one.others for one in changes.still):,}",
        tests=_tests(changes),
        notes=changes.notes,
        facts=tuple(facts(changes.comparison.base)),
    )


def _tests(changes: Changes) -> PageTable:
    heads = (Head("test"), Head("is"), Head("because", style="prose"))
    rows = (Row((Cell(one.test), Cell(one.coverage.value), Cell(one.reason))) for one in changes.tests)
    return PageTable("Tests that only one of the runs measured", heads, tuple(rows))


def _table(caption: str, changes: Sequence[Change]) -> PageTable:
    heads = (
        Head("variant"),
        Head("benchmark", style="place"),
        Head("metric", style="place"),
        Head("before", is_number=True),
        Head("now", is_number=True),
        Head("change", is_number=True),
        Head("verdict", style="verdict"),
    )
    return PageTable(caption, heads, tuple(Row(tuple(_cells(one)), one.variant) for one in changes))


def _cells(one: Change) -> Iterator[Cell]:
    judgement, tone = one.judgement, one.tone or ""
    yield Cell(one.variant)
    yield Cell(one.benchmark or ALL_TESTS)
    yield Cell(one.metric)
    yield Cell(one.before, judgement.base)
    yield Cell(one.after, judgement.head)
    yield Cell(one.text, judgement.ratio, one.interval, tone)
    yield Cell(_verdict(judgement.verdict), detail=printable(judgement.reason), tone=tone)


def _verdict(verdict: Verdict) -> str:
    """The word behind its sign; that of a tone is drawn beside it."""
    return verdict.value if verdict in TONES else f"{SIGNS[verdict]} {verdict.value}"


def _overview(findings: Findings, changes: Changes, terms: Mapping[str, Term]) -> PageTable:
    """A row a variant of both runs, on the workload of the first table: before, now, and the verdict's colour."""
    judged = {(one.subject, one.metric.name): one for one in changes.comparison.judgements}
    names = ("speedup", "latency_s", memory_metric(findings), *OF_VARIANT)
    shown = [findings.metrics[name] for name in dict.fromkeys(names)]
    rows = []
    for variant, record in findings.common.items():
        found = [judged.get((variant if one.name in OF_VARIANT else record.test, one.name)) for one in shown]
        if any(found):
            rows.append(Row((Cell(variant), *map(_beside, found)), variant))
    filled = [place for place in range(len(shown)) if any(row.cells[place + 1].text != MISSING for row in rows)]
    heads = (Head("variant"), *(Head(shown[at].column, True, term=terms.get(shown[at].column)) for at in filled))
    kept = (Row((row.cells[0], *(row.cells[at + 1] for at in filled)), row.variant) for row in rows)
    return PageTable("The variants in both runs", heads, tuple(kept))


def _beside(one: Judgement | None) -> Cell:
    """The value now, and below it the one before with the change; grey where neither better nor worse is shown."""
    if one is None:
        return Cell(MISSING)
    change = Change(one, 0, "", "")
    if one.base == one.head:
        return Cell(change.after, one.head, "the same", SAME)
    doubt = "" if one.verdict in (*TONES, Verdict.UNCHANGED) else f" {SIGNS[one.verdict]}"
    return Cell(change.after, one.head, f"was {change.before}, {change.text}{doubt}", change.tone or SAME)
