"""The operating curve of the paired gate, computed from the trials that measure_pairs.py collected."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from scipy import stats

from llm_bench_fixtures.gate.verdicts import WORSE, Verdict
from llm_bench_fixtures.paired.differences import Measurand, pair_differences
from llm_bench_fixtures.paired.protocol import Times
from llm_bench_fixtures.paired.sequential import SequentialTests
from llm_bench_fixtures.paired.trial import Row
from llm_bench_fixtures.report.renderers.markdown import markdown_table
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import format_share

GROUPS = 400  # groups of pairs, drawn from the trials
SHARES = (0.05, 0.10)  # shares by which a mean or a median of single runs may get worse

Rounds: TypeAlias = Mapping[str, Sequence[Row]]  # by test


@dataclass(frozen=True)
class Column:
    """The trials of one side beside those of the first side."""

    percent: float
    """Percent by which the side is slowed down."""
    alone: bool
    """Whether the sides ran one after the other."""
    sides: int
    """Sides that ran in each trial."""
    rounds: tuple[Rounds, ...]
    """Rounds of each trial."""
    variants: Mapping[str, str]
    """Id of each test's variant, by test."""
    differences: tuple[Mapping[Measurand, float], ...]
    """Differences of each trial, as the gate computes them."""
    seconds: tuple[float, ...]
    """Seconds that each trial took."""

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(self.rounds[0])

    def size(self, metric: str) -> str:
        """The mean difference over all tests and trials, with its 95 % interval over trials."""
        means = [
            statistics.fmean(value for key, value in trial.items() if key.metric == metric)
            for trial in self.differences
        ]
        margin = stats.t.ppf(0.975, len(means) - 1) * stats.sem(means)
        return f"{math.expm1(statistics.fmean(means)):+.1%} ± {margin:.1%}"


def read(path: Path) -> Iterator[Column]:
    with path.open(encoding="utf-8") as file:
        header, *trials = map(json.loads, file)
    percents = header["percents"]
    for index in range(1, len(percents)):
        yield Column(
            percents[index],
            header["alone"],
            len(percents),
            tuple(rounds_of(trial["rounds"], index) for trial in trials),
            {test: variant for trial in trials for test, variant in trial["variants"].items()},
            tuple(differences_of(trial, index) for trial in trials),
            tuple(trial["total_s"] for trial in trials),
        )


def rounds_of(rounds: Mapping[str, Any], index: int) -> Rounds:
    """The times of the first side and of another one, from what rounds_json wrote."""
    return {test: [(Times(*row[0]), Times(*row[index])) for row in rows] for test, rows in rounds.items()}


def differences_of(trial: Mapping[str, Any], index: int = 1) -> dict[Measurand, float]:
    """Differences as the gate computes them. trial: what trial_json wrote."""
    return pair_differences(*(rounds_of(trial[name], index) for name in ("rounds", "prefills")))


def rate(successes: int, trials: int, *, independent: bool = True) -> str:
    """Rate with Clopper and Pearson's 95 % interval if the trials are independent."""
    if not trials:
        return "–"
    if not independent:
        return format_share(successes / trials)
    interval = stats.binomtest(successes, trials).proportion_ci(method="exact")
    return f"{format_share(successes / trials)} ({format_share(interval.low)} to {format_share(interval.high)})"


@dataclass
class Tally:
    """Counts over some runs of the gate."""

    independent: bool
    """Whether no two runs share a pair."""
    runs: int = 0
    red: int = 0
    """Runs in which anything regressed."""
    comparisons: int = 0
    regressed: int = 0
    """Comparisons."""
    inconclusive: int = 0
    """Comparisons."""
    decode: int = 0
    """Comparisons of the time per output token."""
    decode_found: int = 0
    """Comparisons of the time per output token that regressed."""
    pairs: int = 0
    """Pairs over all runs."""

    def add(self, decided: SequentialTests, tests: Sequence[str]) -> None:
        """Count one run, of which only these tests."""
        known = {
            key: found.verdict
            for key, found in decided.findings().items()
            if isinstance(key, Measurand) and key.test in tests
        }
        regressed = {key for key, verdict in known.items() if verdict in WORSE}
        self.runs += 1
        self.red += bool(regressed)
        self.comparisons += len(known)
        self.regressed += len(regressed)
        self.inconclusive += sum(verdict is Verdict.INCONCLUSIVE for verdict in known.values())
        self.decode += sum(key.metric == "tpot_s" for key in known)
        self.decode_found += sum(key.metric == "tpot_s" for key in regressed)
        self.pairs += decided.pairs


def decide(
    pairs: Sequence[Mapping[Measurand, float]], variants: Mapping[str, str], first: int, threshold: float
) -> SequentialTests:
    """The gate's decisions over these pairs: an analysis when it is due and one at the end, until all is settled."""
    tests = SequentialTests(threshold, first)
    for pair in pairs:
        tests.add(pair, variants)
        if tests.is_due:
            tests.analyze()
            if not tests.open_tests:
                return tests
    if tests.pairs > tests.analyzed_pairs:
        tests.analyze()
    return tests


def disjoint(column: Column, first: int, most: int, threshold: float) -> Tally:
    """Runs of the gate that share no pair; left-over trials make no run."""
    tally = Tally(independent=True)
    left = list(column.differences)
    while len(left) >= most:
        tally.add(decide(left[:most], column.variants, first, threshold), column.tests)
        left = left[most:]
    return tally


def drawn(column: Column, plain: Column | None, first: int, most: int, threshold: float) -> Tally:
    """Runs of the gate whose pairs are drawn from the trials.

    plain: trials of the version against itself; if given, all tests but one of each run come from them.
    """
    chance = random.Random(len(column.differences))  # noqa: S311  # the same groups each time
    tally = Tally(independent=False)
    for _ in range(GROUPS):
        pairs = chance.sample(column.differences, most)
        if plain is None:
            tally.add(decide(pairs, column.variants, first, threshold), column.tests)
            continue
        slow = chance.choice(column.tests)
        others = chance.sample(plain.differences, most)
        mixed = [
            {key: (pair if key.test == slow else other)[key] for key in pair if key in other}
            for pair, other in zip(pairs, others, strict=True)
        ]
        tally.add(decide(mixed, column.variants, first, threshold), [slow])
    return tally


def gate_rows(columns: Sequence[Column], first: int, most: int, threshold: float) -> Iterator[tuple[str, ...]]:
    plain = next((column for column in columns if not column.percent), None)
    for column in columns:
        reach = min(most, len(column.differences))
        apart = disjoint(column, min(first, reach), reach, threshold)
        yield row_of(column, "all tests, pairs used once", apart)
        if len(column.differences) > reach:
            yield row_of(column, "all tests, pairs drawn", drawn(column, None, first, reach, threshold))
        if column.percent and plain is not None and len(plain.differences) >= reach:
            yield row_of(column, "one test of all, pairs drawn", drawn(column, plain, first, reach, threshold))


def row_of(column: Column, which: str, tally: Tally) -> tuple[str, ...]:
    runs = max(tally.runs, 1)

    def of(successes: int, trials: int) -> str:
        return rate(successes, trials, independent=tally.independent)

    seconds = statistics.fmean(column.seconds) * tally.pairs / runs / len(column.tests)
    return (
        f"{column.percent:g} %",
        column.size("tpot_s"),
        column.size("latency_s"),
        which,
        str(tally.runs),
        of(tally.decode_found, tally.decode),
        of(tally.regressed, tally.comparisons),
        of(tally.red, tally.runs),
        format_share(tally.inconclusive / max(tally.comparisons, 1)),
        f"{tally.pairs / runs:.1f}",
        f"{seconds * 2 / column.sides:.0f} s",
    )


GATE_HEADER = (
    "injected",
    "measured: TPOT",
    "latency",
    "slow are",
    "runs",
    "TPOT regressed",
    "comparisons regressed",
    "red",
    "inconclusive",
    "pairs",
    "a test takes",
)


def single_rows(columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
    """Comparisons of the means or medians of two runs that ran one after the other."""
    ways: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": statistics.fmean, "median": statistics.median}
    for column in columns:
        for name, location in ways.items():
            for rounds in (3, 10):
                ratios = [ratio for trial in column.rounds for ratio in single_ratios(trial, location, rounds)]
                alarms = [rate(sum(ratio > 1 + share for ratio in ratios), len(ratios)) for share in SHARES]
                yield f"{column.percent:g} %", f"{name} of {rounds} rounds", str(len(ratios)), *alarms


def single_ratios(trial: Rounds, location: Callable[[Sequence[float]], float], rounds: int) -> Iterator[float]:
    for rows in trial.values():
        base, head = (location([row[index].latency_s for row in rows[:rounds]]) for index in (0, 1))
        yield head / base


def curve(paths: Sequence[Path], first: int, most: int, threshold: float) -> None:
    columns = [column for path in paths for column in read(path)]
    alone = [column for column in columns if column.alone]
    gated = [column for column in columns if not column.alone]
    if gated:
        numeric = frozenset(range(4, len(GATE_HEADER)))
        print(*markdown_table(Table.of_texts(GATE_HEADER, gate_rows(gated, first, most, threshold), numeric)), sep="\n")
    if alone:
        header = ("injected", "compared", "comparisons", *(f"worse by {share:.0%}" for share in SHARES))
        print("", *markdown_table(Table.of_texts(header, single_rows(alone), {2, 3, 4})), sep="\n")
