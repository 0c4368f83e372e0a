"""The commands on runs in a database, as their users type them: those of a folder don't know the difference."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from run_factory import make_record
from shell import Output, Shell

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.history.storage import UNSENT, run_files


class InDatabase:
    """`llm-bench` run on what was imported from the shell's folder."""

    def __init__(self, shell: Shell, url: str) -> None:
        self.shell, self.url = shell, url

    def __call__(self, *arguments: str) -> Output:
        self.shell.capture.readouterr()
        status = main([*arguments, "--history", self.url])
        return Output(status, *self.shell.capture.readouterr())


@pytest.fixture
def database(shell: Shell, url: str) -> InDatabase:
    """Three runs and a damaged file."""
    for number in (1, 2, 3):
        shell.keep(number, name="mine", branch="main" if number < 3 else "topic")
    shell.damage()
    database = InDatabase(shell, url)
    assert database("history", "import", str(shell.storage)).lines == [f"3 runs saved to {url}"]
    return database


def test_what_was_imported_is_listed(database: InDatabase) -> None:
    output = database("history", "--limit", "2")
    assert [line.split()[0] for line in output.lines[2:-2]] == ["2", "3"]
    assert output.lines[-1] == f"3 runs in {database.url}; the newest 2 are shown"
    data = json.loads(database("history", "--json").out)
    assert data["storage"] == database.url
    assert [run["file"] for run in data["runs"]] == ["1", "2", "3"]


def test_an_import_again_changes_nothing(database: InDatabase) -> None:
    output = database("history", "import", str(database.shell.storage))
    assert output.lines == [f"0 runs saved to {database.url}; 3 there already"]
    assert "0099_cut.json" in output.err


def test_a_run_that_cannot_be_saved_stops_no_other(database: InDatabase) -> None:
    """Bug: it did. PostgreSQL's index can't hold the name of its metric."""
    name = "".join(sha256(bytes([number])).hexdigest() for number in range(99))
    database.shell.keep(4, [replace(make_record(), extra={name: 1.0})], branch="\0")
    database.shell.keep(5)
    output = database("history", "import", str(database.shell.storage))
    is_refused = database.url.startswith("postgresql")
    assert output.lines == [
        f"{2 - is_refused} {'run' if is_refused else 'runs'} saved to {database.url}; 3 there already"
    ]
    assert (".json: this run can't be saved: index row" in output.err) == is_refused
    assert "can't be used" not in output.err
    assert "0099_cut.json" in output.err
    assert output.status == 4


def test_every_command_finds_the_runs(database: InDatabase, tmp_path: Path, without_pictures: None) -> None:
    assert database("gate", "3", "--baseline", "branch:main").status == 0
    assert "laptop/0002_mine" not in database("compare", "main", "latest").err
    assert database("report", "latest", "--against", "main", "-o", str(tmp_path / "report")).status == 0
    assert database("trend", "--metric", "latency_s", "-o", str(tmp_path / "trend.html")).status == 0
    assert "1 and 2 are" not in (tmp_path / "trend.html").read_text(encoding="utf-8")
    assert database("export", "-o", str(tmp_path / "all.csv"), "--metric", "latency_s").status == 0
    assert (tmp_path / "all.csv").read_text(encoding="utf-8").count("latency_s") == 3
    assert f"{database.url}#1 is a baseline now" in database("bless", "laptop/0001_mine", "--reason", "why").out
    assert "complete, blessed: why" in database("history").out


def test_what_could_not_be_sent_is_pushed_once(database: InDatabase) -> None:
    unsent = database.shell.storage / UNSENT
    path = database.shell.keep(4)
    unsent.mkdir()
    path.rename(unsent / "0001_x.json")
    (unsent / "0002_cut.json").write_text("{", encoding="utf-8")
    output = database("history", "push", str(database.shell.storage))
    assert (output.status, output.lines) == (4, [f"1 run saved to {database.url}"])
    assert "0002_cut.json" in output.err
    assert [path.name for path in unsent.iterdir()] == ["0002_cut.json"]


def test_a_merged_run_is_imported_from_its_report(database: InDatabase, tmp_path: Path, without_pictures: None) -> None:
    """As any report is."""
    shards = [
        database.shell.keep(number, [make_record(name)], started="2026-02-01T00:00:00+00:00", commit="f" * 40)
        for number, name in ((4, "fp32"), (5, "bf16"))
    ]
    assert main(["merge", *map(str, shards), "-o", str(tmp_path / "whole")]) == 0
    output = database("history", "import", str(tmp_path / "whole"))
    assert (output.status, output.lines) == (0, [f"1 run saved to {database.url}"])
    assert database("history", "--limit", "1").lines[2].split()[:2] == ["4", "2026-02-01"]


def test_an_import_wants_a_database(shell: Shell) -> None:
    assert "import: name the database with --history URL" in shell("history", "import").err


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://me:s3cret@host/runs", "there is a password in the URL, which would be shown and saved"),
        ("postgresql://me@host/runs?password=s3cret", "there is a password in the URL"),
        ("postgresql://me:s3cret#@host/runs", "no URL of a database: special characters are written as %XX"),
        ("postgresql://me:123/s3cret@host/runs", "no URL of a database"),
        ("postgresql://me@h\udcff/runs", "no URL of a database"),
        ("mysql://me:s3cret@host/runs", "expected sqlite:///FILE or postgresql://[USER@]HOST[:PORT]/DATABASE"),
        ("me:s3cret@host", "expected sqlite:///FILE or postgresql://[USER@]HOST[:PORT]/DATABASE"),
        ("sqlite://history.db", "expected a file behind sqlite:///, such as sqlite:///history.db"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_no_password_shown(
    url: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["history", "--history", url])
    error = capsys.readouterr().err
    assert f"argument --history: {why}" in error
    assert "s3cret" not in error


SECRET = "postgresql://me:s3cret/@#s3cret@h/x?password=s3cret"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("history", "--storage", SECRET), "--history names a database"),
        (("history", SECRET), "--history names a database"),
        (("history", "import", SECRET), "name the database with --history URL"),
        (("report", SECRET), "--history names a database"),
        (("report", SECRET, "--history", "sqlite:///x"), "--history names a database"),
        (("trend", SECRET), "unrecognized arguments: postgresql://me:***@h/x?password=***"),
        ((SECRET,), "invalid choice"),
    ],
)
def test_an_address_at_the_wrong_place_is_not_repeated(
    arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 4
    said = capsys.readouterr()
    assert "s3cret" not in said.out + said.err
    assert why in said.err


def test_what_was_not_sent_is_no_run_of_the_folder(database: InDatabase) -> None:
    storage = database.shell.storage
    before = run_files(storage)
    (storage / UNSENT).mkdir()
    (storage / UNSENT / "0001_x.json").write_bytes(before[0].read_bytes())
    assert run_files(storage) == before
    assert len(run_files(storage / UNSENT)) == 1
