"""What the report's sentences and tables are tested with, whatever the figures of the day."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.results import speedup


@pytest.fixture(autouse=True)
def processes_differ_by_one_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no sentence changes where that is measured anew."""
    monkeypatch.setattr(speedup, "PROCESS_DEVIATION", 0.01)
