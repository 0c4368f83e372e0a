"""What a saved run says of itself: read without its figures, so that a folder of a thousand is looked through at once.

A file that can't be read never stops those that can: it is a row with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.history.saved import Blessing, read_parts
from llm_bench_fixtures.results.record import Provenance, RunState, Status, run_state

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class RecordParts(msgspec.Struct, gc=False):
    status: Status


RecordT = TypeVar("RecordT", bound=RecordParts)


class HeadingParts(msgspec.Struct, Generic[RecordT]):
    """What of a run is read for its heading."""

    provenance: Provenance
    records: list[RecordT]
    interrupted: bool = False
    failed_tests: int = 0
    regressed: bool = False
    refused: str = ""
    selection: tuple[str, ...] = ()
    blessing: Blessing | None = None
    version: Any = None


@dataclass(frozen=True)
class Heading:
    """measured: how many of its records hold timings; records: of how many."""

    path: Path
    provenance: Provenance
    state: RunState
    measured: int
    records: int
    blessing: Blessing | None = None
    selection: tuple[str, ...] = ()

    @property
    def started(self) -> datetime:
        return started_of(self.provenance)


def started_of(provenance: Provenance) -> datetime:
    """In UTC; before every other where what the file says is no time."""
    try:
        started = datetime.fromisoformat(provenance.started)
        return started.astimezone(UTC) if started.tzinfo else started.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return LONG_AGO


@dataclass(frozen=True)
class Unreadable:
    """A file in the storage that is no run that this can read, and why."""

    path: Path
    reason: str


PassOver = Callable[[Unreadable], None]


def read_heading(path: Path) -> Heading:
    """Raises UnreadableResults."""
    return heading_of(path, *read_parts(path, HeadingParts[RecordParts], RecordParts))


def heading_of(path: Path, run: HeadingParts[RecordT], records: Sequence[RecordT]) -> Heading:
    measured = sum(record.status is Status.MEASURED for record in records)
    state = run_state(
        interrupted=run.interrupted,
        failed_tests=run.failed_tests,
        measured=measured,
        regressed=run.regressed,
        refused=run.refused,
    )
    return Heading(path, run.provenance, state, measured, len(records), run.blessing, run.selection)


def headings(paths: Iterable[Path], pass_over: PassOver) -> Iterator[Heading]:
    """Of those that can be read, in their order; `pass_over` is told of each other."""
    for path in paths:
        try:
            yield read_heading(path)
        except UnreadableResults as error:
            pass_over(Unreadable(path, str(error)))


def oldest_first(found: Iterable[Heading]) -> list[Heading]:
    """By when they started; where that is the same, as `run_files` had them."""
    return sorted(found, key=lambda heading: heading.started)
