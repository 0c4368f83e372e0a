"""Transactions on SQLite and PostgreSQL: each is kept whole or not at all, and none waits for ever."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures import errors
from llm_bench_fixtures.options.parsers import SQLITE

if TYPE_CHECKING:
    import sqlalchemy as sa

WAIT_BUDGET_S = 60.0  # for a database that others keep busy
BUSY = re.compile(r"too many c|connection slots|no more connections|the database system is", re.IGNORECASE)
REFUSED = re.compile(r"FATAL:|no password supplied")  # by a server that answers: its database or role is missing, say
ADVICE = {  # by what a database says
    r"permission denied for schema": "let its owner make the tables, or grant CREATE on it to the role",
    r"permission denied": "grant SELECT and INSERT on the tables to the role; UPDATE too, to bless runs",
    r"read-?only|unable to open": "name a database that can be written",
    r"file is not a database|malformed": "name another file",
    r"FATAL:.* does not exist": "create it, or name another",
}
CONNECTION = {"connect_timeout": 10, "tcp_user_timeout": 30_000}  # seconds; milliseconds


@cache
def engine_of(url: str) -> sa.Engine:
    """Raises MissingLibrary, and InvalidSetting for a URL that the library refuses."""
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
    except (sa.exc.ArgumentError, ValueError) as error:
        raise errors.InvalidSetting(f"{url} is no URL of a database: {errors.first_line(error)}") from error


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed: nobody answered, or others keep the database busy."""
    import sqlite3

    from sqlalchemy.exc import OperationalError

    cause = getattr(error, "orig", None)
    if REFUSED.search(str(cause)) and not BUSY.search(str(cause)):
        return False
    code: int = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return isinstance(error, OperationalError) and code & 0xFF == sqlite3.SQLITE_BUSY


def _leave_transactions(connection: Any, _: object) -> None:
    """Python's module would begin them late, and leave out the making of tables."""
    connection.isolation_level = None


def _begin(connection: sa.Connection) -> None:
    """A transaction that first reads and then writes would fail where another has written meanwhile."""
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_on_server(connection: sa.Connection) -> None:
    """Begin so that several queries read one moment, and nobody waits for ever for others' locks; as in SQLite."""
    level = "READ COMMITTED" if connection.get_execution_options().get("writes") else "REPEATABLE READ"
    timeout = f"SET LOCAL lock_timeout = '{WAIT_BUDGET_S * 1000:.0f}ms'"
    connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {level}; {timeout}")


@contextmanager
def transaction(url: str, *, writes: bool = False) -> Iterator[sa.Connection]:
    """One transaction: all of it is kept, or nothing."""
    engine = engine_of(url)
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with _connected(engine) as connection:
            connection.execution_options(writes=writes)
            with connection.begin():
                yield connection
    except SQLAlchemyError as error:
        reason = errors.first_line(getattr(error, "orig", None) or error)
        kind = errors.HistoryUnavailable if _may_pass(error) else errors.UnusableHistory
        advice = next((f": {advice}" for said, advice in ADVICE.items() if re.search(said, reason)), "")
        raise kind(f"the history {url} can't be used: {reason}{advice}", f"{reason}{advice}") from error


def _connected(engine: sa.Engine) -> sa.Connection:
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
