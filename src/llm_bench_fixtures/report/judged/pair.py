"""The reports of `llm-bench pair`, by cause, and of `llm-bench aa`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from llm_bench_fixtures.gate.options import BY_TURNS
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.differences import Finding, Measurand, ratios
from llm_bench_fixtures.paired.display import short_name
from llm_bench_fixtures.paired.resolution import Resolution, resolutions
from llm_bench_fixtures.paired.result import BASE, HEAD, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import DIFFERENT, alpha_of_analysis, is_alike
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.progress import about
from llm_bench_fixtures.report.judged.causes import Cause, JudgedPart, JudgedReport, JudgedRow, causes_of, rows_of
from llm_bench_fixtures.report.renderers.terminal import columns, wrapped_lines
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import count, format_share
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Direction
from llm_bench_fixtures.statistics.ratio import LEAST_PAIRS
from llm_bench_fixtures.text import printable, printable_lines, some_of

MOST_INCONCLUSIVE = 5  # causes, those that may be the worst
MOST_NAMES = 5  # tests named in one sentence


def _row(compared: Measurand | HypothesisGroup, finding: Finding, variant: str) -> JudgedRow:
    test = printable(compared.test) if isinstance(compared, Measurand) else ""
    ratio, *ends = ratios(compared.metric, finding.estimate) if finding.estimate else (None,)
    return JudgedRow(
        variant=variant,
        metric=METRIC_BY_NAME[compared.metric],
        verdict=finding.verdict,
        benchmark=short_name(test),
        test=test,
        ratio=ratio,
        interval=(ends[0], ends[1]) if ends else None,
    )


def _worst(row: JudgedRow) -> float:
    """How bad it may be: the end of its interval that is worse, as a ratio."""
    if row.interval is None:
        return math.inf
    low, high = row.interval
    return high if row.metric.direction is Direction.LOWER_IS_BETTER else 1 / low


def rows_of_pair(result: PairedResult) -> dict[Measurand, JudgedRow]:
    """A row for each comparison of a test."""
    variants = {key: printable(result.variants.get(key.test) or short_name(key.test)) for key in result.findings}
    return {key: _row(key, finding, variants[key]) for key, finding in result.findings.items()}


def causes_of_pair(result: PairedResult) -> list[Cause]:
    """The groups that moved, the tests that moved otherwise than their group, and the worst inconclusive ones."""
    rows = rows_of_pair(result)
    causes, shown = [], set()
    for group, finding in moved_groups(result).items():
        name = printable(group.variant) or "all variants"
        tests = result.tests_of(group)
        alike = [key for key, own in tests.items() if is_alike(finding, own)]
        causes.append(Cause(name, (_row(group, finding, name), *(rows[key] for key in alike)), len(tests)))
        shown |= set(alike)
    moved = [row for key, row in rows.items() if row.verdict in DIFFERENT and key not in shown]
    unknown = sorted((row for row in rows.values() if row.verdict is Verdict.INCONCLUSIVE), key=_worst, reverse=True)
    open_ones = (Cause(row.variant, (row,), 1) for row in unknown[:MOST_INCONCLUSIVE])
    return [*causes, *causes_of(moved, list(rows.values())), *open_ones]


def pair_json(result: PairedResult) -> dict[str, Any]:
    """Result for programs: everything, with the causes."""
    return {**result.as_json(), "causes": [one.as_json() for one in causes_of_pair(result)]}


def moved_groups(result: PairedResult) -> dict[HypothesisGroup, Finding]:
    """The groups that moved: that of all variants where most variants or none moved with it, else each variant's."""
    moved = {group: finding for verdict in DIFFERENT for group, finding in result.groups_of(verdict)}
    hidden: set[HypothesisGroup] = set()
    for group, finding in moved.items():
        if not group.variant:
            own = [one for one in result.groups if one.variant and one.metric == group.metric]
            alike = [one for one in own if is_alike(finding, result.groups[one])]
            is_of_few = 0 < 2 * len(alike) <= len(own)
            hidden |= {group} if is_of_few else set(alike)
    all_first = sorted(moved, key=lambda group: bool(group.variant))
    return {group: moved[group] for group in all_first if group not in hidden}


def pair_report(result: PairedResult) -> JudgedReport:
    sides = printable(f"{BASE} {result.base} against {HEAD} {result.head}")
    interval = format_share(1 - alpha_of_analysis(1))
    return JudgedReport(
        title=f"llm-bench pair: {result.status.words}",
        sentences=(
            f"{sides}.",
            f"{measured_how(result)}; threshold ±{format_share(result.threshold)}, intervals of {interval} or more.",
        ),
        parts=tuple(_parts(result)),
        notes=(*_counts(result), *_carried(result), *absences(result.not_compared)),
        warnings=(*why_it_ended(result), *_warnings(result)),
        conclusion=conclusion(result),
    )


def _parts(result: PairedResult) -> Iterator[JudgedPart]:
    rows, causes = rows_of_pair(result).values(), causes_of_pair(result)
    for verdict in (*DIFFERENT, Verdict.INCONCLUSIVE):
        lines = tuple(one.text for one in causes if one.verdict is verdict)
        own = tuple(row for row in rows if row.verdict is verdict)
        if lines:
            yield JudgedPart(f"{verdict.capitalize()} ({count(len(own), 'comparison')})", lines, own)


def measured_how(result: PairedResult) -> str:
    tests = count(len({measurand.test for measurand in result.findings}), "test")
    pairs = count(result.pairs, "pair")
    threads = count(result.threads, "thread")
    cores = ", ".join(map(str, result.cores))
    where = f"on {'core' if len(result.cores) == 1 else 'cores'} {cores}" if cores else "not bound to a core"
    at_once = f", {result.at_once} at a time" if result.at_once > 1 else ""
    return f"{tests} in {pairs} of processes{at_once}, {threads} {where}, {about(result.elapsed_s)}"


def _counts(result: PairedResult) -> Iterator[str]:
    counts = [f"{len(found)} {verdict}" for verdict in Verdict if (found := result.of(verdict))]
    with_group = sum(finding.is_of_group for finding in result.findings.values())
    if counts:
        are = "is that" if with_group == 1 else "are those"
        more = f" {with_group} of these verdicts {are} of the test's group." if with_group else ""
        yield f"{', '.join(counts)} of {len(result.findings)} comparisons.{more}"
    of_groups = [f"{len(groups)} {verdict}" for verdict in Verdict if (groups := result.groups_of(verdict))]
    if of_groups:
        yield f"Groups of tests: {', '.join(of_groups)} of {len(result.groups)}."
    hidden = len(result.of(Verdict.INCONCLUSIVE)) - MOST_INCONCLUSIVE
    if hidden > 0:
        yield f"{count(hidden, 'more inconclusive comparison')} only in --verbose and --json."


def _carried(result: PairedResult) -> Iterator[str]:
    """Exact counts, memory and quality: how many have which verdict, and the causes of what is worse."""
    if result.carried is None:
        if result.runs:
            why = "the sides' results differ in schema" if len(result.runs) == 2 else "only one side has results"
            yield f"Exact counts, memory and quality are not judged: {why}."
        return
    rows = rows_of(result.carried)
    counts = Counter(row.verdict for row in rows if not row.is_advisory)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    yield f"Exact counts, weight sizes and quality, measured once on each side: {verdicts or 'none'}."
    for one in causes_of([row for row in rows if row.verdict is Verdict.REGRESSED], rows):
        yield f"{'Worse, advisory' if one.first.is_advisory else 'Regressed'}: {one.text} (allowed: {one.allowed})."


def absences(rows: Sequence[NotCompared]) -> Iterator[str]:
    """A sentence for each reason why tests were not compared."""
    why = attrgetter("absence", "side", "reason")
    for (absence, side, reason), group in groupby(sorted(rows, key=why), key=why):
        names = some_of([row.test for row in group], MOST_NAMES)
        where = f" ({side})" if side else ""
        yield printable(f"Not compared, {absence}{where}: {names}{f': {reason}' if reason else ''}")


def why_it_ended(result: PairedResult) -> Iterator[str]:
    """Why the run ended early, if it did."""
    if result.failure:
        yield printable_lines(result.failure)
    if result.interrupted:
        yield f"Interrupted: the verdicts are those of the {count(result.pairs, 'complete pair')}."
    elif not result.failure and result.findings and result.pairs < LEAST_PAIRS:
        pairs = count(result.pairs, "pair")
        yield f"Time was up after {pairs}; verdicts need at least {LEAST_PAIRS}. Give more --time."


def conclusion(result: PairedResult) -> str:
    said = f"Exit status {int(result.status)}: {result.status.meaning}"
    allowed = [what for what in BY_TURNS if what in result.allowed and result.lacks(what)]
    return f"{said}; allowed: {', '.join(allowed)}" if allowed else said


def _warnings(result: PairedResult) -> Iterator[str]:
    if not result.of(Verdict.INCONCLUSIVE):
        return
    coarse = {one.metric: one.resolvable for one in resolutions(result) if one.resolvable > result.threshold}
    if coarse:
        metric, share = max(coarse.items(), key=lambda item: item[1])
        yield (
            f"{_too_fine(result.threshold, result.first_analysis)} here in 95 % of cases: {format_share(share)} for "
            f"{METRIC_BY_NAME[metric].column}. More pairs (--pairs, --time) or a quieter machine helps."
        )


def _too_fine(threshold: float, pairs: int) -> str:
    return f"A threshold of {format_share(threshold)} is below what {pairs} pairs detect"


def resolution_lines(found: tuple[Resolution, ...], result: PairedResult, width: int) -> Iterator[str]:
    """Lines that `llm-bench aa` prints, of `width` characters."""
    shares = attrgetter("deviation", "half_width", "resolvable")
    rows = [(METRIC_BY_NAME[one.metric].column, *map(format_share, shares(one))) for one in found]
    yield from wrapped_lines(f"{printable(result.base)} against itself: {measured_how(result)}.", width)
    yield ""
    if rows:
        header = ("metric", "SD between pairs", "interval ±", "resolves")
        yield from (*columns(Table.of_texts(header, rows, {1, 2, 3})), "")
    for text in (*absences(result.not_compared), *why_it_ended(result)):
        yield from wrapped_lines(text, width)


def resolution_warning(found: Resolution, measured: datetime, threshold: float, pairs: int) -> str:
    column = METRIC_BY_NAME[found.metric].column if found.metric in METRIC_BY_NAME else found.metric
    return (
        f"{_too_fine(threshold, pairs)} on this machine: {format_share(found.resolvable)} for {column}, as "
        f"`llm-bench aa` measured on {measured:%Y-%m-%d}. Verdicts take more pairs, or stay inconclusive."
    )
