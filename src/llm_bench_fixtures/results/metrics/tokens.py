"""Prefill and decode, from the times of a record's tokens; and the machine: its use against its limits, its energy, and
its speed at the time of each round."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

from llm_bench_fixtures.results import prefill_decode, roofline
from llm_bench_fixtures.results.metrics.metric import Direction, Metric, ReportTable, Unit, Value
from llm_bench_fixtures.results.metrics.rows import NEVER_JUDGED, throughput_row, timing_row
from llm_bench_fixtures.results.noise import probe_medians_s
from llm_bench_fixtures.results.record import Record, VariantResult, WorkloadFacts
from llm_bench_fixtures.statistics.spread import percentile


def _median(of_round: prefill_decode.OfRound) -> Value:
    return lambda record, _: prefill_decode.median_of_rounds(record, of_round)


def _gap_percentile(share: float) -> Value:
    return lambda record, _: percentile(prefill_decode.gaps_s(record), share)


def _per_prefill_second(count: Callable[[WorkloadFacts], int]) -> Value:
    def value(record: Record, _: VariantResult) -> float | None:
        seconds = prefill_decode.median_of_rounds(record, prefill_decode.prefill_s)
        return count(record.workload) / seconds if record.workload and seconds else None

    return value


TOKENS: tuple[Metric, ...] = (
    timing_row(
        name="ttft_s",
        title="Time to first token",
        column="TTFT",
        formula="start of a prompt's batch to its first new token; mean over the prompts, median over the rounds",
        source="MLPerf, vLLM",
        value=_median(prefill_decode.ttft_s),
        tables={ReportTable.SCENARIO: 10, ReportTable.PREFILL_DECODE: 10},
    ),
    timing_row(
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
        timing_row(
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
    throughput_row(
        name="prefill_tokens_per_s",
        title="Prefill throughput",
        column="prefill tokens/s",
        formula="prompt tokens, padding not counted / summed seconds of the batches up to their first token",
        source="llama-bench's pp",
        value=_per_prefill_second(lambda workload: workload.prompt_tokens),
        tables={ReportTable.PREFILL_DECODE: 40},
    ),
    throughput_row(
        name="prefill_positions_per_s",
        title="Prefill throughput with padding",
        column="prefill positions/s",
        formula="prompt tokens and padding / summed seconds of the batches up to their first token",
        value=_per_prefill_second(lambda workload: workload.prompt_tokens + workload.padded_tokens),
    ),
    throughput_row(
        name="decode_tokens_per_s",
        title="Decode throughput",
        column="decode tokens/s",
        formula=(
            "tokens after the first of all prompts / summed seconds of the batches from their first to their last "
            "token; none for one token"
        ),
        source="optimum-benchmark",
        value=_median(prefill_decode.decode_tokens_per_s),
        tables={ReportTable.PREFILL_DECODE: 50},
    ),
)


def _energy(record: Record, _: VariantResult) -> float | None:
    return statistics.fmean(record.energy_j) if record.energy_j else None


def _tokens_per_joule(record: Record, variant: VariantResult) -> float | None:
    joules = _energy(record, variant)
    return record.workload.new_tokens / joules if record.workload and joules else None


def _probe_median(part: int) -> Value:
    return lambda record, _: medians[part] if (medians := probe_medians_s(record.probe_s)) else None


# How much the machine could do at the hour is no property of the code: MBU and MFU are never judged.
_utilization_row = partial(timing_row, unit=Unit.SHARE, direction=Direction.HIGHER_IS_BETTER, tolerance=NEVER_JUDGED)
_machine_row = partial(timing_row, direction=Direction.NEITHER)

MACHINE: tuple[Metric, ...] = (
    _utilization_row(
        name="mbu",
        title="Model bandwidth utilization",
        column="MBU",
        formula=(
            "bytes of weights and cache that the decode reads / its seconds / this machine's measured read bandwidth; "
            "only with a cache. For a mixture of experts a lower bound"
        ),
        source="Databricks, LLM inference performance engineering, 2023",
        value=roofline.mbu,
        tables={ReportTable.PREFILL_DECODE: 90},
    ),
    _utilization_row(
        name="mfu",
        title="Model FLOPs utilization",
        column="MFU",
        formula=(
            "FLOPs of the prefill, padding included / its seconds / this machine's measured matrix-multiply rate in "
            "the variant's dtype"
        ),
        source="after PaLM",
        value=roofline.mfu,
        tables={ReportTable.PREFILL_DECODE: 80},
    ),
    _machine_row(
        name="roofline_ttft_s",
        title="Roofline time to first token",
        column="roofline TTFT",
        formula="max(FLOPs / matrix-multiply rate, bytes / read bandwidth) of the mean prefill",
        source="Williams et al. 2009, roofline",
        value=roofline.roofline_ttft_s,
        tables={ReportTable.PREFILL_DECODE: 60},
    ),
    _machine_row(
        name="roofline_tpot_s",
        title="Roofline time per output token",
        column="roofline TPOT",
        formula="max(FLOPs / matrix-multiply rate, bytes / read bandwidth) of the mean decode step",
        source="Williams et al. 2009, roofline",
        value=roofline.roofline_tpot_s,
        tables={ReportTable.PREFILL_DECODE: 70},
    ),
    _machine_row(
        name="energy_j",
        title="Energy",
        column="energy",
        unit=Unit.JOULES,
        direction=Direction.LOWER_IS_BETTER,
        formula=(
            "mean over the rounds of the joules that the machine's own counters add during a round, including all that "
            "runs on it"
        ),
        source="RAPL, NVML",
        value=_energy,
        tables={ReportTable.PREFILL_DECODE: 100},
    ),
    _machine_row(
        name="tokens_per_joule",
        title="Tokens per joule",
        column="tokens/J",
        unit=Unit.TOKENS_PER_JOULE,
        direction=Direction.HIGHER_IS_BETTER,
        formula="new tokens / energy_j",
        value=_tokens_per_joule,
        tables={ReportTable.PREFILL_DECODE: 110},
    ),
    _machine_row(
        name="probe_matmul_s",
        title="Matrix product of the probe",
        column="probe matmul",
        formula="median over the rounds of a fixed float32 matrix product, run before each; only with --llm-probe",
        value=_probe_median(0),
    ),
    _machine_row(
        name="probe_read_s",
        title="Memory read of the probe",
        column="probe read",
        formula="median over the rounds of a fixed read of memory, run before each; only with --llm-probe",
        value=_probe_median(1),
    ),
)
