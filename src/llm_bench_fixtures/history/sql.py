"""The tables, the version that a database has of them, and what they hold of a run.

`documents` has each run whole. All other tables are made from it, for people and for fast answers. The metrics of 250
benchmarks are 10,000 values, so that a row has one metric of all of them, which the view `metrics` takes apart.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from llm_bench_fixtures.errors import DamagedResults, InvalidSetting
from llm_bench_fixtures.history.headings import started_of
from llm_bench_fixtures.history.saved import Address
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.options.parsers import POSTGRESQL, SQLITE
from llm_bench_fixtures.results import storage
from llm_bench_fixtures.results.record import Run

if TYPE_CHECKING:
    import sqlalchemy as sa

VERSION = 1  # version of the tables: the first
SCHEMA = "llm_bench_schema"  # the table that marks a database as ours
WORKLOAD_TEXTS = ("digest", "cache", "padding_side")
WORKLOAD = ("digest", "prompts", "batch_size", "prompt_tokens", "padded_tokens", "new_tokens", "cache", "padding_side")
MAKERS_LOCK = 7_109_423_518_442_021  # PostgreSQL's advisory lock of whoever makes the tables
NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # in JSON

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
def tables() -> Mapping[str, sa.Table]:
    """Tables by name. A run's number is the same in all."""
    import sqlalchemy as sa

    metadata, column = sa.MetaData(), sa.Column
    flag, number, text, large = sa.Boolean, sa.Integer, sa.Text, sa.BigInteger
    sa.Table(SCHEMA, metadata, column("version", number, primary_key=True))
    sa.Table(
        "documents",
        metadata,
        column("run", number, sa.Identity(), primary_key=True),
        column("digest", text, unique=True, nullable=False),
        *(column("name", text, nullable=False), column("json", sa.LargeBinary, nullable=False)),
        sqlite_autoincrement=True,
    )
    sa.Table(
        "runs",
        metadata,
        column("id", number, primary_key=True, autoincrement=False),
        *(column("name", text), column("started", sa.DateTime, index=True)),
        *(column("commit_id", text), column("branch", text), column("dirty", flag)),
        *(column("model", text), column("random_weights", flag), column("hardware", text), column("fingerprint", text)),
        *(column("state", text), column("is_baseline", flag), column("blessed", text), column("blessed_at", text)),
        *(column("measured", number), column("benchmarks", number)),
        *(column("origin", text), column("selection", text), column("suite", text)),
    )
    sa.Table("suites", metadata, column("digest", text, primary_key=True), column("benchmarks", text))
    sa.Table(
        "records",
        metadata,
        *(column(name, number, primary_key=True, autoincrement=False) for name in ("run", "position")),
        *(column(name, text) for name in ("test", "scenario", "case_name", "variant", "status", "reason")),
        *(column(name, text if name in WORKLOAD_TEXTS else large) for name in WORKLOAD),
    )
    sa.Table(
        "metric_values",
        metadata,
        *(column("metric", text, primary_key=True), column("run", number, primary_key=True, autoincrement=False)),
        column("by_position", text),
    )
    return metadata.tables


def has_tables(connection: sa.Connection, url: str) -> bool:
    """Whether the tables are there. Raises InvalidSetting for those of a newer version, and for others' tables."""
    import sqlalchemy as sa

    names = sa.inspect(connection).get_table_names()
    if SCHEMA not in names:
        if names:
            raise InvalidSetting(f"{url} is another program's, with tables such as {names[0]}: name an empty database")
        return False
    found = connection.scalar(tables()[SCHEMA].select()) or 0
    if found > VERSION:
        raise InvalidSetting(
            f"{url} has schema version {found}; this reads {VERSION}: install a newer llm-bench-fixtures"
        )
    return True


def make_tables(connection: sa.Connection, url: str) -> None:
    """Make the tables, unless somebody has made them meanwhile."""
    import sqlalchemy as sa

    kind, own = connection.dialect.name, tables()
    if kind != SQLITE:
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({MAKERS_LOCK})"))
    if has_tables(connection, url):
        return
    own[SCHEMA].metadata.create_all(connection)
    for view in VIEWS[kind]:
        connection.execute(sa.text(view))
    connection.execute(own[SCHEMA].insert(), {"version": VERSION})


def tabulate(connection: sa.Connection, number: int, name: str, run: Run) -> None:
    """Add the rows that are made from a run."""
    import sqlalchemy as sa

    origin = run.provenance
    benchmarks = _text([(record.test, record.variant) for record in run.records])
    suite = {"digest": hashlib.sha256(benchmarks.encode()).hexdigest(), "benchmarks": benchmarks}
    insert = "INSERT INTO suites (digest, benchmarks) VALUES (:digest, :benchmarks) ON CONFLICT DO NOTHING"
    connection.execute(sa.text(insert), suite)
    row = {
        "id": number,
        "name": name,
        "started": started_of(origin).replace(tzinfo=None),
        "commit_id": origin.commit,
        **{name: getattr(origin, name) for name in ("branch", "dirty", "model", "random_weights", "hardware")},
        "fingerprint": fingerprint_of(origin).digest,
        "state": run.state.value,
        "measured": len(run.measured()),
        "benchmarks": len(run.records),
        "origin": _text(origin),
        "selection": _text(run.selection),
        "suite": suite["digest"],
    }
    own = tables()
    connection.execute(own["runs"].insert(), row | blessing_in(run))
    for table, rows in (("records", _records(number, run)), ("metric_values", _metric_values(number, run))):
        if rows:
            connection.execute(own[table].insert(), rows)


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


def blessing_in(run: Run) -> dict[str, Any]:
    """The columns that change when a run is blessed."""
    blessing = run.blessing
    texts = {"blessed": blessing.reason, "blessed_at": blessing.when} if blessing else {}
    return {"is_baseline": run.is_baseline, **texts}


def _text(value: object) -> str:
    """Value as JSON."""
    return msgspec.json.encode(value).decode()


def digest_of(run: Run) -> str:
    """Digest that no two runs share, and all copies of one do: of its times."""
    rounds = sorted((record.test, record.rounds_s) for record in run.measured())
    return hashlib.sha256(_text((run.provenance.started, run.provenance.hardware, rounds)).encode()).hexdigest()


def document_of(run: Run) -> bytes:
    """The run as results.json has it. Raises UnreadableResults for one too large to be read again."""
    try:
        data = msgspec.json.encode(replace(run, source=""), enc_hook=float)
    except UnicodeEncodeError:  # surrogates, which only the slow way replaces
        data = msgspec.json.encode(storage.to_json(replace(run, source="")))
    data = b'{"schema":"%s",%s' % (storage.SCHEMA.encode(), data[1:])
    storage.check_size(data, run.source)
    return data


def run_of_rows(document: bytes, place: object) -> Run:
    """The run that rows are made of: without NUL characters, which PostgreSQL doesn't take."""
    return storage.run_in(NUL.sub(rb"\1\\ufffd", document) if rb"\u0000" in document else document, place)


def unpacked(packed: bytes, place: Address) -> bytes:
    try:
        data = zlib.decompressobj().decompress(packed, storage.MOST_BYTES + 1)
    except zlib.error as error:
        raise DamagedResults(f"{place} is damaged: {error}") from error
    storage.check_size(data, place)
    return data
