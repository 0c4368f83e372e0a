"""Runs in a database: they are what a folder would give, none is lost, and no half of one is kept."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_factory import full_run, make_provenance, make_record, make_run, skipped_record
from saved_factory import store

from llm_bench_fixtures.errors import (
    AmbiguousRun,
    HistoryUnavailable,
    InvalidSetting,
    RunNotFound,
    StorageNotFound,
    UnreadableResults,
    UnusableHistory,
)
from llm_bench_fixtures.history.baseline import Likeness, find_baseline
from llm_bench_fixtures.history.connections import engine_of, transaction
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.saved import Address, bless, judged_run, read_saved_run, saved_at
from llm_bench_fixtures.history.sql import VERSION
from llm_bench_fixtures.history.steps import read_trend
from llm_bench_fixtures.history.storage import RunFolder, select_run
from llm_bench_fixtures.history.trend import TrendFilter
from llm_bench_fixtures.results.record import Record, Run, Status

ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND = "a" * 40, "abc" + "d" * 37
TABLES = ("documents", "runs", "records", "metric_values", "suites")


def a_run(day: int, records: Sequence[Record] = (make_record(),), changes: Any = None, **provenance: Any) -> Run:
    where = make_provenance(started=f"2026-01-{day:02}T00:00:00+00:00", **provenance)
    timed = [replace(one, rounds_s=tuple(s + day * 1e-6 for s in one.rounds_s)) for one in records]
    return judged_run(make_run(timed, provenance=where, **changes or {}))


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    import sqlalchemy as sa

    with engine_of(url).begin() as connection:
        found = connection.execute(sa.text(query))
        return [tuple(row) for row in found] if found.returns_rows else []


def rows(url: str) -> dict[str, int]:
    return {name: ask(url, f"SELECT COUNT(*) FROM {name}")[0][0] for name in TABLES}  # noqa: S608


@pytest.fixture
def history(url: str) -> Database:
    """Four runs, the last of which is the oldest."""
    database = Database(url)
    database.save(a_run(2, commit=FIRST, branch="main"), "laptop/0001_before")
    database.save(a_run(3, commit=SECOND, branch="topic/faster"))
    database.save(a_run(4, commit=SECOND, branch="main"))
    database.save(a_run(1, commit="0123456", branch="old"))
    return database


def numbers(found: Sequence[Heading]) -> list[str]:
    return [run.place.name for run in found]


def test_a_run_is_read_as_it_was_saved(url: str) -> None:
    run = judged_run(full_run())
    place, is_new = Database(url).save(run)
    found = read_saved_run(place)
    assert is_new
    assert found == run
    assert [one.metrics for one in found.records] == [one.metrics for one in run.records]
    assert saved_at(found.source) == place


def test_a_run_is_kept_once(url: str, tmp_path: Path) -> None:
    """Its times tell it, also where pytest-benchmark's file has no times of tokens."""
    database, run = Database(url), full_run()
    place, _ = database.save(judged_run(run))
    assert database.save(read_saved_run(store(run, tmp_path / "0001_x.json"))) == (place, False)
    assert rows(url)["documents"] == rows(url)["runs"] == 1


def test_texts_that_databases_refuse_are_replaced(url: str) -> None:
    """Bug: PostgreSQL has no NUL characters, and nothing encodes half of a pair of surrogates."""
    records = [make_record(), skipped_record("bf16", "no \0 and no \ud800", status=Status.ERROR)]
    place, _ = Database(url).save(a_run(1, records, command="\\u0000\\\0", branch="\0", model="\0"))
    bless(place, "why\0")
    assert read_saved_run(place).records[1].reason == "no \0 and no \ufffd"
    assert ask(url, "SELECT reason FROM records WHERE position = 1") == [("no \ufffd and no \ufffd",)]
    assert ask(url, "SELECT value FROM provenance WHERE name = 'command'") == [("\\u0000\\\ufffd",)]
    assert ask(url, "SELECT branch, model, blessed FROM runs") == [("\ufffd", "\ufffd", "why\ufffd")]


def test_the_newest_started_last(history: Database) -> None:
    found, total = history.newest(2, pytest.fail)
    assert (numbers(found), total) == (["2", "3"], 4)
    assert numbers(history.newest(0, pytest.fail)[0]) == ["4", "1", "2", "3"]
    assert numbers(list(history.newest_first(pytest.fail, found[1].started))) == ["2", "1", "4"]
    assert numbers(list(history.newest_first(pytest.fail, commits=(FIRST, "0123456")))) == ["1", "4"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("2", 2), ("02", 2), ("latest", 3), ("main", 3), ("topic/faster", 2), ("old", 4)),
        *((SECOND[:8], 3), (SECOND.upper(), 3), ("0123456", 4), ("laptop/0001_before", 1)),
    ],
)
def test_a_run_is_named_as_in_a_folder(history: Database, text: str, number: int) -> None:
    assert history.select(text) == Address(history.url, number)


def test_the_run_to_compare_with_is_not_the_newest(history: Database) -> None:
    assert history.select("main", Address(history.url, 3)).name == "1"


def test_a_name_is_that_of_its_newest_run(history: Database) -> None:
    """Bug: a sweep saves all runs of a cell under one name, and no command took it. A number is a run's own."""
    for day in (6, 5):
        history.save(a_run(day), "cell")
    history.save(a_run(7), "2")
    assert history.select("cell").name == "5"
    assert history.select("cell", Address(history.url, 5)).name == "6"
    assert history.select("laptop/0001_before", Address(history.url, 1)).name == "1"
    assert history.select("2").name == "2"


def test_a_file_and_an_address_name_a_run_too(history: Database, tmp_path: Path) -> None:
    path = store(a_run(5), tmp_path / "0001_x.json")
    assert history.select(str(path)) == path
    assert history.select(f"{history.url}#2") == Address(history.url, 2)
    assert select_run(None, str(path)) == path


@pytest.mark.parametrize("number", ["", "#", "#1"])
@pytest.mark.parametrize("other", ["postgresql://me:s3cret@/runs", "mysql://me:s3cret@host/runs"])
def test_an_address_with_a_password_is_refused_and_not_shown(history: Database, other: str, number: str) -> None:
    """Bug: `--json` wrote the address of the baseline to a file, its password with it; and the error for a URL without
    a run's number repeated it."""
    for select in (history.select, lambda text: select_run(None, text)):
        with pytest.raises(InvalidSetting) as refused:
            select(f"{other}{number}")
        assert "s3cret" not in str(refused.value)


def test_a_run_that_is_not_there_is_told_with_those_that_are(history: Database) -> None:
    with pytest.raises(
        RunNotFound, match=r"no number, name, branch or commit .*(?s:.)*  3 main abcddddddddd 2026-01-04"
    ):
        history.select("nowhere")
    with pytest.raises(UnreadableResults, match="there is no run 9 in"):
        read_saved_run(Address(history.url, 9))
    history.save(a_run(6, branch=FIRST[:7]))
    with pytest.raises(AmbiguousRun, match=r"1 laptop/0001_before main aaaaaaaaaaaa"):
        history.select(FIRST[:7])


STATES: tuple[dict[str, Any], ...] = (
    *({}, {"regressed": True}, {"failed_tests": 1}, {"interrupted": True}),
    *({"selection": ("other",)}, {"records": ()}),
)


@pytest.mark.parametrize("wanted", ["", "branch:main", "branch:none"])
@pytest.mark.parametrize("newest", range(len(STATES)))
def test_the_baseline_is_that_of_a_folder(url: str, tmp_path: Path, newest: int, wanted: str) -> None:
    """More perfect runs than may stand in for what the newest lacks, behind those that are not fit."""
    folder, database = RunFolder(tmp_path / "files"), Database(url)
    changes = [{}, {}, *STATES[newest:], *STATES[:newest]]
    for number, change in enumerate(changes, start=1):
        branch = "main" if number % 3 else "topic"
        run = replace(a_run(number, branch=branch), **{"selection": ("benchmarks",)} | change)
        store(run, folder.folder / f"{number:04}_x.json")
        database.save(run)
    likeness = Likeness(("tiny",), random_weights=False, selection=("benchmarks",))
    of_folder, found = (find_baseline(one, wanted, likeness, tmp_path) for one in (folder, database))
    assert (found.run is None) == (of_folder.run is None) == (wanted == "branch:none")
    if found.run and of_folder.run:
        assert found.run.provenance == of_folder.run.provenance
    assert [one.partition(": ")[2] for one in found.passed_over] == [
        one.partition(": ")[2] for one in of_folder.passed_over
    ]


def test_no_more_headings_are_read_than_can_matter(history: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_bench_fixtures.history.baseline.MOST_TRIED", 1)
    read: list[str] = []
    headings = Database._headings

    def watched(*what: Any) -> Any:
        for one in headings(*what):
            read.append(one.place.name)
            yield one

    monkeypatch.setattr(Database, "_headings", watched)
    likeness = Likeness(("tiny",), random_weights=False, selection=())
    assert find_baseline(history, "", likeness, Path()).run is not None
    assert read == ["3", "2"]


def test_nobody_who_reads_headings_keeps_a_transaction(history: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a writer waited until whoever had asked for the newest runs was done with them."""
    monkeypatch.setattr("llm_bench_fixtures.history.database.PAGE", 1)
    monkeypatch.setattr("llm_bench_fixtures.history.connections.WAIT_BUDGET_S", 0.01)
    reading = history.newest_first(pytest.fail)
    found = [next(reading), next(reading)]
    with transaction(history.url, writes=True) as other:
        other.exec_driver_sql("ALTER TABLE runs ADD COLUMN more INTEGER")
    assert numbers([*found, *reading]) == ["3", "2", "1", "4"]


def test_nobody_opens_a_connection_within_a_transaction(history: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: whoever told of a run that can't be read did, and waited for a writer that waited for the end of this one's
    own transaction."""
    is_open = False

    @contextmanager
    def alone(url: str, **kind: bool) -> Iterator[Any]:
        nonlocal is_open
        assert not is_open
        is_open = True
        try:
            with transaction(url, **kind) as connection:
                yield connection
        finally:
            is_open = False

    monkeypatch.setattr("llm_bench_fixtures.history.database.transaction", alone)
    assert numbers(history.newest(0, pytest.fail)[0]) == ["4", "1", "2", "3"]
    assert numbers(list(history.newest_first(pytest.fail))) == ["3", "2", "1", "4"]
    assert len(list(history.values(["latency_s"], pytest.fail))) == 4
    assert [place.name for place in history.places()] == ["1", "2", "3", "4"]
    history.check()
    bless(history.select("latest"), "why")
    assert history.save(a_run(9))[1]


def test_what_is_saved_meanwhile_is_not_seen(postgres_url: str) -> None:
    """Bug: a trend ended with KeyError where a run of a new suite came between its two queries."""
    database = Database(postgres_url)
    database.save(a_run(1))
    with database._reading() as connection:
        found = connection.exec_driver_sql("SELECT COUNT(*) FROM runs").scalar()
        database.save(a_run(2, [make_record("bf16")]))
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM runs").scalar() == found == 1
    assert rows(postgres_url)["runs"] == 2


def test_there_is_no_baseline_in_an_empty_database(url: str) -> None:
    found = find_baseline(Database(url), "", Likeness(("tiny",), random_weights=False, selection=()), Path())
    assert (found.run, found.reason) == (None, "no run is saved")


def test_a_trend_is_that_of_a_folder(url: str, tmp_path: Path) -> None:
    folder, database = RunFolder(tmp_path / "files"), Database(url)
    for day in range(1, 7):
        records = [make_record("fp32", day), make_record("bf16", 2 * day, case="b"), skipped_record("int8", "why")]
        run = a_run(day, records[: 3 if day % 2 else 1], branch="main" if day < 6 else "topic")
        store(run, folder.folder / f"{day:04}_x.json")
        database.save(run)
    for chosen in (TrendFilter(("latency_s", "ttft_s", "nothing")), TrendFilter(("latency_s",), branch="main")):
        of_folder, found = (read_trend(one, chosen, pytest.fail) for one in (folder, database))
        assert [group.lines for group in found] == [group.lines for group in of_folder]
        assert found[0].lines


def test_a_blessing_is_kept(history: Database) -> None:
    place = Address(history.url, 2)
    assert bless(place, "worth it").blessing is None
    found = {run.place: run for run in history.newest(0, pytest.fail)[0]}[place]
    assert found.is_baseline
    assert found.blessing == read_saved_run(place).blessing
    assert found.blessing is not None
    assert found.blessing.reason == "worth it"


def test_the_queries_in_the_docs_say_what_they_are_for(url: str) -> None:
    """Two runs, of 1 s and 2 s; the second one's bf16 fails. A third one is of another machine."""
    database = Database(url)
    database.save(a_run(1, [make_record("fp32", 1.0), make_record("bf16", 0.5)], commit=FIRST, branch="main"))
    failed = skipped_record("bf16", "it died", status=Status.ERROR)
    database.save(a_run(3, [make_record("fp32", 2.0), failed], commit=SECOND, branch="main"))
    database.save(a_run(2, [make_record("fp32", 9.0)], commit=SECOND, branch="main", hardware="another"))
    text = (ROOT / "docs" / "how-to" / "keep-history.md").read_text(encoding="utf-8")
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    latency, errors, libraries = (ask(url, query) for query in queries)
    assert [(commit, variant, pytest.approx(seconds, rel=1e-4)) for commit, variant, seconds in latency] == [
        *((FIRST[:8], "bf16", 0.5), (FIRST[:8], "fp32", 1.0), (SECOND[:8], "fp32", 2.0)),
    ]
    assert errors == [(2, failed.test, "it died")]
    assert libraries == [("2.6.0", 3)]


# what goes wrong


def test_where_nothing_was_saved_the_error_says_how(url: str) -> None:
    with pytest.raises(StorageNotFound, match=r"no runs are saved in .*: pytest --llm-history saves some"):
        Database(url).newest(1, pytest.fail)


def test_a_newer_schema_is_refused(history: Database) -> None:
    ask(history.url, f"UPDATE llm_bench_schema SET version = {VERSION + 1}")  # noqa: S608
    for use in (lambda: history.newest(1, pytest.fail), lambda: history.save(a_run(9)), history.check):
        with pytest.raises(
            InvalidSetting, match=rf"schema version {VERSION + 1}; this reads {VERSION}: install a newer"
        ):
            use()
    assert rows(history.url)["documents"] == 4


def test_another_programs_database_is_left_alone(url: str) -> None:
    import sqlalchemy as sa

    ask(url, "CREATE TABLE customers (name TEXT)")
    database = Database(url)
    for use in (lambda: database.newest(1, pytest.fail), lambda: database.save(a_run(9)), database.check):
        with pytest.raises(InvalidSetting, match="is another program's, with tables such as customers"):
            use()
    with engine_of(url).connect() as connection:
        assert sa.inspect(connection).get_table_names() == ["customers"]


def test_nobody_waits_for_ever_for_others(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(postgres_url)
    database.save(a_run(1))
    monkeypatch.setattr("llm_bench_fixtures.history.connections.WAIT_BUDGET_S", 0.01)
    with engine_of(postgres_url).begin() as other:
        other.exec_driver_sql("LOCK llm_bench_schema")
        for use in (database.places, database.check):
            with pytest.raises(HistoryUnavailable, match="lock timeout") as told:
                use()
            assert not isinstance(told.value, UnusableHistory)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than a header of a hundred bytes. " * 5, encoding="utf-8")
    database = Database(f"sqlite:///{path}")
    for use in (lambda: database.newest(1, pytest.fail), lambda: database.save(a_run(9))):
        with pytest.raises(HistoryUnavailable, match=r"the history sqlite:.* can't be used: file is not a database"):
            use()
    assert path.read_text(encoding="utf-8").startswith("not a database")


def test_a_read_only_database_is_read_and_not_written(history: Database) -> None:
    if history.url.startswith("sqlite"):
        path = Path(history.url.removeprefix("sqlite:///"))
        content = bytearray(path.read_bytes())
        content[18] = 3  # the version of the format that writers know; root may write to any file
        path.write_bytes(content)
    else:
        ask(
            history.url,
            f"ALTER DATABASE {history.url.partition('@/')[2].partition('?')[0]} SET default_transaction_read_only = on",
        )
    assert history.newest(0, pytest.fail)[1] == 4
    for use in (lambda: history.save(a_run(9)), history.check):
        with pytest.raises(UnusableHistory, match=r"read-?only.*: name a database that can be written"):
            use()


@pytest.mark.parametrize("rights", ["SELECT", "SELECT, INSERT"])
def test_a_role_that_may_not_save_is_told_beforehand(postgres_url: str, rights: str) -> None:
    Database(postgres_url).save(a_run(1))
    role = f"{rights[-6:]}_{postgres_url.partition('@/')[2].partition('?')[0]}"
    ask(postgres_url, f"CREATE ROLE {role} LOGIN; GRANT {rights} ON ALL TABLES IN SCHEMA public TO {role}")
    database = Database(postgres_url.replace("postgres@", f"{role.lower()}@"))
    assert database.newest(0, pytest.fail)[1] == 1
    if "INSERT" in rights:
        with pytest.raises(UnusableHistory, match="UPDATE too, to bless runs"):
            bless(Address(database.url, 1), "why")
        database.check()
        assert database.save(a_run(2))[0].number == 2
    else:
        with pytest.raises(UnusableHistory, match=r"permission denied for table .*: grant SELECT and INSERT on"):
            database.check()


def test_a_check_makes_the_tables(postgres_url: str) -> None:
    Database(postgres_url).check()
    assert Database(postgres_url).places() == []


def test_a_check_leaves_no_run(history: Database, tmp_path: Path) -> None:
    before = rows(history.url)
    history.check()
    assert rows(history.url) == before
    assert history.save(a_run(9))[0].number == 5
    new = Database(f"sqlite:///{tmp_path}/new/folder/history.db")
    new.check()
    assert not (tmp_path / "new").exists()
    assert new.save(a_run(1))[1]


@pytest.mark.parametrize("address", ["postgresql://:", "postgresql://host/x?port=9%25"])
def test_a_url_that_a_library_refuses_is_told(address: str) -> None:
    """Bug: it ended with a traceback."""
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidSetting, match="no URL of a database"):
        Database(address).check()


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(
        HistoryUnavailable, match=r"the history postgresql:.* can't be used: connection .*failed"
    ) as told:
        Database(f"postgresql://me@/runs?host={tmp_path}").save(a_run(1))
    assert not isinstance(told.value, UnusableHistory)


@pytest.mark.parametrize(
    ("place", "why"),
    [("postgres@/nowhere", 'database "nowhere" does not exist'), ("nobody@/postgres", 'role "nobody" does not exist')],
)
def test_what_a_server_does_not_have_is_no_matter_of_waiting(postgres_server: Path, place: str, why: str) -> None:
    """Bug: half an hour was measured first."""
    with pytest.raises(UnusableHistory, match=why):
        Database(f"postgresql://{place}?host={postgres_server}").check()


def test_a_server_that_goes_in_the_middle_is_told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the run is there then."""
    database = Database(postgres_url)
    database.save(a_run(1))
    before = rows(postgres_url)
    monkeypatch.setattr("llm_bench_fixtures.history.sql._metric_values", lambda *_: kick(postgres_url))
    with pytest.raises(HistoryUnavailable, match="terminating connection") as told:
        database.save(a_run(2))
    assert not isinstance(told.value, UnusableHistory)
    assert rows(postgres_url) == before

    reading = database.values(["latency_s"], pytest.fail)
    assert next(reading).heading.place.name == "1"
    kick(postgres_url)
    with pytest.raises(HistoryUnavailable, match="terminating connection"):
        list(reading)


def kick(url: str) -> list[dict[str, Any]]:
    """End every other connection to the database."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    ask(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608
    return [{"run": 9, "metric": "x", "by_position": "[]"}]


JOBS = """
import os, signal, sys
sys.path[:0] = {path!r}
from dataclasses import replace
from test_database import a_run
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history import sql

url, jobs, run = sys.argv[1], int(sys.argv[2]), a_run(30)
if jobs == 1:
    sql._metric_values = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
start, go = os.pipe()
children = []
for number in range(jobs):
    if child := os.fork():
        children.append(child)
        continue
    os.close(go)
    origin = replace(run.provenance, commit=f"{{number:040x}}", started=f"2026-01-01T00:00:00.{{number:06}}")
    os.read(start, 1)  # until all are there
    try:
        Database(url).save(replace(run, provenance=origin))
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(0)
os.close(go)
print(sum(os.waitpid(child, 0)[1] for child in children))
"""


def run_jobs(url: str, jobs: int) -> tuple[str, str]:
    """What they wrote to stderr, and the sum of their statuses."""
    tests = Path(__file__).resolve().parent
    script = JOBS.format(path=[str(tests), str(tests.parent)])
    command = [sys.executable, "-c", script, url, str(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr, done.stdout.strip()


@pytest.mark.slow("many processes write a run each")
@pytest.mark.parametrize("jobs", [10, pytest.param(200, marks=pytest.mark.nightly("two hundred processes"))])
def test_many_jobs_at_once_lose_nothing(url: str, jobs: int) -> None:
    """They find no tables; and PostgreSQL takes a hundred clients at a time."""
    assert run_jobs(url, jobs) == ("", "0")
    assert sorted(ask(url, "SELECT commit_id FROM runs")) == [(f"{number:040x}",) for number in range(jobs)]
    found = rows(url)
    assert found["documents"] == found["records"] == jobs
    assert found["suites"] == 1


@pytest.mark.slow("a process imports the package")
def test_a_job_that_is_killed_while_it_writes_leaves_nothing(history: Database) -> None:
    before = rows(history.url)
    assert run_jobs(history.url, 1) == ("", "9")
    assert rows(history.url) == before
    history.save(a_run(9))
    assert rows(history.url)["runs"] == before["runs"] + 1
