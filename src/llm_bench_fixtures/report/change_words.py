"""What a run changed, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.coverage import Coverage
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.verdicts import Verdict, log_ratio
from llm_bench_fixtures.report.comparison import change_text
from llm_bench_fixtures.results.formatting import MISSING, count, format_change
from llm_bench_fixtures.results.metrics import Force, Kind
from llm_bench_fixtures.text import printable

INCOMPARABLE = (Verdict.NOT_MEASURED, Verdict.NEW, Verdict.VANISHED)
LATENCY = "latency_s"
NOTHING = "nothing changed beyond the noise"
NOTHING_GATED = "nothing changed of what a gate goes by"
WORDS = {Verdict.REGRESSED: "got worse", Verdict.IMPROVED: "got better", Verdict.VANISHED: "vanished"}


def change_sentence(comparison: Comparison, against: str, name_of: Callable[[Judgement], str]) -> str:
    """What changed, in one sentence; true of runs that can't be compared, too.

    It speaks of what a gate goes by, and then of the median latencies that left their noise. Times of another hour
    never come first, and what did not change is not counted.

    against: the other run's name. name_of: what a judgement is about.
    """
    judged = [one for one in comparison.judgements if one.rule.force is not Force.OFF]
    if all(one.verdict in INCOMPARABLE for one in judged):
        return f"Against {against} nothing can be compared: {_why(comparison, judged)}."
    latencies = list(_latencies(judged))
    changed = list(_blocking(judged, name_of)) or [NOTHING_GATED if latencies else NOTHING]
    clauses = [*changed, *latencies, *_incomparable(judged), *_lost(comparison)]
    return f"Against {against}, {'; '.join(clauses)}."


def interval_text(one: Judgement) -> str:
    """The ends of the change's interval: "+8.7 % to +43.8 %"; empty where it has none."""
    if one.interval is None:
        return ""
    low, high = map(format_change, one.interval)
    return f"{low} to {high}" if low != high else ""


def _why(comparison: Comparison, judged: Sequence[Judgement]) -> str:
    differing = next((str(one) for one in comparison.differences if Kind.EXACT in one.unjudged), "")
    reason = differing or next((one.reason for one in judged if one.reason), "")
    return printable(reason) or "they have no test in common"


def _blocking(judged: Sequence[Judgement], name_of: Callable[[Judgement], str]) -> Iterator[str]:
    """What a gate goes by, the largest change of each verdict by name."""
    found = [one for one in judged if one.is_blocking and one.verdict in WORDS]
    for verdict, words in WORDS.items():
        them = [one for one in found if one.verdict is verdict]
        if them:
            yield f"{count(len(them), 'value')} {words}{_example(them, name_of)}"


def _example(them: Sequence[Judgement], name_of: Callable[[Judgement], str]) -> str:
    most = max(them, key=_size)
    change = change_text(most)
    by = f" by {change}" if change != MISSING else ""
    return f" ({'most of all ' if len(them) > 1 else ''}{_inside(most.metric.title)} of {name_of(most)}{by})"


def _inside(title: str) -> str:
    """A title within a sentence: small, but for an abbreviation."""
    return title if title[1:2].isupper() else f"{title[:1].lower()}{title[1:]}"


def _size(one: Judgement) -> float:
    return abs(log_ratio(one.base, one.head)) if one.base is not None and one.head is not None else 0.0


def _latencies(judged: Sequence[Judgement]) -> Iterator[str]:
    """The median latencies that left their noise, and are only told."""
    told = [one for one in judged if not one.is_blocking and one.metric.name == LATENCY]
    worse, better = (sum(one.verdict is verdict for one in told) for verdict in (Verdict.REGRESSED, Verdict.IMPROVED))
    found = [f"{number:,} {words}" for number, words in ((worse, "longer"), (better, "shorter")) if number]
    if found:
        yield f"of {count(len(told), 'median latency', 'median latencies')} {' and '.join(found)}, which fails no gate"


def _incomparable(judged: Sequence[Judgement]) -> Iterator[str]:
    """Of what a gate goes by."""
    number = sum(one.is_blocking and one.verdict is Verdict.NOT_MEASURED for one in judged)
    if number:
        yield f"{count(number, 'value')} not comparable"


def _lost(comparison: Comparison) -> Iterator[str]:
    """Tests that the other run measured and this one selected and did not."""
    found = [one for one in comparison.uncovered if one.coverage not in (Coverage.NEW, Coverage.NOT_SELECTED)]
    if found:
        yield f"{count(len(found), 'of its tests was', 'of its tests were')} not measured now"
