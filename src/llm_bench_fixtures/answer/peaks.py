"""How variants' memory is compared: by the peak of a round of one prompt, which is what a machine must hold.

Identical work is measured several times in a run, so each variant has a range of peaks, and one takes less than another
where the ranges are further apart than the metric's tolerance.
"""

from __future__ import annotations

from itertools import chain

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.results.noise import Gain
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.statistics.spread import Estimate, Interval, exactly

PEAKS = ("cuda_max_allocated_bytes", "own_memory_bytes")  # the first that the reference has
WEIGHTS = "weight_bytes"


def memory_metric(seen: Evidence) -> str:
    """The name of the metric that variants' memory is compared by."""
    variant = seen.run.variant(seen.run.reference)
    if seen.reference is None or variant is None:
        return WEIGHTS
    return next((name for name in PEAKS if METRIC_BY_NAME[name].of(seen.reference, variant)), WEIGHTS)


def peaks_of(seen: Evidence, metric: str) -> dict[str, Estimate]:
    """The memory of each variant: what its table shows, and the range over the run's records of the same work. Variants
    without a value are left out."""
    if metric == WEIGHTS:
        measured = [one for one in seen.run.variants if one.status is Status.MEASURED]
        sizes = {one.id: float(one.weight_bytes) for one in measured if one.weight_bytes}
        return {name: exactly(size) for name, size in sizes.items()}
    ran = ((record, seen.run.variant(name)) for name, record in seen.common.items())
    ranges = {one.id: range_of(seen.run, METRIC_BY_NAME[metric], record, one) for record, one in ran if one}
    return {name: found for name, found in ranges.items() if found is not None}


def range_of(run: Run, metric: Metric, record: Record, variant: VariantResult) -> Estimate | None:
    """The memory of a record and of all others of the same work, in each pooled run; None where it has no such value.

    The same work has the same workload and configuration, and was done either before the variant scored texts or after
    it, because libraries keep memory of that.
    """
    shown = metric.of(record, variant)
    if shown is None:
        return None
    alike = {one.id: one for one in run.variants if one.configuration == variant.configuration}
    others = chain.from_iterable(other.by_run for other in run.measured())
    same = (one for one in others if one and one.variant in alike and one.digest == record.digest)
    repeats = [metric.of(one, alike[one.variant]) for one in same if one.is_after_scoring is record.is_after_scoring]
    values = [shown, *(value for value in repeats if value is not None)]
    return Estimate(min(values), max(values), value=shown)


def is_less(one: Interval, other: Interval, metric: str) -> bool:
    """Whether all of one's peaks are below all of the other's, by more than the tolerance of the metric."""
    return _are_apart(one.high, other.low, metric)


def compare_peaks(one: Estimate, other: Estimate, metric: str) -> Gain:
    """How many times as much memory the other takes. Unclear: only some of one's peaks are below the other's."""
    is_less_, is_more = is_less(one, other, metric), is_less(other, one, metric)
    may_be_less = _are_apart(one.low, other.high, metric)
    return Gain(other.value / max(one.value, 1.0), is_less_, is_more, is_unclear=may_be_less and not is_less_)


def _are_apart(low: float, high: float, metric: str) -> bool:
    tolerance = METRIC_BY_NAME[metric].default_tolerance
    return high - low > max(tolerance.absolute, tolerance.relative * low)
