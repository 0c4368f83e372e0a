"""What the commands on saved runs cost as a history grows.

python tools/measure_history.py [RUNS,RUNS...] [REPEATS]

Writes that many runs of 150 benchmarks each (10, 100, 500 and 1000 of them by default: 1.7 GB in the temporary folder),
then times each command in a process of its own: the median of the repeats' wall seconds, the least CPU seconds, and the
highest peak of resident memory. `linear` is what a run costs between the last two lengths over what one costs between
the first and the last but one, by CPU time: 1 where the cost grows with the runs, and by default 2.9 where it grows
with their square.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

COMMANDS = {
    "history": ["history", "--limit", "0"],
    "trend": ["trend", "-o", "{scratch}/trend.html"],
    "export": ["export", "--metric", "latency_s", "-o", "{scratch}/export.csv"],
    "compare": ["compare", "1", "latest"],
    "gate": ["gate"],
}
CANNOT = (1, 4)  # statuses of a command that didn't do its work; the gate's verdicts have others
VARIANTS = ("fp32", "bf16", "ort-int8-dynamic", "bnb-int8", "bnb-nf4")
CASES = 30  # cases of each variant
ROUNDS = 8
NEW_TOKENS = 16
SLOWER_FROM = 0.6  # from this share of the history on, bf16 takes an eighth longer: a step for the trend to find
NOISE = 0.05


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float
    peak_bytes: int


def measure(command: Sequence[str], repeats: int) -> Cost:
    """The median wall time, the least CPU time, which other load on the machine only adds to, and the highest peak."""
    costs = [run_once(command) for _ in range(repeats)]
    return Cost(
        statistics.median(cost.wall_s for cost in costs),
        min(cost.cpu_s for cost in costs),
        max(cost.peak_bytes for cost in costs),
    )


def run_once(command: Sequence[str]) -> Cost:
    """Run the command once; its output is thrown away. The peak is counted from what this process had, which therefore
    imports little."""
    program = [
        sys.executable,
        "-c",
        "from llm_bench_fixtures.cli.main import main; raise SystemExit(main())",
        *command,
    ]
    started = time.perf_counter()
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode in CANNOT:
        sys.exit(f"llm-bench {' '.join(command)} failed")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def main(lengths: Sequence[int], repeats: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for runs in lengths:
            subprocess.run([sys.executable, __file__, "make", str(runs), f"{scratch}/{runs}"], check=True)
        for name, command in COMMANDS.items():
            if name in known_commands():
                arguments = [part.format(scratch=scratch) for part in command]
                costs = [measure([*arguments, "--storage", f"{scratch}/{runs}"], repeats) for runs in lengths]
                print(f"{name:8s}", "  ".join(map(cell, lengths, costs)), linearity(lengths, costs), flush=True)


def known_commands() -> list[str]:
    """Asked of the command line itself, which is not imported here: see run_once."""
    program = [sys.executable, "-c", "from llm_bench_fixtures.cli.main import COMMANDS; print(*COMMANDS)"]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()


def cell(runs: int, cost: Cost) -> str:
    return f"{runs:5d} runs {cost.wall_s:6.2f} s ({cost.cpu_s:5.2f} s CPU) {cost.peak_bytes / 1e6:4.0f} MB"


def linearity(lengths: Sequence[int], costs: Sequence[Cost]) -> str:
    if len(lengths) < 3:
        return ""

    def slope_s(start: int, end: int) -> float:
        return (costs[end].cpu_s - costs[start].cpu_s) / (lengths[end] - lengths[start])

    return f"  {slope_s(0, -1) * 1e3:.2f} ms a run, linear {slope_s(-2, -1) / slope_s(0, -2):.2f}"


def make(runs: int, folder: Path) -> None:
    import msgspec

    stored = stored_run()
    plain = [benchmark["extra_info"]["llm_bench"]["metrics"] for benchmark in stored["benchmarks"]]
    target = folder / "Linux-CPython-3.11-64bit"
    target.mkdir(parents=True)
    generator = random.Random(0)  # noqa: S311
    for number in range(runs):
        commit = f"{generator.getrandbits(160):040x}"
        started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=5 * number)
        stored["llm_bench"]["provenance"] |= {"commit": commit, "started": started.isoformat()}
        for benchmark, metrics in zip(stored["benchmarks"], plain, strict=True):
            record = benchmark["extra_info"]["llm_bench"]
            slower = 1.125 if record["variant"] == "bf16" and number >= runs * SLOWER_FROM else 1.0
            record["metrics"] = dict(vary(metrics, slower * generator.lognormvariate(0, NOISE)))
        name = f"{number + 1:04}_{commit}_{started:%Y%m%d_%H%M%S}.json"
        (target / name).write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=4))


def vary(metrics: dict[str, float], factor: float) -> Iterator[tuple[str, float]]:
    """All times longer by the factor, all rates lower."""
    for name, value in metrics.items():
        yield name, value / factor if name.endswith("_per_s") else value * factor if name.endswith("_s") else value


def stored_run() -> dict[str, Any]:
    """Run as pytest-benchmark would store it."""
    from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info

    from llm_bench_fixtures.history.saved import to_stored

    run = a_run()
    output: dict[str, Any] = {
        "machine_info": pytest_benchmark_generate_machine_info(),
        "commit_info": {"id": "", "time": "", "author_time": "", "dirty": False, "project": "mine", "branch": "main"},
        "benchmarks": [a_benchmark(record) for record in run.records],
        "datetime": run.provenance.started,
        "version": "5.3.1",
    }
    to_stored(output, run)
    return output


def a_run(cases: int = CASES) -> Any:
    from llm_bench_fixtures.models.backend import installed_versions
    from llm_bench_fixtures.results.provenance import Provenance
    from llm_bench_fixtures.results.record import Run, Status, VariantResult

    quality = {"loss": 4.8892, "perplexity": 132.85, "bits_per_byte": 2.2356, "word_perplexity": 3810.9}
    compared = {"ppl_ratio": 1.0004, "ppl_ratio_error": 0.0002, "kld_mean": 5.6e-05, "top1_agreement": 0.999}
    variants = [
        VariantResult(
            name, f"what {name} is", "torch", Status.MEASURED, label=name, configuration=name, load_s=0.04,
            weight_bytes=18_405_392, quality=quality if name == VARIANTS[0] else quality | compared,
            loss_blocks=tuple(4.5 + 0.001234567 * block for block in range(100)),
        )
        for name in VARIANTS
    ]  # fmt: skip
    provenance = Provenance(
        "", "tiny", random_weights=False, device="cpu", hardware="a processor, 2 cores", threads=2, platform="Linux",
        python="3.11.7", libraries=installed_versions(("torch", "transformers")), branch="main",
        corpus="embedded corpus", command="pytest",
    )  # fmt: skip
    records = tuple(a_record(name, case) for case in range(cases) for name in VARIANTS)
    return Run(provenance, VARIANTS[0], tuple(variants), records, selection=("benchmarks",))


def a_record(variant: str, case: int) -> Any:
    from llm_bench_fixtures.measure.work import Work
    from llm_bench_fixtures.results.record import MemoryFacts, Record, Status, WorkloadFacts

    rounds_s = tuple(0.0392 * (1 + case / 10) * (1 + index / 100) for index in range(ROUNDS))
    tokens_s = tuple((tuple(seconds * (0.2 + 0.05 * token) for token in range(NEW_TOKENS)),) for seconds in rounds_s)
    test = f"benchmarks/test_batch.py::test_batch[{case}-{variant}]"
    digest = f"{case:016x}"
    return Record(
        test, "batch", str(case), variant, Status.MEASURED,
        workload=WorkloadFacts(digest, digest, 1, 1, 64, 0, NEW_TOKENS, "dynamic", "left"),
        rounds_s=rounds_s,
        batches_s=tuple((seconds,) for seconds in rounds_s),
        tokens_s=tokens_s,
        batch_rows=(1,),
        probe_s=tuple((0.0123456, 0.0234567) for _ in rounds_s),
        work=Work(
            prompt_tokens=64, new_tokens=NEW_TOKENS, batches=1, forward_passes=NEW_TOKENS, prefill_flops=421_527_552,
            decode_flops=130_252_800, flops_reason="", weight_bytes_read=16_832_512, cache_bytes=647_168,
            cache_bytes_read=8_847_360, output_digest=digest,
        ),
        memory=MemoryFacts(40_534_016, method="kernel's high-water mark"),
        outputs=("and so on",),
    )  # fmt: skip


def a_benchmark(record: Any) -> dict[str, Any]:
    """Benchmark as pytest-benchmark itself stores it."""
    names = ("min", "max", "mean", "stddev", "median", "iqr", "q1", "q3", "ld15iqr", "hd15iqr", "ops", "total")
    options = {"disable_gc": False, "timer": "perf_counter", "min_rounds": 5, "max_time": 1.0, "min_time": 5e-06}
    return {
        "group": record.scenario,
        "name": record.test.partition("::")[2],
        "fullname": record.test,
        "params": {"llm_model": f"UNSERIALIZABLE[{record.variant}]"},
        "param": record.variant,
        "extra_info": {},
        "options": options,
        "stats": {**dict.fromkeys(names, 0.0392082), "rounds": ROUNDS, "iterations": 1, "outliers": "3;0"},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        lengths = [int(length) for length in sys.argv[1].split(",")] if sys.argv[1:] else [10, 100, 500, 1000]
        main(lengths, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
