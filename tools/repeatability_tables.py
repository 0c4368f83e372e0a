"""The tables and notes that measure_repeatability.py prints of the runs that it collected."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import repeatability
import repeatability_answers
from repeatability import Speed, SuiteRun, grouped, quantiles, suite_run

from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run

QUIET, NOISY, HIDDEN, UNEVEN = KINDS = "quiet", "noisy", "hidden", "uneven"
COLLECTED_FILE = "collected.json"  # written when a run has finished; a folder without it is passed over
ENOUGH_OTHERS = 6  # runs to pool
NONE = "–"


@dataclass(frozen=True)
class Targets:
    """Targets for the figures of a kind of runs: medians and 90th percentiles, as shares such as 0.01."""

    may_win: tuple[float, float]
    """How far apart two runs' speed-ups are, of the variants that may win."""
    others: tuple[float, float]
    headline: tuple[float, float]
    """How far apart two runs' headline speed-ups of a variant are."""
    identical: tuple[float, float]
    """How far identical work's speed-ups are from 1."""
    held: float
    """How far the share of intervals that hold the pooled value may be from that of exact ones."""
    wall_s: float
    gate_found: float
    """The share in which the stored gate finds a variant that takes a tenth longer."""


TARGETS = {
    QUIET: Targets((0.02, 0.05), (0.04, 0.10), (0.01, 0.025), (0.01, 0.03), 0.02, 240.0, 0.9),
    NOISY: Targets((0.03, 0.08), (0.05, 0.12), (0.015, 0.04), (0.015, 0.05), 0.03, 300.0, 0.7),
    HIDDEN: Targets((0.03, 0.08), (0.05, 0.12), (0.015, 0.04), (0.02, 0.05), 0.03, 300.0, 0.7),
    UNEVEN: Targets((0.03, 0.08), (0.05, 0.12), (0.015, 0.04), (0.02, 0.05), 0.03, 300.0, 0.7),
}


@dataclass(frozen=True)
class Series:
    """Runs that were made alike."""

    folder: str
    kind: str
    runs: tuple[SuiteRun, ...]

    @property
    def name(self) -> str:
        return f"{self.folder} {self.kind}"


def read_series(folder: Path) -> Iterator[Series]:
    """The quiet runs of a folder and the noisy ones, each kind in its order."""
    for kind in KINDS:
        found = [path.parent for path in folder.glob(f"{kind}-*/{COLLECTED_FILE}")]
        ordered = sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))
        if ordered:
            yield Series(folder.name, kind, tuple(map(read_suite_run, ordered)))


def read_suite_run(folder: Path) -> SuiteRun:
    collected = json.loads((folder / COLLECTED_FILE).read_text(encoding="utf-8"))
    results = folder / RESULTS_FILE
    found = suite_run(folder.name, read_saved_run(results), collected["wall_s"], read_run(results))
    return replace(found, slower=collected.get("slower", "").rpartition(":")[0])


def percent(log_ratio: float | None) -> str:
    """How much larger the larger of two is."""
    return NONE if log_ratio is None else f"{math.expm1(log_ratio) * 100:.2f} %"


def two_percents(values: tuple[float | None, float | None]) -> str:
    return " / ".join(map(percent, values))


def at_most(values: tuple[float, float]) -> str:
    return "≤ " + " / ".join(f"{value * 100:g} %" for value in values)


def share(hits: Sequence[bool]) -> str:
    return f"{sum(hits) / len(hits):.1%} of {len(hits)}" if hits else NONE


def figures(series: Series, may_win: Collection[str] = ()) -> dict[str, tuple[str, str]]:
    """Each figure and its target, by what the figure says. may_win: the variants that may be the fastest."""
    runs, targets = series.runs, TARGETS[series.kind]
    held = [holds for _, holds in repeatability.held(runs)]
    wrong = [claim.is_contradicted_by(value) for _, claim, value in repeatability.judged_claims(runs)]
    exact = repeatability.expected_held(len(runs) - 1) if len(runs) > 1 else 1.0
    return {
        **differences(series, may_win),
        "identical work is off by": compared(
            (value for _, value in repeatability.identical_work(runs)), targets.identical
        ),
        "the same work in two tests of a run differs": compared(repeatability.repeated_work(runs)),
        "95 % intervals that hold the value pooled over the other runs": (
            share(held),
            f"{exact:.1%} ± {targets.held * 100:g}",
        ),
        "claims that the pooled value contradicts": (f"{sum(wrong)} of {len(wrong)}", "0"),
        "claims of a fastest variant that is the fastest by the pooled values": (
            share(list(repeatability.fastest_agrees(runs))),
            "",
        ),
        **answers(series),
        **effort(series),
    }


def differences(series: Series, may_win: Collection[str]) -> dict[str, tuple[str, str]]:
    """How far apart two runs' speed-ups are, as `figures` gives it; of all variants alike where none may win."""
    targets, found = TARGETS[series.kind], list(repeatability.log_differences(series.runs))
    title = "speed-ups of two runs differ, median / 90th percentile"
    if not may_win:
        return {title: compared((value for _, value in found), targets.others)}
    return {
        f"{title}: {', '.join(sorted(may_win))}": compared(
            (value for speed, value in found if speed.variant in may_win), targets.may_win
        ),
        f"{title}: the others": compared(
            (value for speed, value in found if speed.variant not in may_win), targets.others
        ),
    }


def compared(values: Iterable[float], target: tuple[float, float] | None = None) -> tuple[str, str]:
    """Median and 90th percentile of some log ratios, with how many there are, and the target."""
    found = list(values)
    number = f" of {len(found):,}" if found else ""
    return f"{two_percents(quantiles(found))}{number}", at_most(target) if target else ""


def answers(series: Series) -> dict[str, tuple[str, str]]:
    """How far the runs' answers agree, as `figures` gives it; nothing where they aren't known."""
    found = [run.answer for run in series.runs if run.answer]
    if len(found) < 2:
        return {}
    headline = compared(repeatability_answers.headline_differences(found), TARGETS[series.kind].headline)
    return {
        "a variant's headline speed-ups in two runs differ": headline,
        "two runs' winners, with those tied to them, have one in common": (
            share(list(repeatability_answers.shared_winners(found))),
            "≥ 95 %",
        ),
        "a variant that is 10 % ahead by the pooled values wins alone": (
            share(list(repeatability_answers.lone_winners(found))),
            "100 %",
        ),
    }


def effort(series: Series) -> dict[str, tuple[str, str]]:
    """Time that the runs took, as `figures` gives it."""
    walls_s = [run.wall_s for run in series.runs]
    wall = f"{statistics.median(walls_s):.0f} s ({min(walls_s):.0f} to {max(walls_s):.0f})"
    return {
        "a run takes, median (least to most)": (wall, f"≤ {TARGETS[series.kind].wall_s:.0f} s"),
        "of it generating, scoring and loading": (f"{repeatability.work_share(series.runs):.0%}", ""),
    }


def notes(series: Series) -> Iterator[str]:
    """Notes on what the figures rest on, a line each."""
    runs = series.runs
    counts = sorted({len(run.speeds) for run in runs})
    speedups = " or ".join(map(str, counts))
    yield f"{series.name}: {count(len(runs), 'run')}, speed-ups in each: {speedups}, {source(runs)}."
    if len(runs) > 1:
        yield f"{series.name}: {pool(len(runs) - 1)}."
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in repeatability.mean_phases_s(runs).items())
    yield f"{series.name}: a run's seconds by phase, mean: {phases}."
    for run, claim, value in repeatability.judged_claims(runs):
        if claim.is_contradicted_by(value):
            said, found = (f"{math.exp(log_ratio):.3f}" for log_ratio in (claim.log_ratio, value))
            yield f"{series.name}: {run.name} claims {claim.variant} {said} times as fast; pooled: {found}."


def pool(others: int) -> str:
    """How far the value pooled over so many other runs can be relied on."""
    few = f", fewer than {ENOUGH_OTHERS}" if others < ENOUGH_OTHERS else ""
    expected = f"exact 95 % intervals would hold {repeatability.expected_held(others):.1%} of them"
    return f"pooled values are of {count(others, 'other run')}{few}; {expected}"


def source(runs: Sequence[SuiteRun]) -> str:
    """Where the speed-ups are from."""
    recorded = sum(run.is_recorded for run in runs)
    if recorded == len(runs):
        return "as the runs store them"
    which = "" if not recorded else f" in {len(runs) - recorded} of the runs"
    return f"quotients of the median latencies{which}, because the runs store none"


def main_table(every: Sequence[Series], may_win: Collection[str] = ()) -> Table:
    """A row a figure; for each series the figure and its target. may_win: the variants that may be the fastest."""
    columns = [figures(series, may_win) for series in every]
    header = ["", *(cell for series in every for cell in (series.name, "target"))]
    rows = [(name, *(cell for column in columns for cell in column.get(name, (NONE, "")))) for name in columns[0]]
    return Table.of_texts(header, rows, range(1, len(header)))


BY_RUN = "run"
BREAKDOWNS = ("variant", "scenario", "test", BY_RUN)


def breakdown(series: Series, by: str) -> Table:
    """A row for each variant, scenario or test, that whose speed-ups differ most first; or for each run (`shifts`)."""
    if by == BY_RUN:
        return shifts(series)

    def key(speed: Speed) -> str:
        return str(getattr(speed, by))

    held = grouped(repeatability.held(series.runs), key)
    differences = grouped(repeatability.log_differences(series.runs), key)
    ordered = sorted(differences, key=lambda name: -statistics.median(differences[name]))
    rows = [(name, *map(percent, quantiles(differences[name])), share(held.get(name, []))) for name in ordered]
    header = (by, "differ, median", "90th percentile", "intervals that hold the pooled value")
    return Table.of_texts(header, rows, {1, 2, 3})


def shifts(series: Series) -> Table:
    """A row for each run: how far each variant's speed-ups are from their means over the runs, on average."""
    found = repeatability.mean_shifts(series.runs)
    variants = sorted(found[0])
    rows = [
        (run.name, *(f"{math.expm1(each[variant]) * 100:+.2f} %" for variant in variants))
        for run, each in zip(series.runs, found, strict=True)
    ]
    return Table.of_texts((BY_RUN, *variants), rows, range(1, len(variants) + 1))


def gate_lines(series: Series, rules: Rules) -> Iterator[str]:
    """The stored gate's false alarms among the runs of a series, and what it finds of slowdowns put into them."""
    found = repeatability.gate_trials([run.run for run in series.runs], rules)
    statuses = ", ".join(f"{status.words} {number}" for status, number in found.statuses.most_common())
    pairs = f"{found.red} of {found.statuses.total()} ordered pairs"
    yield f"{series.name}: the stored gate is red in {pairs} ({statuses})."
    if found.regressed:
        metrics = ", ".join(f"{name} {number}" for name, number in found.regressed.most_common())
        yield f"{series.name}: pairs with a regression of {metrics}."
    for factor in repeatability.SLOWER:
        whole, single = repeatability.found_slowdowns([run.run for run in series.runs], rules, factor)
        slow = f"{series.name}: slower by {factor - 1:.0%}"
        yield f"{slow}, one variant is found in {share(whole)}, one test in {share(single)}."


def slower_lines(clean: Sequence[Series], slower: Sequence[Series], rules: Rules) -> Iterator[str]:
    """Effects of slowing a variant down, a line for each series of such runs.

    If it is not the reference, whether the stored gate finds it by each clean run of the kind; if it is, whether the
    runs claim that what ran the same at full speed is faster.
    """
    by_kind = {series.kind: [run.run for run in series.runs] for series in clean}
    for series in slower:
        runs = by_kind.get(series.kind, [])
        judged = [run for run in series.runs if not run.slows_reference]
        if judged and runs:
            found = share(list(repeatability.found_slower(runs, [run.run for run in judged], rules)))
            target = TARGETS[series.kind].gate_found
            yield f"{series.name}: the stored gate finds the slower variant in {found}; asked for: {target:.0%}."
        claimed = [
            is_claimed
            for run in series.runs
            if run.answer and run.slows_reference
            for is_claimed in (one for ones in run.answer.identical.values() for one in ones)
        ]
        if claimed:
            yield f"{series.name}: a variant that is as fast as a slowed reference was is claimed in {share(claimed)}."
