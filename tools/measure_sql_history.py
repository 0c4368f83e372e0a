"""What a database of saved runs costs when it is large, and how long answers from it take.

python tools/measure_sql_history.py URL [RUNS] [REPEATS]

Saves that many runs (10,000 by default) of 250 benchmarks to the database, unless it has runs already, then asks each
question in a process of its own: the least of the repeats' seconds (other load only adds to it), without and with the
imports and the first connection, and the highest peak of resident memory. The runs are of two models on two machines;
one in three is of a branch of its own, and one in ten of fewer tests. Ten thousand take 3 GB.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from measure_history import NOISE, SLOWER_FROM, a_run, vary

from llm_bench_fixtures.errors import StorageNotFound
from llm_bench_fixtures.history.baseline import Likeness, find_baseline
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.history.steps import read_trend
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.history.trend import TrendFilter
from llm_bench_fixtures.results.record import Run

CASES = 50  # cases of each of five variants
SELECTION = ("benchmarks",)
LIKENESS = Likeness(("model-0",), random_weights=False, selection=SELECTION)


def newest(storage: Storage) -> object:
    return storage.newest(20, print)


def baseline(storage: Storage) -> object:
    return find_baseline(storage, "", LIKENESS, Path())


def of_branch(storage: Storage) -> object:
    return find_baseline(storage, "branch:main", LIKENESS, Path())


def merge_base(storage: Storage) -> object:
    """Baseline of a branch that left a thousand runs' commits; git isn't asked."""
    commits = {commit_of(number): distance for distance, number in enumerate(reversed(range(1000)))}
    with patch("llm_bench_fixtures.history.baseline._ancestors", lambda *_: commits):
        return find_baseline(storage, "merge-base:main", LIKENESS, Path())


def trend(storage: Storage) -> object:
    return read_trend(storage, TrendFilter(metrics=("latency_s",)), print)


def trend_of_variant(storage: Storage) -> object:
    return read_trend(storage, TrendFilter(metrics=("latency_s",), variants=("fp32",)), print)


QUESTIONS: dict[str, Callable[[Storage], object]] = {
    one.__name__: one for one in (newest, baseline, of_branch, merge_base, trend_of_variant, trend)
}


def is_filled(database: Database) -> bool:
    try:
        return bool(database.places())
    except StorageNotFound:
        return False


def fill(database: Database, runs: int) -> None:
    whole = judged_run(a_run(CASES))
    plain = [record.metrics for record in whole.records]
    started = time.perf_counter()
    for number in range(runs):
        database.save(a_run_of(number, runs, whole, plain))
        if number % 500 == 499:
            print(f"{number + 1} runs in {time.perf_counter() - started:.0f} s", flush=True)


def commit_of(number: int) -> str:
    return f"{random.Random(number).getrandbits(160):040x}"  # noqa: S311


def a_run_of(number: int, runs: int, whole: Run, plain: list[dict[str, float]]) -> Run:
    generator = random.Random(number)  # noqa: S311
    provenance = replace(
        whole.provenance,
        started=(datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=5 * number)).isoformat(),
        commit=commit_of(number),
        model=f"model-{number % 2}",
        hardware=f"machine {number // 2 % 2}, 2 cores",
        branch="main" if number % 3 else f"topic-{number}",
    )
    records = []
    for record, metrics in zip(whole.records, plain, strict=True):
        slower = 1.125 if record.variant == "bf16" and number >= runs * SLOWER_FROM else 1.0
        factor = slower * generator.lognormvariate(0, NOISE)
        rounds_s = tuple(seconds * factor for seconds in record.rounds_s)
        records.append(replace(record, rounds_s=rounds_s, metrics=dict(vary(metrics, factor))))
    selection = SELECTION if number % 10 else (*SELECTION, "-k cache")
    return replace(whole, provenance=provenance, records=tuple(records), selection=selection)


def main(url: str, runs: int, repeats: int) -> None:
    database = Database(url)
    if not is_filled(database):
        fill(database, runs)
    for name in QUESTIONS:
        command = [sys.executable, __file__, "ask", url, name]
        answers = [timed(command) for _ in range(repeats)]
        seconds, whole_s, peaks = zip(*answers, strict=True)
        times = f"{min(seconds):6.3f} s, in all {min(whole_s):5.2f} s"
        print(f"{name:17s} {times}  {max(peaks) / 1e6:4.0f} MB", flush=True)


def timed(command: list[str]) -> tuple[float, float, float]:
    started = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = output.split()
    return float(seconds), time.perf_counter() - started, float(peak)


def ask(url: str, name: str) -> None:
    import numpy as np  # noqa: F401  # before the clock starts, as what a connection imports

    database = Database(url)
    database.check()
    started = time.perf_counter()
    QUESTIONS[name](database)
    print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1], *(int(text) for text in (*sys.argv[2:], "10000", "5")[:2]))
