"""What a session of the suite spends its time on.

    python tools/measure_session.py [options of pytest]
Prints the wall time of `pytest benchmarks/`, and the share of it spent generating, scoring, loading, exporting,
quantizing and calibrating.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from llm_bench_fixtures.results.folder import claim

ROOT = Path(__file__).resolve().parent.parent
WORK = ("generating", "scoring", "loading", "exporting", "quantizing", "calibrating")


def run_suite(options: list[str], report: Path) -> float:
    """Wall seconds of one session; its output goes to a file beside the report."""
    command = [sys.executable, "-m", "pytest", str(ROOT / "benchmarks"), f"--llm-report={report}", *options]
    started = time.perf_counter()
    claim(report)
    with (report / "output.txt").open("w") as output:
        done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit((report / "output.txt").read_text()[-3000:])
    return time.perf_counter() - started


def main(options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wall_s = run_suite(options, Path(scratch))
        run = json.loads((Path(scratch) / "results.json").read_text())
    phases = run["phase_s"]
    work_s = sum(phases.get(phase, 0.0) for phase in WORK)
    print(f"wall {wall_s:.0f} s; {len(run['records'])} benchmarks; {work_s / wall_s:.1%} of it work: ", end="")
    print(", ".join(f"{phase} {phases[phase]:.1f} s" for phase in WORK if phases.get(phase)))


if __name__ == "__main__":
    main(sys.argv[1:])
