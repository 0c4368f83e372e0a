from __future__ import annotations

import subprocess
import sys
from itertools import islice, pairwise
from pathlib import Path

import neighbour
import psutil
import pytest
from waiting import BACKSTOP_S

SCRIPT = Path(neighbour.__file__)


def first(seed: str, count: int = 200) -> list[neighbour.Burst]:
    return list(islice(neighbour.bursts(seed), count))


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another() -> None:
    assert first("1") == first("1")
    assert first("1")[0] != first("2")[0]


def test_a_seed_gives_the_same_schedule_in_another_process() -> None:
    code = "import itertools, neighbour; print(list(itertools.islice(neighbour.bursts('1'), 3)))"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPT.parent, check=True, capture_output=True, text=True
    )
    assert printed.stdout.strip() == str(first("1", 3))


def test_bursts_and_pauses_take_half_a_second_to_twelve() -> None:
    bursts = first("1")
    lengths_s = [burst.end_s - burst.start_s for burst in bursts]
    pauses_s = [bursts[0].start_s, *(after.start_s - before.end_s for before, after in pairwise(bursts))]
    assert all(0.5 <= seconds <= 12.0 for seconds in [*lengths_s, *pauses_s])


def test_bursts_are_of_one_core_and_of_two_and_of_every_kind_of_work() -> None:
    bursts = first("1")
    assert {len(burst.works) for burst in bursts} == {1, 2}
    assert {work for burst in bursts for work in burst.works} == set(neighbour.Work)


def test_the_scheduled_work_counts_each_core_and_ends_within_a_burst() -> None:
    one = first("1")[0]
    middle_s = (one.start_s + one.end_s) / 2
    assert neighbour.scheduled_s("1", one.start_s) == 0.0
    assert neighbour.scheduled_s("1", middle_s) == pytest.approx((middle_s - one.start_s) * len(one.works))
    assert neighbour.scheduled_s("1", one.end_s) == pytest.approx(2 * neighbour.scheduled_s("1", middle_s))


@pytest.mark.parametrize("kind", neighbour.Work)
def test_each_kind_of_work_can_be_done(kind: neighbour.Work) -> None:
    neighbour._kinds_of_work()[kind]()


def test_its_processes_end_with_the_block() -> None:
    with neighbour.neighbour("1") as beside:
        assert beside.cpu_s() >= 0
        assert all(process.is_running() for process in beside.processes)
    assert [process.returncode for process in beside.processes] == [0, 0]


def test_a_process_that_died_is_told() -> None:
    with neighbour.neighbour("1") as beside:
        beside.processes[0].kill()
        beside.processes[0].wait()
        with pytest.raises(RuntimeError, match="died"):
            beside.cpu_s()


def test_its_processes_end_when_what_started_them_is_killed() -> None:
    script = psutil.Popen([sys.executable, str(SCRIPT), "1", "600"])
    try:
        while len(script.children()) < neighbour.CORES:
            assert script.poll() is None
        children = script.children()
    finally:
        script.kill()
        script.wait()
    _, alive = psutil.wait_procs(children, timeout=BACKSTOP_S)
    assert alive == []
