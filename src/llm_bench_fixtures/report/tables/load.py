"""What servers did under loads: a table, and what follows from it in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.report.tables.table import Cell, Column, Section, Table
from llm_bench_fixtures.results.formatting import Notation, count, format_seconds, format_share
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.record import Run

NEARLY_ALL = 0.99  # share of the requests within the limits at a rate that a server sustains
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
OF_REQUEST: dict[str, Callable[[Request], float | None]] = {
    "TTFT": lambda one: one.ttft_s,
    "TPOT": lambda one: one.tpot_s,
    "latency": lambda one: one.latency_s,
}
MOST_REASONS = 3  # reasons of failures in a row
SECONDS, COUNT, SHARE, NUMBER = Notation.SECONDS, Notation.COUNT, Notation.SHARE, Notation.NUMBER
COLUMNS = (
    Column("variant"),
    Column("test"),
    Column("tokens", Notation.TEXT),
    Column("rate", Notation.TEXT),
    Column("requests", COUNT),
    Column("failed", COUNT),
    Column("goodput", NUMBER, unit="1/s"),
    Column("within limits", SHARE),
    Column("tokens/s", NUMBER),
    *(Column(f"{name} {which}", SECONDS) for name in OF_REQUEST for which in SHARES),
    Column("drain", SECONDS),
    Column("send lag", SECONDS),
    Column("cached", SHARE),
    Column("remarks"),
)
NOTE = (
    "Tokens: those of a prompt and the new ones. "
    "Requests at random times (a Poisson process), sent whether or not earlier ones are answered. Times count from "
    "when a request was planned; percentiles are of answered ones, and shown if there are enough. Goodput: "
    "requests answered within the limits; those that failed are not. Drain: until the last answer, after the load. "
    "Cached: of the prompts' tokens, from the server's cache."
)


def load_sections(run: Run) -> Iterator[Section]:
    """A row for each server, test and rate, those of a series together; nothing where there are none."""
    if run.loads:
        points = [point for series in _by_series(run.loads).values() for point in series]
        yield Section("Servers under load", Table(COLUMNS, tuple(tuple(_row(point)) for point in points)), NOTE)


def _by_series(points: Iterable[LoadPoint]) -> dict[tuple[object, ...], list[LoadPoint]]:
    """Load points in series that differ by their rates alone, the lowest rate first."""
    found = grouped(points, lambda point: point.series)
    return {series: sorted(them, key=lambda point: point.rate_per_s) for series, them in found.items()}


def _row(point: LoadPoint) -> Iterator[Cell]:
    yield from map(Cell, (point.variant, point.function, _lengths(point)))
    yield Cell(f"{point.rate_per_s:g}/s", rank=point.rate_per_s)
    counts = (len(point.requests), sum(point.failures.values()))
    rates = (point.goodput_per_s, point.good_share, point.output_tokens_per_s)
    times_s = (point.percentile(of, share) for of in OF_REQUEST.values() for share in SHARES.values())
    for value in (*counts, *rates, *times_s, point.drain_s, point.lag_s, point.cached_share):
        yield Cell(value=value)
    yield Cell("; ".join(_remarks(point)))


def _lengths(point: LoadPoint) -> str:
    return f"{point.prompt_tokens} + {point.new_tokens}"


def _remarks(point: LoadPoint) -> Iterator[str]:
    if not point.is_valid:
        yield invalid_sentence(point)
    if point.early_share:
        yield _early(point)
    shown, others = (list(point.failures.items())[part] for part in (slice(MOST_REASONS), slice(MOST_REASONS, None)))
    for reason, number in shown:
        yield f"{number} failed: {first_line(reason)}"
    if others:
        further = sum(number for _, number in others)
        yield f"and {further} further for {count(len(others), 'other reason')}"


def _early(point: LoadPoint) -> str:
    return f"{format_share(point.early_share)} of the answers ended before {point.new_tokens} tokens"


def invalid_sentence(point: LoadPoint) -> str:
    """Why the figures are worth nothing."""
    if point.clients_failures:
        failed = count(point.clients_failures, "request")
        return f"INVALID: {failed} failed as this client was short of file descriptors or ports, not by the server"
    return (
        f"INVALID: requests were sent up to {format_seconds(point.lag_s)} after their time, more than "
        f"{format_seconds(point.lag_limit_s)}, so the figures describe this client, not the server"
    )


def load_sentences(run: Run) -> Iterator[str]:
    """Sentences for each server and test on the highest rate that it sustains, and what becomes of the next; which
    loads are invalid."""
    for point in run.loads:
        if not point.is_valid:
            yield f"{point.variant} at {point.rate_per_s:g}/s, {_lengths(point)} tokens: {invalid_sentence(point)}."
    for points in _by_series(point for point in run.loads if point.is_valid).values():
        yield _series_sentence(points, names_test=len({point.function for point in run.loads}) > 1)


def _series_sentence(points: Sequence[LoadPoint], *, names_test: bool) -> str:
    """points: of one series, by their rates. A rate counts as sustained only where all lower ones are, too."""
    kept = list(takewhile(lambda point: point.good_share >= NEARLY_ALL, points))
    beyond = points[len(kept)] if len(kept) < len(points) else None
    last = kept[-1] if kept else points[0]
    limits = f"TTFT ≤ {format_seconds(last.ttft_limit_s)} and TPOT ≤ {format_seconds(last.tpot_limit_s)}"
    of = f", {_lengths(last)} tokens" + (f" ({last.function})" if names_test else "")
    further = f"; at {beyond.rate_per_s:g}/s {format_share(beyond.good_share)}" if beyond and beyond is not last else ""
    early = f"; {_early(last)}" if last.early_share else ""
    return (
        f"{last.variant} answers {format_share(last.good_share)} of {count(len(last.requests), 'request')} at "
        f"{last.rate_per_s:g}/s{of}, within {limits}{further}{early}."
    )
