"""`llm-bench merge` on shards written by hand: one run with its report, or the reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_factory import make_block_record, make_provenance, make_record, make_run
from shell import Shell

from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.storage import read_run, write_run

pytestmark = pytest.mark.usefixtures("without_pictures", "storage")


@pytest.fixture
def storage(shell: Shell) -> None:
    shell.storage.mkdir()


def shard(folder: Path, *records: Record, **origin: Any) -> str:
    folder.mkdir(parents=True)
    write_run(make_run(records, provenance=make_provenance(**origin)), folder / "results.json")
    return str(folder)


def test_shards_become_one_run_with_its_report(shell: Shell, tmp_path: Path) -> None:
    """The second began before anything was scored: its corpus is told without the windows."""
    shards = [
        shard(tmp_path / name, make_block_record(name, speedup), **origin)
        for name, speedup, origin in (
            ("bf16", 2.0, {"corpus": "mine, in windows of 64"}),
            ("nf4", 0.5, {"corpus": "mine", "started": "2026-01-03T00:00:00+00:00"}),
        )
    ]
    output = shell("merge", *shards, "-o", str(tmp_path / "whole"))
    assert (output.status, output.err) == (0, "")
    run = read_run(tmp_path / "whole" / "results.json")
    assert [one.variant for one in run.measured()] == ["bf16", "nf4"]
    assert output.lines[-1] == f"Report: {tmp_path / 'whole' / 'report.html'}"
    page = (tmp_path / "whole" / "report.html").read_text(encoding="utf-8")
    assert "2026-01-02T03:04:05+00:00: 1 benchmark of 1 case; 2026-01-03T00:00:00+00:00: 1 benchmark of 1 case" in page


def test_shards_of_another_machine_are_refused_with_the_difference(shell: Shell, tmp_path: Path) -> None:
    first = shard(tmp_path / "a", make_record("bf16"))
    same = shard(tmp_path / "b", make_record("nf4", 2.0))
    other = shard(tmp_path / "c", make_record("int8", 3.0), hardware="another", libraries={"torch": "2.7.0"})
    output = shell("merge", first, same, other, "-o", str(tmp_path / "whole"))
    assert output.status == 4
    assert output.err.splitlines() == [
        f"llm-bench merge: {other}/results.json can't be merged with {first}/results.json:",
        "  another machine: another, 2 threads, Linux, not a processor, 2 cores, 2 threads, Linux",
        "  another set of libraries: torch 2.7.0, not torch 2.6.0",
        "`llm-bench report` compares them on one page.",
    ]
    assert not (tmp_path / "whole").exists()


def test_what_can_not_be_merged_is_refused(shell: Shell, tmp_path: Path) -> None:
    first = shard(tmp_path / "a", make_record("bf16"))
    copy = shard(tmp_path / "b", make_record("bf16"))
    cases = {
        (first,): "name at least two RUNs",
        (first, first): "is named twice",
        (first, copy): "hold rounds of the same run: name one of them",
        (first, copy, "-o", first): "where the merged run is to be: name another folder with -o",
    }
    for arguments, reason in cases.items():
        output = shell("merge", *arguments)
        assert output.status == 4
        assert reason in " ".join(output.err.split())
