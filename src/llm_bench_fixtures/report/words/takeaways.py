"""What else follows from a run's records, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from llm_bench_fixtures.answer import effects
from llm_bench_fixtures.answer.effects import Effect
from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.models.variants import passive_id
from llm_bench_fixtures.report.tables.on_request import fit_sentences, load_sentences
from llm_bench_fixtures.report.words.measured import describe_prompts, times_words
from llm_bench_fixtures.report.words.quality import quality_in_short
from llm_bench_fixtures.results import roofline
from llm_bench_fixtures.results.formatting import format_seconds, format_share
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Record, Run


def takeaways(seen: Evidence) -> tuple[str, ...]:
    """Takeaways that this run can support, the most useful first, and what its rounds are too few to tell."""
    sources = (_fast_tokens, _contention, _batch, decode_sentences, _cache, _padding, _prompt_length, _too_few_rounds)
    told = (sentence for source in sources for sentence in source(seen))
    return (*fit_sentences(seen.run), *load_sentences(seen.run), *told)


def _fast_tokens(seen: Evidence) -> Iterator[str]:
    if found := effects.fastest_tokens(seen):
        record, ratio = found
        own_s = _value(seen.run, record, "tpot_s")
        yield (
            f"{record.variant} decodes {times_words(ratio)} as fast as {seen.run.reference}: {format_seconds(own_s)} a "
            f"token instead of {format_seconds(own_s * ratio)}, {quality_in_short(seen.run, record.variant)}."
        )


def _contention(seen: Evidence) -> Iterator[str]:
    if found := effects.waiting_threads(seen):
        own, shares = found
        each = ", ".join(f"{name} {format_share(share)}" for name, share in shares.items())
        both = ",".join((seen.run.reference, *(f"{name},{passive_id(name)}" for name in shares)))
        yield (
            f"Threads wait for a core ({each} of the rounds' time; {seen.run.reference} {format_share(own)}): two "
            "pools of threads in one process compete for the cores. To measure them with OMP_WAIT_POLICY=passive: "
            f"--llm-variants {both}"
        )


def _batch(seen: Evidence) -> Iterator[str]:
    """Throughput that the best batch size gives, and what it costs in latency."""
    found = effects.of_batches(seen)
    if not found or effects.is_unclear(found):
        return
    best = max(found, key=lambda one: (one.found.is_faster, one.found.ratio))
    size, one = best.of.facts.batch_size, best.over.facts.batch_size
    gives = f"On {best.of.variant}, batch {size} gives {times_words(best.found.ratio)} the throughput of batch {one}"
    if best.found.is_faster:
        own, alone = (_value(seen.run, record, "per_sample_latency_s") for record in (best.of, best.over))
        yield f"{gives}, and each sample takes {times_words(own / alone)} as long ({format_seconds(own)})."
    elif best.found.is_slower:
        yield f"{gives}: batching costs throughput here."
    else:
        yield f"Batching: no gain in {best.of.variant}'s throughput beyond the noise of {seen.noise.percent:.0f} %."


def _cache(seen: Evidence) -> Iterator[str]:
    """Time that the KV cache saves, or costs."""
    for one in effects.of_cache(seen):
        facts = f"{describe_prompts(one.of)}, {one.of.facts.new_tokens} new"
        fast = f"{times_words(one.found.ratio)} as fast as without it ({facts})"
        if one.found.is_faster:
            yield f"The KV cache makes {one.of.variant} {fast}."
        elif one.found.is_slower:
            yield f"The KV cache makes {one.of.variant} slower: {fast}."
        elif not one.found.is_unclear:
            noise = f"{seen.noise.percent:.0f} %"
            yield f"KV cache: no difference for {one.of.variant} beyond the noise of {noise} ({facts})."


def _padding(seen: Evidence) -> Iterator[str]:
    """A padded batch against the same prompts one by one."""
    if best := _largest(effects.of_padding(seen)):
        facts = best.of.facts
        share = facts.padded_tokens / (facts.padded_tokens + facts.prompt_tokens)
        yield (
            f"On {best.of.variant}, one padded batch ({best.of.case}) is {times_words(best.found.ratio)} as fast as "
            f"the prompts one by one, though {share * 100:.0f} % of the batch is padding."
        )


def _prompt_length(seen: Evidence) -> Iterator[str]:
    """Cost of the longest prompt against the shortest."""
    if best := _largest(effects.of_length(seen)):
        short, long = best.of.facts.prompt_tokens, best.over.facts.prompt_tokens
        yield f"On {best.of.variant}, {long} prompt tokens take {times_words(best.found.ratio)} as long as {short}."


def _too_few_rounds(seen: Evidence) -> Iterator[str]:
    """Unknowns, which are not to be taken for "none"."""
    if topics := list(effects.undecided(seen)):
        yield f"Too few rounds to show the effect of {', '.join(topics)}."


def _largest(found: list[Effect]) -> Effect | None:
    """The largest gain that may be claimed."""
    return max((one for one in found if one.found.is_faster), key=lambda one: one.found.ratio, default=None)


def _value(run: Run, record: Record, name: str) -> float:
    variant = run.variant(record.variant)
    value = METRIC_BY_NAME[name].of(record, variant) if variant else None
    if value is None:
        raise ValueError(f"{record.test} has no {name}")
    return value


def decode_sentences(seen: Evidence) -> Iterator[str]:
    """How near the reference's decode comes to the memory's bandwidth; nothing where that wasn't measured."""
    record, variant = seen.reference, seen.run.variant(seen.run.reference)
    if record is None or variant is None:
        return
    share, roofline_s = roofline.mbu(record, variant), roofline.roofline_tpot_s(record, variant)
    if share is None or roofline_s is None:
        return
    if share > 1:
        yield (
            f"Decode of {record.variant} reads faster than this machine was measured to read memory: its weights may "
            "stay in the processor's cache, or the machine was busy when its limits were measured."
        )
    else:
        least = "no less than " if roofline.decode_may_read_more(record) else ""
        per = "a token" if record.batch_rows and max(record.batch_rows) == 1 else "a step"
        yield (
            f"Decode of {record.variant} runs at {least}{format_share(share)} of this machine's memory bandwidth; the "
            f"roofline is {format_seconds(roofline_s)} {per}."
        )
