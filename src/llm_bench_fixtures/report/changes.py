"""What a run changed against another: the gate's judgements as the page and the pull request tell them.

Values that moved are told one by one, but for the timings of a test, which move together: the first stands for all.
Of the others, a test's first metric stands for all that ended alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.coverage import Coverage, Uncovered
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.cells import title_of
from llm_bench_fixtures.report.change_words import LATENCY, change_sentence, interval_text
from llm_bench_fixtures.report.comparison import baseline_sentence, change_text, grouped
from llm_bench_fixtures.report.comparison_footnotes import footnotes
from llm_bench_fixtures.report.tables.table import Tone
from llm_bench_fixtures.results.formatting import count, with_unit
from llm_bench_fixtures.results.metrics import Force
from llm_bench_fixtures.results.record import Run, Scenario
from llm_bench_fixtures.text import printable

TONES = {Verdict.IMPROVED: Tone.BETTER, Verdict.REGRESSED: Tone.WORSE}
MOVED = (Verdict.REGRESSED, Verdict.VANISHED, Verdict.IMPROVED, Verdict.NEW)  # in the order in which they are told
STILL = (Verdict.INCONCLUSIVE, Verdict.UNCHANGED, Verdict.NOT_MEASURED)


@dataclass(frozen=True)
class Change:
    """One value in both runs, and the others that it stands for."""

    judgement: Judgement
    others: int
    """How many other metrics of its test or variant ended alike."""
    variant: str
    benchmark: str
    """The test's scenario and case; empty where the value is that of all the variant's tests."""

    @property
    def tone(self) -> Tone | None:
        return TONES.get(self.judgement.verdict)

    @property
    def is_advisory(self) -> bool:
        """Whether it fails no gate."""
        return not self.judgement.is_blocking

    @property
    def is_latency(self) -> bool:
        """Whether it is a median latency that left its noise, and fails no gate."""
        return self.is_advisory and self.tone is not None and self.judgement.metric.name == LATENCY

    @property
    def metric(self) -> str:
        """The metric's title, and how many it stands for."""
        title = self.judgement.metric.title
        other = "other timing" if self.judgement.verdict in TONES else "other metric"
        return f"{title} and {count(self.others, other)}" if self.others else title

    @property
    def before(self) -> str:
        return with_unit(self.judgement.base, self.judgement.metric)

    @property
    def after(self) -> str:
        return with_unit(self.judgement.head, self.judgement.metric)

    @property
    def text(self) -> str:
        """The relative change with its sign."""
        return change_text(self.judgement)

    @property
    def interval(self) -> str:
        """Where the change lies for all that the two runs tell; empty where it is exact."""
        return interval_text(self.judgement)


@dataclass(frozen=True)
class Changes:
    """Everything that the report says of a run beside another."""

    comparison: Comparison
    sentence: str
    """What changed, in one sentence."""
    against: str
    """Which run it is compared with, in a sentence."""
    moved: tuple[Change, ...]
    """What got worse or better, vanished or is new; the worst first."""
    still: tuple[Change, ...]
    """What is unchanged, can't be told apart, or can't be compared."""
    tests: tuple[Uncovered, ...]
    """Tests that only one of the runs measured."""
    notes: tuple[str, ...]
    """What was not judged, and how sure the verdicts are."""
    answer_before: str = ""
    """What the other run's answer was, in its one sentence; empty where it isn't known."""

    @property
    def name(self) -> str:
        """A short name of the run that is compared with: its file, or the folder of its report."""
        return run_name(self.comparison.base)


def changes_of(comparison: Comparison, answer_before: str = "") -> Changes:
    """What the comparison says, which is computed once for all formats."""
    place = _Places(comparison.head)
    judged = [one for one in comparison.judgements if one.rule.force is not Force.OFF]
    return Changes(
        comparison=comparison,
        sentence=change_sentence(comparison, run_name(comparison.base), place.name),
        against=baseline_sentence(comparison.base),
        moved=tuple(place.change(*group) for group in _moved(judged)),
        still=tuple(place.change(*group) for group in _still(judged)),
        tests=tuple(one for one in comparison.uncovered if one.coverage is not Coverage.NOT_SELECTED),
        notes=tuple(footnotes(comparison)),
        answer_before=answer_before,
    )


def run_name(run: Run) -> str:
    """Of its file; a results.json has that of its folder."""
    path = Path(run.source)
    return printable(path.stem if path.stem != "results" else path.absolute().parent.name)


def _moved(judged: Sequence[Judgement]) -> Iterator[tuple[Judgement, int]]:
    """What a gate goes by, then what is only told."""
    for force, verdict in product((Force.BLOCKING, Force.ADVISORY), MOVED):
        yield from grouped([one for one in judged if one.verdict is verdict and one.rule.force is force])


def _still(judged: Iterable[Judgement]) -> Iterator[tuple[Judgement, int]]:
    """In the order of the run's tests; of each, what can't be told apart or compared stands first."""
    groups: dict[tuple[str, Verdict], list[Judgement]] = defaultdict(list)
    for one in judged:
        if one.verdict in STILL:
            groups[one.subject, one.verdict].append(one)
    order = {subject: place for place, (subject, _) in reversed(list(enumerate(groups)))}
    for key in sorted(groups, key=lambda key: (order[key[0]], STILL.index(key[1]))):
        yield groups[key][0], len(groups[key]) - 1


class _Places:
    """Finds the variant and the benchmark that a judgement is about."""

    def __init__(self, run: Run) -> None:
        self._records = {record.test: record for record in run.records}
        self._scenarios: Mapping[str, Scenario] = {scenario.name: scenario for scenario in run.scenarios}

    def change(self, one: Judgement, others: int) -> Change:
        return Change(one, others, *self._place(one))

    def name(self, one: Judgement) -> str:
        variant, benchmark = self._place(one)
        return printable(f"{variant}, {benchmark}" if benchmark else variant)

    def _place(self, one: Judgement) -> tuple[str, str]:
        record = self._records.get(one.subject)
        if record is None:
            return one.subject, ""
        title = title_of(self._scenarios.get(record.scenario, Scenario(record.scenario)))
        return record.variant, f"{title}: {record.case}" if record.case else title
