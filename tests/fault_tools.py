"""What the tables of faults share.

A plain module: pytest puts this folder on sys.path, because there is a conftest.py in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from run_factory import make_provenance, make_record, make_run, make_variant
from saved_factory import store

from llm_bench_fixtures.cli.main import main


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def keep_two_runs(folder: Path) -> Path:
    """A storage in the folder, with two runs, of which the second has heavier weights."""
    storage = folder / ".benchmarks"
    for number, weight_bytes in enumerate((4_000_000, 5_000_000), 1):
        provenance = make_provenance(started=f"2026-01-0{number}T00:00:00+00:00", commit=f"{number:040x}")
        run = make_run([make_record()], [make_variant(weight_bytes=weight_bytes)], provenance=provenance)
        store(run, storage / "laptop" / f"{number:04}_run.json")
    return storage


def command(storage: Path, *arguments: str) -> int:
    """The exit status of `llm-bench` on the storage."""
    name, *rest = arguments
    return main([name, "--storage", str(storage), *rest])
