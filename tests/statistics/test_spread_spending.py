"""How error is spent over several looks."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.statistics.spread import deviations_of_look, share_of_look


def test_however_many_looks_spend_at_most_the_whole() -> None:
    assert [share_of_look(number) for number in (1, 2, 3)] == [0.5, 0.25, 0.125]
    assert sum(map(share_of_look, range(1, 60))) <= 1


def test_a_look_that_spends_five_percent_has_the_usual_interval() -> None:
    assert deviations_of_look(1, 0.10) == pytest.approx(1.96, abs=1e-3)
