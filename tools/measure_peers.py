"""Measure one generation by a bare `generate` loop, by this package, and by optimum-benchmark's two launchers.

One prompt of 64 tokens, 16 new ones, greedy, batch 1, float32 on the CPU, from one local checkpoint. Each measurement
is a process of its own; they take turns, in the other order every second time. Prints the median over the turns of each
one's own median, in milliseconds, and its ratio to the bare loop's of the same turn.

    latency   a `generate` of all tokens
    prefill   the bare loop: a `generate` of one token; this package: the time to the first token within the `generate`
              of all; optimum-benchmark: what it reports as prefill
    decode    latency - prefill; of this package within each `generate`, of the others between the medians

optimum-benchmark is not a dependency; this combination installs:

    pip install torch==2.13.0
    pip install transformers==4.57.6 optimum-benchmark==0.6.0 -e .

    python tools/measure_peers.py [--model FOLDER] [--turns 5] [--rounds 15] [--threads 2]

Without --model it is a GPT-2 of six layers and width 512 with random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 64
NEW_TOKENS = 16
WARMUP_ROUNDS = 3
LAYERS = 6
WIDTH = 512
VARIABLES = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "LOG_LEVEL": "ERROR", "LOG_TO_FILE": "0"}

SUITE = """
def test_latency(llm_benchmark, llm_prompts):
    llm_benchmark(llm_prompts.exact({prompt_tokens}), new_tokens={new_tokens})
"""


@dataclass(frozen=True)
class Times:
    """Medians in seconds."""

    prefill_s: float
    decode_s: float
    latency_s: float


def between_medians(prefill_s: float, latency_s: float) -> Times:
    return Times(prefill_s, latency_s - prefill_s, latency_s)


def measure_bare(model: str, rounds: int) -> Times:
    import torch
    from transformers import AutoModelForCausalLM

    from llm_bench_fixtures.models.transformers import NO_TOKEN

    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ids = torch.randint(0, module.config.vocab_size, (1, PROMPT_TOKENS))
    mask = torch.ones_like(ids)

    def median_s(new_tokens: int) -> float:
        seconds = []
        for _ in range(WARMUP_ROUNDS + rounds):
            started = time.perf_counter()
            with torch.inference_mode():
                module.generate(
                    ids,
                    attention_mask=mask,
                    eos_token_id=NO_TOKEN,
                    max_new_tokens=new_tokens,
                    do_sample=False,
                    pad_token_id=module.config.eos_token_id,
                )
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds[WARMUP_ROUNDS:])

    return between_medians(median_s(1), median_s(NEW_TOKENS))


def measure_ours(model: str, rounds: int) -> Times:
    import pytest

    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "test_peers.py"
        suite.write_text(SUITE.format(prompt_tokens=PROMPT_TOKENS, new_tokens=NEW_TOKENS))
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("It is not scored for its sake.")
        options = [
            f"--llm-model={model}",
            f"--llm-rounds={rounds}",
            "--llm-max-noise=0",
            f"--llm-warmup-rounds={WARMUP_ROUNDS}",
            "--llm-variants=fp32",
            "--llm-device=cpu",
            f"--llm-corpus={corpus}",
            f"--llm-report={folder}/report",
            f"--rootdir={folder}",
            "-pno:terminal",
            "-pno:cacheprovider",
        ]
        if pytest.main([str(suite), *options]):
            sys.exit("pytest failed")
        (record,) = json.loads((Path(folder) / "report" / "results.json").read_text())["records"]
    latencies = record["rounds_s"]
    first_tokens = [tokens[0] for (tokens,) in record["tokens_s"]]  # first token of each round's one batch
    decodes = [latency - first for latency, first in zip(latencies, first_tokens, strict=True)]
    return Times(statistics.median(first_tokens), statistics.median(decodes), statistics.median(latencies))


def measure_optimum(model: str, rounds: int, launcher: Any) -> Times:
    from optimum_benchmark import Benchmark, BenchmarkConfig, InferenceConfig, PyTorchConfig

    scenario = InferenceConfig(
        iterations=rounds,
        duration=0,
        warmup_runs=WARMUP_ROUNDS,
        input_shapes={"batch_size": 1, "sequence_length": PROMPT_TOKENS},
        # as optimum-benchmark does by itself
        generate_kwargs={"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS},
    )
    backend = PyTorchConfig(
        model=model,
        task="text-generation",
        library="transformers",
        device="cpu",
        torch_dtype="float32",
        intra_op_num_threads=int(os.environ["OMP_NUM_THREADS"]),
    )
    config = BenchmarkConfig(name="peers", launcher=launcher, scenario=scenario, backend=backend)
    report = Benchmark.launch(config)
    return between_medians(report.prefill.latency.p50, report.generate.latency.p50)


def measure_inline(model: str, rounds: int) -> Times:
    from optimum_benchmark import InlineConfig

    return measure_optimum(model, rounds, InlineConfig())


def measure_process(model: str, rounds: int) -> Times:
    from optimum_benchmark import ProcessConfig

    return measure_optimum(model, rounds, ProcessConfig())


WAYS: dict[str, Callable[[str, int], Times]] = {
    "bare generate loop": measure_bare,
    "llm-bench-fixtures": measure_ours,
    "optimum-benchmark, inline": measure_inline,
    "optimum-benchmark, process": measure_process,
}


def write_model(folder: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

    tokenizer = ModelSource(TINY, TINY_FOLDER).load_tokenizer()
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(n_layer=LAYERS, n_embd=WIDTH, n_head=8, **ids)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure_apart(way: str, options: argparse.Namespace, folder: Path) -> Times:
    """The measurement in a process of its own, which is this script again."""
    result = folder / "times.json"
    environment = {**os.environ, **VARIABLES, "OMP_NUM_THREADS": str(options.threads)}
    command = [sys.executable, __file__, "--model", options.model, "--rounds", str(options.rounds)]
    command += ["--only", way, "--write", str(result)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{way}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return Times(**json.loads(result.read_text()))


def take_turns(options: argparse.Namespace, folder: Path) -> dict[str, list[Times]]:
    times: dict[str, list[Times]] = {way: [] for way in WAYS}
    for turn in range(options.turns):
        for way in [*WAYS][:: -1 if turn % 2 else 1]:
            times[way].append(measure_apart(way, options, folder))
            print(f"turn {turn + 1}: {way}", file=sys.stderr)
    return times


def print_table(times: dict[str, list[Times]], options: argparse.Namespace) -> None:
    names = ("torch", "transformers", "optimum-benchmark")
    print(", ".join(f"{name} {version(name)}" for name in names), end="")
    print(f"; {options.threads} threads of {os.cpu_count()} cores; {options.turns} turns of {options.rounds} rounds")
    print(f"\n{'ms (ratio to the bare loop)':28s} {'prefill':>16s} {'decode':>16s} {'latency':>16s}")
    bare = times["bare generate loop"]
    for way, measured in times.items():
        cells = []
        for name in ("prefill_s", "decode_s", "latency_s"):
            values = [getattr(item, name) for item in measured]
            ratios = [value / getattr(base, name) for value, base in zip(values, bare, strict=True)]
            cells.append(f"{1000 * statistics.median(values):.1f} ({statistics.median(ratios):.2f})")
        print(f"{way:28s} " + " ".join(f"{cell:>16s}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder of a checkpoint with its tokenizer")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        options.write.write_text(json.dumps(asdict(WAYS[options.only](options.model, options.rounds))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if not options.model:
            write_model(folder / "gpt2")
            options.model = str(folder / "gpt2")
        print_table(take_turns(options, folder), options)


if __name__ == "__main__":
    main()
