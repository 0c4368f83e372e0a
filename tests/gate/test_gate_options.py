"""What each command's option takes, and what it says of anything else."""

from __future__ import annotations

from typing import Any

import pytest

from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.gate.options import Allowance, parse_allowed, parse_missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fail", set()),
        ("", set()),
        ("pass", {Allowance.BASELINE, Allowance.NEW}),
        ("vanished, skipped", {"vanished", "skipped"}),
        ("fingerprint,errored", {Allowance.FINGERPRINT, Allowance.ERRORED}),
    ],
)
def test_what_may_be_missing_is_read(text: str, expected: set[Any]) -> None:
    assert parse_missing(text) == expected


@pytest.mark.parametrize("name", ["tests", "changed", "inconclusive", "new,pass"])
def test_another_thing_that_may_be_missing_is_refused(name: str) -> None:
    """Those that only `llm-bench pair` takes, too."""
    with pytest.raises(UnknownName) as refused:
        parse_missing(name)
    assert str(refused.value) == (
        f"unknown thing that may be missing {name.removeprefix('new,')!r}. Known: fail, pass, baseline, new, vanished, "
        "skipped, errored, unreached, fingerprint"
    )


def test_what_a_paired_run_may_lack_is_read() -> None:
    four = {Allowance.CHANGED, Allowance.SKIPPED, Allowance.VANISHED, Allowance.INCONCLUSIVE}
    assert parse_allowed("changed,skipped, vanished,inconclusive,slight") == {*four, Allowance.SLIGHT}


@pytest.mark.parametrize("name", ["noise", "baseline", "pass"])
def test_another_thing_that_a_paired_run_lacks_is_refused(name: str) -> None:
    """Those that only the stored gate takes, too."""
    with pytest.raises(UnknownName) as refused:
        parse_allowed(f"skipped,{name}")
    assert str(refused.value) == (
        f"unknown thing that can be allowed {name!r}. Known: slight, changed, skipped, vanished, inconclusive"
    )


def test_a_paired_run_is_told_what_to_allow_or_not_told() -> None:
    with pytest.raises(InvalidSetting, match="expected at least one name"):
        parse_allowed("")
