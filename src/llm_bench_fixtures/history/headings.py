"""The heading of a saved run: where it comes from, and its state.

A heading is read without the run's figures, so that a folder of a thousand runs is listed at once. A file that can't be
read does not stop the others: it becomes an `Unreadable` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from llm_bench_fixtures.errors import NotOurResults, UnreadableResults
from llm_bench_fixtures.history.saved import SavedAt, read_run_of
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Blessing, RecordHead, Run, RunState

T = TypeVar("T")
PlaceT = TypeVar("PlaceT", bound=SavedAt)

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Heading:
    """A saved run without its records and variants."""

    place: SavedAt
    provenance: Provenance
    state: RunState
    is_baseline: bool
    """Whether it may be compared with without being named."""
    measured: int
    """How many of its records hold timings."""
    records: int
    """How many records it has."""
    blessing: Blessing | None = None
    selection: tuple[str, ...] = ()
    """Parts of the command line that narrowed the tests."""

    @classmethod
    def of(cls, place: SavedAt, run: Run[RecordHead]) -> Heading:
        """The heading of a run that was read from there."""
        return cls(
            place,
            run.provenance,
            run.state,
            run.is_baseline,
            measured=len(run.measured()),
            records=len(run.records),
            blessing=run.blessing,
            selection=run.selection,
        )

    @property
    def started(self) -> datetime:
        """When the run started, in UTC."""
        return started_of(self.provenance)


def started_of(provenance: Provenance) -> datetime:
    """When the run started, in UTC; LONG_AGO where what the file says is no time."""
    try:
        started = datetime.fromisoformat(provenance.started)
        return started.astimezone(UTC) if started.tzinfo else started.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return LONG_AGO


def run_facts(file: str, provenance: Provenance, state: RunState) -> dict[str, str | bool]:
    """Facts of a run for lists and tables for programs, by name."""
    given = ("started", "branch", "commit", "dirty", "model", "random_weights", "hardware")
    return {
        "file": file,
        **{name: getattr(provenance, name) for name in given},
        "fingerprint": fingerprint_of(provenance).digest,
        "state": state.value,
    }


@dataclass(frozen=True)
class Unreadable:
    """A file in the storage, or a run in a database, that this can't read, and why."""

    place: SavedAt
    reason: str
    may_be_ours: bool = True
    """False for a whole file in which this package measured nothing."""


PassOver = Callable[[Unreadable], None]


def read_heading(path: Path) -> Heading:
    """Read the heading of the run in a file. Raises UnreadableResults."""
    return Heading.of(path, read_run_of(path, RecordHead))


def read_each(places: Iterable[PlaceT], read: Callable[[PlaceT], T], pass_over: PassOver) -> Iterator[tuple[PlaceT, T]]:
    """Each place that can be read, in their order, with what was read there; `pass_over` is called with the others."""
    for place in places:
        try:
            yield place, read(place)
        except UnreadableResults as error:
            pass_over(Unreadable(place, str(error), may_be_ours=not isinstance(error, NotOurResults)))


def headings(paths: Iterable[Path], pass_over: PassOver) -> Iterator[Heading]:
    """The headings of the files that can be read, in their order; `pass_over` is called with each of the others."""
    return (heading for _, heading in read_each(paths, read_heading, pass_over))


def oldest_first(found: Iterable[Heading]) -> list[Heading]:
    """Sorted by when they started; runs that started at the same time keep their order."""
    return sorted(found, key=lambda heading: heading.started)
