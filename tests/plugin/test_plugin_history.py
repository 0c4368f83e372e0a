"""Runs that are saved to a database at their end, and what becomes of them where that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import postgres_server, postgres_url, url  # noqa: F401  # fixtures
from pytester_bench import Bench

from llm_bench_fixtures import writing
from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.errors import UnwritableFile
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import UNSENT
from llm_bench_fixtures.results.storage import read_run

pytestmark = pytest.mark.slow("each test makes a run")
GATE = ("--llm-gate", "--llm-gate-rules=own_memory_bytes:off,latency_s:off")


def test_a_run_is_saved_and_is_the_next_ones_baseline(own_suite: Bench, url: str) -> None:  # noqa: F811
    first = own_suite.run(f"--llm-history={url}", *GATE)
    first.stdout.fnmatch_lines(["*No run is saved.*"])
    (place,) = Database(url).places()
    saved = read_saved_run(place)
    assert saved == read_run(own_suite.report / "results.json")
    assert saved.records[0].tokens_s
    second = own_suite.run(f"--llm-history={url}", *GATE, "--benchmark-compare")
    second.stdout.fnmatch_lines([f"*Baseline: run 1, {saved.provenance.started}*"])
    assert len(Database(url).places()) == 2


def test_a_run_that_no_server_takes_is_kept_and_can_be_sent(own_suite: Bench, postgres_url: str) -> None:  # noqa: F811
    folder, gone = own_suite.pytester.path, "postgresql://me@127.0.0.1:1/runs"
    result = own_suite.run(f"--llm-history={gone}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (path,) = (folder / ".benchmarks" / UNSENT).iterdir()
    assert read_run(path) == read_run(own_suite.report / "results.json")
    send = f"llm-bench history push {folder / '.benchmarks'} --history {gone}"
    result.stdout.fnmatch_lines(
        [
            f"llm-bench: the history {gone} can't be used: *It is tried again when the run ends",
            f"*the history {gone} can't be used: *; this run was saved in {path}. To send it: {send}",
        ]
    )
    assert main([*send.split()[1:-1], postgres_url]) == 0
    assert not path.exists()
    assert Database(postgres_url).newest(0, pytest.fail)[1] == 1


def test_a_run_that_the_disk_takes_no_more_than_the_server_is_kept_elsewhere(
    own_suite: Bench,
    url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: an empty file stayed there, which could not be sent."""
    unsent = own_suite.pytester.path / ".benchmarks" / UNSENT
    write = writing.write_whole

    def is_full(path: Path, text: str) -> None:
        if path.parent == unsent:
            raise UnwritableFile(f"{path} can't be written: no room")
        write(path, text)

    monkeypatch.setattr(writing, "write_whole", is_full)
    result = own_suite.run("--llm-history=postgresql://me@127.0.0.1:1/runs")
    assert list(unsent.iterdir()) == []
    said = str(result.stdout)
    assert said.count("no room; this run was saved in ") == said.count("this run was saved in ") == 1
    send = said.partition("To send it: llm-bench ")[2].partition(" --history")[0].split()
    assert main([*send, "--history", url]) == 0
    assert len(Database(url).places()) == 1


def test_a_run_that_nothing_takes_is_told_once(own_suite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it was told twice."""
    pytest.importorskip("psycopg")
    write, gone = writing.write_or_keep, "postgresql://me@127.0.0.1:1/runs"

    def is_full(path: Path, text: str) -> tuple[Path, str]:
        if path.parent.name == UNSENT:
            raise UnwritableFile("no room")
        return write(path, text)

    monkeypatch.setattr(writing, "write_or_keep", is_full)
    result = own_suite.run(f"--llm-history={gone}")
    result.stdout.fnmatch_lines([f"llm-bench: the history {gone} can't be used: *; this run was not saved: no room"])
    assert result.stdout.str().count("no room") == 1


def test_nothing_runs_for_a_database_that_cannot_be_used(
    own_suite: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its password is shown nowhere."""
    import sqlite3

    folder = tmp_path_factory.mktemp("other")
    path, read_only = folder / "other.db", folder / "read_only.db"
    sqlite3.connect(path).execute("CREATE TABLE customers (name TEXT)").connection.close()
    with Database(f"sqlite:///{read_only}")._writing():
        pass
    content = bytearray(read_only.read_bytes())
    content[18] = 3  # the version of the format that writers know; root may write to any file
    read_only.write_bytes(content)
    for given, why in (
        (f"sqlite:///{path}", "is another program's, with tables such as customers"),
        (f"sqlite:///{read_only}", "can't be used: attempt to write a readonly database"),
        ("postgresql://me:s3cret@host/runs", "--llm-history: there is a password in the URL"),
    ):
        result = own_suite.run(f"--llm-history={given}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert why in str(result.stderr)
        assert "s3cret" not in str(result.stdout) + str(result.stderr)
        assert not own_suite.report.exists()


def test_a_file_in_the_ini_file_lies_beside_it(own_suite: Bench) -> None:
    own_suite.pytester.makeini("[pytest]\nllm_history = sqlite:///history.db\n")
    below = own_suite.pytester.mkdir("below")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        own_suite.run(f"--rootdir={own_suite.pytester.path}", "-c", "../tox.ini", "..")
    assert (own_suite.pytester.path / "history.db").exists()
