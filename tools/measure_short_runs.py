"""Whether a run that is cut short names the winner of a whole one.

python tools/measure_short_runs.py FOLDER [--runs N] [--time TIME] [-- pytest arguments]

Runs `pytest benchmarks/` once whole, and N times with --llm-time TIME, and prints how many of these put a variant first
that is the whole run's winner, or tied to it, and how many name one among those that they can't tell from their first.
What FOLDER holds from an earlier call isn't run again, unless that was interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from measure_repeatability import run_suite
from repeatability_answers import READERS
from suites import parsed

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Reader
from llm_bench_fixtures.answer.picks import picks_of
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run


def winners(report: Path, cache: Path, arguments: Sequence[str]) -> Mapping[Reader, Sequence[str]]:
    """The best, and after it those that are tied to it, of the run whose results are in the folder; it is run where
    there are none, or where they are of an interrupted run."""
    results = report / RESULTS_FILE
    if not results.exists() or read_run(results).interrupted:
        print(f"{report.name}: {run_suite(report, cache, arguments):.0f} s", flush=True)
    picks = picks_of(evidence_of(read_run(results)), DEFAULT_NEED)
    return {pick.reader: [one.variant for one in pick.choices] for pick in picks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--time", default="45s")
    given, own = parsed(parser)
    cache = given.folder / "cache"
    whole = winners(given.folder / "whole", cache, [*own, "--llm-time=none"])
    short = [
        winners(given.folder / f"short-{number}", cache, [*own, f"--llm-time={given.time}"])
        for number in range(1, given.runs + 1)
    ]
    for reader in READERS:
        first = [found[reader][0] if found.get(reader) else "nothing" for found in short]
        agree = [[one in whole[reader] for one in found.get(reader, ())] for found in short]
        named, tied = sum(any(one[:1]) for one in agree), sum(map(any, agree))
        print(f"{reader}: {', '.join(whole[reader])}; of {len(short)} short runs {named} put it first, {tied} name it")
        print(f"  first: {', '.join(first)}")


if __name__ == "__main__":
    main()
