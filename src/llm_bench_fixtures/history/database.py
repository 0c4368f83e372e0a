"""Saved runs in a database, SQLite's or PostgreSQL's.

Each run is one transaction. `documents` has it whole: the content of its results.json, compressed. All other tables are
made from that for people and for fast answers, and made anew when an older schema is brought forward. The metrics of
250 benchmarks are 10,000 values, so that a row has one metric of all of them, which the view `metrics` takes apart.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from llm_bench_fixtures import errors
from llm_bench_fixtures.history.headings import Heading, PassOver, Unreadable, heading_of
from llm_bench_fixtures.history.saved import Address, SavedAt, read_saved_run, saved_at
from llm_bench_fixtures.history.storage import COMMIT, LATEST, NUMBER, given_file, refuse_url
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.options.parsers import POSTGRESQL, SQLITE, parse_history
from llm_bench_fixtures.results import storage
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Blessing, Run, RunState
from llm_bench_fixtures.text import encodable
from llm_bench_fixtures.writing import check_folder, unwritable

if TYPE_CHECKING:
    import sqlalchemy as sa

    from llm_bench_fixtures.history.values import Values

VERSION = 1  # of the tables; a database of an older one is brought forward
WAIT_BUDGET_S = 60.0  # for a database that others keep busy
BUSY = re.compile(r"too many clients|connection slots|starting up", re.IGNORECASE)
CONNECTION = {"connect_timeout": 10, "tcp_user_timeout": 30_000}  # seconds; milliseconds
MAKERS_LOCK = 7_109_423_518_442_021  # PostgreSQL's advisory lock of whoever makes the tables
NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # in JSON
PAGE = 200  # runs that are fetched at a time
MOST_NAMED = 12
SCHEMA = "llm_bench_schema"  # the table that marks a database as ours
WORKLOAD_TEXTS = ("digest", "cache", "padding_side")
WORKLOAD = ("digest", "prompts", "batch_size", "prompt_tokens", "padded_tokens", "new_tokens", "cache", "padding_side")

VIEWS = {
    SQLITE: (
        """CREATE VIEW metrics AS SELECT run, CAST(item.key AS INTEGER) AS position, metric, item.value AS value
        FROM metric_values, json_each(by_position) AS item WHERE item.value IS NOT NULL""",
        """CREATE VIEW provenance AS SELECT runs.id AS run, item.key AS name, item.value AS value
        FROM runs, json_each(origin) AS item WHERE item.key <> 'libraries'
        UNION ALL SELECT runs.id, 'libraries.' || item.key, item.value
        FROM runs, json_each(origin, '$.libraries') AS item""",
    ),
    POSTGRESQL: (
        """CREATE VIEW metrics AS SELECT run, CAST(item.position - 1 AS INTEGER) AS position, metric,
        CAST(item.value AS DOUBLE PRECISION) AS value FROM metric_values,
        json_array_elements_text(CAST(by_position AS json)) WITH ORDINALITY AS item(value, position)
        WHERE item.value IS NOT NULL""",
        """CREATE VIEW provenance AS SELECT runs.id AS run, item.key AS name, item.value AS value
        FROM runs, json_each_text(CAST(origin AS json)) AS item WHERE item.key <> 'libraries'
        UNION ALL SELECT runs.id, 'libraries.' || item.key, item.value
        FROM runs, json_each_text(CAST(origin AS json) -> 'libraries') AS item""",
    ),
}


@cache
def _tables() -> Mapping[str, sa.Table]:
    """By name. A run's number is the same in all."""
    import sqlalchemy as sa

    tables, column = sa.MetaData(), sa.Column
    flag, number, text, large = sa.Boolean, sa.Integer, sa.Text, sa.BigInteger
    sa.Table(SCHEMA, tables, column("version", number, primary_key=True))
    sa.Table(
        "documents",
        tables,
        column("run", number, sa.Identity(), primary_key=True),
        column("digest", text, unique=True, nullable=False),
        *(column("name", text, nullable=False), column("json", sa.LargeBinary, nullable=False)),
        sqlite_autoincrement=True,
    )
    sa.Table(
        "runs",
        tables,
        column("id", number, primary_key=True, autoincrement=False),
        *(column("name", text), column("started", sa.DateTime, index=True)),
        *(column("commit_id", text), column("branch", text), column("dirty", flag)),
        *(column("model", text), column("random_weights", flag), column("hardware", text), column("fingerprint", text)),
        *(column("state", text), column("is_baseline", flag), column("blessed", text), column("blessed_at", text)),
        *(column("measured", number), column("benchmarks", number)),
        *(column("origin", text), column("selection", text), column("suite", text)),
    )
    sa.Table("suites", tables, column("digest", text, primary_key=True), column("benchmarks", text))
    sa.Table(
        "records",
        tables,
        *(column(name, number, primary_key=True, autoincrement=False) for name in ("run", "position")),
        *(column(name, text) for name in ("test", "scenario", "case_name", "variant", "status", "reason")),
        *(column(name, text if name in WORKLOAD_TEXTS else large) for name in WORKLOAD),
    )
    sa.Table(
        "metric_values",
        tables,
        *(column("metric", text, primary_key=True), column("run", number, primary_key=True, autoincrement=False)),
        column("by_position", text),
    )
    return tables.tables


@cache
def _engine(url: str) -> sa.Engine:
    """Raises MissingLibrary."""
    try:
        import sqlalchemy as sa

        if url.startswith(SQLITE):
            address = sa.URL.create(SQLITE, database=url.removeprefix(f"{SQLITE}:///"))
            engine = sa.create_engine(address, poolclass=sa.NullPool, connect_args={"timeout": WAIT_BUDGET_S})
            sa.event.listen(engine, "connect", _leave_transactions)
            sa.event.listen(engine, "begin", _begin)
            return engine
        # No pool: of two hundred jobs that measure for half an hour each, none holds a connection.
        address = sa.make_url(url).set(drivername="postgresql+psycopg")
        wait = {name: value for name, value in CONNECTION.items() if name not in address.query}
        engine = sa.create_engine(address, poolclass=sa.NullPool, connect_args=wait, hide_parameters=True)
        sa.event.listen(engine, "begin", _begin_on_server)
        return engine
    except ImportError as error:
        raise errors.MissingLibrary("a database of saved runs", "SQLAlchemy and psycopg", "sql") from error


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed: nobody answered, or others keep the database busy."""
    import sqlite3

    from sqlalchemy.exc import OperationalError

    code: int = getattr(getattr(error, "orig", None), "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return isinstance(error, OperationalError) and code & 0xFF == sqlite3.SQLITE_BUSY


def _leave_transactions(connection: Any, _: object) -> None:
    """Python's module would begin them late, and leave out the making of tables."""
    connection.isolation_level = None


def _begin(connection: sa.Connection) -> None:
    """A transaction that first reads and then writes would fail where another has written meanwhile."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_on_server(connection: sa.Connection) -> None:
    """What is read in several queries is of one moment, and nobody waits for ever for others' locks; as in SQLite."""
    level = "READ COMMITTED" if connection.get_execution_options().get("writes") else "REPEATABLE READ"
    timeout = f"SET LOCAL lock_timeout = '{WAIT_BUDGET_S * 1000:.0f}ms'"
    connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {level}; {timeout}")


@dataclass(frozen=True)
class Database:
    """A storage. Every method raises HistoryUnavailable where the database fails, UnusableHistory where waiting doesn't
    help, InvalidSetting where it is another program's or a newer version's, and those that read StorageNotFound where
    no run was ever saved."""

    url: str

    def __str__(self) -> str:
        return self.url

    # what a storage can do

    def places(self) -> list[SavedAt]:
        with self._reading() as connection:
            documents = _tables()["documents"]
            numbers = connection.scalars(documents.select().with_only_columns(documents.c.run).order_by("run")).all()
        return [Address(self.url, number) for number in numbers]

    def name(self, place: SavedAt) -> str:
        return place.name

    short_name = name

    def newest(self, most: int, pass_over: PassOver) -> tuple[list[Heading], int]:
        import sqlalchemy as sa

        with self._reading() as connection:
            total = connection.scalar(sa.select(sa.func.count()).select_from(_tables()["runs"]))
            found = list(self._headings(connection.execute(self._runs().limit(most or None)), pass_over))
            self._tell_unreadable(connection, pass_over)
        return found[::-1], total or 0

    def newest_first(self, pass_over: PassOver, before: datetime | None = None) -> Iterator[Heading]:
        import sqlalchemy as sa

        runs, size = _tables()["runs"].c, PAGE
        query = self._runs()
        if before is not None:
            query = query.where(runs.started < before.replace(tzinfo=None))
        older = query
        while True:
            with self._reading() as connection:  # which ends before the caller has any
                page = connection.execute(older.limit(size)).all()
                if older is query:
                    self._tell_unreadable(connection, pass_over)
            yield from self._headings(page, pass_over)
            if len(page) < size:
                return
            older = query.where(sa.tuple_(runs.started, runs.id) < sa.tuple_(page[-1].started, page[-1].id))
            size *= 4

    def select(self, text: str, other_than: SavedAt | None = None) -> SavedAt:
        if not text:
            raise errors.InvalidSetting("the name of a run can't be empty")
        if isinstance(address := saved_at(text), Address):
            return replace(address, url=parse_history(address.url))
        text = encodable(text)
        refuse_url(text)
        if not text.isdecimal() and (given := given_file(text)):
            return given
        with self._reading() as connection:
            found = list(self._named(connection, text, other_than))
            newest = [] if found else connection.execute(self._runs().limit(MOST_NAMED)).all()
        if len(found) > 1:
            raise errors.AmbiguousRun(text, self.url, [_in_words(row) for row in found])
        if found:
            return Address(self.url, found[0].id)
        raise errors.RunNotFound(
            f"no run {text!r}: it is no file, and no number, name, branch or commit of the runs in {self.url}. Its "
            f"newest:\n{errors.indented([_in_words(row) for row in reversed(newest)])}"
        )

    def values(self, metrics: Sequence[str], pass_over: PassOver) -> Iterator[Values]:
        import numpy as np
        import sqlalchemy as sa

        from llm_bench_fixtures.history.values import Values

        runs, numbers = _tables()["runs"], msgspec.json.Decoder(list[float | None])
        source: sa.FromClause = runs
        columns = []
        for metric in metrics:
            of_metric = _tables()["metric_values"].alias()
            source = source.outerjoin(of_metric, (of_metric.c.run == runs.c.id) & (of_metric.c.metric == metric))
            columns.append(of_metric.c.by_position)
        with self._reading() as connection:
            self._tell_unreadable(connection, pass_over)
            suites = {
                digest: msgspec.json.decode(text, type=tuple[tuple[str, str], ...])
                for digest, text in connection.execute(_tables()["suites"].select())
            }
            query = sa.select(*runs.c, *columns).select_from(source)
            for row in connection.execute(query, execution_options={"yield_per": PAGE}):
                for heading in self._headings([row], pass_over):
                    values = np.empty((len(suites[row.suite]), len(metrics)))
                    for place, text in enumerate(row[len(runs.c) :]):
                        values[:, place] = np.nan if text is None else numbers.decode(text)
                    yield Values(heading, suites[row.suite], values)

    # runs whole

    def read_bytes(self, place: Address) -> bytes:
        """The content of the run's results.json. Raises UnreadableResults."""
        documents = _tables()["documents"]
        with self._reading() as connection:
            query = documents.select().with_only_columns(documents.c.json).where(documents.c.run == place.number)
            packed = connection.scalar(query)
        if packed is None:
            raise errors.UnreadableResults(f"there is no run {place.number} in {self.url}")
        return _unpacked(packed, place)

    def save(self, run: Run, name: str = "") -> tuple[Address, bool]:
        """Keep the run, whose records have their metrics. Returns its place, and whether it wasn't there already.

        A run is there already where it has the same times. Raises UnreadableResults for one that can't be read again.
        """
        import sqlalchemy as sa

        document = _document(run)
        whole = _run_of_rows(document, run.source)
        new = {"digest": _digest(whole), "name": name, "json": zlib.compress(document)}
        insert = "INSERT INTO documents (digest, name, json) VALUES (:digest, :name, :json)"
        with self._writing() as connection:
            number = connection.scalar(sa.text(f"{insert} ON CONFLICT DO NOTHING RETURNING run"), new)
            if number is None:
                there = connection.scalar(sa.text("SELECT run FROM documents WHERE digest = :digest"), new)
                return Address(self.url, there or 0), False
            self._tabulate(connection, number, name, whole)
        return Address(self.url, number), True

    def bless(self, place: Address, run: Run) -> None:
        """Put the run, which has a blessing now, in the place of what is there."""
        documents, runs = _tables()["documents"], _tables()["runs"]
        document = _document(run)
        blessing, packed = _blessing(_run_of_rows(document, run.source)), zlib.compress(document)
        with self._writing() as connection:
            connection.execute(documents.update().where(documents.c.run == place.number).values(json=packed))
            connection.execute(runs.update().where(runs.c.id == place.number).values(**blessing))

    def check(self) -> None:
        """Raise UnusableHistory, InvalidSetting, MissingLibrary and UnwritableFile where no run can be saved here,
        HistoryUnavailable where none can be now. Nothing stays of what is written for it."""
        _engine(self.url)
        if self.url.startswith(SQLITE) and not self._file.exists():
            check_folder(self._file.parent)
            return
        import sqlalchemy as sa

        tables = _tables()
        with self._writing() as connection, connection.begin_nested() as trial:
            for table in (tables[name] for name in tables if name != SCHEMA):
                connection.execute(table.insert().from_select(list(table.c), table.select().where(sa.false())))
            connection.execute(tables["documents"].insert(), {"run": 0, "digest": "", "name": "", "json": b""})
            trial.rollback()

    # transactions

    @property
    def _file(self) -> Path:
        return Path(self.url.removeprefix(f"{SQLITE}:///"))

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Raises StorageNotFound where no run was ever saved."""
        missing = f"no runs are saved in {self.url}: pytest --llm-history saves some, and llm-bench history import"
        if self.url.startswith(SQLITE) and not self._file.exists():
            raise errors.StorageNotFound(missing)
        for _ in range(2):
            with self._begun() as connection:
                found = self._version(connection)
                if found is None:
                    raise errors.StorageNotFound(missing)
                if found == VERSION:
                    yield connection
                    return
            with self._writing():  # which brings the tables forward
                pass

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Makes the file's folder and the tables where there are none. Raises UnwritableFile for the folder."""
        if self.url.startswith(SQLITE):
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unwritable(self._file, error) from error
        with self._begun(writes=True) as connection:
            if self._version(connection) == VERSION:
                yield connection
                return
        with self._begun(writes=True) as connection:  # anew, since nobody may hold a lock who waits for the makers'
            self._make(connection)
            yield connection

    @contextmanager
    def _begun(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """One transaction: all of it is kept, or nothing."""
        engine = _engine(self.url)
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._connected(engine) as connection:
                connection.execution_options(writes=writes)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            reason = errors.first_line(getattr(error, "orig", None) or error)
            kind = errors.HistoryUnavailable if _may_pass(error) else errors.UnusableHistory
            raise kind(f"the history {self.url} can't be used: {reason}") from error

    def _connected(self, engine: sa.Engine) -> sa.Connection:
        """Waits for a server that has too many clients."""
        from sqlalchemy.exc import OperationalError

        until = time.monotonic() + WAIT_BUDGET_S
        while True:
            try:
                return engine.connect()
            except OperationalError as error:
                if not BUSY.search(str(error)) or time.monotonic() > until:
                    raise
            time.sleep(random.uniform(0.1, 1.0))  # noqa: S311  # so that they don't all come again at once

    # tables

    def _version(self, connection: sa.Connection) -> int | None:
        """Of the tables; None where there are none. Raises InvalidSetting for a newer one, and for others' tables."""
        import sqlalchemy as sa

        names = sa.inspect(connection).get_table_names()
        if SCHEMA not in names:
            if names:
                raise errors.InvalidSetting(
                    f"{self.url} is another program's, with tables such as {names[0]}: name an empty database"
                )
            return None
        found = connection.scalar(_tables()[SCHEMA].select()) or 0
        if found > VERSION:
            raise errors.InvalidSetting(
                f"{self.url} has schema version {found}; this reads {VERSION}: install a newer llm-bench-fixtures"
            )
        return found

    def _make(self, connection: sa.Connection) -> None:
        """Make the tables, or bring those of an older version forward: all but the documents are made anew."""
        import sqlalchemy as sa

        kind, tables = connection.dialect.name, _tables()
        if kind != SQLITE:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({MAKERS_LOCK})"))
        if self._version(connection) == VERSION:  # somebody has made them meanwhile
            return
        tables[SCHEMA].drop(connection, checkfirst=True)  # waits for all others, as each begins by reading it
        derived = [table for name, table in tables.items() if name != "documents"]
        for view in ("metrics", "provenance"):
            connection.execute(sa.text(f"DROP VIEW IF EXISTS {view}"))
        metadata = derived[0].metadata
        metadata.drop_all(connection, derived)
        metadata.create_all(connection)
        for view in VIEWS[kind]:
            connection.execute(sa.text(view))
        connection.execute(tables[SCHEMA].insert(), {"version": VERSION})
        documents = tables["documents"].c
        for number, name in connection.execute(sa.select(documents.run, documents.name)).all():
            packed = connection.scalar(sa.select(documents.json).where(documents.run == number))
            place = Address(self.url, number)
            with suppress(errors.UnreadableResults):  # it is named in every list, as no run has its number
                self._tabulate(connection, number, name, _run_of_rows(_unpacked(packed or b"", place), place))

    def _tabulate(self, connection: sa.Connection, number: int, name: str, run: Run) -> None:
        """Add the rows that are made from a run."""
        import sqlalchemy as sa

        heading, origin = heading_of(Address(self.url, number), run), run.provenance
        benchmarks = _text([(record.test, record.variant) for record in run.records])
        suite = {"digest": hashlib.sha256(benchmarks.encode()).hexdigest(), "benchmarks": benchmarks}
        insert = "INSERT INTO suites (digest, benchmarks) VALUES (:digest, :benchmarks) ON CONFLICT DO NOTHING"
        connection.execute(sa.text(insert), suite)
        row = {
            "id": number,
            "name": name,
            "started": heading.started.replace(tzinfo=None),
            "commit_id": origin.commit,
            **{name: getattr(origin, name) for name in ("branch", "dirty", "model", "random_weights", "hardware")},
            "fingerprint": fingerprint_of(origin).digest,
            "state": run.state.value,
            "measured": heading.measured,
            "benchmarks": heading.records,
            "origin": _text(origin),
            "selection": _text(run.selection),
            "suite": suite["digest"],
        }
        tables = _tables()
        connection.execute(tables["runs"].insert(), row | _blessing(run))
        for table, rows in (("records", _records(number, run)), ("metric_values", _metric_values(number, run))):
            if rows:
                connection.execute(tables[table].insert(), rows)

    def _runs(self) -> sa.Select[*tuple[Any, ...]]:
        """The newest first."""
        runs = _tables()["runs"]
        return runs.select().order_by(runs.c.started.desc(), runs.c.id.desc())

    def _headings(self, rows: Iterable[sa.Row[Any]], pass_over: PassOver) -> Iterator[Heading]:
        for row in rows:
            place = Address(self.url, row.id)
            try:
                origin = storage.decode(row.origin.encode(), Provenance, place)
            except errors.UnreadableResults as error:
                pass_over(Unreadable(place, str(error)))
                continue
            blessing = None if row.blessed is None else Blessing(row.blessed, row.blessed_at)
            state, selection = RunState(row.state), tuple(msgspec.json.decode(row.selection))
            yield Heading(place, origin, state, row.is_baseline, row.measured, row.benchmarks, blessing, selection)

    def _tell_unreadable(self, connection: sa.Connection, pass_over: PassOver) -> None:
        """Of runs that this version could make no rows from."""
        import sqlalchemy as sa

        lost = "SELECT run FROM documents WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = run)"
        for number in connection.scalars(sa.text(lost)).all():
            place = Address(self.url, number)
            try:
                read_saved_run(place)
            except errors.UnreadableResults as error:
                pass_over(Unreadable(place, str(error)))

    def _named(self, connection: sa.Connection, text: str, other_than: SavedAt | None) -> Iterator[sa.Row[Any]]:
        """The run of that number or name; else the newest of that branch, and of each commit whose id begins so."""
        runs = _tables()["runs"].c
        same = runs.name == text
        if NUMBER.fullmatch(text) and text.isdecimal():
            same |= runs.id == int(text)
        if found := connection.execute(self._runs().where(same)).all():
            yield from found
            return
        others = self._runs()
        if isinstance(other_than, Address):
            others = others.where(runs.id != other_than.number)
        of_branch = others if text == LATEST else others.where(runs.branch == text)
        yield from connection.execute(of_branch.limit(1)).all()
        if COMMIT.fullmatch(text):
            of_commits = connection.execute(others.where(runs.commit_id.startswith(text.lower()))).all()
            yield from {row.commit_id: row for row in reversed(of_commits)}.values()


def _records(number: int, run: Run) -> list[dict[str, Any]]:
    return [
        {
            "run": number,
            "position": position,
            "case_name": record.case,
            "status": record.status.value,
            **{name: getattr(record, name) for name in ("test", "scenario", "variant", "reason")},
            **{name: getattr(record.workload, name, None) for name in WORKLOAD},
        }
        for position, record in enumerate(run.records)
    ]


def _metric_values(number: int, run: Run) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for record in run.records for name in record.metrics)
    return [
        {"run": number, "metric": name, "by_position": _text([record.metrics.get(name) for record in run.records])}
        for name in names
    ]


def _blessing(run: Run) -> dict[str, Any]:
    """The columns that change when a run is blessed."""
    blessing = run.blessing
    texts = {"blessed": blessing.reason, "blessed_at": blessing.when} if blessing else {}
    return {"is_baseline": run.is_baseline, **texts}


def _text(value: object) -> str:
    """As JSON."""
    return msgspec.json.encode(value).decode()


def _in_words(row: sa.Row[Any]) -> str:
    parts = (str(row.id), row.name, row.branch, row.commit_id[:12], f"{row.started:%Y-%m-%d %H:%M}")
    return " ".join(filter(None, parts))


def _digest(run: Run) -> str:
    """What no two runs share, and all copies of one do: its times."""
    rounds = sorted((record.test, record.rounds_s) for record in run.measured())
    return hashlib.sha256(_text((run.provenance.started, run.provenance.hardware, rounds)).encode()).hexdigest()


def _document(run: Run) -> bytes:
    """The run as results.json has it. Raises UnreadableResults for one too large to be read again."""
    try:
        data = msgspec.json.encode(replace(run, source=""), enc_hook=float)
    except UnicodeEncodeError:  # surrogates, which only the slow way replaces
        data = msgspec.json.encode(storage.to_json(replace(run, source="")))
    data = b'{"schema":"%s",%s' % (storage.SCHEMA.encode(), data[1:])
    storage.check_size(data, run.source)
    return data


def _run_of_rows(document: bytes, place: object) -> Run:
    """The run that rows are made of: without NUL characters, which PostgreSQL doesn't take."""
    return storage.run_in(NUL.sub(rb"\1\\ufffd", document) if rb"\u0000" in document else document, place)


def _unpacked(packed: bytes, place: Address) -> bytes:
    try:
        data = zlib.decompressobj().decompress(packed, storage.MOST_BYTES + 1)
    except zlib.error as error:
        raise errors.DamagedResults(f"{place} is damaged: {error}") from error
    storage.check_size(data, place)
    return data
