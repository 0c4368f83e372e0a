"""The script that measures processes: what it hooks into."""

from __future__ import annotations

from pathlib import Path

import measure_processes
import pytest

from llm_bench_fixtures.session.blocks import Blocks
from llm_bench_fixtures.session.case import Pace
from llm_bench_fixtures.session.rounds import CaseRounds


def test_the_first_round_is_noted_as_a_run_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the hook had an older signature, so that every measured run failed."""
    noted, heard = tmp_path / "first", []

    def measure(blocks: Blocks) -> None:
        for doing in ("warming up", "round 1/3"):
            assert not noted.exists()
            blocks.step(doing, "fp32", None)

    monkeypatch.setenv(measure_processes.FIRST_ROUND_FILE, str(noted))
    monkeypatch.setattr(Blocks, "measure", measure)
    measure_processes.pytest_configure()
    pace = Pace(rounds=3, warmup_rounds=1, max_noise=0.0, share_s=1.0)
    Blocks(CaseRounds({}, "fp32", pace), lambda *told: heard.append(told)).measure()
    assert float(noted.read_text()) > 0
    assert heard == [("warming up", "fp32", None), ("round 1/3", "fp32", None)]
