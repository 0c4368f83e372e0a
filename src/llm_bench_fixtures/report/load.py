"""What servers did under loads: a table, and what follows from it in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

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
WORDS = ("variant", "rate")
COLUMNS = ("requests", "failed", "goodput, 1/s", "within limits", "tokens/s")
TAIL = ("drain", "send lag", "cached")
NOTE = (
    "Requests at random times (a Poisson process), sent whether or not earlier ones are answered. Times count from "
    "when a request was planned; percentiles are of the answered ones, and stand where there are enough. Goodput: "
    "requests answered within the limits; those that failed are not. Drain: until the last answer, after the load. "
    "Cached: of the prompts' tokens, from the server's cache."
)


def load_sections(run: Run) -> Iterator[Section]:
    """A row for each server and rate, in the order in which they were measured; nothing where there are none."""
    if run.loads:
        percentiles = [f"{name} {which}" for name in OF_REQUEST for which in SHARES]
        header = (*WORDS, *COLUMNS, *percentiles, *TAIL, "remarks")
        numeric = frozenset(range(1, len(header) - 1))
        yield Section("Servers under load", Table(header, tuple(map(_row, run.loads)), numeric), NOTE)


def _row(point: LoadPoint) -> tuple[str, ...]:
    times = [_seconds(point.percentile(of, share)) for of in OF_REQUEST.values() for share in SHARES.values()]
    tokens = point.output_tokens_per_s
    return (
        point.variant,
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


def _seconds(value: float | None) -> str:
    return MISSING if value is None else format_seconds(value)


def _remarks(point: LoadPoint) -> Iterator[str]:
    if not point.is_valid:
        yield invalid_sentence(point)
    for reason, number in point.failures.items():
        yield f"{number} failed: {first_line(reason)}"


def invalid_sentence(point: LoadPoint) -> str:
    """Why the figures are worth nothing."""
    return (
        f"INVALID: requests were sent up to {format_seconds(point.lag_s)} after their time, more than "
        f"{format_seconds(point.lag_limit_s)}, so that the figures tell of this client"
    )


def load_sentences(run: Run) -> Iterator[str]:
    """For each server the highest rate that it sustains, and what becomes of the next; which loads are invalid."""
    servers: dict[str, list[LoadPoint]] = defaultdict(list)
    for point in run.loads:
        if point.is_valid:
            servers[point.variant].append(point)
        else:
            yield f"{point.variant} at {point.rate_per_s:g}/s: {invalid_sentence(point)}."
    for variant, points in servers.items():
        ordered = sorted(points, key=lambda point: point.rate_per_s)
        kept = [point for point in ordered if point.good_share >= NEARLY_ALL]
        beyond = next((point for point in ordered if point.good_share < NEARLY_ALL), None)
        last = kept[-1] if kept else ordered[0]
        limits = f"TTFT ≤ {format_seconds(last.ttft_limit_s)} and TPOT ≤ {format_seconds(last.tpot_limit_s)}"
        sentence = (
            f"{variant} answers {format_share(last.good_share)} of {count(len(last.requests), 'request')} at "
            f"{last.rate_per_s:g}/s within {limits}"
        )
        further = (
            f"; at {beyond.rate_per_s:g}/s {format_share(beyond.good_share)}" if beyond and beyond is not last else ""
        )
        yield f"{sentence}{further}."
