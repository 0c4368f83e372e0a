"""Files as pytest-benchmark stores them, from runs written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llm_bench_fixtures.history.saved import to_stored
from llm_bench_fixtures.results.record import Run, Status


def stored_json(run: Run, *, raw: bool = False) -> dict[str, Any]:
    """What pytest-benchmark would hand to storage."""
    output: dict[str, Any] = {
        "machine_info": {"node": "host"},
        "commit_info": {"id": run.provenance.commit, "branch": run.provenance.branch, "dirty": run.provenance.dirty},
        "benchmarks": [
            {
                "group": record.scenario,
                "fullname": record.test,
                "extra_info": {},
                "stats": {"mean": 1.0, **({"data": [1.0]} if raw else {})},
            }
            for record in run.records
            if record.status is Status.MEASURED
        ],
        "datetime": run.provenance.started,
        "version": "5.3.1",
    }
    to_stored(output, run)
    return output


def store(run: Run, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored_json(run), indent=4), encoding="utf-8")
    return path
