"""Where the true value of a variant's metric lies, with 95 % confidence.

Quality: by its standard error, or as a share of independent trials. Times: by the scatter of the rounds, by what
processes of identical work differ by, and by how far identical work that is measured at another time comes out apart,
since a limit is to hold at other times, too. Memory: the range of the peaks of identical work, at least what such peaks
were found to differ by. All else is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.need import QualityMeasure
from llm_bench_fixtures.answer.peaks import WEIGHTS, range_of
from llm_bench_fixtures.results.metrics import Kind, Metric
from llm_bench_fixtures.results.prefill_decode import decode_tokens_per_s, per_round, prefill_s, tpot_s, ttft_s
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.statistics.ratio import own_margin
from llm_bench_fixtures.statistics.spread import NORMAL_95, Estimate, exactly, wilson

PEAKS_DIFFER = 0.04  # largest relative difference of identical work's peaks: tools/measure_processes.py memory
TRIALS = {  # what a share of quality is of
    "top1_agreement": "scored_tokens",
    "choice_accuracy": "choice_items",
    "answers_changed": "choice_items",
}
OF_A_ROUND = {  # all other times scatter as the latency does
    "ttft_s": ttft_s,
    "tpot_s": tpot_s,
    "decode_tokens_per_s": decode_tokens_per_s,
    "prefill_tokens_per_s": prefill_s,
    "prefill_positions_per_s": prefill_s,
}


def estimate_of(metric: Metric, record: Record | None, variant: VariantResult, seen: Evidence) -> Estimate | None:
    """None where the metric wasn't measured. record: of the workload; without one, only what is the variant's own is
    known."""
    if metric.name == "speedup":
        return _speedup(record, seen)
    if record is None:
        record = Record("", "", "", variant.id, variant.status)
    value = metric.of(record, variant)
    if value is None:
        return None
    if metric.kind is Kind.QUALITY:
        return quality_estimate({**variant.quality, metric.name: value}, metric.name)
    if metric.kind is Kind.MEMORY:
        peaks = range_of(seen.run, metric, record, variant)
        margin = 0.0 if metric.name == WEIGHTS else value * PEAKS_DIFFER
        return Estimate(min(peaks.low, value - margin), max(peaks.high, value + margin), value=value) if peaks else None
    return _of_time(value, metric, record, seen) if metric.kind is Kind.TIMING and value > 0 else exactly(value)


def _speedup(record: Record | None, seen: Evidence) -> Estimate | None:
    """The reference's own is 1."""
    if record is not None and record.variant == seen.run.reference:
        return exactly(1.0)
    found = seen.speedup(record) if record is not None else None
    return Estimate(found.low, found.high, value=found.ratio) if found else None


def _of_time(value: float, metric: Metric, record: Record, seen: Evidence) -> Estimate:
    of_round = OF_A_ROUND.get(metric.name)
    rounds = [*filter(None, per_round(record, of_round))] if of_round else []
    values = rounds or record.rounds_s or (value, value)  # a load, or the like, was measured once
    margin = math.hypot(own_margin(values), seen.noise.log_ratio / math.sqrt(2))  # the noise is of a difference of two
    factor = math.exp(margin)
    return Estimate(value / factor, value * factor, value=value)


def quality_estimate(quality: Mapping[str, float], name: str, deviations: float = NORMAL_95) -> Estimate | None:
    """None where the metric wasn't measured; exact where its error isn't known.

    deviations: standard errors to either side.
    """
    value = quality.get(name)
    if value is None:
        return None
    if name in TRIALS:
        return wilson(value, quality.get(TRIALS[name], 0.0), deviations)
    if name == "flips":
        return Estimate(quality.get("flips_low", value), quality.get("flips_high", value), value=value)
    if name == QualityMeasure.PPL_RATIO:
        margin = deviations * quality.get("ppl_ratio_error", 0.0)
    else:
        margin = quality.get("kld_error" if name == "kld_mean" else f"{name}_error", 0.0)  # a sample's, at 95 %
    return Estimate(value - margin, value + margin, value=value)
