"""Prefill and decode: from the times of a record's tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.metrics.metric import Direction, Kind, Metric, ReportTable, Unit, Value
from llm_bench_fixtures.results.record import Record, VariantResult, WorkloadFacts
from llm_bench_fixtures.statistics.spread import percentile


def _median(of_round: Callable[[Record, Sequence[prefill_decode.Tokens]], float | None]) -> Value:
    median = prefill_decode.median_of_rounds(of_round)
    return lambda record, _: median(record)


def _gap_percentile(share: float) -> Value:
    return lambda record, _: percentile(prefill_decode.gaps_s(record), share)


def _per_prefill_second(count: Callable[[WorkloadFacts], int]) -> Value:
    median = prefill_decode.median_of_rounds(prefill_decode.prefill_s)

    def value(record: Record, _: VariantResult) -> float | None:
        seconds = median(record)
        return count(record.workload) / seconds if record.workload and seconds else None

    return value


# What a row does not say.
_row = partial(Metric, unit=Unit.SECONDS, direction=Direction.LOWER_IS_BETTER, kind=Kind.TIMING)
_throughput = partial(_row, unit=Unit.TOKENS_PER_SECOND, direction=Direction.HIGHER_IS_BETTER)

TOKENS: tuple[Metric, ...] = (
    _row(
        name="ttft_s",
        title="Time to first token",
        column="TTFT",
        formula="start of a prompt's batch to its first new token; mean over the prompts, median over the rounds",
        source="MLPerf, vLLM",
        value=_median(prefill_decode.ttft_s),
        tables={ReportTable.SCENARIO: 10, ReportTable.PREFILL_DECODE: 10},
    ),
    _row(
        name="tpot_s",
        title="Time per output token",
        column="TPOT",
        formula=(
            "(last token - first token) / (new tokens - 1) of a prompt; mean over the prompts, median over the "
            "rounds; none for one token"
        ),
        source="vLLM",
        value=_median(prefill_decode.tpot_s),
        tables={ReportTable.SCENARIO: 20, ReportTable.PREFILL_DECODE: 20},
    ),
    *(
        _row(
            name=f"itl_p{percent}_s",
            title=f"Inter-token latency, {percent}th percentile",
            column=f"ITL p{percent}",
            formula=(
                f"{percent}th percentile of the gaps between tokens, over all batches and rounds; "
                f"none for fewer than {100 // (100 - percent)} gaps"
            ),
            source="vLLM",
            value=_gap_percentile(percent / 100),
            tables={ReportTable.PREFILL_DECODE: 30},
        )
        for percent in (50, 90, 99)
    ),
    _throughput(
        name="prefill_tokens_per_s",
        title="Prefill throughput",
        column="prefill tokens/s",
        formula="prompt tokens, padding not counted / summed seconds of the batches up to their first token",
        source="llama-bench's pp",
        value=_per_prefill_second(lambda workload: workload.prompt_tokens),
        tables={ReportTable.PREFILL_DECODE: 40},
    ),
    _throughput(
        name="prefill_positions_per_s",
        title="Prefill throughput with padding",
        column="prefill positions/s",
        formula="prompt tokens and padding / summed seconds of the batches up to their first token",
        value=_per_prefill_second(lambda workload: workload.prompt_tokens + workload.padded_tokens),
    ),
    _throughput(
        name="decode_tokens_per_s",
        title="Decode throughput",
        column="decode tokens/s",
        formula=(
            "tokens after the first of all prompts / summed seconds of the batches from their first to their last token"
        ),
        source="optimum-benchmark",
        value=_median(prefill_decode.decode_tokens_per_s),
        tables={ReportTable.PREFILL_DECODE: 50},
    ),
)
