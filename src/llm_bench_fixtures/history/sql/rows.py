"""How the tables are made, and what they hold of a run."""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from llm_bench_fixtures import errors
from llm_bench_fixtures.history.headings import started_of
from llm_bench_fixtures.history.saved import Address
from llm_bench_fixtures.history.sql.schema import SCHEMA, VERSION, VIEWS, WORKLOAD, has_tables, tables
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.options.parsers import SQLITE
from llm_bench_fixtures.results import storage
from llm_bench_fixtures.results.record import Run

if TYPE_CHECKING:
    import sqlalchemy as sa

MAKERS_LOCK = 7_109_423_518_442_021  # PostgreSQL's advisory lock of whoever makes the tables
NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # in JSON


def make(connection: sa.Connection, url: str) -> None:
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
        raise errors.DamagedResults(f"{place} is damaged: {error}") from error
    storage.check_size(data, place)
    return data
