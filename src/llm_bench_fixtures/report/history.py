"""The list of saved runs, for people and for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llm_bench_fixtures.history.fingerprint import fingerprint_of
from llm_bench_fixtures.history.headings import LONG_AGO, Heading, Unreadable
from llm_bench_fixtures.history.storage import name_in
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import MISSING
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.text import encodable

COMMIT_DIGITS = 8
DIRTY = "*"
AUTOSAVED = re.compile(r"(\d+)_[^_]*_\d{8}_\d{6}(_uncommitted-changes)?", re.ASCII)  # as --benchmark-autosave names it
HEADER = ("run", "started (UTC)", "branch", "commit", "model", "machine", "fingerprint", "state", "measured")
# Columns that give way first on a narrow terminal.
DISPENSABLE = ("machine", "model", "fingerprint", "measured")


def history_table(runs: Sequence[Heading], storage: Path, most: int) -> Table:
    """A row for each of the last `most` runs, in their order, with a name that tells it from all the runs."""
    one_machine = len({run.path.parent for run in runs}) < 2
    return table_of_runs((run.path.name if one_machine else name_in(storage, run.path), run) for run in runs[-most:])


def table_of_runs(runs: Iterable[tuple[str, Heading]]) -> Table:
    """A row for each run, in their order. runs: each after its file's name."""
    rows = [_row(run, file) for file, run in runs]
    return Table.of_texts(HEADER, rows, {HEADER.index("measured")}, droppable=DISPENSABLE)


def _row(run: Heading, file: str) -> tuple[str, ...]:
    where = run.provenance
    return (
        run_name(file),
        time_cell(run),
        where.branch or MISSING,
        commit_cell(where),
        f"{where.model} (random weights)" if where.random_weights else where.model,
        where.hardware,
        fingerprint_of(where).digest,
        state_cell(run),
        str(run.measured) if run.measured == run.records else f"{run.measured} of {run.records}",
    )


def run_name(file: str) -> str:
    """The name that a user types for the run: the number alone where --benchmark-autosave gave the rest of the name."""
    folder, slash, name = file.removesuffix(".json").rpartition("/")
    autosaved = AUTOSAVED.fullmatch(name)
    return folder + slash + (autosaved[1] if autosaved else name)


def time_cell(run: Heading) -> str:
    """When the run started, in UTC."""
    return MISSING if run.started == LONG_AGO else f"{run.started:%Y-%m-%d %H:%M}"


def commit_cell(provenance: Provenance) -> str:
    """The commit's id, shortened, with a mark where there were uncommitted changes."""
    short = provenance.commit[:COMMIT_DIGITS] or MISSING
    return short + DIRTY if provenance.dirty else short


def state_cell(run: Heading) -> str:
    """The run's state, and why it was blessed."""
    return f"{run.state}, blessed: {run.blessing.reason}" if run.blessing else str(run.state)


def history_json(runs: Sequence[Heading], unreadable: Sequence[Unreadable], storage: Path) -> dict[str, Any]:
    """The list for programs."""
    return {
        "storage": encodable(str(storage)),
        "runs": [_entry(run, storage) for run in runs],
        "unreadable": [{"file": name_in(storage, item.path), "reason": encodable(item.reason)} for item in unreadable],
    }


def _entry(run: Heading, storage: Path) -> dict[str, Any]:
    where = run.provenance
    return {
        "file": name_in(storage, run.path),
        "started": where.started,
        "branch": where.branch,
        "commit": where.commit,
        "dirty": where.dirty,
        "model": where.model,
        "random_weights": where.random_weights,
        "hardware": where.hardware,
        "fingerprint": fingerprint_of(where).digest,
        "state": run.state.value,
        "blessed": run.blessing.reason if run.blessing else None,
        "measured": run.measured,
        "records": run.records,
    }
