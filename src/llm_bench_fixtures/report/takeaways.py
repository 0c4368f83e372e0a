"""Sentences that follow from a run's records, beside the answer. None claims a difference that the run can't show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.report.beyond_limit import MUCH
from llm_bench_fixtures.report.blocks import disturbance
from llm_bench_fixtures.report.cells import describe_prompts
from llm_bench_fixtures.report.load import load_sentences
from llm_bench_fixtures.report.quality import quality_in_short
from llm_bench_fixtures.results import roofline
from llm_bench_fixtures.results.formatting import format_seconds, format_share, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.noise import Gain, NoiseFloor
from llm_bench_fixtures.results.prefill_decode import decode_s, per_round, tpot_s
from llm_bench_fixtures.results.record import Record, Run, WorkloadFacts
from llm_bench_fixtures.results.speedup import record_speedup, share_blocks, waiting_share
from llm_bench_fixtures.statistics.ratio import Speedup, log_ratio, speedup_from, speedup_of

HELD_UP = 0.2  # of a round's time, summed over threads
LEAST_DECODE = 0.1  # of a round, that its decode takes where tokens come one by one
LITTLE = HELD_UP / 2  # what the reference may wait beside it: a neighbour on the machine would hold up both


@dataclass(frozen=True)
class Compared:
    """A record against another of the same variant."""

    of: Record
    over: Record
    found: Gain | Speedup
    """How many times as fast `of` is as `over`."""


def takeaways(seen: Evidence) -> tuple[str, ...]:
    """Those that this run can support, the most useful first, and what its rounds are too few to tell."""
    sources = (_loads, _fast_tokens, _contention, _batch, _decode, _cache, _padding, _prompt_length, _too_few_rounds)
    return tuple(sentence for source in sources for sentence in source(seen))


def _fast_tokens(seen: Evidence) -> Iterator[str]:
    """The variant with the fastest tokens, where they are shown to be far faster than the reference's beside it, in
    rounds of which most were undisturbed; with its quality."""
    reference = seen.reference
    if reference is None:
        return
    calm = (record for record in seen.others if not disturbance(record))
    pairs = ((record, _decode_speedup(record, reference, seen.confidence)) for record in calm)
    far = [(found.ratio, record) for record, found in pairs if found is not None and found.low >= MUCH]
    ratio, best = max(far, key=lambda one: one[0], default=(0.0, None))
    if best is not None:
        own_s = _value(seen.run, best, "tpot_s")
        own, other = format_seconds(own_s), format_seconds(own_s * ratio)  # beside it, not in the reference's own row
        yield (
            f"{best.variant} takes {own} a token where {seen.run.reference} takes {other}: {_times(ratio)} as fast in "
            f"decode, {quality_in_short(seen.run, best.variant)}."
        )


def _decode_speedup(record: Record, reference: Record, confidence: float) -> Speedup | None:
    """By the time per token of each round and of the reference's round beside it, as far as that is known; None without
    blocks, or where fewer than three rounds have such a time, the whole round isn't shown to be faster, or tokens came
    in a burst."""
    if record.workload != reference.workload:
        return None
    whole = record_speedup(record, confidence)
    if whole is None or not whole.is_faster or any(map(_is_burst, (record, reference))):
        return None
    own_s, reference_s = (per_round(one, tpot_s) for one in (record, reference))
    if not share_blocks(record, reference):
        return _decode_speedup_of_another_group(record.reference_s, own_s, reference.rounds_s, reference_s, confidence)
    both = min(len(own_s), len(reference_s))  # one may have been settled earlier
    return speedup_of(reference_s[:both], own_s[:both], confidence)


def _decode_speedup_of_another_group(
    beside_s: Sequence[float],
    own_s: Sequence[float],
    reference_rounds_s: Sequence[float],
    reference_s: Sequence[float],
    confidence: float,
) -> Speedup | None:
    """Of the reference's rounds beside it only their latency is kept. A token has the share of it that it has in the
    reference's own rounds.

    beside_s: (R,), latencies. own_s: (R,), times per token. The reference's: (R',), in the blocks of its own record.
    """
    ratio, share = log_ratio(beside_s, own_s), log_ratio(reference_rounds_s, reference_s)
    if ratio is None or share is None:
        return None
    found = replace(ratio.minus(share), process_variance=ratio.process_variance)  # the reference's process is the same
    return speedup_from(found, confidence, len(own_s))


def _is_burst(record: Record) -> bool:
    """Whether the tokens came nearly at once, as from a server or a proxy that keeps them back."""
    return sum(per_round(record, decode_s)) < LEAST_DECODE * sum(record.rounds_s)


def _contention(seen: Evidence) -> Iterator[str]:
    """Variants whose threads wait for a core where the reference's beside them don't: they wait for each other."""
    reference = seen.reference
    own = waiting_share(reference.rounds_s, reference.waited_s) if reference else None
    shares = {
        record.variant: share
        for record in seen.others
        if (share := waiting_share(record.rounds_s, record.waited_s)) is not None and share > HELD_UP
    }
    if own is None or own > LITTLE or not shares or seen.run.provenance.threads < 2:
        return
    each = ", ".join(f"{name} ({format_share(share)} of its rounds' time)" for name, share in shares.items())
    yield (
        f"Threads of {each} wait for a core, while {seen.run.reference}'s beside them do for {format_share(own)}: two "
        "pools of threads in one process hold each other up. OMP_WAIT_POLICY=passive may make them faster."
    )


def _loads(seen: Evidence) -> Iterator[str]:
    """What servers sustain."""
    yield from load_sentences(seen.run)


def _too_few_rounds(seen: Evidence) -> Iterator[str]:
    """What is unknown, which is not to be taken for "none"."""
    topics = {
        "batching": _batch_gains(seen),
        "the KV cache": _cache_gains(seen),
        "padding": _padding_gains(seen),
        "longer prompts": _length_gains(seen),
    }
    unclear = [topic for topic, gains in topics.items() if _is_unclear(gains)]
    if unclear:
        yield f"Too few rounds to tell the effect of {', '.join(unclear)}."


def _decode(seen: Evidence) -> Iterator[str]:
    """How near the reference comes to what the machine can do."""
    sentence = decode_sentence(seen)
    if sentence:
        yield sentence


def _batch(seen: Evidence) -> Iterator[str]:
    """What the best batch size gives in throughput and costs in latency."""
    gains = _batch_gains(seen)
    if not gains or _is_unclear(gains):
        return
    best = max(gains, key=lambda one: (one.found.is_faster, one.found.ratio))
    size, one = _workload(best.of).batch_size, _workload(best.over).batch_size
    gives = f"On {best.of.variant}, batch {size} gives {_times(best.found.ratio)} the throughput of batch {one}"
    if best.found.is_faster:
        wait = _per_sample_s(seen.run, best.of) / _per_sample_s(seen.run, best.over)
        each = f"each sample takes {_times(wait)} as long ({format_seconds(_per_sample_s(seen.run, best.of))})"
        yield f"{gives}, and {each}."
    elif best.found.is_slower:
        yield f"{gives}: batching costs throughput here."
    else:
        floor = _floor_text(seen.noise)
        yield f"No batch size is shown to raise {best.of.variant}'s throughput beyond the noise{floor}."


def _batch_gains(seen: Evidence) -> list[Compared]:
    """Each larger batch size over the smallest."""
    records = sorted(_of_one_variant(seen.run, "batch"), key=lambda record: _workload(record).batch_size)
    return [Compared(record, records[0], seen.gain(record, records[0])) for record in records[1:]]


def _cache(seen: Evidence) -> Iterator[str]:
    """What the KV cache saves, or costs."""
    for one in _cache_gains(seen):
        facts = f"{describe_prompts(one.of)}, {_workload(one.of).new_tokens} new"
        fast = f"{_times(one.found.ratio)} as fast as without it ({facts})"
        if one.found.is_faster:
            yield f"The KV cache makes {one.of.variant} {fast}."
        elif one.found.is_slower:
            yield f"The KV cache makes {one.of.variant} slower: {fast}."
        elif not one.found.is_unclear:
            floor = _floor_text(seen.noise)
            yield f"The KV cache shows no difference beyond the noise for {one.of.variant} ({facts}){floor}."


def _cache_gains(seen: Evidence) -> list[Compared]:
    """With the usual cache over without any."""
    by_cache = {_workload(record).cache: record for record in _of_one_variant(seen.run, "cache")}
    if "dynamic" not in by_cache or "off" not in by_cache:
        return []
    dynamic, off = by_cache["dynamic"], by_cache["off"]
    if dynamic.work and dynamic.work.forward_passes and not dynamic.work.cache_bytes:
        return []  # its passes were seen, and they kept no keys and values
    return [Compared(dynamic, off, seen.gain(dynamic, off))]


def _padding(seen: Evidence) -> Iterator[str]:
    """A padded batch against the same prompts one by one."""
    claimed = [one for one in _padding_gains(seen) if one.found.is_faster]
    best = max(claimed, key=lambda one: one.found.ratio, default=None)
    if best is None:
        return
    workload = _workload(best.of)
    share = workload.padded_tokens / (workload.padded_tokens + workload.prompt_tokens)
    yield (
        f"On {best.of.variant}, one padded batch ({best.of.case}) is {_times(best.found.ratio)} as fast as the prompts "
        f"one by one, though {share * 100:.0f} % of the batch is padding."
    )


def _padding_gains(seen: Evidence) -> list[Compared]:
    """Each batch that is padded at the left over the same prompts one by one."""
    records = _of_one_variant(seen.run, "padding")
    singles = [record for record in records if _workload(record).batch_size == 1]
    padded = [record for record in records if _workload(record).batch_size > 1 and _is_left_padded(record)]
    return [Compared(record, singles[0], seen.gain(record, singles[0])) for record in padded if singles]


def _prompt_length(seen: Evidence) -> Iterator[str]:
    """What the longest prompt costs against the shortest."""
    for one in _length_gains(seen):
        if one.found.is_faster:
            short, long = (_workload(record).prompt_tokens for record in (one.of, one.over))
            yield f"On {one.of.variant}, {long} prompt tokens take {_times(one.found.ratio)} as long as {short}."


def _length_gains(seen: Evidence) -> list[Compared]:
    """The shortest prompt over the longest."""
    records = sorted(_of_one_variant(seen.run, "prompt_length"), key=lambda record: _workload(record).prompt_tokens)
    if len(records) < 2:
        return []
    return [Compared(records[0], records[-1], seen.gain(records[0], records[-1]))]


def _is_unclear(gains: Sequence[Compared]) -> bool:
    """Whether nothing can be claimed, because of too few rounds."""
    return not any(one.found.is_faster for one in gains) and any(one.found.is_unclear for one in gains)


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
    value = METRIC_BY_NAME[name].of(record, variant) if variant else None
    if value is None:
        raise ValueError(f"{record.test} has no {name}")
    return value


def _per_sample_s(run: Run, record: Record) -> float:
    return _value(run, record, "per_sample_latency_s")


def _times(ratio: float) -> str:
    return f"{three_digits(ratio)}×"


def _floor_text(floor: NoiseFloor) -> str:
    return f" ({floor.percent:.0f} %)"


def decode_sentence(seen: Evidence) -> str:
    """How near the reference's decode comes to the memory's bandwidth; empty where that wasn't measured."""
    record, variant = seen.reference, seen.run.variant(seen.run.reference)
    if record is None or variant is None:
        return ""
    share, roofline_s = roofline.mbu(record, variant), roofline.roofline_tpot_s(record, variant)
    if share is None or roofline_s is None:
        return ""
    if share > 1:
        return (
            f"Decode of {record.variant} reads faster than this machine was measured to read memory: its weights may "
            "stay in the processor's cache, or the machine was busy when its limits were measured."
        )
    least = "no less than " if roofline.decode_may_read_more(record) else ""
    per = "a token" if record.batch_rows and max(record.batch_rows) == 1 else "a step"
    return (
        f"Decode of {record.variant} runs at {least}{format_share(share)} of this machine's memory bandwidth; the "
        f"roofline is {format_seconds(roofline_s)} {per}."
    )
