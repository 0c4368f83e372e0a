"""Measures how often the paired gate is right about a whole suite: equal versions, a slow variant, a slow test.

    python tools/measure_suite.py collect FILE [--pairs N] [--core C] [--plan FILE] [-- pytest arguments]
Adds N real pairs to a file of raw times. BASE and HEAD are of this folder, in fresh processes that take turns on
core C.
With --plan HEAD's decode steps are slowed down by real work (pair_injection.py): in each pair some of the variants by
5 %, some by 3 %, of some one test by 10 %, and some variants not at all; which ones changes from pair to pair. The plan
is made from the pairs in FILE.plain if it doesn't exist. Run one with and one without on two cores at once, as the gate
does.

    python tools/measure_suite.py rates FILE [FILE ...] [--pairs K] [--runs N] [--threshold SHARE]
Lets the gate decide over runs of K pairs that are drawn from the files, and prints how often it is right, as Markdown.
A run takes for each variant K of the pairs that didn't slow it down, and swaps the sides of each at random, which
changes nothing for equal versions. In a run with a slowdown one variant's tests, or one test, come from pairs that did
slow it down ("injected"), or get the slowdown added to the differences of their decode ("added"). The files of
`llm-bench pair --json` are pairs of equal versions, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure_pairs import trial_json, trial_of
from suite_rates import TEST_PERCENT, VARIANT_PERCENTS, rates
from suites import parsed, with_tools

from llm_bench_fixtures.cli.pair import PAIRS
from llm_bench_fixtures.options.parsers import parse_share
from llm_bench_fixtures.paired.trial import TrialPace

TIME_S = 0.37  # for a test's rounds: what the defaults leave to each of some 240 tests
PLANNED = 24  # pairs in a plan, which then begins anew


def plan_of(plain: Path, path: Path) -> list[dict[str, Any]]:
    """Plan of each pair: the percents by test, and the products that take them, as pair_injection.py wants them."""
    if not path.exists():
        trials = [json.loads(line) for line in plain.read_text(encoding="utf-8").splitlines()]
        variants, step_s = trials[0]["variants"], defaultdict(list)
        for trial in trials:
            for test, rows in trial["rounds"].items():
                step_s[test] += [row[0][2] for row in rows if row[0][2]]
        pairs = [_percents(number, variants, list(step_s)) for number in range(PLANNED)]
        each_s = product_s()
        path.write_text(
            json.dumps(
                [
                    {
                        "percents": percents,
                        "products": {
                            test: max(round(percent / 100 * statistics.median(step_s[test]) / each_s), 1)
                            for test, percent in percents.items()
                        },
                    }
                    for percents in pairs
                ]
            ),
            encoding="utf-8",
        )
    planned: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return planned


def _percents(number: int, variants: Mapping[str, str], tests: Sequence[str]) -> dict[str, float]:
    chance = random.Random(number)  # noqa: S311  # the same each time
    found: dict[str, float] = {}
    for index, variant in enumerate(dict.fromkeys(variants.values())):
        own = [test for test in tests if variants[test] == variant]
        kind = (number + index) % 4
        if kind < len(VARIANT_PERCENTS):
            found |= dict.fromkeys(own, VARIANT_PERCENTS[kind])
        elif kind == len(VARIANT_PERCENTS):
            found[chance.choice(own)] = TEST_PERCENT
    return found


def product_s() -> float:
    """Seconds of one product of pair_injection.py by itself, on one thread."""
    import torch

    torch.set_num_threads(1)
    matrix, vector = torch.eye(64), torch.ones(64)

    def fifty() -> float:
        nonlocal vector
        began = time.perf_counter()
        for _ in range(50):
            vector = matrix @ vector
        return time.perf_counter() - began

    return statistics.median(fifty() for _ in range(400)) / 50


def collect(given: argparse.Namespace, arguments: Sequence[str]) -> None:
    path: Path = given.file
    for _ in range(given.pairs):
        done = len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0
        planned = plan_of(Path(f"{path}.plain"), given.plan)[done % PLANNED] if given.plan else {}
        sides = [{}, planned.get("products", {})]
        trial = trial_of(sides, arguments, TrialPace(time_s=TIME_S), (given.core,))
        kept = {**trial_json(trial), "percents": planned.get("percents", {})}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(kept) + "\n")
        print(f"pair {done + 1}: {trial.total_s:.0f} s", flush=True)


def main() -> None:
    os.environ["PYTHONPATH"] = with_tools()  # for pair_injection
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    collecting = actions.add_parser("collect")
    collecting.add_argument("file", type=Path)
    collecting.add_argument("--pairs", type=int, default=PAIRS)
    collecting.add_argument("--core", type=int, default=0)
    collecting.add_argument("--plan", type=Path, help="file with HEAD's slowdowns; it is made if missing")
    drawing = actions.add_parser("rates")
    drawing.add_argument("files", type=Path, nargs="+")
    drawing.add_argument("--pairs", type=int, default=PAIRS, help="of a run")
    drawing.add_argument("--runs", type=int, default=200)
    drawing.add_argument("--threshold", type=parse_share, default=0.03)
    given, arguments = parsed(parser)
    if given.action == "collect":
        collect(given, arguments)
    else:
        rates(given.files, given.pairs, given.runs, given.threshold)


if __name__ == "__main__":
    main()
