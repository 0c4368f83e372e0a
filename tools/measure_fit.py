"""Whether what is said to fit does.

python tools/measure_fit.py families [--variants ID,ID] [FAMILY ...]
    For each family of tests/families.py, each variant and each kind of cache: bytes of weights and of the cache as
    predicted, and as measured. Exits with 1 where two differ by more than 5 %. What doesn't run is a line, and what
    has no prediction is counted.

python tools/measure_fit.py limit MODEL SIZE [--variants ID,ID] [--prompt TOKENS] [--new TOKENS]
    The largest batch that is predicted to fit in SIZE, and the largest that runs in a control group of that limit, in
    a process of its own that gives freed memory back: found by halving between batches that run and those that the
    kernel ends. Needs root, and Linux with either version of control groups. Weights that are mapped from a file in the
    variant's dtype are no group's: its limit is less by them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import torch
from embedded import request_of
from families import FAMILIES

from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.measure.pass_memory import pass_memory, running_of
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.architecture import check_architecture
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.models.checks import check_usable
from llm_bench_fixtures.models.device import resolve_device
from llm_bench_fixtures.models.handle import LocalModel
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.needs import ModelShape, Parts, RoundSize, parts_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Variant, select_variants
from llm_bench_fixtures.options.parsers import parse_size
from llm_bench_fixtures.processes.allocator import giving_freed_memory_back
from llm_bench_fixtures.workloads import CacheKind, Workload

TOLERANCE = 0.05
OF_FAMILIES = "fp32,bf16,autocast-bf16,ort-fp32,bnb-int8,bnb-nf4"
OF_LIMITS = "fp32,bf16"
PROMPTS, NEW_TOKENS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23)), 3
GROUPS = Path("/sys/fs/cgroup")


def parts(variant: Variant, source: ModelSource) -> Parts:
    """Parts as predicted of the variant."""
    storage = BACKENDS[variant.backend].storage_of(variant, resolve_device("cpu"))
    footprint = check_architecture(source.load_config(), source.trust_remote_code)
    shape = ModelShape.of(source.load_config(), footprint)
    seen = pass_memory(source.load_config(), running_of(variant, storage), source.trust_remote_code)
    return parts_of(shape, storage, seen)


def load(variant: Variant, source: ModelSource, store: Path) -> LocalModel:
    with giving_freed_memory_back():
        return load_variant(request_of(variant, source, ArtifactStore(store)))


@contextmanager
def printed_failure(name: str) -> Iterator[None]:
    try:
        yield
    except LlmBenchError as error:
        print(f"{name}: doesn't run: {error}", flush=True)


def of_families(names: Sequence[str], variants: str) -> Iterator[tuple[str, float | None, float | None]]:
    """Yield each quantity's name, its bytes as predicted, None where they aren't, and as measured. What doesn't run is
    printed."""
    chosen = select_variants(variants, CATALOGUE, "fp32")
    for family in FAMILIES:
        if (names and family.name not in names) or family.quantized_by:
            continue
        with tempfile.TemporaryDirectory() as root, printed_failure(family.name):
            source = family.build(Path(root) / family.name)
            check_usable(source)
            for variant in chosen:
                with printed_failure(f"{family.name} {variant.id}"):
                    yield from _of_variant(f"{family.name} {variant.id}", variant, source, Path(root))


def _of_variant(
    name: str, variant: Variant, source: ModelSource, root: Path
) -> Iterator[tuple[str, float | None, float | None]]:
    known = parts(variant, source)
    with closing(load(variant, source, root / "store")) as loaded:
        yield f"{name} weights", known.weights, loaded.facts.weight_bytes
        for cache in sorted(loaded.facts.cache_kinds):
            one = RoundSize(len(PROMPTS), len(PROMPTS[0]), NEW_TOKENS, cache)
            passes = observe(loaded.model, Workload(PROMPTS, NEW_TOKENS, batch_size=2, cache=cache)).observed
            kept = [size for size in (passes.cache_bytes, passes.state_bytes) if size is not None]
            yield f"{name} cache {cache}", known.cache(one) if known.is_known else None, sum(kept) if kept else None


def print_families(names: Sequence[str], variants: str) -> int:
    off = unknown = 0
    for what, predicted, measured in of_families(names, variants):
        differs = abs(predicted - measured) > TOLERANCE * measured if None not in (predicted, measured) else False
        off += differs
        unknown += predicted is None
        print(f"{what}: {predicted} predicted, {measured} measured{' <-' if differs else ''}", flush=True)
    print(f"{off} differ by more than {TOLERANCE:.0%}; {unknown} without a prediction")
    return bool(off)


def run_once(variant: Variant, source: ModelSource, store: Path, one: RoundSize) -> None:
    """Load it, run a batch, and print what it has taken for itself before the load, and its weights."""
    with closing(load(variant, source, store)) as loaded:
        prompts = tuple(tuple((number + place) % 1000 for place in range(one.prompt)) for number in range(one.rows))
        with giving_freed_memory_back():
            loaded.call(run_round, Workload(prompts, one.new, batch_size=one.rows, cache=one.cache))
        facts = loaded.facts
        own = facts.resident_before_load_bytes - (facts.libraries_before_load_bytes or 0)
        print(json.dumps([own, facts.weight_bytes]))


@contextmanager
def limited_group(limit: int) -> Iterator[Path]:
    """A control group whose processes may take so much together."""
    is_old = (GROUPS / "memory").is_dir()
    folder = (GROUPS / "memory" if is_old else GROUPS) / "llm-bench-fit"
    folder.mkdir(exist_ok=True)
    try:
        (folder / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


def runs_in(folder: Path, command: Sequence[str]) -> str | None:
    """Output of the command, run in the group; None where it fails."""
    entering = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(folder / "cgroup.procs")]
    done = subprocess.run([*entering, *command], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def largest_that_runs(folder: Path, command: Sequence[str], guess: int) -> int:
    """Rows of the largest batch, to 2 % of it; 0 where not even one runs."""

    def runs(rows: int) -> bool:
        began_s = time.monotonic()
        found = runs_in(folder, [*command, str(rows)]) is not None
        print(f"  {rows} {'run' if found else 'are too many'}: {time.monotonic() - began_s:.0f} s", flush=True)
        return found

    low = high = max(guess, 1)
    step = max(guess // 10, 1)
    while runs(high):
        low, high = high, high + step
    while low == high or (low and not runs(low)):
        high, low = low, max(low - step, 0)
    while high - low > max(low // 50, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def print_limits(arguments: argparse.Namespace) -> None:
    size, one = parse_size(arguments.size), RoundSize(1, arguments.prompt, arguments.new)
    source = ModelSource(arguments.model, Path(arguments.model))
    for variant in select_variants(arguments.variants, CATALOGUE, arguments.variants.partition(",")[0]):
        command = [sys.executable, __file__, "once", arguments.model, variant.id, str(one.prompt), str(one.new)]
        told = subprocess.run([*command, "1"], capture_output=True, text=True, check=True).stdout
        process, weights = json.loads(told)
        known = replace(parts(variant, source), process=process, weights=weights)
        guess = known.most_rows(size, one)
        maps = BACKENDS[variant.backend].storage_of(variant, resolve_device("cpu")).maps
        mapped = weights if maps and maps == source.stored_dtype else 0
        print(f"{variant.id}: {guess} predicted in {size / 1e9:.2f} GB of prompts of {one.prompt} and {one.new} new")
        print(
            f"  process {process / 1e6:.0f} MB, weights {weights / 1e6:.0f} MB{', mapped' if mapped else ''}",
            flush=True,
        )
        with limited_group(size - mapped) as folder:
            most = largest_that_runs(folder, command, guess)
        print(f"{variant.id}: {most} run: predicted {guess / max(most, 1) - 1:+.1%}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    families = commands.add_parser("families")
    families.add_argument("--variants", default=OF_FAMILIES)
    families.add_argument("names", nargs="*", metavar="FAMILY")
    limit = commands.add_parser("limit")
    limit.add_argument("model", metavar="MODEL")
    limit.add_argument("size", metavar="SIZE")
    limit.add_argument("--variants", default=OF_LIMITS)
    limit.add_argument("--prompt", type=int, default=256, metavar="TOKENS")
    limit.add_argument("--new", type=int, default=16, metavar="TOKENS")
    once = commands.add_parser("once")
    once.add_argument("model")
    once.add_argument("variant")
    for name in ("prompt", "new", "rows"):
        once.add_argument(name, type=int)
    asked = parser.parse_args()
    with quiet_libraries():
        if asked.command == "families":
            torch.set_num_threads(1)
            return print_families(asked.names, asked.variants)
        if asked.command == "limit":
            print_limits(asked)
            return 0
        (variant,) = select_variants(asked.variant, CATALOGUE, asked.variant)
        one = RoundSize(asked.rows, asked.prompt, asked.new, CacheKind.DYNAMIC)
        run_once(variant, ModelSource(asked.model, Path(asked.model)), ArtifactStore().root, one)
    return 0


if __name__ == "__main__":
    sys.exit(main())
