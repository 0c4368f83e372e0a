"""The reports of `llm-bench gate`, `llm-bench compare` and pytest's gate, and what machines are given of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.coverage import Coverage
from llm_bench_fixtures.gate.decision import Decision
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.judged.causes import MOVED, Cause, JudgedRow, causes_of, led, rows_of
from llm_bench_fixtures.report.judged.changes import baseline_sentence, counts_sentence, notes_of, run_sentence
from llm_bench_fixtures.report.judged.renderer import JudgedPart, JudgedReport
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.text import printable, without_commands

PARTS = (
    ("Regressed", Verdict.REGRESSED, False),
    ("Inconclusive", Verdict.INCONCLUSIVE, False),
    ("Vanished", Verdict.VANISHED, False),
    ("Improved", Verdict.IMPROVED, False),
    ("Worse, advisory", Verdict.REGRESSED, True),
    ("Better, advisory", Verdict.IMPROVED, True),
)
MOST_ANNOTATIONS = 10  # annotations that GitHub shows of one step


def gate_report(decision: Decision) -> JudgedReport:
    """The report of a decision."""
    comparison = decision.comparison
    title = f"llm-gate: {decision.status.words}"
    reason = f"{decision.reason[:1].upper()}{decision.reason[1:]}." if decision.reason else ""
    runs = [baseline_sentence(comparison.base), counts_sentence(comparison)] if comparison else []
    return _report(title, [reason, *runs, decision.advice], comparison)


def comparison_report(comparison: Comparison) -> JudgedReport:
    """The report of a comparison without a decision."""
    runs = (baseline_sentence(comparison.base), f"Compared: {run_sentence(comparison.head)}")
    return _report("llm-bench compare", [*runs, counts_sentence(comparison)], comparison)


def _report(title: str, sentences: Sequence[str], comparison: Comparison | None) -> JudgedReport:
    shown = tuple(filter(None, sentences))
    if comparison is None:
        return JudgedReport(title, shown)
    return JudgedReport(title, shown, tuple(_parts(comparison)), tuple(notes_of(comparison)))


def _parts(comparison: Comparison) -> Iterator[JudgedPart]:
    rows = rows_of(comparison)
    for title, verdict, is_advisory in PARTS:
        found = [row for row in rows if row.verdict is verdict and row.is_advisory is is_advisory]
        if found:
            lines = tuple(allowed_text(one) for one in led(causes_of(found, rows)))
            yield JudgedPart(f"{title} ({count(len(found), 'value')})", lines, tuple(found))
    named = [one for one in comparison.uncovered if one.coverage is not Coverage.NOT_SELECTED]
    if named:
        lines = tuple(printable(": ".join(filter(None, (one.test, one.coverage, one.reason)))) for one in named)
        yield JudgedPart(f"Tests without a verdict ({len(named)})", lines)


def allowed_text(cause: Cause) -> str:
    """Words on what moved, and what was allowed."""
    return f"{cause.text} (allowed: {cause.allowed})" if cause.allowed else cause.text


def _failing(rows: Iterable[JudgedRow]) -> list[JudgedRow]:
    """The rows that fail the gate."""
    return [row for row in rows if row.verdict is Verdict.REGRESSED and not row.is_advisory]


def github_annotations(decision: Decision) -> Iterator[str]:
    """GitHub's workflow commands that show an error for each cause."""
    title = f"llm-gate: {decision.status.words}"
    if decision.status is ExitStatus.REGRESSED and decision.comparison is not None:
        rows = rows_of(decision.comparison)
        causes = led(causes_of(_failing(rows), rows))
        shown = causes if len(causes) <= MOST_ANNOTATIONS else causes[: MOST_ANNOTATIONS - 1]
        for one in shown:
            files = {row.test.partition("::")[0] for row in one.rows}
            yield _error(title, allowed_text(one), files.pop() if len(files) == 1 else "")
        if len(shown) < len(causes):
            yield _error(title, f"{len(causes) - len(shown)} more causes, which the log lists")
    elif decision.status is not ExitStatus.PASSED:
        yield _error(title, f"{decision.reason}. {decision.advice}")


def _error(title: str, message: str, file: str = "") -> str:
    place = f"file={_property(file)}," if file else ""
    return f"::error {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Data of a command, escaped as GitHub's toolkit does."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return without_commands(printable(escaped))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def failures(decision: Decision) -> Iterator[tuple[str, str]]:
    """Failures for JUnit: each test or variant that regressed, with its values; of another failure, its words and the
    reason."""
    if decision.status is ExitStatus.REGRESSED and decision.comparison is not None:
        subjects: dict[str, list[str]] = defaultdict(list)
        for row in _failing(rows_of(decision.comparison)):
            values = f"{row.metric.title}: {row.before} → {row.after}, {row.change}"
            subjects[row.test or row.variant].append(f"{values} (allowed: {row.allowed})")
        yield from ((subject, "; ".join(values)) for subject, values in subjects.items())
    elif decision.status is not ExitStatus.PASSED:
        yield decision.status.words, f"{decision.reason}. {decision.advice}"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Comparison for programs: every cause of what moved, and every row."""
    rows = rows_of(comparison)
    return {
        "schema": "llm-bench-fixtures/comparison",
        "version": 1,
        "base": comparison.base.source,
        "head": comparison.head.source,
        "judged_tests": comparison.judged_tests,
        "causes": [one.as_json() for one in led(causes_of([row for row in rows if row.verdict in MOVED], rows))],
        "values": [row.as_json() for row in rows],
        "uncovered": [asdict(one) for one in comparison.uncovered],
    }


def decision_json(decision: Decision) -> dict[str, Any]:
    """Decision for programs, with the comparison where there is one."""
    return {
        **(comparison_json(decision.comparison) if decision.comparison else {}),
        "status": decision.status.name.lower(),
        "exit_status": int(decision.status),
        "reason": decision.reason,
    }
