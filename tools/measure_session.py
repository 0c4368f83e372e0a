"""What a session of the suite spends its time on, and how much memory it takes at its peak.

python tools/measure_session.py share [options of pytest]
wall time of `pytest benchmarks/`, and the share of it spent generating, scoring, loading, exporting,
quantizing and calibrating
python tools/measure_session.py memory [options of pytest]
peak resident memory of the session with all variants, and of a session with each single one;
run it twice: the first run also fills the cache of exports
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
WORK = ("generating", "scoring", "loading", "exporting", "quantizing", "calibrating")


def run_suite(options: list[str], report: Path) -> tuple[float, int]:
    """Wall seconds, and peak resident bytes, of one session; its output goes to a file beside the report."""
    command = [sys.executable, "-m", "pytest", str(ROOT / "benchmarks"), f"--llm-report={report}", *options]
    report.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with (report / "output.txt").open("w") as output:
        process = psutil.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident_bytes(process))
            time.sleep(0.02)
    elapsed = time.perf_counter() - started
    if process.returncode:
        sys.exit((report / "output.txt").read_text()[-3000:])
    return elapsed, peak


def resident_bytes(process: psutil.Process) -> int:
    """Of the process and its children; what they share, as a child just forked does all, is counted once."""
    try:
        children = process.children(recursive=True)
        if not children:
            return process.memory_info().rss
        family = [member.memory_full_info() for member in [process, *children]]
        return sum(getattr(member, "pss", member.rss) for member in family)  # Linux alone counts shares
    except psutil.NoSuchProcess:
        return 0


def measure_share(options: list[str], folder: Path) -> None:
    wall_s, _ = run_suite(options, folder)
    run = json.loads((folder / "results.json").read_text())
    phases = run["phase_s"]
    work_s = sum(phases.get(phase, 0.0) for phase in WORK)
    print(f"wall {wall_s:.0f} s; {len(run['records'])} benchmarks; {work_s / wall_s:.1%} of it work: ", end="")
    print(", ".join(f"{phase} {phases[phase]:.1f} s" for phase in WORK if phases.get(phase)))


def measure_memory(options: list[str], folder: Path) -> None:
    _, together = run_suite(options, folder / "all")
    run = json.loads((folder / "all" / "results.json").read_text())
    variants = [variant["id"] for variant in run["variants"] if variant["status"] == "measured"]
    single = {}
    for variant in variants:
        _, single[variant] = run_suite([f"--llm-variants={variant}", *options], folder / variant)
        print(f"{variant:18s} {single[variant] / 1e6:7.0f} MB", flush=True)
    largest = max(single.values())
    print(f"{'all in one session':18s} {together / 1e6:7.0f} MB: the largest and {(together - largest) / 1e6:+.0f} MB")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("share", "memory"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        (measure_share if sys.argv[1] == "share" else measure_memory)(sys.argv[2:], Path(scratch))
