"""Saved runs in a database, SQLite's or PostgreSQL's: how they are saved, found and read, a run a transaction."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from llm_bench_fixtures import errors
from llm_bench_fixtures.history import sql
from llm_bench_fixtures.history.connections import engine_of, transaction
from llm_bench_fixtures.history.headings import Heading, PassOver, Unreadable
from llm_bench_fixtures.history.saved import Address, SavedAt, saved_at
from llm_bench_fixtures.history.storage import COMMIT, LATEST, NUMBER, Values, check_name, given_file
from llm_bench_fixtures.options.parsers import SQLITE, parse_history
from llm_bench_fixtures.results import storage
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Blessing, Run, RunState
from llm_bench_fixtures.text import encodable
from llm_bench_fixtures.writing import check_folder, naming_unwritable

if TYPE_CHECKING:
    import sqlalchemy as sa

HEADING = ("id", "origin", "state", "is_baseline", "measured", "benchmarks", "blessed", "blessed_at", "selection")
PAGE = 200  # runs that are fetched at a time
MOST_NAMED = 12


@dataclass(frozen=True)
class Database:
    """A storage. Every method raises HistoryUnavailable where the database fails, UnusableHistory where waiting doesn't
    help, InvalidSetting where it is another program's or a newer version's, and those that read StorageNotFound where
    no run was ever saved."""

    url: str

    def __str__(self) -> str:
        return self.url

    def places(self) -> list[SavedAt]:
        with self._reading() as connection:
            documents = sql.tables()["documents"]
            numbers = connection.scalars(documents.select().with_only_columns(documents.c.run).order_by("run")).all()
        return [Address(self.url, number) for number in numbers]

    def name(self, place: SavedAt) -> str:
        return place.name

    short_name = name

    def newest(self, most: int, pass_over: PassOver) -> tuple[list[Heading], int]:
        import sqlalchemy as sa

        with self._reading() as connection:
            total = connection.scalar(sa.select(sa.func.count()).select_from(sql.tables()["runs"]))
            found = list(self._headings(connection.execute(self._runs().limit(most or None)), pass_over))
        return found[::-1], total or 0

    def newest_first(
        self, pass_over: PassOver, before: datetime | None = None, commits: Collection[str] = ()
    ) -> Iterator[Heading]:
        import sqlalchemy as sa

        runs = sql.tables()["runs"].c
        query = self._runs()
        if before is not None:
            query = query.where(runs.started < before.replace(tzinfo=None))
        if commits:
            query = query.where(runs.commit_id.in_(commits))
        older = query
        while True:
            with self._reading() as connection:  # ends before the caller has any
                page = connection.execute(older.limit(PAGE)).all()
            yield from self._headings(page, pass_over)
            if len(page) < PAGE:
                return
            older = query.where(sa.tuple_(runs.started, runs.id) < sa.tuple_(page[-1].started, page[-1].id))

    def select(self, text: str, other_than: SavedAt | None = None) -> SavedAt:
        if isinstance(address := saved_at(text), Address):
            return replace(address, url=parse_history(address.url))
        text = encodable(text)
        check_name(text)
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

        runs, numbers = sql.tables()["runs"], msgspec.json.Decoder(list[float | None])
        source: sa.FromClause = runs
        columns = []
        for metric in metrics:
            of_metric = sql.tables()["metric_values"].alias()
            source = source.outerjoin(of_metric, (of_metric.c.run == runs.c.id) & (of_metric.c.metric == metric))
            columns.append(of_metric.c.by_position)
        with self._reading() as connection:
            rows = connection.execute(sql.tables()["suites"].select())
            suites = {digest: msgspec.json.decode(text, type=tuple[tuple[str, str], ...]) for digest, text in rows}
            query = sa.select(*(runs.c[name] for name in (*HEADING, "suite")), *columns).select_from(source)
            for row in connection.execute(query, execution_options={"yield_per": PAGE}):
                for heading in self._headings([row], pass_over):
                    values = np.empty((len(suites[row.suite]), len(metrics)))
                    for place, text in enumerate(row[len(HEADING) + 1 :]):
                        values[:, place] = np.nan if text is None else numbers.decode(text)
                    yield Values(heading, suites[row.suite], values)

    def read_bytes(self, place: Address) -> bytes:
        """The content of the run's results.json. Raises UnreadableResults."""
        documents = sql.tables()["documents"]
        with self._reading() as connection:
            query = documents.select().with_only_columns(documents.c.json).where(documents.c.run == place.number)
            packed = connection.scalar(query)
        if packed is None:
            raise errors.UnreadableResults(f"there is no run {place.number} in {self.url}")
        return sql.unpacked(packed, place)

    def save(self, run: Run, name: str = "") -> tuple[Address, bool]:
        """Keep the run, whose records have their metrics. Returns its place, and whether it wasn't there already.

        A run is there already where it has the same times. Raises UnreadableResults for one that can't be read again.
        """
        import sqlalchemy as sa

        document = sql.document_of(run)
        whole = sql.run_of_rows(document, run.source)
        new = {"digest": sql.digest_of(whole), "name": name, "json": zlib.compress(document)}
        insert = "INSERT INTO documents (digest, name, json) VALUES (:digest, :name, :json)"
        with self._writing() as connection:
            number = connection.scalar(sa.text(f"{insert} ON CONFLICT DO NOTHING RETURNING run"), new)
            if number is None:
                there = connection.scalar(sa.text("SELECT run FROM documents WHERE digest = :digest"), new)
                return Address(self.url, there or 0), False
            sql.tabulate(connection, number, name, whole)
        return Address(self.url, number), True

    def bless(self, place: Address, run: Run) -> None:
        """Put the run, which has a blessing now, in the place of what is there."""
        documents, runs = sql.tables()["documents"], sql.tables()["runs"]
        document = sql.document_of(run)
        blessing, packed = sql.blessing_in(sql.run_of_rows(document, run.source)), zlib.compress(document)
        with self._writing() as connection:
            connection.execute(documents.update().where(documents.c.run == place.number).values(json=packed))
            connection.execute(runs.update().where(runs.c.id == place.number).values(**blessing))

    def check(self) -> None:
        """Raise UnusableHistory, InvalidSetting, MissingLibrary and UnwritableFile where no run can be saved here,
        HistoryUnavailable where none can be now. Makes the tables where there are none; no run stays, and no file is
        made."""
        engine_of(self.url)
        if self.url.startswith(SQLITE) and not self._file.exists():
            check_folder(self._file.parent)
            return
        import sqlalchemy as sa

        own = sql.tables()
        with self._writing() as connection, connection.begin_nested() as trial:
            for table in (own[name] for name in own if name != sql.SCHEMA):
                connection.execute(table.insert().from_select(list(table.c), table.select().where(sa.false())))
            connection.execute(own["documents"].insert(), {"run": 0, "digest": "", "name": "", "json": b""})
            trial.rollback()

    @property
    def _file(self) -> Path:
        return Path(self.url.removeprefix(f"{SQLITE}:///"))

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """Raises StorageNotFound where no run was ever saved."""
        missing = f"no runs are saved in {self.url}: pytest --llm-history saves some, and llm-bench history import"
        if self.url.startswith(SQLITE) and not self._file.exists():
            raise errors.StorageNotFound(missing)
        with transaction(self.url) as connection:
            if not sql.has_tables(connection, self.url):
                raise errors.StorageNotFound(missing)
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Makes the file's folder and the tables where there are none. Raises UnwritableFile for the folder."""
        if self.url.startswith(SQLITE):
            with naming_unwritable(self._file):
                self._file.parent.mkdir(parents=True, exist_ok=True)
        with transaction(self.url, writes=True) as connection:
            if sql.has_tables(connection, self.url):
                yield connection
                return
        # Anew: a maker must hold no lock while it waits for another maker.
        with transaction(self.url, writes=True) as connection:
            sql.make_tables(connection, self.url)
            yield connection

    def _runs(self) -> sa.Select[*tuple[Any, ...]]:
        """The newest first: what their headings are made of, and what they are named by."""
        import sqlalchemy as sa

        runs = sql.tables()["runs"].c
        named_by = (runs.name, runs.branch, runs.commit_id, runs.started)
        columns = (*(runs[name] for name in HEADING), *named_by)
        return sa.select(*columns).order_by(runs.started.desc(), runs.id.desc())

    def _headings(self, rows: Iterable[sa.Row[Any]], pass_over: PassOver) -> Iterator[Heading]:
        """Headings of rows that begin with HEADING. Values are taken by place: by name they take half of the time."""
        for row in rows:
            heading = row[: len(HEADING)]
            number, origin, state, is_baseline, measured, benchmarks, blessed, blessed_at, selection = heading
            place = Address(self.url, number)
            try:
                provenance = storage.decode(origin.encode(), Provenance, place)
            except errors.UnreadableResults as error:
                pass_over(Unreadable(place, str(error)))
                continue
            blessing = None if blessed is None else Blessing(blessed, blessed_at)
            narrowed = tuple(msgspec.json.decode(selection))
            yield Heading(place, provenance, RunState(state), is_baseline, measured, benchmarks, blessing, narrowed)

    def _named(self, connection: sa.Connection, text: str, other_than: SavedAt | None) -> Iterator[sa.Row[Any]]:
        """The run of that number; else the newest of that name; else that of the branch, and of each commit whose id
        begins so. A name of `other_than` alone names it."""
        runs = sql.tables()["runs"].c
        number = int(text) if NUMBER.fullmatch(text) and text.isdecimal() else None
        if number is not None and (same := connection.execute(self._runs().where(runs.id == number)).all()):
            yield from same
            return
        if same := connection.execute(self._runs().where(runs.name == text).limit(2)).all():
            yield next((row for row in same if Address(self.url, row.id) != other_than), same[0])
            return
        others = self._runs()
        if isinstance(other_than, Address):
            others = others.where(runs.id != other_than.number)
        of_branch = others if text == LATEST else others.where(runs.branch == text)
        yield from connection.execute(of_branch.limit(1)).all()
        if COMMIT.fullmatch(text):
            of_commits = connection.execute(others.where(runs.commit_id.startswith(text.lower()))).all()
            yield from {row.commit_id: row for row in reversed(of_commits)}.values()


def _in_words(row: sa.Row[Any]) -> str:
    parts = (str(row.id), row.name, row.branch, row.commit_id[:12], f"{row.started:%Y-%m-%d %H:%M}")
    return " ".join(filter(None, parts))
