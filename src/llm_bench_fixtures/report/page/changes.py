"""The run next to another one: the variants before and now, what changed by cause, and what did not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_bench_fixtures.answer.peaks import WEIGHTS, memory_metric
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.document import facts
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.judged.causes import MOVED, TONES, Cause
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.judged.rows import JudgedRow
from llm_bench_fixtures.report.page.values import Cell, ChangesPart, Head, PageTable, Row, Term
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
        moved=_causes("What changed", [one for one in changes.moved if not one.first.is_advisory]),
        advisory=_causes("What changed, advisory", [one for one in changes.moved if one.first.is_advisory]),
        values=_values([row for row in changes.rows if row.verdict in MOVED]),
        still=_causes("What did not change, or is not known", changes.still),
        tests=_tests(changes),
        notes=tuple(changes.notes),
        facts=tuple(facts(changes.comparison.base)),
    )


def _tests(changes: Changes) -> PageTable:
    heads = (Head("test"), Head("is"), Head("because", style="prose"))
    rows = (Row((Cell(one.test), Cell(one.coverage.value), Cell(one.reason))) for one in changes.tests)
    return PageTable("Tests that only one of the runs measured", heads, tuple(rows))


def _causes(caption: str, causes: Sequence[Cause]) -> PageTable:
    """A row for each cause."""
    place = [Head(name, style="place") for name in ("metric", "change", "tests")]
    rows = (
        Row(
            (
                Cell(one.name),
                Cell(one.title),
                Cell(one.change, one.first.ratio, tone=TONES.get(one.verdict, "")),
                Cell(one.where or ALL_TESTS),
                _verdict(one.first),
            ),
            one.name if len(one.variants) == 1 else "",
        )
        for one in causes
    )
    return PageTable(caption, (Head("variant"), *place, Head("verdict", style="verdict")), tuple(rows))


def _values(rows: Sequence[JudgedRow]) -> PageTable:
    """A row for each value."""
    heads = (
        Head("variant"),
        Head("benchmark", style="place"),
        Head("metric", style="place"),
        *(Head(name, is_number=True) for name in ("before", "now", "change")),
        Head("verdict", style="verdict"),
    )
    shown = (
        Row(
            (
                Cell(one.variant),
                Cell(one.benchmark or ALL_TESTS),
                Cell(one.metric.title),
                Cell(one.before, one.base),
                Cell(one.after, one.head),
                Cell(one.change, one.ratio, one.interval_text, TONES.get(one.verdict, "")),
                _verdict(one),
            ),
            one.variant,
        )
        for one in rows
    )
    return PageTable("Values that changed", heads, tuple(shown))


def _verdict(one: JudgedRow) -> Cell:
    """The word behind its sign; that of a tone is drawn next to it."""
    word = one.verdict.value if one.verdict in TONES else f"{SIGNS[one.verdict]} {one.verdict.value}"
    return Cell(f"{word}{', advisory' if one.is_advisory else ''}", detail=one.reason, tone=TONES.get(one.verdict, ""))


def _overview(findings: Findings, changes: Changes, terms: Mapping[str, Term]) -> PageTable:
    """A row a variant of both runs, on the workload of the first table: before, now, and the verdict's colour."""
    judged = {(one.test or one.variant, one.metric.name): one for one in changes.rows}
    names = ("speedup", "latency_s", memory_metric(findings), *OF_VARIANT)
    shown = [findings.metrics[name] for name in dict.fromkeys(names)]
    rows = []
    for variant, test in ((variant, printable(record.test)) for variant, record in findings.common.items()):
        found = [judged.get((variant if one.name in OF_VARIANT else test, one.name)) for one in shown]
        if any(found):
            rows.append(Row((Cell(variant), *map(_both, found)), variant))
    filled = [place for place in range(len(shown)) if any(row.cells[place + 1].text != MISSING for row in rows)]
    heads = (Head("variant"), *(Head(shown[at].column, True, term=terms.get(shown[at].column)) for at in filled))
    kept = (Row((row.cells[0], *(row.cells[at + 1] for at in filled)), row.variant) for row in rows)
    return PageTable("The variants in both runs", heads, tuple(kept))


def _both(one: JudgedRow | None) -> Cell:
    """The value now, and below it the one before with the change; grey where neither better nor worse is shown."""
    if one is None:
        return Cell(MISSING)
    if one.base == one.head:
        return Cell(one.after, one.head, "the same", SAME)
    doubt = "" if one.verdict in (*TONES, Verdict.UNCHANGED) else f" {SIGNS[one.verdict]}"
    return Cell(one.after, one.head, f"was {one.before}, {one.change}{doubt}", TONES.get(one.verdict, SAME))
