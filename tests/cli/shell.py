"""The command line as its users type it, on storages written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_provenance, make_record, make_run
from saved_factory import store

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.results.record import Record, VariantResult

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e ../../x"


@dataclass
class Output:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass
class Shell:
    """A storage, and `llm-bench` run on it."""

    storage: Path
    capture: pytest.CaptureFixture[str]

    def keep(
        self,
        number: int,
        records: Sequence[Record] | None = None,
        variants: Sequence[VariantResult] | None = None,
        *,
        name: str = "",
        changes: dict[str, Any] | None = None,
        **provenance: Any,
    ) -> Path:
        """Save a run that started on that day of January, as pytest-benchmark would name it."""
        commit = f"{number:040x}"
        where = {"started": f"2026-01-{number:02}T00:00:00+00:00", "commit": commit} | provenance
        run = make_run(
            [make_record()] if records is None else records,
            variants,
            provenance=make_provenance(**where),
            **changes or {},
        )
        return store(run, self.storage / "laptop" / f"{number:04}_{name or f'{commit}_20260101_000000'}.json")

    def damage(self, name: str = "0099_cut.json") -> Path:
        path = self.storage / "laptop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"benchmarks": [', encoding="utf-8")
        return path

    def __call__(self, command: str, *arguments: str) -> Output:
        self.capture.readouterr()
        status = main([command, "--storage", str(self.storage), *arguments])
        out, err = self.capture.readouterr()
        return Output(status, out, err)
