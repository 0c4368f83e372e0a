"""What is kept of a sweep where it was started: each cell's run, what pytest wrote, and why there is no run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from llm_bench_fixtures.errors import UnreadableResults, reason_of
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.git import changes_in, git_output
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import NUMBERED
from llm_bench_fixtures.results.folder import WHOLE, worth_in
from llm_bench_fixtures.results.provenance import Commit
from llm_bench_fixtures.results.storage import RESULTS_FILE, decode, read_bytes
from llm_bench_fixtures.sweep.node import CellOutcome
from llm_bench_fixtures.sweep.plan import SweepCell
from llm_bench_fixtures.writing import reserve, save_or_keep, write_or_keep, write_whole

CELLS, CELL_FILE, OUTPUT_FILE = "cells", "cell.json", "output.txt"
# Exit statuses of a session that came to its end: tests passed or failed, or a gate judged. Repeated, it would measure
# the same.
OVER = {0, 1, *ExitStatus} - {
    ExitStatus.INTERRUPTED,
    ExitStatus.USAGE,
    ExitStatus.NOT_MEASURED,
    ExitStatus.WORKER_FAILED,
}


def commit_in(folder: Path | None) -> Commit:
    """Empty outside of a repository."""
    commit = git_output(folder, "rev-parse", "HEAD") if folder else None
    if folder is None or commit is None:
        return Commit()
    dirty = git_output(folder, "status", "--porcelain", "--untracked-files=no") is not None
    return Commit(commit, git_output(folder, "branch", "--show-current") or "", dirty, changes_in(folder, dirty=dirty))


@dataclass(frozen=True)
class Note:
    """A cell's file of its own: what it ran, and how it ended."""

    digest: str
    reason: str = ""
    host: str = ""
    seconds: float = 0.0
    status: int | None = None
    database: str = ""
    """URL of the database that has the run; empty for none."""


class SweepFolder:
    """The folder of a sweep."""

    def __init__(self, folder: Path, storage: Path, commit: Commit, database: str = "") -> None:
        """storage: of the history, to which each run is added. database: another one, by its URL; empty for none."""
        self._folder = folder / CELLS
        self._storage = storage
        self._commit = commit
        self._database = database
        self._moved: dict[str, Path] = {}  # folders of runs that could not be written among the cells

    def results(self, cell: SweepCell) -> Path:
        return self._folder / cell.name / RESULTS_FILE

    def note(self, cell: SweepCell) -> Note | None:
        """How the cell ended, as it is now written; None where it has not ended."""
        path = self._folder / cell.name / CELL_FILE
        try:
            found = decode(read_bytes(path), Note, path)
        except UnreadableResults:
            return None
        return found if found.digest == cell.digest(self._commit.state) else None

    def has(self, cell: SweepCell) -> bool:
        """Whether the cell has a whole run, of the same version, commit and options, whose session came to its end."""
        note = self.note(cell)
        is_over = note is not None and not note.reason and note.status in OVER
        return is_over and worth_in(self.results(cell).parent) == WHOLE

    def worth(self, cell: SweepCell) -> float:
        """What its run measured, also where that had to be written elsewhere."""
        return worth_in(self._moved.get(cell.name, self._folder / cell.name))

    def has_ended_well(self, cell: SweepCell) -> bool:
        """Whether it has a run, and all of its tests passed."""
        note = self.note(cell)
        return note is not None and note.status == 0 and not note.reason

    def is_sent(self, cell: SweepCell) -> bool:
        """Whether the database has the cell's run, if there is one."""
        note = self.note(cell)
        return not self._database or (note is not None and note.database == self._database)

    def missing(self, cells: Sequence[SweepCell]) -> list[SweepCell]:
        return [cell for cell in cells if not self.has(cell)]

    def save(self, cell: SweepCell, outcome: CellOutcome) -> list[str]:
        """Write the cell's run into its folder and into the history; a whole one into the database, too. Returns what
        could not be written where it was to be, and where it is instead. Raises UnwritableFile."""
        place, why = self._folder / cell.name, ""
        problems: list[str] = []
        self._moved.pop(cell.name, None)
        if outcome.results:
            kept, why = write_or_keep(place / RESULTS_FILE, self._with_commit(outcome.results))
            if why:
                self._moved[cell.name] = kept.parent
                problems.append(f"{why}; it is in {kept}")
                if self._database and self.worth(cell) == WHOLE:
                    problems[-1] += f"; llm-bench history import {kept.parent} --history URL saves it to the database"
        if not why:  # what is said to be done is on the disk
            note = Note(cell.digest(self._commit.state), outcome.reason, outcome.host, outcome.seconds, outcome.status)
            self._note(cell, note)
        for name, content in outcome.saved:
            save_or_keep(
                self._next(name), self._with_commit(content), lambda said: problems.append(f"{cell.name}: {said}")
            )
        output, why = write_or_keep(place / OUTPUT_FILE, outcome.output)
        problems += [f"{why}; it is in {output}"] if why else []
        return problems + self.send(cell)

    def send(self, cell: SweepCell) -> list[str]:
        """Save the cell's run to the database, if there are both and it isn't to be measured again. Returns why that
        could not be done."""
        if not self._database or not self.has(cell):
            return []
        try:
            run = read_saved_run(self.results(cell))
            if run.measured():
                Database(self._database).save(run, cell.name)
            if note := self.note(cell):
                self._note(cell, replace(note, database=self._database))
        except Exception as error:  # of any driver's type: other cells are measured for hours, and this run is on disk
            return [f"{cell.name}: {reason_of(error)}; started again, the sweep sends its run"]
        return []

    def _note(self, cell: SweepCell, note: Note) -> None:
        write_whole(self._folder / cell.name / CELL_FILE, msgspec.json.encode(note).decode())

    def _next(self, name: str) -> Path:
        """Where pytest-benchmark would save it here: under the next number of the machine's folder, which is taken."""
        machine, _, file = name.rpartition("/")
        folder = self._storage / machine
        numbers = [int(found[1]) for path in folder.glob("*.json") if (found := NUMBERED.match(path.name))]
        with suppress(OSError):  # the attempt to write will say why
            folder.mkdir(parents=True, exist_ok=True)
        return reserve(folder, max(numbers, default=0) + 1, NUMBERED.sub("", file, count=1).removesuffix(".json"))

    def _with_commit(self, content: bytes) -> str:
        """The run with the commit of the folder that the node was sent, which it came without."""
        data: dict[str, Any] = json.loads(content)
        run = data.get("llm_bench", data)
        if self._commit.commit and not run["provenance"]["commit"]:
            run["provenance"] |= msgspec.to_builtins(self._commit)
            if "commit_info" in data:
                known = {"id": self._commit.commit, "branch": self._commit.branch, "dirty": self._commit.dirty}
                data["commit_info"] |= known
        return json.dumps(data, indent=1)
