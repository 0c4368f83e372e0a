"""Where a record's value may lie, for error bars."""

from __future__ import annotations

from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.spread import quartiles

SPEEDUP = "speedup"


def bounds(record: Record, metric: str, value: float) -> tuple[float, float]:
    """The ends of a speed-up's 95 % interval, or the quartiles of the rounds."""
    if metric == SPEEDUP:
        found = record_speedup(record)
        return (found.low, found.high) if found else (value, value)
    ttfts_s = prefill_decode.per_round(record, prefill_decode.ttft_s) if metric == "ttft_s" else ()
    low, median, high = quartiles(ttfts_s or record.rounds_s)
    if metric == "output_tokens_per_s":
        low, median, high = 1 / high, 1 / median, 1 / low
    # of one round they are the value, but for rounding
    return min(value * low / median, value), max(value * high / median, value)
