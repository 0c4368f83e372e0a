"""What a run changed against another one, which the page and the pull request show: computed once for all formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.coverage import Coverage, Uncovered
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.options.quality_limit import QualityLimit
from llm_bench_fixtures.report.judged.causes import MOVED, STILL, Cause, causes_of, led
from llm_bench_fixtures.report.judged.notes import baseline_sentence, notes_of
from llm_bench_fixtures.report.judged.rows import JudgedRow, rows_of
from llm_bench_fixtures.report.words.answer import answer_of
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Kind
from llm_bench_fixtures.text import printable

LATENCY = "latency_s"
INCOMPARABLE = (Verdict.NOT_MEASURED, Verdict.NEW, Verdict.VANISHED)
WORDS = {Verdict.REGRESSED: "Worse than", Verdict.IMPROVED: "Better than", Verdict.VANISHED: "Vanished since"}
MOST_NAMED = 3  # causes of one verdict, in the sentence


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
        """What got worse or better, vanished or is new."""
        return led(causes_of([row for row in self.rows if row.verdict in MOVED], self.rows))

    @cached_property
    def still(self) -> list[Cause]:
        """What is unchanged, inconclusive or not comparable."""
        return led(causes_of([row for row in self.rows if row.verdict in STILL], self.rows))

    @property
    def tests(self) -> list[Uncovered]:
        """Tests that only one of the runs measured."""
        return [one for one in self.comparison.uncovered if one.coverage is not Coverage.NOT_SELECTED]

    @property
    def notes(self) -> list[str]:
        """What was not judged, and how sure the verdicts are."""
        return list(notes_of(self.comparison))

    @property
    def against(self) -> str:
        """Which run it is compared with, in a sentence."""
        return baseline_sentence(self.comparison.base)

    @property
    def name(self) -> str:
        """The other run's file without its suffix; for a results.json its folder."""
        path = Path(self.comparison.base.source)
        return printable(path.stem if path.stem != "results" else path.absolute().parent.name)

    @property
    def sentence(self) -> str:
        """What changed, by cause; also for runs that can't be compared. What can fail a gate comes first."""
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
            causes = [one.text for one in found if one.verdict is verdict]
            if causes:
                more = [f"and {len(causes) - MOST_NAMED} more"] if len(causes) > MOST_NAMED else []
                yield f"{words} {self.name}: {'; '.join([*causes[:MOST_NAMED], *more])}."
        if not found:
            what = "that can fail a gate changed" if any(self._latencies()) else "changed beyond the noise"
            yield f"Nothing {what}, compared with {self.name}."

    def _latencies(self) -> Iterator[str]:
        judged = [row.verdict for row in self.rows if row.is_advisory and row.metric.name == LATENCY]
        total = count(len(judged), "latency", "latencies")
        if number := judged.count(Verdict.REGRESSED):
            yield f"{number:,} of {total} increased (advisory)."
        if number := judged.count(Verdict.IMPROVED):
            yield f"{number:,} of {total} decreased (advisory)."

    def _lacking(self) -> Iterator[str]:
        incomparable = sum(not row.is_advisory and row.verdict is Verdict.NOT_MEASURED for row in self.rows)
        if incomparable:
            yield f"{count(incomparable, 'value is', 'values are')} not comparable."
        lost = sum(one.coverage not in (Coverage.NEW, Coverage.NEWLY_REACHED) for one in self.tests)
        if lost:
            yield f"{count(lost, 'of its tests was', 'of its tests were')} not measured now."


def changes_against(comparison: Comparison, quality_limit: QualityLimit) -> Changes:
    """quality_limit: by which the other run's answer is asked for again."""
    return Changes(comparison, _answer(Path(comparison.base.source), quality_limit))


def _answer(path: Path, quality_limit: QualityLimit) -> str:
    """The answer of the run in that file in one sentence; empty where it can't be read whole."""
    try:
        run = read_saved_run(path)
    except UnreadableResults:
        return ""
    return answer_of(evidence_of(run), quality_limit).sentence
