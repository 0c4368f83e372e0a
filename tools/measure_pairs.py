"""Measures the operating curve of the paired gate on this machine: its false alarms, and which slowdowns it finds.

The slowdown is real: in each decode step a fixed number of small matrix-vector products, which take 2, 3, 5 or 10 % of
the step (pair_injection.py). The trials are those of `llm-bench pair`: fresh processes that take turns.

    python tools/measure_pairs.py collect FILE --cost COST [--trials N] [--percents 0,5] [--alone] [-- pytest arguments]
Adds N trials to a file of raw times; call it again to add more. COST is a file with the time that the extra work takes,
for all files with the same pytest arguments; it is measured if it doesn't exist. The percentages are the slowdowns of
the sides. The first side is compared with each of the others: 0,0 is a version against itself. All sides' processes
are alive at the same time. With --alone the sides run one after the other, without turns and not bound to a core, as
two runs of pytest-benchmark do.

    python tools/measure_pairs.py curve FILE [FILE ...] [--pairs K] [--most K] [--threshold SHARE]
Lets the gate decide over the trials of the files, and prints the operating curve as Markdown; for files that were
measured with --alone it compares the means or medians of two runs. Runs of the gate whose pairs are drawn repeatedly
from the same trials are not independent, so their rates have no interval.
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import structs
from pair_curve import curve
from suites import ROOT, parsed, with_tools

from llm_bench_fixtures.cli.pair import PAIRS
from llm_bench_fixtures.options.parsers import parse_share
from llm_bench_fixtures.paired.differences import JUDGED, pair_difference
from llm_bench_fixtures.paired.sides import PairSide
from llm_bench_fixtures.paired.trial import Row, Trial, TrialPace, run_trial
from llm_bench_fixtures.paired.workers import Command, Roster
from llm_bench_fixtures.processes.affinity import choose_cores
from llm_bench_fixtures.processes.environment import worker_environment

# The cost of a product is found from decode steps with few products and with many.
FEW = 20
MANY_SHARE = 0.4  # about this share of the decode step
PRODUCT_S = 1e-6  # about what a product takes; it only decides how many "many" are
CALIBRATIONS = 2  # trials with each number of products
TPOT = next(metric for metric in JUDGED if metric.name == "tpot_s")
TIMEOUT_S = 300.0

Products: TypeAlias = Mapping[str, int]  # in each decode step, by test


def side(products: Products) -> PairSide:
    """The version in this folder, slowed down by these products."""
    return PairSide("this folder", ROOT, sys.executable, {"LLM_BENCH_INJECT": json.dumps(products)})


def trial_of(
    products: Sequence[Products], arguments: Sequence[str], pace: TrialPace, cores: tuple[int, ...] | None = None
) -> Trial:
    """One trial of fresh workers, one for each side. cores: to bind them to; None: one that this tool chooses; empty:
    run as plain runs do, bound to none."""
    chosen = choose_cores(1) if cores is None else cores
    variables = {} if cores == () else worker_environment(1, chosen)
    command = Command(("-p", "pair_injection", *arguments), variables, chosen, TIMEOUT_S)
    trial = Trial()
    with tempfile.TemporaryDirectory() as folder:
        run_trial(
            {str(index): side(of_side) for index, of_side in enumerate(products)},
            command,
            Path(folder) / "trial",
            random.Random(),  # noqa: S311  # chance, not secrecy
            lambda collected: (collected[0], pace),
            trial,
            Roster(),
        )
    return trial


def trial_alone(products: Sequence[Products], arguments: Sequence[str], pace: TrialPace) -> Trial:
    """A process of each side, one after the other, as plain runs are; returns their rounds side by side."""
    singles = [trial_of([of_side], arguments, pace, ()) for of_side in products]
    together = Trial(total_s=sum(single.total_s for single in singles), is_complete=True)
    for rounds_of in ("rounds", "prefills"):
        for test in getattr(singles[0], rounds_of):
            columns = [[row[0] for row in getattr(single, rounds_of)[test]] for single in singles]
            getattr(together, rounds_of)[test] = list(zip(*columns, strict=False))
    together.variants = singles[0].variants
    return together


@dataclass(frozen=True)
class Cost:
    """Seconds of a test's decode step, and of products in it."""

    step_s: float
    """The step without products."""
    fixed_s: float
    """Seconds that any number of products takes besides `each_s` for each: the first one takes longer than the
    others."""
    each_s: float

    def products(self, share: float) -> int:
        """How many make the step longer by this share."""
        return max(round((share * self.step_s - self.fixed_s) / self.each_s), 1) if share else 0


def calibrate(path: Path, arguments: Sequence[str]) -> dict[str, Cost]:
    """Costs by test, measured within the decode step, where the processor's caches are as the model left them.

    It is kept in a file, so that everything collected with the file is slowed down by the same work.
    """
    if not path.exists():
        few = [trial_of([{}, {"*": FEW}], arguments, TrialPace()).rounds for _ in range(CALIBRATIONS)]
        steps_s = {test: statistics.median(row[0].tpot_s for trial in few for row in trial[test]) for test in few[0]}
        counts = {test: FEW + round(MANY_SHARE * step_s / PRODUCT_S) for test, step_s in steps_s.items()}
        many = [trial_of([{}, counts], arguments, TrialPace()).rounds for _ in range(CALIBRATIONS)]
        costs = {
            test: cost_of(step_s, [trial[test] for trial in few], [trial[test] for trial in many], counts[test])
            for test, step_s in steps_s.items()
        }
        path.write_text(json.dumps({test: asdict(cost) for test, cost in costs.items()}), encoding="utf-8")
    return {test: Cost(**cost) for test, cost in json.loads(path.read_text(encoding="utf-8")).items()}


def cost_of(step_s: float, few: Sequence[Sequence[Row]], many: Sequence[Sequence[Row]], count: int) -> Cost:
    """Cost from trials with FEW products on the second side, and from trials with `count`."""
    few_s, many_s = (
        step_s * math.expm1(statistics.fmean(pair_difference(TPOT, rows) for rows in trials)) for trials in (few, many)
    )
    each_s = (many_s - few_s) / (count - FEW)
    return Cost(step_s, few_s - FEW * each_s, each_s)


def trial_json(trial: Trial) -> dict[str, Any]:
    return {
        "total_s": trial.total_s,
        "variants": trial.variants,
        **{name: rounds_json(getattr(trial, name)) for name in ("rounds", "prefills")},
    }


def rounds_json(rounds: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    return {test: [list(map(structs.astuple, row)) for row in rows] for test, rows in rounds.items()}


def collect(given: argparse.Namespace, arguments: Sequence[str]) -> None:
    path: Path = given.file
    if not path.exists():
        percents = [float(percent) for percent in given.percents.split(",")]
        costs = calibrate(given.cost, arguments)
        header = {
            "percents": percents,
            "alone": given.alone,
            "arguments": arguments,
            "pace": asdict(TrialPace(turn_s=0, rounds=10) if given.alone else TrialPace()),
            "products": [{test: cost.products(percent / 100) for test, cost in costs.items()} for percent in percents],
        }
        path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        header = json.loads(file.readline())
    run = trial_alone if header["alone"] else trial_of
    for number in range(1, given.trials + 1):
        started = time.monotonic()
        trial = run(header["products"], header["arguments"], TrialPace(**header["pace"]))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(trial_json(trial)) + "\n")
        print(f"trial {number} of {given.trials}: {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    os.environ["PYTHONPATH"] = with_tools()  # for pair_injection
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    collecting = actions.add_parser("collect")
    collecting.add_argument("file", type=Path)
    collecting.add_argument("--trials", type=int, default=PAIRS)
    collecting.add_argument("--percents", default="0,0")
    collecting.add_argument(
        "--cost", type=Path, required=True, help="file with the time of a product; it is measured if missing"
    )
    collecting.add_argument("--alone", action="store_true")
    drawing = actions.add_parser("curve")
    drawing.add_argument("files", type=Path, nargs="+")
    drawing.add_argument("--pairs", type=int, default=PAIRS, help="before the first analysis")
    drawing.add_argument("--most", type=int, default=0, help="pairs of a run at most; default: 1.5 x --pairs")
    drawing.add_argument("--threshold", type=parse_share, default=0.03)
    given, arguments = parsed(parser)
    if given.action == "collect":
        collect(given, arguments)
    else:
        curve(given.files, given.pairs, given.most or math.ceil(given.pairs * 1.5), given.threshold)


if __name__ == "__main__":
    main()
