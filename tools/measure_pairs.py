"""What the paired gate reaches on this machine: false alarms, and how often a slowdown of a known size is found.

The slowdown is real: in each decode step a fixed number of small matrix-vector products, which take 2, 3, 5 or 10 % of
the step (pair_injection.py). The trials are those of `llm-bench pair`: fresh processes that take turns.

    python tools/measure_pairs.py collect FILE --cost COST [--trials N] [--percents 0,5] [--alone] [-- pytest arguments]
adds N trials to a file of raw times, and can be called again to add more. COST keeps what the extra work takes, for all
files of the same arguments; it is measured first where it isn't there. The percentages are those of the sides, the
first of which the others are compared with: 0,0 is a version against itself. Each side is one more process alive at the
same time. --alone: one after the other instead, neither pinned nor taking turns, as two runs of pytest-benchmark are
    python tools/measure_pairs.py curve FILE [FILE ...] [--pairs K] [--most K] [--threshold SHARE]
runs the gate's own decisions over the trials of the files, and prints the operating curve as Markdown; for files that
were measured --alone, that of comparing the means or medians of two runs. Runs of the gate whose pairs are drawn anew
from the same trials are not independent, so that their shares have no interval
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from msgspec import structs
from scipy import stats

from llm_bench_fixtures.cli.paired_run import PAIRS
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.options.parsers import parse_share
from llm_bench_fixtures.paired.affinity import choose_cores
from llm_bench_fixtures.paired.environment import worker_environment
from llm_bench_fixtures.paired.protocol import Times
from llm_bench_fixtures.paired.sequential import SequentialTests
from llm_bench_fixtures.paired.sides import Side
from llm_bench_fixtures.paired.statistics import JUDGED, Measurand, pair_difference
from llm_bench_fixtures.paired.trial import Pace, Row, Trial, run_trial
from llm_bench_fixtures.paired.workers import Command
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.markdown import markdown_table
from llm_bench_fixtures.results.formatting import format_share

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
FEW = 20  # products in each decode step, and then so many that they take about a share of it, to find what one takes
MANY_SHARE = 0.4
PRODUCT_S = 1e-6  # about what one takes; only how many are tried rests on it
CALIBRATIONS = 2  # trials with each
TPOT = next(metric for metric in JUDGED if metric.name == "tpot_s")
TIMEOUT_S = 300.0
GROUPS = 400  # of pairs, drawn anew from the trials
SHARES = (0.05, 0.10)  # by which a mean or a median of single runs may differ

Products: TypeAlias = Mapping[str, int]  # in each decode step, by test
Rounds: TypeAlias = Mapping[str, Sequence[Row]]  # by test


def side(products: Products) -> Side:
    """The version in this folder, slower by so much."""
    return Side("", "this folder", ROOT, sys.executable, {"LLM_BENCH_INJECT": json.dumps(products)})


def trial_of(products: Sequence[Products], arguments: Sequence[str], pace: Pace, *, is_pinned: bool = True) -> Trial:
    """One trial of fresh workers, one for each side."""
    cores = choose_cores(1) if is_pinned else ()
    variables = worker_environment(1, cores) if is_pinned else {}
    command = Command(("-p", "pair_injection", *arguments), variables, cores, TIMEOUT_S)
    trial = Trial()
    with tempfile.TemporaryDirectory() as folder:
        run_trial(
            {str(index): side(of_side) for index, of_side in enumerate(products)},
            command,
            Path(folder) / "trial",
            pace,
            random.Random(),  # noqa: S311  # chance, not secrecy
            lambda collected: collected[0],
            observes=False,
            into=trial,
            announce=lambda _: None,
        )
    return trial


def trial_alone(products: Sequence[Products], arguments: Sequence[str], pace: Pace) -> Trial:
    """A process of each side, one after the other, each in the way of a plain run; their rounds are side by side."""
    singles = [trial_of([of_side], arguments, pace, is_pinned=False) for of_side in products]
    together = Trial(total_s=sum(single.total_s for single in singles), is_complete=True)
    for test in singles[0].rounds:
        columns = [[row[0] for row in single.rounds[test]] for single in singles]
        together.rounds[test] = list(zip(*columns, strict=False))
    return together


@dataclass(frozen=True)
class Cost:
    """Of a test's decode step, and of the products in it: the first of them takes longer than each of the others."""

    step_s: float
    fixed_s: float
    each_s: float

    def products(self, share: float) -> int:
        """For an extra of `share` of the step."""
        return max(round((share * self.step_s - self.fixed_s) / self.each_s), 1) if share else 0


def calibrate(path: Path, arguments: Sequence[str]) -> dict[str, Cost]:
    """By test; measured within the step itself, where products find the caches as the model leaves them.

    Kept in a file, so that all that is collected with it is slowed down by the same work.
    """
    if not path.exists():
        few = [trial_of([{}, {"*": FEW}], arguments, Pace()).rounds for _ in range(CALIBRATIONS)]
        steps_s = {test: statistics.median(row[0].tpot_s for trial in few for row in trial[test]) for test in few[0]}
        counts = {test: FEW + round(MANY_SHARE * step_s / PRODUCT_S) for test, step_s in steps_s.items()}
        many = [trial_of([{}, counts], arguments, Pace()).rounds for _ in range(CALIBRATIONS)]
        costs = {
            test: cost_of(step_s, [trial[test] for trial in few], [trial[test] for trial in many], counts[test])
            for test, step_s in steps_s.items()
        }
        path.write_text(json.dumps({test: asdict(cost) for test, cost in costs.items()}), encoding="utf-8")
    return {test: Cost(**cost) for test, cost in json.loads(path.read_text(encoding="utf-8")).items()}


def cost_of(step_s: float, few: Sequence[Sequence[Row]], many: Sequence[Sequence[Row]], count: int) -> Cost:
    """From trials with few products on the second side, and from others with `count`."""
    few_s, many_s = (
        step_s * math.expm1(statistics.fmean(pair_difference(TPOT, rows) for rows in trials)) for trials in (few, many)
    )
    each_s = (many_s - few_s) / (count - FEW)
    return Cost(step_s, few_s - FEW * each_s, each_s)


def collect(given: argparse.Namespace, arguments: Sequence[str]) -> None:
    path: Path = given.file
    if not path.exists():
        percents = [float(percent) for percent in given.percents.split(",")]
        costs = calibrate(given.cost, arguments)
        header = {
            "percents": percents,
            "alone": given.alone,
            "arguments": arguments,
            "pace": asdict(Pace(turn_s=0, rounds=10) if given.alone else Pace()),
            "products": [{test: cost.products(percent / 100) for test, cost in costs.items()} for percent in percents],
        }
        path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        header = json.loads(file.readline())
    run = trial_alone if header["alone"] else trial_of
    for number in range(1, given.trials + 1):
        started = time.monotonic()
        trial = run(header["products"], header["arguments"], Pace(**header["pace"]))
        rounds = {test: [list(map(structs.astuple, row)) for row in rows] for test, rows in trial.rounds.items()}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"total_s": trial.total_s, "rounds": rounds}) + "\n")
        print(f"trial {number} of {given.trials}: {time.monotonic() - started:.0f} s", flush=True)


@dataclass(frozen=True)
class Column:
    """One side's trials beside the plain side's. differences: of each trial, as the gate takes them."""

    percent: float
    alone: bool
    sides: int
    rounds: tuple[Rounds, ...]
    differences: tuple[Mapping[Measurand, float], ...]
    seconds: tuple[float, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(self.rounds[0])

    def size(self, metric: str) -> str:
        """What the side differs by, over all tests and trials, with the 95 % interval over trials."""
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
        rounds = tuple(
            {test: [(Times(*row[0]), Times(*row[index])) for row in rows] for test, rows in trial["rounds"].items()}
            for trial in trials
        )
        yield Column(
            percents[index],
            header["alone"],
            len(percents),
            rounds,
            tuple(map(differences_of, rounds)),
            tuple(trial["total_s"] for trial in trials),
        )


def differences_of(rounds: Rounds) -> dict[Measurand, float]:
    found = {
        Measurand(test, metric.name): pair_difference(metric, [(base, head) for base, head in rows])
        for test, rows in rounds.items()
        for metric in JUDGED
    }
    return {key: value for key, value in found.items() if value is not None}


def rate(successes: int, trials: int, *, independent: bool = True) -> str:
    """With Clopper and Pearson's 95 % interval where they are independent."""
    if not trials:
        return "–"
    if not independent:
        return format_share(successes / trials)
    interval = stats.binomtest(successes, trials).proportion_ci(method="exact")
    return f"{format_share(successes / trials)} ({format_share(interval.low)} to {format_share(interval.high)})"


@dataclass
class Tally:
    """How many of the comparisons, and of the tests, of some runs of the gate regressed; and the pairs it took.

    independent: whether no two runs share a pair.
    """

    independent: bool
    runs: int = 0
    red: int = 0  # with anything regressed
    comparisons: int = 0
    regressed: int = 0
    inconclusive: int = 0
    decode: int = 0  # comparisons of the time per token
    decode_found: int = 0
    pairs: int = 0

    def add(self, decided: SequentialTests, tests: Sequence[str]) -> None:
        """Of these tests only."""
        known = {key: found.verdict for key, found in decided.findings().items() if key.test in tests}
        regressed = {key for key, verdict in known.items() if verdict is Verdict.REGRESSED}
        self.runs += 1
        self.red += bool(regressed)
        self.comparisons += len(known)
        self.regressed += len(regressed)
        self.inconclusive += sum(verdict is Verdict.INCONCLUSIVE for verdict in known.values())
        self.decode += sum(key.metric == "tpot_s" for key in known)
        self.decode_found += sum(key.metric == "tpot_s" for key in regressed)
        self.pairs += decided.pairs


def decide(pairs: Sequence[Mapping[Measurand, float]], first: int, threshold: float) -> SequentialTests:
    """The gate's decisions over these pairs: an analysis when it is due and one at the end, until all is settled."""
    tests = SequentialTests(threshold, first)
    for pair in pairs:
        tests.add(pair)
        if tests.is_due:
            tests.analyze()
            if not tests.open_tests:
                return tests
    if tests.pairs > tests.analyzed_pairs:
        tests.analyze()
    return tests


def disjoint(column: Column, first: int, most: int, threshold: float) -> Tally:
    """Runs of the gate that share no pair; what is left over at the end is no run."""
    tally = Tally(independent=True)
    left = list(column.differences)
    while len(left) >= most:
        tally.add(decide(left[:most], first, threshold), column.tests)
        left = left[most:]
    return tally


def drawn(column: Column, plain: Column | None, first: int, most: int, threshold: float) -> Tally:
    """Runs of pairs drawn from the trials. plain: the version against itself, of which all tests but one are taken."""
    chance = random.Random(len(column.differences))  # noqa: S311  # the same groups each time
    tally = Tally(independent=False)
    for _ in range(GROUPS):
        pairs = chance.sample(column.differences, most)
        if plain is None:
            tally.add(decide(pairs, first, threshold), column.tests)
            continue
        slow = chance.choice(column.tests)
        others = chance.sample(plain.differences, most)
        mixed = [
            {key: (pair if key.test == slow else other)[key] for key in pair if key in other}
            for pair, other in zip(pairs, others, strict=True)
        ]
        tally.add(decide(mixed, first, threshold), [slow])
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
    """Two runs, one after the other, of which a mean or a median is compared."""
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
        print(*markdown_table(Table(GATE_HEADER, tuple(gate_rows(gated, first, most, threshold)), numeric)), sep="\n")
    if alone:
        header = ("injected", "compared", "comparisons", *(f"worse by {share:.0%}" for share in SHARES))
        print("", *markdown_table(Table(header, tuple(single_rows(alone)), frozenset({2, 3, 4}))), sep="\n")


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TOOLS), os.environ.get("PYTHONPATH", "")])  # for pair_injection
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    collecting = actions.add_parser("collect")
    collecting.add_argument("file", type=Path)
    collecting.add_argument("--trials", type=int, default=PAIRS)
    collecting.add_argument("--percents", default="0,0")
    collecting.add_argument("--cost", type=Path, required=True, help="what a product takes; measured if not there")
    collecting.add_argument("--alone", action="store_true")
    drawing = actions.add_parser("curve")
    drawing.add_argument("files", type=Path, nargs="+")
    drawing.add_argument("--pairs", type=int, default=PAIRS, help="before the first analysis")
    drawing.add_argument("--most", type=int, default=0, help="pairs of a run, at most; default: half as many again")
    drawing.add_argument("--threshold", type=parse_share, default=0.03)
    given = parser.parse_args(sys.argv[1:separator])
    if given.action == "collect":
        collect(given, sys.argv[separator + 1 :])
    else:
        curve(given.files, given.pairs, given.most or math.ceil(given.pairs * 1.5), given.threshold)


if __name__ == "__main__":
    main()
