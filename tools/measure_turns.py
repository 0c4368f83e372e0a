"""How much of the time in which variants take turns is timed work.

    python tools/measure_turns.py [pytest arguments]
Runs the suite, and prints which share of the seconds from each case's first turn to its last was spent within timed
rounds, the first decode step of each turn with its cold caches among it. The rest is what begins and ends turns:
suspending processes, waking them, tokens that warm caches. Waits for other work aren't counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.measure import turns
from llm_bench_fixtures.models.loading import IsolatedModel
from llm_bench_fixtures.processes.calls import Preemptions
from llm_bench_fixtures.session.blocks import Blocks
from llm_bench_fixtures.session.case import CaseFigures

ROOT = Path(__file__).resolve().parent.parent


class Turns:
    """Notes of each case how long it took, and how long its rounds did."""

    def __init__(self) -> None:
        self.cases: list[tuple[float, float]] = []

    def note(self) -> None:
        """Note each case that is measured from now on."""
        measure = Blocks.measure

        def noting(blocks: Blocks) -> CaseFigures:
            found, all_s = measure(blocks), blocks.spent.rounds_s
            if len(blocks.entries) > 1:
                rounds = [done for entry in blocks.entries.values() for done in entry.rounds.values()]
                self.cases.append((sum(done.latency_s for done in rounds), all_s))
            return found

        Blocks.measure = noting  # type: ignore[assignment, method-assign]


def raw_turns(*what: Any, **how: Any) -> Any:
    """`take_turns` in a variant's process, with the cold steps as the clock counted them."""
    turns.without_cold_steps = lambda done: done  # type: ignore[assignment]
    return turns.take_turns(*what, **how)


def uncorrected() -> None:
    """Let the variants' turns from now on be `raw_turns`."""
    in_turns = IsolatedModel.in_turns

    def raw(self: IsolatedModel, preemptions: Preemptions, _: object, *what: Any, **how: Any) -> Iterator[Any]:
        return in_turns(self, preemptions, raw_turns, *what, **how)

    IsolatedModel.in_turns = raw  # type: ignore[method-assign]


def main() -> None:
    noted = Turns()
    uncorrected()
    noted.note()
    status = pytest.main([str(ROOT / "benchmarks"), *sys.argv[1:]])
    if status:
        sys.exit(status)
    if not noted.cases:
        sys.exit("no case had two variants, so that none took turns")
    work_s, all_s = map(sum, zip(*noted.cases, strict=True))
    share, least = work_s / all_s, min(work / whole for work, whole in noted.cases)
    print(f"{work_s:.1f} of {all_s:.1f} s in {len(noted.cases)} cases: {share:.1%} timed work, at least {least:.1%}")


if __name__ == "__main__":
    main()
