"""A PostgreSQL server of the tests' own: on a unix socket, in a temporary folder, with nothing that lasts.

A plain module with fixtures, which the conftest.py of a folder imports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
INITDB = shutil.which("initdb") or (str(PROGRAMS[-1]) if PROGRAMS else "")
USER = "postgres"
NUMBERS = count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """The folder of its socket."""
    pytest.importorskip("psycopg", reason="psycopg isn't installed: pip install 'llm-bench-fixtures[sql]'")
    if not INITDB:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="llm-bench-pg-"))  # a socket's path may have 100 characters only
    as_user: list[str] = []
    if os.geteuid() == 0:  # whom it refuses
        shutil.chown(folder, USER)
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    data, options = folder / "data", f"-k {folder} -c listen_addresses= -c fsync=off"
    control = [*as_user, str(Path(INITDB).resolve().with_name("pg_ctl")), "-D", str(data), "-w"]
    try:
        subprocess.run(
            [*as_user, INITDB, "-D", data, "-U", USER, "--auth=trust", "--no-sync", "--locale=C", "-E", "UTF8"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        subprocess.run(
            [*control, "-l", str(folder / "log"), "-o", options, "start"],
            check=True,
            cwd="/",
            stdout=subprocess.DEVNULL,
        )
        yield folder
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, cwd="/", stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: Path) -> str:
    """Of an empty database."""
    import psycopg

    name = f"history{next(NUMBERS)}"
    with psycopg.connect(host=str(postgres_server), user=USER, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://{USER}@/{name}?host={postgres_server}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database of each kind."""
    if request.param == "sqlite":
        pytest.importorskip("sqlalchemy", reason="SQLAlchemy isn't installed: pip install 'llm-bench-fixtures[sql]'")
        return f"sqlite:///{tmp_path / 'history.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found
