"""Which tests one of two runs measured and the other did not, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.results.record import Record, Run, Status


class Coverage(StrEnum):
    """Why a test has values in one run only."""

    NEW = "new"
    VANISHED = "vanished"
    SKIPPED = "skipped"
    ERRORED = "errored"
    NOT_MEASURED = "not measured"
    NOT_SELECTED = "not selected"
    NOT_REACHED = "not reached"  # within the time of the run that is judged
    NEWLY_REACHED = "newly reached"  # the baseline had no time for it


_LOST = {
    Status.SKIPPED: Coverage.SKIPPED,
    Status.ERROR: Coverage.ERRORED,
    Status.NOT_MEASURED: Coverage.NOT_MEASURED,
    Status.NOT_REACHED: Coverage.NOT_REACHED,
}


@dataclass(frozen=True)
class Uncovered:
    """A test that only one of the runs measured."""

    test: str
    """The test's node id."""
    coverage: Coverage
    reason: str = ""
    """Why the run that lacks the test skipped or failed it; empty where that is not known."""


def uncovered_tests(base: Run, head: Run) -> Iterator[Uncovered]:
    """The tests that only one of the runs measured."""
    before = {record.test: record for record in base.records}
    after = {record.test: record for record in head.records}
    measured = {record.test for record in base.measured()} ^ {record.test for record in head.measured()}
    narrowed = head.selection if head.selection != base.selection else None
    for test in dict.fromkeys([*after, *before]):
        if test in measured:
            yield _uncovered(test, before.get(test), after.get(test), narrowed)


def _uncovered(test: str, before: Record | None, after: Record | None, narrowed: Sequence[str] | None) -> Uncovered:
    """Why only one run measured the test.

    narrowed: the selection of the run that is judged; None where it is the baseline's.
    """
    if after is not None and after.status is not Status.MEASURED:
        return Uncovered(test, _LOST[after.status], after.reason)
    if after is None:
        is_left_out = before is not None and narrowed is not None and leaves_out(narrowed, before)
        return Uncovered(test, Coverage.NOT_SELECTED if is_left_out else Coverage.VANISHED)
    if before is not None and before.status is Status.NOT_REACHED:
        return Uncovered(test, Coverage.NEWLY_REACHED)
    return Uncovered(test, Coverage.NEW, f"the baseline says: {before.reason}" if before else "")


def leaves_out(selection: Sequence[str], record: Record) -> bool:
    """Whether the selection of tests, as in Run.selection, explains why the record's test did not run."""
    flags = [part for part in selection if part.startswith("-")]
    paths = [part for part in selection if not part.startswith("-")]
    for flag in flags:
        name, _, value = flag.partition(" ")
        if name != "--llm-variants" or record.variant not in [one.strip() for one in value.split(",")]:
            return True
    return not any(_is_within(record.test, path) for path in paths)


def _is_within(test: str, path: str) -> bool:
    return path in (".", "", test) or test.startswith((f"{path.rstrip('/')}/", f"{path}::", f"{path}["))
