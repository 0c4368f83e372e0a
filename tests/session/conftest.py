"""Fixtures of a case that is measured in turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from case_table import Table

from llm_bench_fixtures.session import blocks, stopping, waits

if TYPE_CHECKING:
    from conftest import FakeClock


@pytest.fixture
def table(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Every core is free, and no look from core to core finds anything. Rounds of a second are easier to add up, so
    their number alone is to be enough."""
    monkeypatch.setattr(waits, "free_cores", lambda: 64)
    monkeypatch.setattr(blocks, "CoreLooks", lambda: SimpleNamespace(look=lambda: None))
    monkeypatch.setattr(stopping, "ENOUGH_S", 1e9)
    return Table(clock)
