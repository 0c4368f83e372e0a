from __future__ import annotations

import subprocess
import sys
import threading
import time
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import hidden_neighbour
import pytest
from hidden_neighbour import Regime, freezer, hold_by_schedule, regimes
from waiting import wait_until


def first(seed: str, count: int = 2000) -> list[Regime]:
    return list(islice(regimes(seed), count))


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another() -> None:
    assert first("1", 3) == first("1", 3)
    assert first("1", 1) != first("2", 1)


def test_regimes_take_half_a_second_to_four_and_a_third_of_the_time() -> None:
    found = first("1")
    lengths_s = [one.end_s - one.start_s for one in found]
    pauses_s = [found[0].start_s, *(after.start_s - before.end_s for before, after in pairwise(found))]
    assert all(0.5 <= seconds <= 4.0 for seconds in lengths_s)
    assert all(1.0 <= seconds <= 8.0 for seconds in pauses_s)
    assert sum(lengths_s) / found[-1].end_s == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("takes_s", [0.0, 0.002], ids=["at once", "many processes"])
def test_within_a_regime_a_third_of_the_time_is_held(takes_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only sleeping and holding move: two regimes, of 0.3 s and of 0.6 s."""
    now_s, told, is_over = [100.0], [], threading.Event()

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    def wait(seconds: float) -> bool:
        now_s[0] += seconds
        return now_s[0] > 105.0

    def hold(is_held: bool) -> None:
        now_s[0] += takes_s
        told.append(is_held)

    schedule = [Regime(1.0, 1.3), Regime(2.0, 2.6), Regime(9.0, 10.0)]
    monkeypatch.setattr(hidden_neighbour, "regimes", lambda _: iter(schedule))
    monkeypatch.setattr(hidden_neighbour, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    monkeypatch.setattr(is_over, "wait", wait)
    held_s = hold_by_schedule(hold, "1", is_over)
    assert held_s == pytest.approx(0.9 / 3, abs=0.01)
    assert told == [True, False] * (len(told) // 2)


def test_a_held_process_does_nothing_and_goes_on(tmp_path: Path) -> None:
    """It writes what time it is, again and again."""
    try:
        scope = freezer()
        group = scope.__enter__()
    except SystemExit as why:
        pytest.skip(str(why))
    ticks = tmp_path / "ticks"
    code = f"import time\nwhile True: open({str(ticks)!r}, 'a').write('x'); time.sleep(0.001)"
    enter = f'echo $$ > "{group.folder}/cgroup.procs" && exec "$@"'
    process = subprocess.Popen(["/bin/sh", "-c", enter, "sh", sys.executable, "-c", code])
    try:
        wait_for_more(ticks, 0)
        group.hold(is_held=True)
        time.sleep(0.05)  # a write that had begun ends
        held_at = ticks.stat().st_size
        time.sleep(0.2)
        assert ticks.stat().st_size == held_at
        group.hold(is_held=False)
        wait_for_more(ticks, held_at)
    finally:
        scope.__exit__(None, None, None)
        process.wait()
    assert not group.folder.exists()


def wait_for_more(file: Path, size: int) -> None:
    wait_until(lambda: file.exists() and file.stat().st_size > size)
