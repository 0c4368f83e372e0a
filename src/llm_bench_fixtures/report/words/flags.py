"""What is unusual, with its likely cause: about a run, a variant or a record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.noise import cores_apart, disturbance, was_alone
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict
from llm_bench_fixtures.results.formatting import count, three_digits
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import UNSTABLE, coefficient_of_variation, stability

SLOW = 1.5  # times the median of the scenario's other cases on the same variant
MANY_TOKENS = 4  # times their median prompt


def noise_warning(seen: Evidence) -> str:
    """What was seen of a noisy machine, what is safe to conclude all the same, and what to do; empty of a calm one."""
    noise, reference = seen.machine, seen.reference
    if not noise.is_noisy:
        return ""
    seen_of_it, todo = [], "Measure for longer (--llm-max-noise 1%)"
    if noise.differs:
        between = f"{three_digits(noise.least)} to {three_digits(noise.most)}"
        seen_of_it.append(f"identical work mostly came out {between} times as fast")
    if noise.drifts:
        drift = f"{100 * math.expm1(noise.drift):.0f} %"
        seen_of_it.append(f"{noise.drifting}'s speed-up varied by {drift} between similar prompts")
        todo = "Pool several runs (llm-bench report RUN RUN)"
    if noise.is_mostly_disturbed:
        seen_of_it.append(f"in {noise.disturbed} of {count(noise.pairs, 'pair')} of rounds, threads waited for a core")
        todo = "More rounds won't help: wait until it is calm"
    if (apart := cores_apart(seen.run)).is_often:
        pairs = f"{apart.pairs} of {count(apart.looked_at, 'pair')} of rounds"
        seen_of_it.append(f"in {pairs}, the CPU cores exchanged data slowly (the host may have moved them apart)")
    gains = {one.variant: seen.gain(one, reference) for one in seen.others} if reference else {}
    faster = [name for name, found in gains.items() if found.is_faster]
    slower = [name for name, found in gains.items() if found.is_slower]
    groups = [(", ".join(names), word, len(names)) for names, word in ((faster, "faster"), (slower, "slower")) if names]
    safe = [f"{names} {'is' if size == 1 else 'are'} {word} than {seen.run.reference}" for names, word, size in groups]
    return (
        f"Noisy machine: {'; '.join(seen_of_it)}. Still certain: {'; '.join(safe) or 'nothing about speed'}. Memory "
        f"and quality are unaffected. {todo}, stop other programs, or use another machine."
    )


def flags(run: Run, record: Record) -> list[str]:
    """Short remarks for the record's row; none where nothing is unusual."""
    return [*_slow_edge(run, record), *_other_text(run, record), *_of_rounds(run, record)]


def variant_flags(variant: VariantResult) -> list[str]:
    """The execution modes that change what it answers beyond float error, or that its code fails in."""
    diverging = [found for found in variant.equivalence if found.verdict is EquivalenceVerdict.DIVERGES]
    failed = dict.fromkeys(one.mode for one in variant.equivalence if one.verdict is EquivalenceVerdict.FAILED)
    in_text = dict.fromkeys(found.mode for found in diverging if found.token is not None)
    in_probability = dict.fromkeys(found.mode for found in diverging if found.mode not in in_text)
    found = {"changes its text": in_text, "changes its probabilities": in_probability, "fails": failed}
    return [f"{mode} {what}" for what, modes in found.items() for mode in modes]


def _siblings(run: Run, record: Record) -> list[Record]:
    """Measured records of the same scenario on the same variant, this one included."""
    return [other for other in run.measured(record.scenario) if other.variant == record.variant and other.workload]


def _slow_edge(run: Run, record: Record) -> Iterator[str]:
    """An edge prompt that takes much longer than the others."""
    if record.scenario != "edge_prompts" or not record.workload or not record.rounds_s:
        return
    others = [other for other in _siblings(run, record) if other.test != record.test]
    if not others:
        return
    usual_s = statistics.median(other.median_s for other in others)
    usual_tokens = statistics.median(other.facts.prompt_tokens for other in others)
    ratio = record.median_s / usual_s
    if ratio > SLOW:
        long = record.workload.prompt_tokens > MANY_TOKENS * usual_tokens
        cause = f"long prefill, {record.workload.prompt_tokens} tokens" if long else "not the prompt's length"
        yield f"{three_digits(ratio)}× the usual latency: {cause}"


def _other_text(run: Run, record: Record) -> Iterator[str]:
    """Greedy text that differs from the same prompts' on the plainest way to run them.

    The plainest way is one by one, else the smallest batch; with the usual cache.
    """
    if not record.workload or not record.outputs:
        return
    prompts = record.workload.prompts_digest
    same_prompts = [one for one in _siblings(run, record) if one.outputs and one.facts.prompts_digest == prompts]
    plainest = min(same_prompts, key=_plainness, default=record)
    if different := sum(a != b for a, b in zip(record.outputs, plainest.outputs, strict=True)):
        cause = "; it continues from the padding" if record.workload.padding_side == "right" else ""
        count = f"{different} of {len(record.outputs)} texts differ" if len(record.outputs) > 1 else "the text differs"
        yield f"{count} from {plainest.scenario.replace('_', ' ')} {plainest.case}{cause}"


def _plainness(record: Record) -> tuple[int, bool, bool]:
    facts = record.facts
    return facts.batch_size, facts.cache != "dynamic", facts.padding_side != "left"


def _of_rounds(run: Run, record: Record) -> Iterator[str]:
    """Rounds that scatter widely; a speed-up from disturbed ones, or from no turns though others of the run took
    them."""
    variation = coefficient_of_variation(record.rounds_s)
    if variation is not None and stability(variation) == UNSTABLE:
        yield f"unstable (CV {variation * 100:.0f} %)"
    if found := disturbance(record):
        yield f"{found[0]} of {found[1]} pairs of rounds disturbed"
    if was_alone(run, record):
        yield "measured alone"
