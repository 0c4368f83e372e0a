"""A neighbour that no counter shows: a program and all that it starts is held for a third of some seconds.

    python tools/hidden_neighbour.py SEED COMMAND [ARGUMENT ...]
Runs the command, and holds its processes in regimes of 0.5 to 4 s, which take a third of the time and are the same for
the same seed. Within one everything takes 1.5 times as long, as beside another guest on the same processor: threads
neither run nor wait for a core meanwhile. Ends with the command's status.

It needs the kernel's freezer: as root where the control groups are those of version 1, or the group of this process
where they are of version 2 and this user may make groups in it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from llm_bench_fixtures.processes.memory import own_groups

LEAST_S, MOST_S = 0.5, 4.0  # seconds of a regime; what is between two takes twice as long on average
HELD_S = 0.001
FREE_FOR_HELD = 2.0  # times as long free as held; holding many processes takes longer than HELD_S
GROUP = "llm-bench-hidden"


@dataclass(frozen=True)
class Regime:
    """Seconds from the command's start."""

    start_s: float
    end_s: float


def regimes(seed: str) -> Iterator[Regime]:
    """The schedule of a seed, which has no end."""
    chance = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    end_s = 0.0
    while True:
        start_s = end_s + 2 * chance.uniform(LEAST_S, MOST_S)
        end_s = start_s + chance.uniform(LEAST_S, MOST_S)
        yield Regime(start_s, end_s)


@dataclass(frozen=True)
class Freezer:
    """A control group whose processes can be held."""

    folder: Path
    state: Path
    held: str
    free: str

    def hold(self, *, is_held: bool) -> None:
        self.state.write_text(self.held if is_held else self.free)


@contextmanager
def freezer() -> Iterator[Freezer]:
    """A group for the block, which ends what is left in it. Raises SystemExit where none can be made."""
    made = next((group for group in map(_group, own_groups("freezer")) if group), None)
    if not made:
        sys.exit("no group of processes can be made and held here: it takes root, or a delegated control group")
    try:
        yield made
    finally:
        made.hold(is_held=False)
        _remove(made.folder)


def _group(place: tuple[bool, Path]) -> Freezer | None:
    """A new group below one of this process'; None where none can be made, or none can be held."""
    is_unified, parent = place
    name, held, free = ("cgroup.freeze", "1", "0") if is_unified else ("freezer.state", "FROZEN", "THAWED")
    folder = parent / f"{GROUP}-{os.getpid()}"
    with suppress(OSError):
        folder.mkdir()
        if (folder / name).exists():
            return Freezer(folder, folder / name, held, free)
        folder.rmdir()
    return None


def _remove(folder: Path) -> None:
    """Once its processes have ended, which are killed."""
    for _ in range(1000):
        for pid in (folder / "cgroup.procs").read_text().split():
            subprocess.run(["kill", "-KILL", pid], check=False, stderr=subprocess.DEVNULL)
        try:
            folder.rmdir()
        except OSError:  # one of them hasn't ended yet
            time.sleep(0.01)
        else:
            return


def hold_by_schedule(hold: Callable[[bool], None], seed: str, is_over: threading.Event) -> float:
    """Hold and let go by the seed's schedule until the event; the seconds in which it held."""
    began_s, held_s = time.monotonic(), 0.0
    for regime in regimes(seed):
        if is_over.wait(max(began_s + regime.start_s - time.monotonic(), 0.0)):
            return held_s
        while time.monotonic() < began_s + regime.end_s and not is_over.is_set():
            held_at = time.monotonic()
            hold(True)
            time.sleep(HELD_S)
            hold(False)
            lasted_s = time.monotonic() - held_at
            held_s += lasted_s
            time.sleep(FREE_FOR_HELD * lasted_s)
    return held_s


def run(seed: str, command: Sequence[str]) -> int:
    """The command's status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that nothing stays held
    with freezer() as group:
        enter = f'echo $$ > "{group.folder}/cgroup.procs" && exec "$@"'
        process = subprocess.Popen(["sh", "-c", enter, "sh", *command])
        is_over, held_s = threading.Event(), [0.0]
        holding = threading.Thread(
            target=lambda: held_s.append(hold_by_schedule(lambda is_held: group.hold(is_held=is_held), seed, is_over))
        )
        began_s = time.monotonic()
        holding.start()
        try:
            status = process.wait()
        finally:
            is_over.set()
            holding.join()
            process.kill()
    print(f"held for {held_s[-1]:.1f} of {time.monotonic() - began_s:.1f} s", file=sys.stderr)
    return status


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(run(sys.argv[1], sys.argv[2:]))
