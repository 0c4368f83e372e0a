"""What a run changed against another one, computed once for all formats, and the reports of it: for the page and a pull
request, of `llm-bench gate`, `llm-bench compare` and pytest's gate, and for machines.

Sentences on any comparison of two runs say which runs, what was not judged, and how sure the verdicts are.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import Need
from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.gate.comparison import SPEEDUP, Comparison
from llm_bench_fixtures.gate.coverage import Coverage, Uncovered
from llm_bench_fixtures.gate.decision import Decision
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.margins import ALARMS
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.history.saved import Address, read_saved_run, saved_at
from llm_bench_fixtures.report.judged.causes import (
    MOVED,
    STILL,
    Cause,
    JudgedPart,
    JudgedReport,
    JudgedRow,
    causes_of,
    led,
    rows_of,
)
from llm_bench_fixtures.report.words.answer import answer_of
from llm_bench_fixtures.results.folder import folder_name
from llm_bench_fixtures.results.formatting import count, format_change, format_share
from llm_bench_fixtures.results.metrics import Kind
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.text import printable, without_commands

LATENCY = "latency_s"
INCOMPARABLE = (Verdict.NOT_MEASURED, Verdict.NEW, Verdict.VANISHED)
WORDS = {Verdict.REGRESSED: "Worse than", Verdict.IMPROVED: "Better than", Verdict.VANISHED: "Vanished since"}
MOST_NAMED = 3  # causes of one verdict, in the sentence
PARTS = (
    ("Regressed", Verdict.REGRESSED, False),
    ("Inconclusive", Verdict.INCONCLUSIVE, False),
    ("Vanished", Verdict.VANISHED, False),
    ("Improved", Verdict.IMPROVED, False),
    ("Worse, advisory", Verdict.REGRESSED, True),
    ("Better, advisory", Verdict.IMPROVED, True),
)
MOST_ANNOTATIONS = 10  # annotations that GitHub shows of one step


@dataclass(frozen=True)
class Changes:
    """A run next to the one that it is compared with."""

    comparison: Comparison
    answer_before: str = ""
    """The other run's answer, in its one sentence; empty where it isn't known."""

    @cached_property
    def rows(self) -> tuple[JudgedRow, ...]:
        return rows_of(self.comparison)

    @cached_property
    def moved(self) -> list[Cause]:
        """Causes that got worse or better, vanished or are new."""
        return self.causes(row for row in self.rows if row.verdict in MOVED)

    @cached_property
    def still(self) -> list[Cause]:
        """Causes that are unchanged, inconclusive or not comparable."""
        return self.causes(row for row in self.rows if row.verdict in STILL)

    def causes(self, rows: Iterable[JudgedRow]) -> list[Cause]:
        """Causes of some of the rows. One stands for all timings that ended alike, and one for all metrics that did not
        move."""
        return led(causes_of(rows, self.rows))

    @property
    def tests(self) -> list[Uncovered]:
        """Tests that only one of the runs measured."""
        return [one for one in self.comparison.uncovered if one.coverage is not Coverage.NOT_SELECTED]

    @property
    def notes(self) -> list[str]:
        """Notes on what was not judged, and how sure the verdicts are."""
        return list(notes_of(self.comparison))

    @property
    def against(self) -> str:
        """Which run it is compared with, in a sentence."""
        return baseline_sentence(self.comparison.base)

    @property
    def name(self) -> str:
        """The other run's file without its suffix, or its number; for a results.json its folder."""
        path = saved_at(self.comparison.base.source)
        if isinstance(path, Address):
            return f"run {path.name}"
        return printable(path.stem if path.stem != "results" else folder_name(path))

    @property
    def sentence(self) -> str:
        """Changes by cause, in words; also for runs that can't be compared. What can fail a gate comes first."""
        if all(row.verdict in INCOMPARABLE for row in self.rows):
            return f"Nothing can be compared with {self.name}: {self._why}."
        return " ".join([*self._blocking(), *self._latencies(), *self._lacking()])

    @property
    def _why(self) -> str:
        differing = (str(one) for one in self.comparison.differences if Kind.EXACT in one.unjudged)
        reasons = (row.reason for row in self.rows if row.reason)
        return printable(next(differing, "")) or next(reasons, "") or "they have no test in common"

    def _blocking(self) -> Iterator[str]:
        found = [one for one in self.moved if not one.first.is_advisory and one.verdict in WORDS]
        for verdict, words in WORDS.items():
            if causes := [one.text for one in found if one.verdict is verdict]:
                more = [f"and {len(causes) - MOST_NAMED} more"] if len(causes) > MOST_NAMED else []
                yield f"{words} {self.name}: {'; '.join([*causes[:MOST_NAMED], *more])}."
        if not found:
            what = "that can fail a gate changed" if any(self._latencies()) else "changed beyond the noise"
            yield f"Nothing {what}, compared with {self.name}."

    def _latencies(self) -> Iterator[str]:
        judged = [row.verdict for row in self.rows if row.is_advisory and row.metric.name == LATENCY]
        total = count(len(judged), "latency", "latencies")
        for verdict, way in ((Verdict.REGRESSED, "increased"), (Verdict.IMPROVED, "decreased")):
            if number := judged.count(verdict):
                yield f"{number:,} of {total} {way} (advisory)."

    def _lacking(self) -> Iterator[str]:
        incomparable = sum(not row.is_advisory and row.verdict is Verdict.NOT_MEASURED for row in self.rows)
        if incomparable:
            yield f"{count(incomparable, 'value is', 'values are')} not comparable."
        lost = sum(one.coverage not in (Coverage.NEW, Coverage.NEWLY_REACHED) for one in self.tests)
        if lost:
            yield f"{count(lost, 'of its tests was', 'of its tests were')} not measured now."


def changes_against(comparison: Comparison, need: Need) -> Changes:
    """need: by which the other run's answer is asked for again."""
    try:
        before = read_saved_run(saved_at(comparison.base.source))
    except UnreadableResults:
        return Changes(comparison)
    return Changes(comparison, answer_of(evidence_of(before), need).sentence)


def baseline_sentence(run: Run) -> str:
    """Which run is compared with."""
    blessed = f" Accepted as a baseline: {printable(run.blessing.reason)}." if run.blessing else ""
    state = f" It is {run.state}, so it is no baseline unless named." if not run.is_baseline else ""
    return f"Baseline: {run_sentence(run)}{blessed}{state}"


def run_sentence(run: Run) -> str:
    """The run's file or number, start, commit and branch."""
    provenance = run.provenance
    commit = f" of commit {provenance.commit[:12]}" if provenance.commit else ""
    branch = f" on {provenance.branch}" if provenance.branch else ""
    dirty = ", with uncommitted changes" if provenance.dirty else ""
    path = saved_at(run.source)
    name = path.name if isinstance(path, Path) else f"run {path.name}"
    if isinstance(path, Path) and name == RESULTS_FILE:
        name = f"{folder_name(path)}/{name}"
    return printable(f"{name}, {provenance.started}{commit}{branch}{dirty}.")


def counts_sentence(comparison: Comparison) -> str:
    """How many tests were judged, and how many values that can fail a gate have each verdict."""
    others = Counter(one.coverage for one in comparison.uncovered)
    not_selected = others.pop(Coverage.NOT_SELECTED, 0)
    in_both = {one.test for one in comparison.head.measured()} & {one.test for one in comparison.base.measured()}
    total = len(in_both) + sum(others.values())
    lost = "".join(f", {number} {what}" for what, number in others.items())
    aside = f" ({not_selected} of the baseline not selected)" if not_selected else ""
    blocking = Counter(one.verdict for one in comparison.judgements if one.is_blocking)
    values = ", ".join(f"{blocking[verdict]} {verdict}" for verdict in Verdict if blocking[verdict])
    judged = f"Judged {comparison.judged_tests} of {total} tests{lost}{aside}."
    return f"{judged} Values that can fail the gate: {values or 'none'}."


def notes_of(comparison: Comparison) -> Iterator[str]:
    """Notes on what was not judged, and how sure a verdict on a time is; the most important first."""
    for difference in comparison.differences:
        text = printable(str(difference))
        kinds = ", ".join(kind for kind in Kind if kind in difference.unjudged)
        yield f"{text[:1].upper()}{text[1:]}. Not judged: {kinds}."
    yield from (f"{printable(note)}." for note in comparison.notes)
    times = [one for one in comparison.judgements if one.metric.kind is Kind.TIMING and one.metric.name != SPEEDUP]
    if not any(one.is_blocking for one in times):
        yield "Times are advisory between saved runs; llm-bench pair judges them."
    yield from _of_speedups(comparison)
    floor = comparison.floor
    yield (
        f"Identical work differed by up to {floor.percent:.0f} % within one of these runs ({floor.pairs} pairs)."
        if floor.pairs >= ENOUGH_PAIRS
        else f"Noise is assumed to be {floor.percent:.0f} %: these runs repeat too little to measure it."
    ) + " Smaller changes in time count as noise. Runs at different hours differ by more."
    relative = [one.rule.relative for one in times if one.is_blocking and not one.rule.absolute]
    if fine := [share for share in relative if math.log1p(share) < floor.log_ratio]:
        yield f"The noise exceeds a rule of {format_share(min(fine))}: changes between the two are inconclusive."
    probed = [any(record.probe_s for record in run.records) for run in (comparison.base, comparison.head)]
    if probed[0] != probed[1]:
        which = "this run" if probed[1] else "the baseline"
        yield f"Only {which} used the probe, which slows short rounds: compare runs that both use it, or neither."
    if comparison.slowdown is not None:
        change = format_change(comparison.slowdown)
        yield f"By the probe, the machine took {change} time for the same work. Times are judged without this change."


def _of_speedups(comparison: Comparison) -> Iterator[str]:
    """How sure a verdict on a speed-up is, and what it can't see."""
    tests, variants = comparison.speedups
    if tests:
        over = comparison.head.reference
        means = f" and the mean of {count(variants, 'variant')}" if variants else ""
        yield (
            f"Speed-ups over {over} are judged by their intervals: {count(tests, 'test')}{means}. False-alarm rate: at "
            f"most {format_share(ALARMS)}. Slowdowns shared with {over} are invisible here; use llm-bench pair."
        )


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
    return JudgedReport(title, shown, tuple(_gate_parts(comparison)), tuple(notes_of(comparison)))


def _gate_parts(comparison: Comparison) -> Iterator[JudgedPart]:
    changes = Changes(comparison)
    for title, verdict, is_advisory in PARTS:
        found = [row for row in changes.rows if row.verdict is verdict and row.is_advisory is is_advisory]
        if found:
            lines = tuple(allowed_text(one) for one in changes.causes(found))
            yield JudgedPart(f"{title} ({count(len(found), 'value')})", lines, tuple(found))
    if changes.tests:
        lines = tuple(printable(": ".join(filter(None, (one.test, one.coverage, one.reason)))) for one in changes.tests)
        yield JudgedPart(f"Tests without a verdict ({len(lines)})", lines)


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
        changes = Changes(decision.comparison)
        causes = changes.causes(_failing(changes.rows))
        shown = causes if len(causes) <= MOST_ANNOTATIONS else causes[: MOST_ANNOTATIONS - 1]
        for one in shown:
            files = {row.test.partition("::")[0] for row in one.rows}
            yield _annotation(title, allowed_text(one), files.pop() if len(files) == 1 else "")
        if len(shown) < len(causes):
            yield _annotation(title, f"{len(causes) - len(shown)} more causes, which the log lists")
    elif decision.status is not ExitStatus.PASSED:
        yield _annotation(title, f"{decision.reason}. {decision.advice}")


def _annotation(title: str, message: str, file: str = "") -> str:
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
    changes = Changes(comparison)
    return {
        "schema": "llm-bench-fixtures/comparison",
        "version": 1,
        "base": comparison.base.source,
        "head": comparison.head.source,
        "judged_tests": comparison.judged_tests,
        "causes": [one.as_json() for one in changes.moved],
        "values": [row.as_json() for row in changes.rows],
        "uncovered": [asdict(one) for one in comparison.uncovered],
    }


def decision_json(decision: Decision) -> dict[str, Any]:
    """Decision for programs, with the comparison where there is one."""
    compared = comparison_json(decision.comparison) if decision.comparison else {}
    status = {"status": decision.status.name.lower(), "exit_status": int(decision.status)}
    return {**compared, **status, "reason": decision.reason}
