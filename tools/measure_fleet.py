"""What the report of a sweep costs, made of generated runs, and opened in headless Chromium.

python tools/measure_fleet.py [RECORDS] [--keep DIR]

Writes a sweep of 200 cells (10 models on 4 machines with 5 sets of options) that has run, with so many records each
(250: 25 cases of 10 variants, measured in blocks). Then `llm-bench sweep`, in a process of its own, finds nothing to
measure and makes the report, and tools/measure_page.py opens it. Printed are wall seconds, the peak of resident memory,
and the page's size.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from measure_history import run_once

VARIANTS = (
    "fp32", "fp16", "bf16", "autocast-bf16", "ort-fp32", "ort-int8-dynamic", "ort-int8-static", "bnb-int8", "bnb-nf4",
    "bnb-fp4",
)  # fmt: skip
MODELS, MACHINES, OPTIONS = 10, 4, 5
BLOCKS = 8
NEW_TOKENS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("records", type=int, nargs="?", default=250)
    parser.add_argument("--keep", type=Path, help="folder for the sweep, which stays")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        subprocess.run([sys.executable, __file__, "make", str(folder), str(given.records)], check=True)
        cost = run_once(["sweep", str(folder / "sweep.toml"), "--address", "nowhere", "-o", str(folder / "fleet")])
        page = folder / "fleet" / "report.html"
        cells = MODELS * MACHINES * OPTIONS
        print(f"{given.records * cells} records in {cells} runs: {cost.wall_s:.1f} s, ", end="")
        print(
            f"{cost.cpu_s:.1f} s CPU, {cost.peak_bytes / 1e6:.0f} MB; the page has {page.stat().st_size / 1e6:.1f} MB"
        )
        subprocess.run([sys.executable, str(Path(__file__).with_name("measure_page.py")), str(page)], check=True)


def make(folder: Path, records: int) -> None:
    import json

    from llm_bench_fixtures.results.folder import claim
    from llm_bench_fixtures.results.storage import run_to_json
    from llm_bench_fixtures.sweep.kept import Commit, SweepFolder
    from llm_bench_fixtures.sweep.node import CellOutcome
    from llm_bench_fixtures.sweep.plan import read_plan

    folder.mkdir(parents=True, exist_ok=True)
    axes = {"model": MODELS, "machine": MACHINES, "options": OPTIONS}
    text = "".join(f'[[{axis}]]\nname = "{axis}-{place}"\n' for axis, places in axes.items() for place in range(places))
    (folder / "sweep.toml").write_text(text, encoding="utf-8")
    claim(folder / "fleet")
    kept, generator = SweepFolder(folder / "fleet", folder / "storage", Commit()), random.Random(0)  # noqa: S311
    for place, cell in enumerate(read_plan(folder / "sweep.toml", is_local=False).cells):
        model, rest = divmod(place, MACHINES * OPTIONS)
        machine, options = divmod(rest, OPTIONS)
        run = a_run(generator, model, machine, options, place, records // len(VARIANTS))
        results = json.dumps(run_to_json(run)).encode()
        kept.save(cell, CellOutcome(cell.name, host="host", seconds=600.0, status=0, results=results))


def a_run(generator: random.Random, model: int, machine: int, options: int, place: int, cases: int) -> Any:
    from llm_bench_fixtures.results.provenance import Provenance
    from llm_bench_fixtures.results.record import Run, Status, VariantResult
    from llm_bench_fixtures.results.speedup import with_expected_variance

    quality = {"loss": 4.8892, "perplexity": 132.85, "bits_per_byte": 2.2356, "word_perplexity": 3810.9}
    compared = {"ppl_ratio": 1.004, "ppl_ratio_error": 0.0002, "kld_mean": 5.6e-05, "top1_agreement": 0.99}
    variants = [
        VariantResult(
            name, f"what {name} is", "torch", Status.MEASURED, label=name, configuration=name, load_s=0.04,
            weight_bytes=18_405_392 // (at // 2 + 1), quality=quality if at == 0 else quality | compared,
            loss_blocks=tuple(4.5 + 0.001234567 * block + 1e-3 * at for block in range(100)),
        )
        for at, name in enumerate(VARIANTS)
    ]  # fmt: skip
    provenance = Provenance(
        (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=place)).isoformat(), f"org/model-{model}",
        random_weights=False, device="cpu", hardware=f"processor {machine}, 8 cores", threads=8, platform="Linux",
        python="3.11.7", libraries={"torch": "2.9.0", "transformers": "4.57.3"}, commit=f"{1:040x}", branch="main",
        corpus="embedded corpus", command="pytest", options={"new_tokens": str(16 + options)}, isolated=True,
    )  # fmt: skip
    of_model = random.Random(model)  # noqa: S311  # each machine is a little unlike the others
    speedups = [1.0, *(of_model.lognormvariate(0.2, 0.4) * generator.lognormvariate(0, 0.05) for _ in VARIANTS[1:])]
    records = []
    for case in range(cases):
        reference_s = [0.04 * (1 + case / 10) * generator.lognormvariate(0, 0.05) for _ in range(BLOCKS)]
        for name, speedup in zip(VARIANTS, speedups, strict=True):
            spread = 0.0 if name == VARIANTS[0] else 0.02
            rounds_s = tuple(one / speedup * generator.lognormvariate(0, spread) for one in reference_s)
            records.append(a_record(name, case, rounds_s, tuple(reference_s)))
    return Run(provenance, VARIANTS[0], tuple(variants), with_expected_variance(records), session_s=600.0)


def a_record(variant: str, case: int, rounds_s: tuple[float, ...], reference_s: tuple[float, ...]) -> Any:
    from llm_bench_fixtures.results.record import MemoryFacts, Record, Status, WorkloadFacts

    scenario = ("prompt_length", "batch", "cache", "padding", "quantization")[case % 5]
    size = 2 ** (case // 5) if scenario == "batch" else 1
    digest = f"{case:016x}"
    return Record(
        f"benchmarks/test_{scenario}.py::test_{scenario}[{case}-{variant}]", scenario, str(case), variant,
        Status.MEASURED,
        workload=WorkloadFacts(digest, digest, 16, size, 1024, 0, 16 * NEW_TOKENS, "dynamic", "left")
        if scenario == "batch" else WorkloadFacts(digest, digest, 1, 1, 64, 0, NEW_TOKENS, "dynamic", "left"),
        rounds_s=rounds_s, reference_s=reference_s,
        memory=MemoryFacts(40_534_016, method="kernel's high-water mark"), extra={},
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
