"""The tests that two runs don't both have measured, and what is said of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_factory import make_record, make_run, skipped_record

from llm_bench_fixtures.gate.coverage import Coverage, leaves_out, uncovered_tests
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.results.record import Record, Status


def coverage(base: list[Record], head: list[Record], **changes: Any) -> dict[str, tuple[Coverage, str]]:
    runs = judged_run(make_run(base)), judged_run(make_run(head, **changes))
    return {one.test: (one.coverage, one.reason) for one in uncovered_tests(*runs)}


def test_each_test_that_has_no_verdict_is_named() -> None:
    kept, other = make_record(), make_record(scenario="cache", case="off")
    name = other.test
    too_long = skipped_record("fp32", "too long", scenario="cache", case="off")
    failed = replace(too_long, status=Status.ERROR, reason="OutOfMemory")
    idle = replace(too_long, status=Status.NOT_MEASURED, reason="--benchmark-disable")
    assert coverage([kept], [kept, other]) == {name: (Coverage.NEW, "")}
    assert coverage([kept, other], [kept]) == {name: (Coverage.VANISHED, "")}
    assert coverage([kept, other], [kept, too_long]) == {name: (Coverage.SKIPPED, "too long")}
    assert coverage([kept, other], [kept, failed]) == {name: (Coverage.ERRORED, "OutOfMemory")}
    assert coverage([kept, other], [kept, idle]) == {name: (Coverage.NOT_MEASURED, "--benchmark-disable")}
    unreached = replace(too_long, status=Status.NOT_REACHED, reason="20 min were over")
    assert coverage([kept, other], [kept, unreached]) == {name: (Coverage.NOT_REACHED, "20 min were over")}
    assert coverage([kept, unreached], [kept, other]) == {name: (Coverage.NEWLY_REACHED, "")}
    assert coverage([kept, unreached], [kept, unreached]) == {}
    assert coverage([kept, too_long], [kept, other]) == {name: (Coverage.NEW, "the baseline says: too long")}
    assert coverage([kept, too_long], [kept, too_long]) == {}
    assert coverage([kept, other], [kept], selection=("-k precision",)) == {name: (Coverage.NOT_SELECTED, "")}


@pytest.mark.parametrize(
    ("selection", "is_left_out"),
    [
        (("benchmarks",), False),
        (("benchmarks/test_cache.py",), True),
        (("benchmarks/test_precision.py",), False),
        (("benchmarks/test_precision.py::test_precision",), False),
        ((".",), False),
        (("bench",), True),
        (("benchmarks", "-k cache"), True),
        (("benchmarks", "--llm-variants fp32,bf16"), False),
        (("benchmarks", "--llm-variants bf16"), True),
    ],
)
def test_a_test_is_left_out_only_where_the_command_line_explains_it(
    selection: tuple[str, ...], is_left_out: bool
) -> None:
    (record,) = judged_run(make_run([make_record()])).records
    assert leaves_out(selection, record) is is_left_out
