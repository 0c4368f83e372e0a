"""A paired result for people: what moved is shown in detail, the rest as a count.

Names, reasons and a worker's last words come from the code under test: control characters are removed from all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from llm_bench_fixtures.gate.allowances import BY_TURNS
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.judgement import is_alike
from llm_bench_fixtures.paired.result import BASE, HEAD, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import alpha_of_analysis
from llm_bench_fixtures.paired.statistics import LEAST_PAIRS, Finding, Measurand
from llm_bench_fixtures.paired.tree import Group
from llm_bench_fixtures.paired.wording import difference_texts, duration_text, group_name
from llm_bench_fixtures.report.columns import columns, wrapped, wrapped_lines
from llm_bench_fixtures.report.comparison import regressions
from llm_bench_fixtures.report.markdown import escape, markdown_table
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import MISSING, count, format_share
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Force
from llm_bench_fixtures.text import printable, printable_lines

HEADER = ("test", "metric", "change", "interval", "verdict", "pairs")
NUMERIC = frozenset({2, 3, 5})
MOVED = (Verdict.REGRESSED, Verdict.SLIGHTLY_WORSE, Verdict.IMPROVED, Verdict.SLIGHTLY_BETTER)
MOST_INCONCLUSIVE = 5  # rows of the table, those that may be the worst
MOST_NAMES = 5  # of tests in one sentence


@dataclass(frozen=True)
class Summary:
    """The content of every format of the report."""

    title: str
    header: str
    """How it was measured."""
    table: Table
    """The groups that moved, the tests that moved otherwise than their groups, and some that are inconclusive."""
    sentences: tuple[str, ...]
    """What else there is to say."""
    warnings: tuple[str, ...]
    """What a reader must not miss."""
    conclusion: str
    """The exit status and what it means."""


def summarize(result: PairedResult) -> Summary:
    return Summary(
        printable(f"{BASE} {result.base} against {HEAD} {result.head}"),
        _header(result),
        Table.of_texts(HEADER, _rows(result), NUMERIC),
        (*_counts(result), *_carried(result), *absences(result.not_compared)),
        (*why_it_ended(result), *_warnings(result)),
        conclusion(result),
    )


def terminal_lines(summary: Summary, width: int) -> Iterator[str]:
    """Lines of at most `width` character cells, except those of the table."""
    yield from wrapped(summary.title, width)
    yield from wrapped(summary.header, width)
    if summary.table.rows:
        yield from ("", *columns(summary.table))
    yield ""
    for text in (*summary.sentences, *summary.warnings):
        yield from wrapped_lines(text, width)
    yield summary.conclusion


def markdown(summary: Summary) -> str:
    """The summary as a comment on a pull request. Names and messages come from the code under test and are escaped."""
    return "\n".join(_markdown_lines(summary)) + "\n"


def _markdown_lines(summary: Summary) -> Iterator[str]:
    yield from (f"### {escape(summary.title)}", "", escape(summary.header), "")
    yield from (f"> **{escape(warning)}**\n" for warning in summary.warnings)
    if summary.table.rows:
        yield from (*markdown_table(summary.table), "")
    yield from (f"- {escape(sentence)}" for sentence in summary.sentences)
    yield from ("", f"**{escape(summary.conclusion)}**")


def _header(result: PairedResult) -> str:
    return (
        f"{measured_how(result)}; threshold {format_share(result.threshold)}, intervals of "
        f"{format_share(1 - alpha_of_analysis(1))} or more"
    )


def measured_how(result: PairedResult) -> str:
    tests = count(len({measurand.test for measurand in result.findings}), "test")
    pairs = count(result.pairs, "pair")
    threads = count(result.threads, "thread")
    cores = ", ".join(map(str, result.cores))
    where = f"on {'core' if len(result.cores) == 1 else 'cores'} {cores}" if cores else "not bound to a core"
    at_once = f", {result.at_once} at a time" if result.at_once > 1 else ""
    return f"{tests} in {pairs} of processes{at_once}, {threads} {where}, {duration_text(result.elapsed_s)}"


def _rows(result: PairedResult) -> Iterator[tuple[str, ...]]:
    groups = moved_groups(result)
    yield from (_group_row(group, finding, result) for group, finding in groups.items())
    yield from (_row(printable(key.test), key, finding) for key, finding in _long(result))


def moved_groups(result: PairedResult) -> dict[Group, Finding]:
    """The groups that moved: that of all variants where most variants or none moved with it, else each variant's."""
    moved = {group: finding for verdict in MOVED for group, finding in result.groups_of(verdict)}
    told: dict[Group, Finding] = {}
    hidden: set[Group] = set()
    for group, finding in moved.items():
        if not group.variant:
            own = [one for one in result.groups if one.variant and one.metric == group.metric]
            alike = [one for one in own if is_alike(finding, result.groups[one])]
            if alike and 2 * len(alike) <= len(own):
                continue
            told[group] = finding
            hidden |= set(alike)
    return told | {group: finding for group, finding in moved.items() if group.variant and group not in hidden}


def _group_row(group: Group, finding: Finding, result: PairedResult) -> tuple[str, ...]:
    tests = result.tests_of(group).values()
    alike = sum(is_alike(finding, one) for one in tests)
    which = "in all" if alike == len(tests) else f"in {alike} of"
    return _row(f"{printable(group_name(group))}, {which} {count(len(tests), 'test')}", group, finding)


def _long(result: PairedResult) -> list[tuple[Measurand, Finding]]:
    """The tests of the table: what moved otherwise than its group, then the inconclusive ones that may be worst."""
    groups = [item for verdict in MOVED for item in result.groups_of(verdict)]
    told = {key for group, one in groups for key, own in result.tests_of(group).items() if is_alike(one, own)}

    def worst_case(item: tuple[Measurand, Finding]) -> float:
        return item[1].estimate.high if item[1].estimate else math.inf

    moved = [item for verdict in MOVED for item in result.of(verdict) if item[0] not in told]
    unknown = sorted(result.of(Verdict.INCONCLUSIVE), key=worst_case, reverse=True)
    return [*moved, *unknown[:MOST_INCONCLUSIVE]]


def _row(name: str, compared: Measurand | Group, finding: Finding) -> tuple[str, ...]:
    found = finding.estimate
    change, interval = difference_texts(compared, found) if found else (MISSING, MISSING)
    pairs = str(found.pairs) if found else MISSING
    return name, METRIC_BY_NAME[compared.metric].column, change, interval, finding.verdict, pairs


def _counts(result: PairedResult) -> Iterator[str]:
    counts = [f"{len(found)} {verdict}" for verdict in Verdict if (found := result.of(verdict))]
    with_group = sum(finding.is_of_group for finding in result.findings.values())
    if counts:
        are = "is that" if with_group == 1 else "are those"
        more = f" {with_group} of these verdicts {are} of the test's group." if with_group else ""
        yield f"{', '.join(counts)} of {len(result.findings)} comparisons.{more}"
    of_groups = [f"{len(groups)} {verdict}" for verdict in Verdict if (groups := result.groups_of(verdict))]
    if of_groups:
        yield f"groups of tests: {', '.join(of_groups)} of {len(result.groups)}."
    hidden = len(result.of(Verdict.INCONCLUSIVE)) - MOST_INCONCLUSIVE
    if hidden > 0:
        yield f"{hidden} more inconclusive comparisons are not in the table (--json has them all)."


def _carried(result: PairedResult) -> Iterator[str]:
    """Exact counts, memory and quality: how many have which verdict, and a sentence for each subject that is worse."""
    if result.carried is None:
        if result.runs:
            why = "the sides' results differ in schema" if len(result.runs) == 2 else "only one side has results"
            yield f"exact counts, memory and quality are not judged: {why}"
        return
    blocking = [one for one in result.carried.judgements if one.is_blocking]
    counts = Counter(one.verdict for one in blocking)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    yield f"measured once on each side, {len(blocking)} exact counts, weight sizes and figures of quality: {verdicts}."
    for words, force in (("regressed", Force.BLOCKING), ("worse, which is only reported", Force.ADVISORY)):
        for subject, sentences in regressions(result.carried, force).items():
            yield f"{words}, {subject}: {'; '.join(sentences)}"


def absences(rows: Sequence[NotCompared]) -> Iterator[str]:
    """A sentence for each reason why tests were not compared."""

    def why(row: NotCompared) -> tuple[str, str, str]:
        return row.absence, row.side, row.reason

    for (absence, side, reason), group in groupby(sorted(rows, key=why), key=why):
        names = [row.test for row in group]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        where = f" ({side})" if side else ""
        yield printable(
            f"not compared, {absence}{where}: {', '.join(names[:MOST_NAMES])}{more}{f': {reason}' if reason else ''}"
        )


def why_it_ended(result: PairedResult) -> Iterator[str]:
    """Why the run ended early, if it did."""
    if result.failure:
        yield printable_lines(result.failure)
    if result.interrupted:
        yield f"interrupted: the verdicts are those of the {count(result.pairs, 'pair')} that were complete"
    elif not result.failure and result.findings and result.pairs < LEAST_PAIRS:
        pairs = count(result.pairs, "pair")
        yield f"the time was up after {pairs}, and verdicts take at least {LEAST_PAIRS}: give more --max-time"


def conclusion(result: PairedResult) -> str:
    said = f"exit status {int(result.status)}: {result.status.meaning}"
    allowed = [what for what in BY_TURNS if what in result.allowed and result.lacks(what)]
    return f"{said}; allowed: {', '.join(allowed)}" if allowed else said


def _warnings(result: PairedResult) -> Iterator[str]:
    if not result.of(Verdict.INCONCLUSIVE):
        return
    coarse = {name: share for name, share in result.minimum_detectable_effects().items() if share > result.threshold}
    if coarse:
        metric, share = max(coarse.items(), key=lambda item: item[1])
        column = METRIC_BY_NAME[metric].column
        yield (
            f"a threshold of {format_share(result.threshold)} is finer than what {result.first_analysis} pairs resolve "
            f"here in 95 % of cases: {format_share(share)} for {column}. More pairs (--pairs, --max-time) or "
            "a quieter machine resolve more."
        )
