"""Whether a run that is cut short names the winner of a whole one.

python tools/measure_short_runs.py FOLDER [--runs N] [--time TIME] [-- pytest arguments]

Runs `pytest benchmarks/` once whole, and N times with --llm-time TIME, and prints how many of these have a winner, or
what is tied to it, that is one of the whole run's. What FOLDER holds from an earlier call isn't run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from measure_repeatability import run_suite
from repeatability_answers import READERS, RunAnswer, answer_of

from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run


def answered(report: Path, cache: Path, arguments: Sequence[str]) -> RunAnswer:
    """Of the run whose results are in the folder, which is run where there are none."""
    if not (report / RESULTS_FILE).exists():
        print(f"{report.name}: {run_suite(report, cache, arguments):.0f} s", flush=True)
    return answer_of(read_run(report / RESULTS_FILE))


def main() -> None:
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--time", default="45s")
    given = parser.parse_args(sys.argv[1:separator])
    own, cache = sys.argv[separator + 1 :], given.folder / "cache"
    whole = answered(given.folder / "whole", cache, [*own, "--llm-time=none"])
    short = [
        answered(given.folder / f"short-{number}", cache, [*own, f"--llm-time={given.time}"])
        for number in range(1, given.runs + 1)
    ]
    for reader in READERS:
        named = sum(bool(one.winners[reader] & whole.winners[reader]) for one in short)
        print(f"{reader}: {', '.join(sorted(whole.winners[reader]))}; named by {named} of {len(short)} short runs")


if __name__ == "__main__":
    main()
