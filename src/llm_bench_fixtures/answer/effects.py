"""What batches, the KV cache, padding and longer prompts do to one variant, and what decoding and waiting threads show.

None claims a difference that the run can't show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.noise import disturbance
from llm_bench_fixtures.answer.picks import MUCH, Found
from llm_bench_fixtures.models.variants import passive_id
from llm_bench_fixtures.results.prefill_decode import decode_s, per_round, tpot_s
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import record_speedup, rounds_together, waiting_share
from llm_bench_fixtures.statistics.pooling import mean_over_runs
from llm_bench_fixtures.statistics.ratio import LogRatio, Speedup, log_ratio, speedup_from

HELD_UP = 0.2  # share of a round's time, summed over threads
LITTLE = HELD_UP / 2  # what the reference may wait meanwhile: a neighbour on the machine would hold up both
LEAST_DECODE = 0.1  # share of a round that its decode takes where tokens come one by one


@dataclass(frozen=True)
class Effect:
    """One case against another of the same variant."""

    of: Record
    over: Record
    found: Found
    """How many times as fast `of` is as `over`."""


def is_unclear(effects: Sequence[Effect]) -> bool:
    """Whether nothing can be claimed, because of too few rounds."""
    return not any(one.found.is_faster for one in effects) and any(one.found.is_unclear for one in effects)


def of_batches(seen: Evidence) -> list[Effect]:
    """Each larger batch size over the smallest."""
    records = sorted(_of_one_variant(seen.run, "batch"), key=lambda record: record.facts.batch_size)
    return [_effect(seen, record, records[0]) for record in records[1:]]


def of_cache(seen: Evidence) -> list[Effect]:
    """Effect of the usual cache, over no cache."""
    by_cache = {record.facts.cache: record for record in _of_one_variant(seen.run, "cache")}
    dynamic, off = by_cache.get("dynamic"), by_cache.get("off")
    if dynamic is None or off is None:
        return []
    if dynamic.work and dynamic.work.forward_passes and not dynamic.work.cache_bytes:
        return []  # passes were seen, and they kept no keys and values
    return [_effect(seen, dynamic, off)]


def of_padding(seen: Evidence) -> list[Effect]:
    """Each batch that is padded at the left over the same prompts one by one."""
    records = [(record, record.facts) for record in _of_one_variant(seen.run, "padding")]
    singles = [record for record, facts in records if facts.batch_size == 1]
    padded = [record for record, facts in records if facts.batch_size > 1 and facts.padding_side == "left"]
    return [_effect(seen, record, singles[0]) for record in padded if singles]


def of_length(seen: Evidence) -> list[Effect]:
    """The shortest prompt over the longest."""
    records = sorted(_of_one_variant(seen.run, "prompt_length"), key=lambda record: record.facts.prompt_tokens)
    return [_effect(seen, records[0], records[-1])] if len(records) > 1 else []


def _effect(seen: Evidence, of: Record, over: Record) -> Effect:
    return Effect(of, over, seen.gain(of, over))


def _of_one_variant(run: Run, scenario: str) -> list[Record]:
    """The scenario's records of the reference, or of the first variant where the reference has none."""
    records = [record for record in run.measured(scenario) if record.workload is not None]
    variants = [record.variant for record in records]
    chosen = run.reference if run.reference in variants else next(iter(variants), "")
    return [record for record in records if record.variant == chosen]


def waiting_threads(seen: Evidence) -> tuple[float, Mapping[str, float]] | None:
    """Shares of a round's time that threads wait for a core: the reference's, and those of the variants that wait long
    and weren't measured with threads that wait asleep.

    None where nobody waits; where variants share a process, as threads can't be set apart there; and where the
    reference waits, too, because then something else holds both up.
    """
    reference, asleep = seen.reference, {variant.id for variant in seen.run.variants if variant.is_passive}
    own = waiting_share(reference.rounds_s, reference.waited_s) if reference else None
    shares = ((record.variant, waiting_share(record.rounds_s, record.waited_s)) for record in seen.others)
    long = {name: one for name, one in shares if one is not None and one > HELD_UP}
    awake = {name: one for name, one in long.items() if asleep.isdisjoint((name, passive_id(name)))}
    is_shown = own is not None and own <= LITTLE and seen.run.provenance.threads > 1 and seen.run.provenance.isolated
    return (own, awake) if own is not None and is_shown and awake else None


def fastest_tokens(seen: Evidence) -> tuple[Record, float] | None:
    """The variant whose decode is shown to be far faster than the reference's, and how many times; of those whose
    rounds were mostly undisturbed."""
    reference = seen.reference
    if reference is None:
        return None
    whole, calm = seen.all_rounds(reference), (one for one in map(seen.all_rounds, seen.others) if not disturbance(one))
    pairs = ((record, _decode_speedup(record, whole, seen.confidence)) for record in calm)
    far = [(record, found.ratio) for record, found in pairs if found is not None and found.low >= MUCH]
    return max(far, key=lambda one: one[1], default=None)


def _decode_speedup(record: Record, reference: Record, confidence: float) -> Speedup | None:
    """Speed-up of decoding, from the time per token of each round and of the reference's round in the same turn.

    None where they took no turns, rounds are too few or have no such time, the whole round isn't shown to be faster, or
    tokens came in a burst.
    """
    whole = record_speedup(record, confidence) if record.workload == reference.workload else None
    if whole is None or not whole.is_faster or any(map(_is_burst, (record, reference))):
        return None
    both = zip(record.by_run, reference.by_run, strict=True)
    known = [found for one, other in both if one and other and (found := _decode_ratio(one, other))]
    return speedup_from(mean_over_runs(known), confidence, len(record.rounds_s)) if known else None


def _decode_ratio(record: Record, reference: Record) -> LogRatio | None:
    """Log ratio of the times per token in one run.

    Only the latency is kept of the reference's rounds in the turns of another group: a token has the share of it that
    it has in the reference's own rounds. The record's expected variance is not used, because it is of whole rounds:
    where these take seconds and are few, times per token scattered by twice that variance. Their drift stands for that
    of decoding.
    """
    own_s, reference_s = (per_round(one, tpot_s) for one in (record, reference))
    if len(own_s) < len(record.rounds_s) or len(reference_s) < len(reference.rounds_s):
        return None
    if shared := rounds_together(record, reference):
        ratio = log_ratio([reference_s[number] for _, number in shared], [own_s[number] for number, _ in shared])
        return ratio and replace(ratio, drift=record.drift)
    ratio, share = log_ratio(record.reference_s, own_s), log_ratio(reference.rounds_s, reference_s)
    if ratio is None or share is None:
        return None
    # the reference's process is the same
    return replace(ratio.minus(share), process_variance=ratio.process_variance, drift=record.drift)


def _is_burst(record: Record) -> bool:
    """Whether the tokens came nearly at once, as from a server or a proxy that keeps them back."""
    return sum(per_round(record, decode_s)) < LEAST_DECODE * sum(record.rounds_s)


def undecided(seen: Evidence) -> Iterator[str]:
    """The names of those for which the rounds are too few."""
    topics = {"batching": of_batches, "the KV cache": of_cache, "padding": of_padding, "longer prompts": of_length}
    return (topic for topic, effects in topics.items() if is_unclear(effects(seen)))
