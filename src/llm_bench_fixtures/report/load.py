"""What servers did under loads: a table, and what follows from it in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.report.document import Section, Table
from llm_bench_fixtures.results.formatting import MISSING, count, format_seconds, format_share, three_digits
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.record import Run

NEARLY_ALL = 0.99  # of the requests within the limits: a rate that a server sustains
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
OF_REQUEST: dict[str, Callable[[Request], float | None]] = {
    "TTFT": lambda one: one.ttft_s,
    "TPOT": lambda one: one.tpot_s,
    "latency": lambda one: one.latency_s,
}
MOST_REASONS = 3  # of failures, in a row
WORDS = ("variant", "test", "tokens", "rate")
COLUMNS = ("requests", "failed", "goodput, 1/s", "within limits", "tokens/s")
TAIL = ("drain", "send lag", "cached")
NOTE = (
    "Tokens: those of a prompt and the new ones. "
    "Requests at random times (a Poisson process), sent whether or not earlier ones are answered. Times count from "
    "when a request was planned; percentiles are of the answered ones, and stand where there are enough. Goodput: "
    "requests answered within the limits; those that failed are not. Drain: until the last answer, after the load. "
    "Cached: of the prompts' tokens, from the server's cache."
)


def load_sections(run: Run) -> Iterator[Section]:
    """A row for each server, test and rate, those of a series together; nothing where there are none."""
    if run.loads:
        percentiles = [f"{name} {which}" for name in OF_REQUEST for which in SHARES]
        header = (*WORDS, *COLUMNS, *percentiles, *TAIL, "remarks")
        numeric = frozenset(range(2, len(header) - 1))
        points = [point for series in _by_series(run.loads).values() for point in series]
        yield Section("Servers under load", Table(header, tuple(map(_row, points)), numeric), NOTE)


def _by_series(points: Iterable[LoadPoint]) -> dict[tuple[object, ...], list[LoadPoint]]:
    """Those that differ by their rates alone."""
    found: dict[tuple[object, ...], list[LoadPoint]] = defaultdict(list)
    for point in points:
        found[point.series].append(point)
    return found


def _row(point: LoadPoint) -> tuple[str, ...]:
    times = [_seconds(point.percentile(of, share)) for of in OF_REQUEST.values() for share in SHARES.values()]
    tokens = point.output_tokens_per_s
    return (
        point.variant,
        point.function,
        _lengths(point),
        f"{point.rate_per_s:g}/s",
        str(len(point.requests)),
        str(sum(point.failures.values())),
        three_digits(point.goodput_per_s),
        format_share(point.good_share),
        MISSING if tokens is None else three_digits(tokens),
        *times,
        _seconds(point.drain_s),
        _seconds(point.lag_s),
        MISSING if point.cached_share is None else format_share(point.cached_share),
        "; ".join(_remarks(point)),
    )


def _lengths(point: LoadPoint) -> str:
    return f"{point.prompt_tokens} + {point.new_tokens}"


def _seconds(value: float | None) -> str:
    return MISSING if value is None else format_seconds(value)


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
        f"{format_seconds(point.lag_limit_s)}, so that the figures tell of this client"
    )


def load_sentences(run: Run) -> Iterator[str]:
    """For each server and test the highest rate that it sustains, and what becomes of the next; which loads are
    invalid."""
    for point in run.loads:
        if not point.is_valid:
            yield f"{point.variant} at {point.rate_per_s:g}/s, {_lengths(point)} tokens: {invalid_sentence(point)}."
    for points in _by_series(point for point in run.loads if point.is_valid).values():
        yield _series_sentence(points, names_test=len({point.function for point in run.loads}) > 1)


def _series_sentence(points: Sequence[LoadPoint], *, names_test: bool) -> str:
    """points: of one series."""
    ordered = sorted(points, key=lambda point: point.rate_per_s)
    kept = [point for point in ordered if point.good_share >= NEARLY_ALL]
    beyond = next((point for point in ordered if point.good_share < NEARLY_ALL), None)
    last = kept[-1] if kept else ordered[0]
    limits = f"TTFT ≤ {format_seconds(last.ttft_limit_s)} and TPOT ≤ {format_seconds(last.tpot_limit_s)}"
    of = f", {_lengths(last)} tokens" + (f" ({last.function})" if names_test else "")
    further = f"; at {beyond.rate_per_s:g}/s {format_share(beyond.good_share)}" if beyond and beyond is not last else ""
    early = f"; {_early(last)}" if last.early_share else ""
    return (
        f"{last.variant} answers {format_share(last.good_share)} of {count(len(last.requests), 'request')} at "
        f"{last.rate_per_s:g}/s{of}, within {limits}{further}{early}."
    )
