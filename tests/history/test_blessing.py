"""Blessing a run changes its file in one place, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_factory import make_record, make_run
from saved_factory import store

from llm_bench_fixtures.errors import InvalidSetting, UnreadableResults
from llm_bench_fixtures.history.saved import bless, read_saved_run
from llm_bench_fixtures.results.storage import write_run

RUN = make_run([make_record()], regressed=True)


@pytest.mark.parametrize("kind", ["stored", "results"])
def test_the_reason_is_kept_and_nothing_else_changes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "0001_a.json"
    if kind == "stored":
        store(RUN, path)
    else:
        write_run(RUN, path)
    before = json.loads(path.read_text(encoding="utf-8"))
    bless(path, "  meant ")
    blessing = read_saved_run(path).blessing
    assert blessing is not None
    assert blessing.reason == "meant"
    after = json.loads(path.read_text(encoding="utf-8"))
    after.get("llm_bench", after).pop("blessing")
    before.get("llm_bench", before).pop("blessing", None)
    assert after == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_reason_that_is_no_text_leaves_a_run_that_can_be_read(tmp_path: Path) -> None:
    """Bug: `--reason $'caf\\xe9'` made a file that nothing reads."""
    path = store(RUN, tmp_path / "0001_a.json")
    bless(path, "caf\udce9")
    blessing = read_saved_run(path).blessing
    assert blessing is not None
    assert blessing.reason == "caf\ufffd"


@pytest.mark.parametrize(
    ("content", "reason", "error"),
    [
        ("{", "meant", UnreadableResults),  # cut
        (None, " ", InvalidSetting),  # without a reason
        ('"a number": ' + "9" * 5000, "meant", UnreadableResults),  # more digits than Python reads
    ],
)
def test_what_can_not_be_blessed_stays_as_it_was(
    tmp_path: Path, content: str | None, reason: str, error: type[Exception]
) -> None:
    path = store(RUN, tmp_path / "0001_a.json")
    if content is not None:
        text = path.read_text(encoding="utf-8")
        path.write_text(content if content == "{" else f"{{{content}, {text[1:]}", encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(error):
        bless(path, reason)
    assert path.read_bytes() == before
