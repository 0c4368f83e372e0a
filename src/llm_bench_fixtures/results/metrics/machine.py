"""The machine: its use against its limits, its energy, and its speed at the time of each round."""

from __future__ import annotations

import statistics
from functools import partial

from llm_bench_fixtures.results import roofline
from llm_bench_fixtures.results.metrics.metric import NEVER_JUDGED, Direction, Kind, Metric, ReportTable, Unit, Value
from llm_bench_fixtures.results.noise import probe_medians_s
from llm_bench_fixtures.results.record import Record, VariantResult


def _energy(record: Record, _: VariantResult) -> float | None:
    return statistics.fmean(record.energy_j) if record.energy_j else None


def _tokens_per_joule(record: Record, variant: VariantResult) -> float | None:
    joules = _energy(record, variant)
    return record.workload.new_tokens / joules if record.workload and joules else None


def _probe_median(part: int) -> Value:
    def value(record: Record, _: VariantResult) -> float | None:
        medians = probe_medians_s(record.probe_s)
        return medians[part] if medians else None

    return value


# What a row does not say.
_row = partial(Metric, unit=Unit.SECONDS, direction=Direction.NEITHER, kind=Kind.TIMING)
_utilization = partial(_row, unit=Unit.SHARE, direction=Direction.HIGHER_IS_BETTER, tolerance=NEVER_JUDGED)

# How much the machine could do at the hour is no property of the code: MBU and MFU are never judged.
MACHINE: tuple[Metric, ...] = (
    _utilization(
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
    _utilization(
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
    _row(
        name="roofline_ttft_s",
        title="Roofline time to first token",
        column="roofline TTFT",
        formula="max(FLOPs / matrix-multiply rate, bytes / read bandwidth) of the mean prefill",
        source="Williams et al. 2009, roofline",
        value=roofline.roofline_ttft_s,
        tables={ReportTable.PREFILL_DECODE: 60},
    ),
    _row(
        name="roofline_tpot_s",
        title="Roofline time per output token",
        column="roofline TPOT",
        formula="max(FLOPs / matrix-multiply rate, bytes / read bandwidth) of the mean decode step",
        source="Williams et al. 2009, roofline",
        value=roofline.roofline_tpot_s,
        tables={ReportTable.PREFILL_DECODE: 70},
    ),
    _row(
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
    _row(
        name="tokens_per_joule",
        title="Tokens per joule",
        column="tokens/J",
        unit=Unit.TOKENS_PER_JOULE,
        direction=Direction.HIGHER_IS_BETTER,
        formula="new tokens / energy_j",
        value=_tokens_per_joule,
        tables={ReportTable.PREFILL_DECODE: 110},
    ),
    _row(
        name="probe_matmul_s",
        title="Matrix product of the probe",
        column="probe matmul",
        formula="median over the rounds of a fixed float32 matrix product, run before each; only with --llm-probe",
        source="own",
        value=_probe_median(0),
    ),
    _row(
        name="probe_read_s",
        title="Memory read of the probe",
        column="probe read",
        formula="median over the rounds of a fixed read of memory, run before each; only with --llm-probe",
        source="own",
        value=_probe_median(1),
    ),
)
