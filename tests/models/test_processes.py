"""What the exit of a process says."""

from __future__ import annotations

import signal

import pytest

from llm_bench_fixtures.models.processes import how_it_ended

UNNAMED = next(number for number in range(1, 128) if number not in list(signal.Signals))


@pytest.mark.parametrize(
    ("exit_code", "how"),
    [
        (None, "closed its connection"),
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-signal.SIGTERM, "was killed by SIGTERM"),
        (-signal.SIGKILL, "was killed by SIGKILL, perhaps for lack of memory"),
        (-UNNAMED, f"was killed by signal {UNNAMED}"),
    ],
)
def test_each_way_in_which_a_process_ends(exit_code: int | None, how: str) -> None:
    assert how_it_ended(exit_code) == how
