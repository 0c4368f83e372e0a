"""What the installed plugin costs a test suite that doesn't use it.

Starts pytest on a folder with one empty test, with the plugin and with `-p no:llm_bench_fixtures`, and prints the
median difference in CPU time (user and system). The two of a pair start at once, in random order, on one core: the
kernel gives it to each in turn for a few milliseconds, so that whatever slows the machine slows both. Started one
after the other, equal runs differ by tens of milliseconds. The same for two runs without the plugin shows the method's
own error. Where valgrind is installed, the instructions of one start each way are counted, too.
Install the package from a wheel: an editable one is found in another way.

    python tools/measure_startup.py [PAIRS]
"""

from __future__ import annotations

import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PAIRS = 15
WAYS: dict[str, tuple[str, ...]] = {"with": (), "without": ("-p", "no:llm_bench_fixtures")}
WRITES_CACHES = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def command(folder: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *options, folder]


def cpu_ms(commands: list[list[str]]) -> list[float]:
    """CPU milliseconds of each command, all started at once in random order."""
    taken: dict[int, float] = {}
    running: dict[int, int] = {}
    with Path(os.devnull).open("w") as silence:
        actions = [(os.POSIX_SPAWN_DUP2, silence.fileno(), 1)]
        for index in random.sample(range(len(commands)), len(commands)):
            running[os.posix_spawn(sys.executable, commands[index], WRITES_CACHES, file_actions=actions)] = index
    while running:
        process, status, usage = os.wait4(-1, 0)
        index = running.pop(process)
        if status:
            sys.exit(f"{' '.join(commands[index])} failed")
        taken[index] = (usage.ru_utime + usage.ru_stime) * 1e3
    return [taken[index] for index in range(len(commands))]


def instructions(folder: str, *options: str) -> int:
    """Instructions of one pytest run, with a fixed order of sets. Zero without valgrind."""
    if shutil.which("valgrind") is None:
        return 0
    counting = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
    done = subprocess.run(
        [*counting, *command(folder, *options)],
        env={**WRITES_CACHES, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return max(int(count.replace(",", "")) for count in re.findall(r"I +refs: +([\d,]+)", done.stderr))


def main(pairs: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        ways = {name: command(folder, *options) for name, options in WAYS.items()}
        cpu_ms(list(ways.values()))  # writes Python's caches
        for outcome, first in (("the plugin adds", "with"), ("control: two equal runs differ by", "without")):
            runs = [cpu_ms([ways[first], ways["without"]]) for _ in range(pairs)]
            low, median, high = statistics.quantiles([one - other for one, other in runs], n=4)
            alone = statistics.median(other for _, other in runs)
            found = f"{outcome} {median:.1f} ms (quartiles {low:.1f} to {high:.1f}, {pairs} pairs)"
            print(f"CPU: {found}, on top of {alone:.0f} ms")
        counts = {name: instructions(folder, *options) / 1e6 for name, options in WAYS.items()}
    if counts["with"]:
        print(f"instructions: {counts['without']:.0f} million without the plugin, {counts['with']:.0f} million with it")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
