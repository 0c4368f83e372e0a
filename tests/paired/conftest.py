"""Sides whose workers are fakes, and a paired run of two of them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import BACKSTOP_S

from llm_bench_fixtures.paired.control import PairedRun, PairPlan
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.paired.result import PairedResult
from llm_bench_fixtures.paired.sides import PairSide
from llm_bench_fixtures.paired.trial import TrialPace
from llm_bench_fixtures.paired.workers import Command

FAKE_WORKER = Path(__file__).parent / "fake_worker.py"

MakeSide = Callable[..., PairSide]
RunPair = Callable[..., PairedResult]


@pytest.fixture
def make_side(tmp_path: Path) -> MakeSide:
    """A factory of sides, whose arguments go to the fake worker."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{FAKE_WORKER}' \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)

    def make(**told: Any) -> PairSide:
        return PairSide("a fake", tmp_path, str(python), {"FAKE": json.dumps(told)})

    return make


class PairClock(Display):
    """A clock by which each pair takes a second, whatever it takes."""

    now_s = 0.0

    def done(self, text: str) -> None:
        self.now_s += 1.0
        super().done(text)


@pytest.fixture
def run_pair(make_side: MakeSide, tmp_path: Path) -> RunPair:
    """Run BASE against HEAD, each made as by `make_side`; other arguments go to the plan."""

    def run(
        base: dict[str, Any], head: dict[str, Any], timeout_s: float = BACKSTOP_S, lanes: int = 1, **planned: Any
    ) -> PairedResult:
        plan = {
            "threads": 1,
            "threshold": 0.03,
            "pairs": 3,
            "pace": TrialPace(rounds=4, warmup_s=0.0),
            **planned,
        }
        command = Command((), {}, (), timeout_s)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        sides = (make_side(**base), make_side(**head))
        clock = PairClock(io.StringIO())
        return PairedRun(sides, PairPlan((command,) * lanes, **plan), clock, scratch, clock=lambda: clock.now_s).run()

    return run
