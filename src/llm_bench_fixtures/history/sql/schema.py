"""The tables, and the version that a database has of them.

`documents` has each run whole. All other tables are made from it, for people and for fast answers. The metrics of 250
benchmarks are 10,000 values, so that a row has one metric of all of them, which the view `metrics` takes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.options.parsers import POSTGRESQL, SQLITE

if TYPE_CHECKING:
    import sqlalchemy as sa

VERSION = 1  # version of the tables: the first
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
