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
    """The tests that are not measured on both sides, except those that were on neither."""
    before = {record.test: record for record in base.records}
    after = {record.test: record for record in head.records}
    narrowed = head.selection if head.selection != base.selection else None
    for test in dict.fromkeys([*after, *before]):
        found = _uncovered(test, before.get(test), after.get(test), narrowed)
        if found is not None:
            yield found


def _uncovered(
    test: str, before: Record | None, after: Record | None, narrowed: Sequence[str] | None
) -> Uncovered | None:
    """Why only one run measured the test; None where both did, or neither.

    narrowed: the selection of the run that is judged; None where it is the baseline's.
    """
    was, now = _is_measured(before), _is_measured(after)
    if now and before is not None and before.status is Status.NOT_REACHED:
        return Uncovered(test, Coverage.NEWLY_REACHED)
    if now and not was:
        return Uncovered(test, Coverage.NEW, f"the baseline says: {before.reason}" if before else "")
    if was and before is not None and after is None:
        is_left_out = narrowed is not None and leaves_out(narrowed, before)
        return Uncovered(test, Coverage.NOT_SELECTED if is_left_out else Coverage.VANISHED)
    if was and after is not None and not now:
        return Uncovered(test, _LOST[after.status], after.reason)
    return None


def _is_measured(record: Record | None) -> bool:
    return record is not None and record.status is Status.MEASURED


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
