"""Which tests of an earlier run are kept, by how each of them ended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llm_bench_fixtures.plugin.resuming import whole_tests
from llm_bench_fixtures.results.record import Status

STATUSES = {"+": Status.MEASURED, "s": Status.SKIPPED, "e": Status.ERROR, "t": Status.NOT_REACHED}
TOGETHER = [{"ref", "a", "b"}]
IN_GROUPS = [{"ref", "a"}, {"ref", "b"}]
APART = [{"ref"}, {"a"}, {"b"}]


@pytest.mark.parametrize(
    ("groups", "ended", "kept"),
    [
        (TOGETHER, "+++", {"ref", "a", "b"}),
        (TOGETHER, "++.", set()),  # all take turns anew
        (TOGETHER, "++t", set()),
        (TOGETHER, "+++ ...", {"ref", "a", "b"}),  # the next case is another
        (TOGETHER, "+s+", {"ref", "a", "b"}),
        (TOGETHER, "+e+", {"ref", "b"}),  # what failed is tried again alone
        (TOGETHER, "e++", {"a", "b"}),
        (IN_GROUPS, "++.", {"a"}),  # the reference takes turns with b
        (IN_GROUPS, "..+", {"b"}),
        (IN_GROUPS, "+++", {"ref", "a", "b"}),
        (APART, "+.+", {"b"}),
        (APART[1:], "+++", {"a", "b"}),  # whose quality has yet to be scored
    ],
)
def test_what_took_turns_is_kept_where_nothing_of_it_is_missing(
    groups: Sequence[set[str]], ended: str, kept: set[str]
) -> None:
    """ended: of each case, how the tests of ref, a and b ended; a point for one that didn't run."""
    ends = [dict(zip(("ref", "a", "b"), case, strict=True)) for case in ended.split()]
    cases = [{variant: f"{variant}-{number}" for variant in case} for number, case in enumerate(ends)]
    statuses = {
        f"{variant}-{number}": STATUSES[end]
        for number, case in enumerate(ends)
        for variant, end in case.items()
        if end != "."
    }
    assert whole_tests(cases, statuses, groups, "ref") == {f"{variant}-0" for variant in kept}
