"""What the installed plugin costs a test suite that doesn't use it.

Starts pytest on a folder with one empty test, with the plugin and with `-p no:llm_bench_fixtures`, alternated in
random order, and prints the median difference in CPU time (user and system, which other load disturbs least) and in
wall time. Where valgrind is installed, it also counts the instructions of one start each way, which no load disturbs.
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
import time
from pathlib import Path

PAIRS = 40
WRITES_CACHES = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def command(folder: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *options, folder]


def start(folder: str, *options: str) -> tuple[float, float]:
    """CPU and wall milliseconds of one pytest run."""
    started = time.perf_counter()
    with Path(os.devnull).open("w") as silence:
        actions = [(os.POSIX_SPAWN_DUP2, silence.fileno(), 1)]
        process = os.posix_spawn(sys.executable, command(folder, *options), WRITES_CACHES, file_actions=actions)
        _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{' '.join(command(folder, *options))} failed")
    return (usage.ru_utime + usage.ru_stime) * 1e3, (time.perf_counter() - started) * 1e3


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
    differences: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        ways: dict[str, tuple[str, ...]] = {"with": (), "without": ("-p", "no:llm_bench_fixtures")}
        for way in ways.values():
            start(folder, *way)  # writes Python's caches
        for _ in range(pairs):
            names = random.sample(list(ways), 2)
            taken = {name: start(folder, *ways[name]) for name in names}
            differences.append(tuple(a - b for a, b in zip(taken["with"], taken["without"], strict=True)))  # type: ignore[arg-type]
        counts = {name: instructions(folder, *way) / 1e6 for name, way in ways.items()}
    for index, name in enumerate(("CPU", "wall")):
        values = [difference[index] for difference in differences]
        low, median, high = statistics.quantiles(values, n=4)
        print(f"{name}: the plugin adds {median:.1f} ms (quartiles {low:.1f} to {high:.1f}, {pairs} pairs)")
    if counts["with"]:
        print(f"instructions: {counts['without']:.0f} million without the plugin, {counts['with']:.0f} million with it")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
