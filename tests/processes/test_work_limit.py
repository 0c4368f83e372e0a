"""When a process' time is over, by a clock and an account of processor time that are told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from llm_bench_fixtures.processes.work_limit import IDLE_SHARE, LOOKS, WorkLimit, cpu_s_of

LIMIT_S = 10.0


def ends_at(used_s: Callable[[float], float]) -> float:
    """When it is over, looked at as often as it asks. used_s: processor seconds used so far, by the time."""
    now = 0.0
    limit = WorkLimit(LIMIT_S, lambda: used_s(now), lambda: now)
    now = limit.next_look
    while not limit.is_over():
        assert limit.next_look > now
        now = limit.next_look
    return now


@pytest.mark.parametrize(
    ("used_s", "over_s"),
    [
        (lambda now: now, 10.0),
        (lambda now: 8 * now, 10.0),
        (lambda now: now / 4, 40.0),
        (lambda now: now / 10, 100.0),
        (lambda now: 5.0, 10.0),
        (lambda now: 500 + now, 10.0),
        (lambda now: min(now, 4.0), 20.0),
        (lambda now: now * IDLE_SHARE / 2, 10.0),
        (lambda now: now if now < 9 else now - 8, 18.0),
    ],
    ids=[
        "one thread on a core of its own",
        "eight threads",
        "a quarter of a core",
        "a machine ten times slower",
        "it reads what never comes",
        "it has worked long before",
        "it works and then waits",
        "it looks now and then whether something has come",
        "a child's time is forgotten",
    ],
)
def test_waiting_for_a_core_does_not_count_and_waiting_for_anything_else_does(
    used_s: Callable[[float], float], over_s: float
) -> None:
    """Bug: a chat template was refused beside ten busy processes, which left its process a tenth of the core."""
    late_s = 2 * LIMIT_S / LOOKS  # what passes before the first look, and one look
    assert over_s <= ends_at(used_s) <= over_s + late_s


def test_a_first_look_that_comes_late_ends_nothing() -> None:
    """As after a laptop's sleep. The next one does, where it has stood still since."""
    now = 0.0
    limit = WorkLimit(LIMIT_S, lambda: 0.0, lambda: now)
    now = 100 * LIMIT_S
    assert not limit.is_over()
    assert limit.next_look == now
    now += LIMIT_S
    assert limit.is_over()


def test_a_first_look_that_tells_nothing_counts_no_work_from_before() -> None:
    """Bug: where the first look failed, a process that had worked for long before was ended at the second."""
    now, used_s = 0.0, 0.0
    limit = WorkLimit(LIMIT_S, lambda: used_s, lambda: now)
    now = limit.next_look
    assert not limit.is_over()
    now, used_s = limit.next_look, 500.0
    assert not limit.is_over()
    assert not limit.is_over()
    now, used_s = now + LIMIT_S, used_s + LIMIT_S
    assert limit.is_over()


def test_an_answer_that_comes_at_once_costs_no_look() -> None:
    limit = WorkLimit(LIMIT_S, lambda: pytest.fail("it was looked at"), lambda: 0.0)
    assert limit.next_look == LIMIT_S / LOOKS


def test_the_processor_time_of_a_process() -> None:
    assert cpu_s_of(os.getpid()) > 0
    assert cpu_s_of(2**22 + 1) == 0  # more than Linux gives by default


WORKED_S = 0.3
CHILD = f"""
import sys, time
while time.process_time() < {WORKED_S}:
    pass
print("worked", flush=True)
sys.stdin.readline()
"""
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("waited", flush=True)
sys.stdin.read()
"""


def test_a_child_counts_once_while_it_runs_and_after_its_end() -> None:
    """Bug: a process that waited for its child, such as a compiler, stood still and was killed by the clock."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        ticks_s = 0.05  # a system counts in hundredths
        assert parent.stdout.readline() == "worked\n"
        alone_s = sum(psutil.Process(parent.pid).cpu_times()[:4])
        both_s = cpu_s_of(parent.pid)
        assert both_s >= alone_s + WORKED_S - ticks_s
        print(file=parent.stdin, flush=True)
        assert parent.stdout.readline() == "waited\n"
        assert sum(psutil.Process(parent.pid).cpu_times()[:4]) == cpu_s_of(parent.pid) >= both_s - ticks_s
