"""What the report's sentences and tables are tested with, whatever the figures of the day."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.gate import margins
from llm_bench_fixtures.statistics import ratio


@pytest.fixture
def processes_differ_by_one_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no sentence changes where that is measured anew."""
    for module in (ratio, margins):
        monkeypatch.setattr(module, "PROCESS_DEVIATION", 0.01)
