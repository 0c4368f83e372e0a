from __future__ import annotations

import multiprocessing
import time

import psutil
import pytest
import slow_core
from hidden_neighbour import Regime
from waiting import wait_until


def test_it_takes_a_core_for_a_fifth_of_a_regime_and_ends_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The regime has no end. A tenth of a second of processor time takes half a second of it, and at least 0.3 s."""
    fork = multiprocessing.get_context("fork")  # so that the child has the schedule, too
    monkeypatch.setattr(slow_core, "regimes", lambda _: iter([Regime(0.0, 3600.0)]))
    monkeypatch.setattr(slow_core, "multiprocessing", fork)
    before = psutil.Process().children()  # a fork server of other tests
    try:
        with slow_core.slow_core("1"):
            (child,) = (one for one in psutil.Process().children() if one not in before)
            began_s = time.monotonic()
            wait_until(lambda: sum(child.cpu_times()[:2]) >= 0.1)
            assert time.monotonic() - began_s >= 0.3
    except SystemExit as why:
        pytest.skip(str(why))
    assert not child.is_running()
