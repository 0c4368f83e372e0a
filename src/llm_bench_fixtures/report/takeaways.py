"""Sentences that follow from a run's records, beside the answer. None claims a difference that the run can't show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_bench_fixtures.report.cells import describe_prompts
from llm_bench_fixtures.report.evidence import Evidence
from llm_bench_fixtures.results import roofline
from llm_bench_fixtures.results.formatting import format_seconds, format_share, three_digits
from llm_bench_fixtures.results.metrics import METRICS
from llm_bench_fixtures.results.noise import Gain, NoiseFloor
from llm_bench_fixtures.results.record import Record, Run, VariantResult, WorkloadFacts
from llm_bench_fixtures.results.speedup import Speedup

_METRIC = {metric.name: metric for metric in METRICS}


def takeaways(seen: Evidence) -> tuple[str, ...]:
    """Those that this run can support, the most useful first."""
    sources = (_batch, _decode, _cache, _padding, _prompt_length)
    return tuple(sentence for source in sources for sentence in source(seen))


def _decode(seen: Evidence) -> Iterator[str]:
    """How near the reference comes to what the machine can do."""
    if seen.decode:
        yield seen.decode


def _batch(seen: Evidence) -> Iterator[str]:
    """What the best batch size gives in throughput and costs in latency."""
    records = _of_one_variant(seen.run, "batch")
    if len(records) < 2:
        return
    smallest, *larger = sorted(records, key=lambda record: _workload(record).batch_size)
    best, gain = _fastest(seen, larger, smallest)
    if best is None or gain is None:
        yield f"Batching did not raise {smallest.variant}'s throughput beyond the noise{_floor_text(seen.noise)}."
        return
    size, one = _workload(best).batch_size, _workload(smallest).batch_size
    wait = _per_sample_s(seen.run, best) / _per_sample_s(seen.run, smallest)
    yield (
        f"On {best.variant}, batch {size} gives {_times(gain.ratio)} the throughput of batch {one}, and each sample "
        f"takes {_times(wait)} as long ({format_seconds(_per_sample_s(seen.run, best))})."
    )


def _cache(seen: Evidence) -> Iterator[str]:
    """What the KV cache saves."""
    by_cache = {_workload(record).cache: record for record in _of_one_variant(seen.run, "cache")}
    if "dynamic" not in by_cache or "off" not in by_cache:
        return
    dynamic, off = by_cache["dynamic"], by_cache["off"]
    if dynamic.work and dynamic.work.forward_passes and not dynamic.work.cache_bytes:
        return  # its passes were seen, and they kept no keys and values
    gain = seen.gain(dynamic, off)
    facts = f"{describe_prompts(dynamic)}, {_workload(dynamic).new_tokens} new"
    if gain.is_faster:
        yield f"The KV cache makes {dynamic.variant} {_times(gain.ratio)} as fast as without it ({facts})."
    else:
        floor = _floor_text(seen.noise)
        yield f"The KV cache made no difference beyond the noise for {dynamic.variant} ({facts}){floor}."


def _padding(seen: Evidence) -> Iterator[str]:
    """A padded batch against the same prompts one by one."""
    records = _of_one_variant(seen.run, "padding")
    singles = [record for record in records if _workload(record).batch_size == 1]
    padded = [record for record in records if _workload(record).batch_size > 1 and _is_left_padded(record)]
    if not singles or not padded:
        return
    best, gain = _fastest(seen, padded, singles[0])
    if best is None or gain is None:
        return
    share = _workload(best).padded_tokens / (_workload(best).padded_tokens + _workload(best).prompt_tokens)
    if gain.is_faster:
        yield (
            f"On {best.variant}, one padded batch ({best.case}) is {_times(gain.ratio)} as fast as the prompts one by "
            f"one, though {share * 100:.0f} % of the batch is padding."
        )


def _prompt_length(seen: Evidence) -> Iterator[str]:
    """What the longest prompt costs against the shortest."""
    records = sorted(_of_one_variant(seen.run, "prompt_length"), key=lambda record: _workload(record).prompt_tokens)
    if len(records) < 2:
        return
    short, long = records[0], records[-1]
    cost = seen.gain(short, long)
    if cost.is_faster:
        yield (
            f"On {short.variant}, {_workload(long).prompt_tokens} prompt tokens take {_times(cost.ratio)} as long as "
            f"{_workload(short).prompt_tokens}."
        )


def _fastest(
    seen: Evidence, records: Sequence[Record], than: Record
) -> tuple[Record, Gain | Speedup] | tuple[None, None]:
    """The record with the largest gain over another, of those whose gain can be claimed."""
    gains = [(record, seen.gain(record, than)) for record in records]
    claimed = [(record, gain) for record, gain in gains if gain.is_faster]
    return max(claimed, key=lambda pair: pair[1].ratio, default=(None, None))


def _of_one_variant(run: Run, scenario: str) -> list[Record]:
    """The scenario's records of the reference, or of the first variant where the reference has none."""
    records = [record for record in run.measured(scenario) if record.workload is not None]
    variants = [record.variant for record in records]
    chosen = run.reference if run.reference in variants else next(iter(variants), "")
    return [record for record in records if record.variant == chosen]


def _workload(record: Record) -> WorkloadFacts:
    if record.workload is None:
        raise ValueError(f"{record.test} has no workload")
    return record.workload


def _is_left_padded(record: Record) -> bool:
    return _workload(record).padding_side == "left"


def _value(run: Run, record: Record, name: str) -> float:
    variant = run.variant(record.variant)
    value = _METRIC[name].of(record, variant) if variant else None
    if value is None:
        raise ValueError(f"{record.test} has no {name}")
    return value


def _per_sample_s(run: Run, record: Record) -> float:
    return _value(run, record, "per_sample_latency_s")


def _times(ratio: float) -> str:
    return f"{three_digits(ratio)}×"


def _floor_text(floor: NoiseFloor) -> str:
    return f" ({floor.percent:.0f} %)"


def decode_sentence(record: Record, variant: VariantResult | None) -> str:
    """How near the decode comes to the memory's bandwidth; empty where that wasn't measured."""
    if variant is None:
        return ""
    share, roofline_s = roofline.mbu(record, variant), roofline.roofline_tpot_s(record, variant)
    if share is None or roofline_s is None:
        return ""
    if share > 1:
        return (
            f"Decode of {record.variant} reads faster than this machine was measured to read memory: its weights may "
            "stay in the processor's cache, or the machine was busy when its limits were measured."
        )
    per = "a token" if record.batch_rows and max(record.batch_rows) == 1 else "a step"
    return (
        f"Decode of {record.variant} runs at {format_share(share)} of this machine's memory bandwidth; the "
        f"roofline is {format_seconds(roofline_s)} {per}."
    )
