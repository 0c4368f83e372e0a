"""The gate's report for people: in the terminal, in Markdown, as annotations, and as entries of a JUnit file.

Values that moved are listed; the others are counted. Names and reasons come from saved files, which anybody may have
written: control characters are taken out, and characters that mean something in Markdown or annotations are escaped.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.coverage import Coverage, Uncovered
from llm_bench_fixtures.gate.decision import Decision
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.columns import title_line, wrapped
from llm_bench_fixtures.report.comparison_footnotes import footnotes
from llm_bench_fixtures.report.document import Section
from llm_bench_fixtures.report.markdown import escape, markdown_table
from llm_bench_fixtures.report.renderers.figures import texts
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import MISSING, format_change, with_unit
from llm_bench_fixtures.results.metrics import Force, Kind
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.text import harmless, printable, without_commands

MOST_ROWS = 30  # of one list
MOST_ADVISORY = 5
HEADER = ("what", "metric", "baseline", "now", "change", "allowed")


@dataclass(frozen=True)
class GateReport:
    """The parts of a report, from top to bottom."""

    title: str
    """The words of the exit status."""
    sentences: tuple[str, ...]
    """What was compared, and with which result."""
    lists: tuple[Section, ...]
    """The values that moved, and the tests without a verdict."""
    footnotes: tuple[str, ...]


def gate_report(decision: Decision) -> GateReport:
    """The report of a decision."""
    comparison = decision.comparison
    title = f"llm-gate: {decision.status.words}"
    reason = f"{decision.reason[:1].upper()}{decision.reason[1:]}." if decision.reason else ""
    if comparison is None:
        return GateReport(title, tuple(filter(None, (reason, decision.advice))), (), ())
    return GateReport(
        title,
        tuple(filter(None, (reason, baseline_sentence(comparison.base), _counts(comparison), decision.advice))),
        tuple(_lists(comparison)),
        tuple(footnotes(comparison)),
    )


def comparison_report(comparison: Comparison) -> GateReport:
    """The report of a comparison without a decision."""
    return GateReport(
        "llm-bench compare",
        (baseline_sentence(comparison.base), f"Compared: {_describe(comparison.head)}", _counts(comparison)),
        tuple(_lists(comparison)),
        tuple(footnotes(comparison)),
    )


def baseline_sentence(run: Run) -> str:
    """Which run is compared with."""
    if run.blessing:
        return f"Baseline: {_describe(run)} Accepted as a baseline: {printable(run.blessing.reason)}."
    return f"Baseline: {_describe(run)}{'' if run.is_baseline else f' It is none by itself: {run.state}.'}"


def _describe(run: Run) -> str:
    provenance = run.provenance
    commit = f" of commit {provenance.commit[:12]}" if provenance.commit else ""
    branch = f" on {provenance.branch}" if provenance.branch else ""
    dirty = ", with uncommitted changes" if provenance.dirty else ""
    path = Path(run.source)
    name = path.name if path.name != RESULTS_FILE else f"{path.absolute().parent.name}/{path.name}"
    return printable(f"{name}, {provenance.started}{commit}{branch}{dirty}.")


def _counts(comparison: Comparison) -> str:
    """How many tests were judged, and how many values that block have each verdict."""
    others = Counter(one.coverage for one in comparison.uncovered)
    not_selected = others.pop(Coverage.NOT_SELECTED, 0)
    total = comparison.judged_tests + sum(others.values()) + _other_workloads(comparison)
    lost = "".join(f", {number} {what}" for what, number in others.items())
    aside = f" ({not_selected} of the baseline not selected)" if not_selected else ""
    blocking = Counter(one.verdict for one in comparison.judgements if one.rule.force is Force.BLOCKING)
    values = ", ".join(f"{blocking[verdict]} {verdict}" for verdict in Verdict if blocking[verdict])
    return f"Gated {comparison.judged_tests} of {total} tests{lost}{aside}; values that block: {values or 'none'}."


def _other_workloads(comparison: Comparison) -> int:
    measured = {record.test for record in comparison.head.measured()}
    measured &= {record.test for record in comparison.base.measured()}
    return len(measured) - comparison.judged_tests


def _lists(comparison: Comparison) -> Iterator[Section]:
    blocking = Force.BLOCKING
    for title, found in (
        ("Regressed", comparison.with_verdict(Verdict.REGRESSED, blocking)),
        ("Inconclusive", comparison.with_verdict(Verdict.INCONCLUSIVE, blocking)),
        ("Vanished", comparison.with_verdict(Verdict.VANISHED, blocking)),
        ("Improved", comparison.with_verdict(Verdict.IMPROVED, blocking)),
        ("Worse, advisory", comparison.with_verdict(Verdict.REGRESSED, Force.ADVISORY)),
        ("Better, advisory", comparison.with_verdict(Verdict.IMPROVED, Force.ADVISORY)),
    ):
        if found:
            rows = tuple(_row(*group) for group in grouped(found))
            most = MOST_ADVISORY if found[0].rule.force is Force.ADVISORY else MOST_ROWS
            yield Section(f"{title} ({len(found)})", _cut(HEADER, rows, most, frozenset({2, 3, 4})))
    named = [one for one in comparison.uncovered if one.coverage is not Coverage.NOT_SELECTED]
    if named:
        rows = tuple(_uncovered_row(one) for one in named)
        yield Section(f"Tests without a verdict ({len(named)})", _cut(("test", "is", "because"), rows, MOST_ROWS))


def _cut(
    header: tuple[str, ...], rows: Sequence[tuple[str, ...]], most: int, numeric: frozenset[int] = frozenset()
) -> Table:
    """A table of the first rows, and a row that says how many more there are."""
    if len(rows) > most:
        more = (f"... and {len(rows) - most} more", *[""] * (len(header) - 1))
        rows = (*rows[:most], more)
    return Table.of_texts(header, rows, numeric)


def grouped(found: Sequence[Judgement]) -> Iterator[tuple[Judgement, int]]:
    """Each judgement to be shown, with the number of others that it stands for.

    Timings of a test move together, so that the first in the registry stands for all of them. The test whose timings
    moved furthest comes first.
    """
    timings: dict[str, list[Judgement]] = defaultdict(list)
    for one in found:
        if one.metric.kind is Kind.TIMING:
            timings[one.subject].append(one)
        else:
            yield one, 0
    for group in sorted(timings.values(), key=lambda group: _size(group[0]), reverse=True):
        yield group[0], len(group) - 1


def _size(one: Judgement) -> float:
    """How many times as large, or as small, the value became."""
    ratio = one.ratio
    return max(ratio, 1 / ratio) if ratio else math.inf


def _row(one: Judgement, others: int) -> tuple[str, ...]:
    more = f" and {others} other {'timing' if others == 1 else 'timings'}" if others else ""
    return (
        printable(one.subject),
        f"{one.metric.title}{more}",
        with_unit(one.base, one.metric),
        with_unit(one.head, one.metric),
        change_text(one),
        one.rule.describe(one.metric),
    )


def change_text(one: Judgement) -> str:
    """The relative change with its sign. Where the probe was slower or faster, the change without the probe too."""
    if one.ratio is None or one.raw_ratio is None:
        return MISSING
    if one.slowdown == 1.0:
        return format_change(one.ratio)
    return f"{format_change(one.ratio)} (raw {format_change(one.raw_ratio)})"


def _uncovered_row(one: Uncovered) -> tuple[str, ...]:
    return printable(one.test), one.coverage.value, printable(one.reason)


def gate_lines(report: GateReport, width: int) -> Iterator[str]:
    """The report as lines of at most `width` character cells. A longer name is not broken."""
    return harmless(_lines(report, width))


def _lines(report: GateReport, width: int) -> Iterator[str]:
    yield ""
    yield title_line(report.title, width)
    for sentence in report.sentences:
        yield from _wrap(sentence, width)
    for section in report.lists:
        yield from ("", section.title)
        for row in texts(section.table):
            yield from _wrap(_as_sentence(section.table.names, tuple(row)), width, indent="    ", first="  ")
    yield ""
    for note in report.footnotes:
        yield from _wrap(note, width)


def _as_sentence(header: tuple[str, ...], row: tuple[str, ...]) -> str:
    if header != HEADER or not row[1]:
        return ": ".join(cell for cell in row if cell)
    what, metric, base, now, change, allowed = row
    return f"{what}: {metric}: {base} → {now}, {change} (allowed: {allowed})"


def _wrap(text: str, width: int, indent: str = "", first: str = "") -> list[str]:
    return wrapped(text, width, indent, first, break_words=False)


def gate_markdown(report: GateReport) -> str:
    """The report as Markdown, for a pull request's comment or a CI step's summary."""
    lines = [f"## {escape(report.title)}", "", *(f"{escape(sentence)}  " for sentence in report.sentences)]
    for section in report.lists:
        lines += ["", f"### {escape(section.title)}", "", *markdown_table(section.table)]
    lines += ["", *(f"- {escape(note)}" for note in report.footnotes)]
    return "\n".join(lines) + "\n"


def github_annotations(decision: Decision) -> Iterator[str]:
    """GitHub's workflow commands that show an error for each failure."""
    title = _property(f"llm-gate: {decision.status.words}")
    for subject, message in failures(decision):
        file = f"file={_property(subject.partition('::')[0])}," if "::" in subject else ""
        yield f"::error {file}title={title}::{_data(f'{subject}: {message}')}"


def failures(decision: Decision) -> Iterator[tuple[str, str]]:
    """Each test or variant that regressed, with its values. Of another failure, its words and the reason."""
    if decision.status is ExitStatus.REGRESSED and decision.comparison is not None:
        for subject, sentences in regressions(decision.comparison).items():
            yield subject, "; ".join(sentences)
    elif decision.status is not ExitStatus.PASSED:
        yield decision.status.words, f"{decision.reason}. {decision.advice}"


def regressions(comparison: Comparison, force: Force = Force.BLOCKING) -> dict[str, list[str]]:
    """By test or variant, a sentence for each value that regressed by a rule of that force."""
    found: dict[str, list[str]] = defaultdict(list)
    for one in comparison.with_verdict(Verdict.REGRESSED, force):
        _, metric, base, now, change, allowed = _row(one, 0)
        found[printable(one.subject)].append(f"{metric}: {base} → {now}, {change} (allowed: {allowed})")
    return found


def _data(text: str) -> str:
    return without_commands(printable(text)).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
