"""What is read of a run to list it: less than all, and as strictly."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_factory import full_run, make_run, skipped_record
from saved_factory import store, stored_json

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.history.headings import Unreadable, headings, read_heading
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.results.record import RunState
from llm_bench_fixtures.results.storage import write_run


@pytest.mark.parametrize("kind", ["results", "stored"])
@pytest.mark.parametrize("changes", [{}, {"failed_tests": 1}, {"interrupted": True}, {"regressed": True}])
def test_it_says_what_the_whole_run_says(tmp_path: Path, kind: str, changes: dict[str, object]) -> None:
    path = tmp_path / "0001_a.json"
    run = full_run(**changes)
    if kind == "stored":
        store(run, path)
    else:
        write_run(run, path)
    heading, saved = read_heading(path), read_saved_run(path)
    assert heading.provenance == saved.provenance
    assert heading.state is saved.state
    assert (heading.measured, heading.records) == (len(run.measured()), len(run.records))


def test_a_run_that_only_skipped_measured_nothing(tmp_path: Path) -> None:
    path = store(make_run([skipped_record("fp16", "no float16")]), tmp_path / "0001_a.json")
    assert read_heading(path).state is RunState.NOT_MEASURED


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused_by_name(tmp_path: Path, share: float) -> None:
    path = store(full_run(), tmp_path / "0001_a.json")
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UnreadableResults, match=re.escape(str(path))):
        read_heading(path)


def test_nan_in_what_is_passed_over_is_refused_too(tmp_path: Path) -> None:
    """It is no JSON."""
    data = stored_json(full_run())
    data["benchmarks"][0]["stats"]["mean"] = float("nan")
    path = tmp_path / "0001_a.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UnreadableResults, match="can't be read as JSON"):
        read_heading(path)


def test_another_version_is_told_as_such_whatever_its_shape(tmp_path: Path) -> None:
    data = stored_json(full_run())
    data["llm_bench"] = {"version": 99, "records": "elsewhere"}
    path = tmp_path / "0001_a.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UnreadableResults, match="is of schema version 99; this reads 4"):
        read_heading(path)


def test_those_that_can_be_read_are_whatever_the_others_are(tmp_path: Path) -> None:
    paths = [store(full_run(), tmp_path / f"{number}.json") for number in range(3)]
    paths[1].write_text("{", encoding="utf-8")
    told: list[Unreadable] = []
    assert [heading.place for heading in headings(paths, told.append)] == [paths[0], paths[2]]
    assert [item.place for item in told] == [paths[1]]
    assert paths[1].read_text(encoding="utf-8") == "{"


def test_what_is_no_file_any_more_is_told_of(tmp_path: Path) -> None:
    told: list[Unreadable] = []
    assert list(headings([tmp_path / "gone.json"], told.append)) == []
    assert "can't be read" in told[0].reason
