"""Runs a command as on a machine several times slower, to find tests and limits that count on its speed.

    python tools/run_slowly.py python -m pytest tests/processes
    python tools/run_slowly.py --share 10 python -m pytest tests/paired

The command and what it starts get a share of one core, by a CPU quota of Linux's control groups, which takes the rights
to make one. Elsewhere it runs beside busy processes on all cores, which leave it about the share of each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
PERIOD_US = 100_000
BUSY = "while True: pass"


@contextmanager
def quota(percent: int, groups: Path = GROUPS) -> Iterator[None]:
    """Give this process, and those it starts, so many percent of one core. Raises OSError where that can't be."""
    is_unified = (groups / "cgroup.controllers").exists()
    root = groups if is_unified else groups / "cpu"
    home = root / _membership("" if is_unified else "cpu")
    if not home.is_dir():  # a container that sees its own group as the root
        home = root
    own = root / f"run-slowly-{os.getpid()}"
    own.mkdir()
    try:
        _limit(own, percent * PERIOD_US // 100, is_unified=is_unified)
        with _joined(own, home):
            yield
    finally:
        with suppress(OSError):  # the command has left processes
            own.rmdir()


def _membership(controller: str) -> str:
    """The group that this process is in, below the root. controller: "" for version 2. Raises OSError without one."""
    for line in MEMBERSHIP.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return group.lstrip("/")
    raise OSError(f"{MEMBERSHIP} has no group of {controller or 'version 2'}")


@contextmanager
def _joined(group: Path, home: Path) -> Iterator[None]:
    _join(group)
    try:
        yield
    finally:
        with suppress(OSError):  # home has been removed
            _join(home)


def _limit(group: Path, quota_us: int, *, is_unified: bool) -> None:
    if is_unified:
        (group.parent / "cgroup.subtree_control").write_text("+cpu")
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))


def _join(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Processes that compute for nothing while the block lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: list[str] | None = None, groups: Path = GROUPS) -> int:
    """The command's exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=int, default=20, metavar="PERCENT", help="of one core. Default: 20")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if not given.command:
        parser.error("no command to run: give it last, as in --share 20 python -m pytest tests/processes")
    if not 1 <= given.share <= 100:
        parser.error(f"--share {given.share}: give a percentage of one core, 1 to 100")
    with ExitStack() as slow:
        try:
            slow.enter_context(quota(given.share, groups))
        except OSError as error:
            number = (os.cpu_count() or 1) * (100 // given.share - 1)
            print(f"no CPU quota ({error}): beside {number} busy processes", file=sys.stderr)
            slow.enter_context(busy_processes(number))
        return subprocess.run(given.command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
