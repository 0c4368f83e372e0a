"""What comes of a process for each variant: waiting, start-up, memory, and how far processes differ.

    python tools/measure_processes.py waiting [SECONDS]
For variants of the embedded model, each in a process in which torch's, ONNX Runtime's and the tokenizers' pools have
all worked: how long the pools spin after a round, and how much processor time the process takes while it waits.

    python tools/measure_processes.py start [REPEATS] [options of pytest]
Seconds from the start of `pytest benchmarks/` to the first timed round, against those of a plain import of the
libraries, alternated; and what of the difference is loading and scoring. Default: -k precision.

    python tools/measure_processes.py memory [options of pytest]
The peak of all processes of `pytest benchmarks/` together: on Linux what they share is counted once (proportional set
size). And how far apart the peak memory of identical work comes out: of the reference, and of each variant of the same
configuration, over all cases. Run it twice: the first run also fills the cache of exports.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from suites import leading_number, run_ready, with_tools

if TYPE_CHECKING:
    from llm_bench_fixtures.models.loading import IsolatedModel
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.progress import Left
    from llm_bench_fixtures.workloads import Workload

LIBRARIES = ("torch", "transformers", "onnxruntime", "optimum.onnxruntime", "bitsandbytes")

VARIANTS = ("fp32", "bf16", "ort-fp32", "ort-int8-dynamic", "bnb-nf4")
WAIT_S = 20.0
SETTLE_S = 1.0  # after work, before the waiting is counted
SPINS = 5
REPEATS = 3
FIRST_ROUND_FILE = "LLM_BENCH_FIRST_ROUND_FILE"
PHASES = ("importing", "checking", "limits", "loading", "scoring")


def main(arguments: list[str]) -> None:
    actions: dict[str, Callable[[list[str]], None]] = {
        "waiting": measure_waiting,
        "start": measure_start,
        "memory": measure_memory,
    }
    if not arguments or arguments[0] not in actions:
        sys.exit(__doc__)
    actions[arguments[0]](arguments[1:])


# Waiting


def measure_waiting(arguments: list[str]) -> None:
    from llm_bench_fixtures.workloads import Prompts, Workload

    wait_s = float(arguments[0]) if arguments else WAIT_S
    models = list(start_models(VARIANTS))
    workload = Workload((Prompts(models[0].tokenizer).exact(64),), 16, batch_size=1)
    spins_s = {model.variant.id: model.call(spins_after_work, workload) for model in models}
    time.sleep(SETTLE_S)
    pids = {model.variant.id: model.call(process_id) for model in models}
    before_s = {variant: cpu_s(pid) for variant, pid in pids.items()}
    time.sleep(wait_s)
    for variant, pid in pids.items():
        share = (cpu_s(pid) - before_s[variant]) / wait_s
        threads = psutil.Process(pid).num_threads()
        spin_ms = statistics.median(spins_s[variant]) * 1000
        print(f"{variant:17s} {threads:2d} threads; pools spin for {spin_ms:.1f} ms after a round", end="")
        print(f"; waiting takes {share:.4%} of a core")
    for model in models:
        model.close()


def start_models(variant_ids: Sequence[str]) -> Iterator[IsolatedModel]:
    """One for each id, as a run starts them: forked from one that has imported the libraries, where that can be."""
    from llm_bench_fixtures.models.artifacts import ArtifactStore
    from llm_bench_fixtures.models.backends import CATALOGUE, find_backend
    from llm_bench_fixtures.models.device import resolve_device
    from llm_bench_fixtures.models.loading import IsolatedModel, LoadRequest
    from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
    from llm_bench_fixtures.models.variants import select_variants
    from llm_bench_fixtures.options.settings import parse_settings
    from llm_bench_fixtures.processes.launch import start_importing
    from llm_bench_fixtures.progress import Progress

    device, settings = resolve_device("cpu"), parse_settings({})
    variants = {
        variant.id: variant for variant in select_variants(",".join(dict.fromkeys(variant_ids)), CATALOGUE, "fp32")
    }
    imports = [module for variant in variants.values() for module in find_backend(variant.backend).imports]
    start_importing(tuple(dict.fromkeys((*imports, *LIBRARIES))), on_cpu=True)
    source, progress = ModelSource(TINY, TINY_FOLDER), Progress()
    for name in variant_ids:
        store = ArtifactStore(settings.cache_dir, progress)
        yield IsolatedModel(LoadRequest(variants[name], source, device, settings, store, progress))


def spins_after_work(model: Model, workload: Workload) -> list[float]:
    """Seconds until nothing of the process runs any more, each time that all of its pools have worked."""
    import torch

    from llm_bench_fixtures.measure.timing import run_round
    from llm_bench_fixtures.processes.calm import fall_asleep

    found = []
    for _ in range(SPINS):
        model.tokenizer(["a text that is read by a pool of threads"] * 1000)  # type: ignore[operator]
        torch.mm(torch.ones(512, 512), torch.ones(512, 512))
        run_round(model, workload)
        started = time.perf_counter()
        fall_asleep()
        found.append(time.perf_counter() - started)
    return found


def process_id(_: Model) -> int:
    return os.getpid()


def cpu_s(pid: int) -> float:
    """Seconds that the process' threads have run: in nanoseconds where the kernel tells them, else in 10 ms."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


# Start-up


def measure_start(arguments: list[str]) -> None:
    repeats = leading_number(arguments, REPEATS)
    options = arguments or ["-k", "precision"]
    starts = [Start(import_s(), *first_round_s(options)) for _ in range(repeats)]
    for start in starts:
        phases = ", ".join(f"{phase} {start.phase_s.get(phase, 0):.1f}" for phase in PHASES)
        print(f"first timed round after {start.first_round_s:.1f} s, plain import {start.import_s:.1f} s; {phases}")
    more_s = statistics.median(start.first_round_s - start.import_s for start in starts)
    work_s = statistics.median(start.phase_s.get("scoring", 0) + start.phase_s.get("loading", 0) for start in starts)
    print(f"median of {repeats}: {more_s:.1f} s more than a plain import, {work_s:.1f} s of them loading and scoring")


@dataclass(frozen=True)
class Start:
    import_s: float
    """Seconds of a process that imports the libraries and ends."""
    first_round_s: float
    """Seconds from the start of pytest to the first timed round."""
    phase_s: Mapping[str, float]
    """Seconds of the whole run by phase."""


def import_s() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {', '.join(LIBRARIES)}"], check=True, capture_output=True)
    return time.perf_counter() - started


def first_round_s(options: Sequence[str]) -> tuple[float, Mapping[str, float]]:
    """And the run's phases."""
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "first-round"
        variables = {FIRST_ROUND_FILE: str(noted), "PYTHONPATH": with_tools()}
        started = time.time()
        run_ready(Path(folder), ["-p", Path(__file__).stem, *options], variables=variables)
        return float(noted.read_text()) - started, read_run(Path(folder))["phase_s"]


def pytest_configure() -> None:
    """Note when the first block begins: the pytest that `start` runs takes this file as a plugin."""
    from unittest import mock

    from llm_bench_fixtures.session.blocks import Blocks

    noted, measure = Path(os.environ[FIRST_ROUND_FILE]), Blocks.measure

    def noting(blocks: Blocks) -> Any:
        step = blocks.step

        def note(doing: str, whose: str, left: Left | None) -> None:
            if doing.startswith("round ") and not noted.exists():
                noted.write_text(repr(time.time()))
            step(doing, whose, left)

        blocks.step = note
        return measure(blocks)

    mock.patch.object(Blocks, "measure", noting).start()


# Memory


def measure_memory(options: list[str]) -> None:
    peak: list[int] = []

    def look(process: psutil.Process) -> None:
        nonlocal peak
        peak = max(peak, held_by_each(process), key=sum)

    with tempfile.TemporaryDirectory() as name:
        run_ready(Path(name), options, look=look)
        run = read_run(Path(name))
    parts = ", ".join(f"{size / 1e6:.0f}" for size in peak)
    print(f"all {len(peak)} processes together: {sum(peak) / 1e6:.0f} MB at their peak ({parts})")
    for variant, ratios in identical_work(run).items():
        differences = [max(ratio, 1 / ratio) - 1 for ratio in ratios]
        print(f"{variant} is {run['reference']}: peaks of {len(ratios)} cases differ by", end="")
        print(f" {statistics.median(differences):.1%} in the median, {max(differences):.1%} at most")


def identical_work(run: Mapping[str, Any]) -> dict[str, list[float]]:
    """Peaks over the reference's, one for each case, by variant of the reference's configuration."""
    configurations = {variant["id"]: variant["configuration"] for variant in run["variants"]}
    peaks: dict[str, dict[tuple[str, str], int]] = {variant: {} for variant in configurations}
    for record in run["records"]:
        if memory := record["memory"]:
            own = memory["peak_resident_bytes"] - (memory["library_bytes"] or 0)
            peaks[record["variant"]][record["scenario"], record["case"]] = own
    reference = run["reference"]
    same = [name for name, what in configurations.items() if name != reference and what == configurations[reference]]
    return {
        name: [size / peaks[reference][case] for case, size in peaks[name].items() if case in peaks[reference]]
        for name in same
        if peaks[name]
    }


def held_by_each(process: psutil.Process) -> list[int]:
    """Bytes of the process and of all below it; what they share, as forked ones share the libraries, counts once."""
    sizes = []
    for member in [process, *children_of(process)]:
        try:
            held = member.memory_full_info()
        except psutil.Error:  # the process has ended
            continue
        sizes.append(int(getattr(held, "pss", held.rss)))  # Linux alone counts shares
    return sizes


def children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


def read_run(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((report / "results.json").read_text())
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
