"""The script that measures processes: what it hooks into."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import measure_processes
import pytest

from llm_bench_fixtures.session import measuring


def test_the_first_round_is_noted_as_a_run_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the hook had an older signature, so that every measured run failed."""
    noted, signature = tmp_path / "first", inspect.signature(measuring.measure_side_by_side)
    heard: list[tuple[Any, ...]] = []

    def measure(*args: Any, **named: Any) -> None:
        step = signature.bind(*args, **named).arguments["step"]
        for doing in ("warming up", "round 1/3"):
            assert not noted.exists()
            step(doing, "fp32", None)

    monkeypatch.setenv(measure_processes.FIRST_ROUND_FILE, str(noted))
    monkeypatch.setattr(measuring, "measure_side_by_side", measure)
    measure_processes.pytest_configure()
    measuring.measure_side_by_side({}, "fp32", None, lambda *told: heard.append(told), on_cut=lambda *_: None)  # type: ignore[arg-type, misc]
    assert float(noted.read_text()) > 0
    assert heard == [("warming up", "fp32", None), ("round 1/3", "fp32", None)]
