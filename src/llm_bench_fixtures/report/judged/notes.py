"""Sentences on a comparison of two saved runs: which runs, what was not judged, and how sure the verdicts are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from llm_bench_fixtures.gate.comparison import SPEEDUP, Comparison
from llm_bench_fixtures.gate.coverage import Coverage
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.speedups import ALARMS
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.results.formatting import count, format_change, format_share
from llm_bench_fixtures.results.metrics import Kind
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.text import printable


def baseline_sentence(run: Run) -> str:
    """Which run is compared with."""
    blessed = f" Accepted as a baseline: {printable(run.blessing.reason)}." if run.blessing else ""
    state = f" It is {run.state}, so it is no baseline unless named." if not run.is_baseline else ""
    return f"Baseline: {run_sentence(run)}{blessed}{state}"


def run_sentence(run: Run) -> str:
    """The run's file, start, commit and branch."""
    provenance = run.provenance
    commit = f" of commit {provenance.commit[:12]}" if provenance.commit else ""
    branch = f" on {provenance.branch}" if provenance.branch else ""
    dirty = ", with uncommitted changes" if provenance.dirty else ""
    path = Path(run.source)
    name = path.name if path.name != RESULTS_FILE else f"{path.absolute().parent.name}/{path.name}"
    return printable(f"{name}, {provenance.started}{commit}{branch}{dirty}.")


def counts_sentence(comparison: Comparison) -> str:
    """How many tests were judged, and how many values that can fail a gate have each verdict."""
    others = Counter(one.coverage for one in comparison.uncovered)
    not_selected = others.pop(Coverage.NOT_SELECTED, 0)
    total = comparison.judged_tests + sum(others.values()) + _other_workloads(comparison)
    lost = "".join(f", {number} {what}" for what, number in others.items())
    aside = f" ({not_selected} of the baseline not selected)" if not_selected else ""
    blocking = Counter(one.verdict for one in comparison.judgements if one.is_blocking)
    values = ", ".join(f"{blocking[verdict]} {verdict}" for verdict in Verdict if blocking[verdict])
    return f"Judged {comparison.judged_tests} of {total} tests{lost}{aside}. Blocking values: {values or 'none'}."


def _other_workloads(comparison: Comparison) -> int:
    measured = {record.test for record in comparison.head.measured()}
    measured &= {record.test for record in comparison.base.measured()}
    return len(measured) - comparison.judged_tests


def notes_of(comparison: Comparison) -> Iterator[str]:
    """What was not judged, and how sure a verdict on a time is; the most important first."""
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
    ) + " Smaller changes of a time are not called changes. Runs at different hours differ by more."
    fine = [one.rule.relative for one in times if _is_fine(one, comparison)]
    if fine:
        yield f"A rule of {format_share(min(fine))} is finer than the noise: changes between the two are inconclusive."
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


def _is_fine(one: Judgement, comparison: Comparison) -> bool:
    return one.is_blocking and not one.rule.absolute and math.log1p(one.rule.relative) < comparison.floor.log_ratio
