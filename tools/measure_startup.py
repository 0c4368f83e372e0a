"""What the installed plugin costs a test suite that doesn't use it.

Starts pytest on a folder with one empty test, with the plugin and with `-p no:llm_bench_fixtures`, alternated in
random order, and prints the median difference in CPU time (user and system, which other load disturbs least) and in
wall time.

    python tools/measure_startup.py [PAIRS]
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

PAIRS = 40


def start(folder: str, *options: str) -> tuple[float, float]:
    """CPU and wall milliseconds of one pytest run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *options, folder]
    started = time.perf_counter()
    with Path(os.devnull).open("w") as silence:
        actions = [(os.POSIX_SPAWN_DUP2, silence.fileno(), 1)]
        process = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return (usage.ru_utime + usage.ru_stime) * 1e3, (time.perf_counter() - started) * 1e3


def main(pairs: int) -> None:
    differences: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        for _ in range(pairs):
            ways: dict[str, tuple[str, ...]] = {"with": (), "without": ("-p", "no:llm_bench_fixtures")}
            names = random.sample(list(ways), 2)
            taken = {name: start(folder, *ways[name]) for name in names}
            differences.append(tuple(a - b for a, b in zip(taken["with"], taken["without"], strict=True)))  # type: ignore[arg-type]
    for index, name in enumerate(("CPU", "wall")):
        values = [difference[index] for difference in differences]
        low, median, high = statistics.quantiles(values, n=4)
        print(f"{name}: the plugin adds {median:.1f} ms (quartiles {low:.1f} to {high:.1f}, {pairs} pairs)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
