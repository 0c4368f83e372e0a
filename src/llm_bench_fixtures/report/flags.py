"""What is unusual about a record, with its likely cause."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict
from llm_bench_fixtures.report.blocks import disturbance, is_taken_apart
from llm_bench_fixtures.results.formatting import three_digits
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import UNSTABLE, coefficient_of_variation, stability

SLOW = 1.5  # times the median of the scenario's other cases on the same variant
MANY_TOKENS = 4  # times their median prompt


def flags(run: Run, record: Record) -> list[str]:
    """Short remarks for the record's row; none where nothing is unusual."""
    return [*_slow_edge(run, record), *_other_text(run, record), *_unstable(record), *_of_blocks(run, record)]


def variant_flags(variant: VariantResult) -> list[str]:
    """The execution modes that change what it answers beyond float error, or that its code fails in."""
    diverging = [found for found in variant.equivalence if found.verdict is EquivalenceVerdict.DIVERGES]
    in_text = dict.fromkeys(found.mode for found in diverging if found.token is not None)
    in_probability = dict.fromkeys(found.mode for found in diverging if found.mode not in in_text)
    return [
        *(f"{mode} changes its text" for mode in in_text),
        *(f"{mode} changes its probabilities" for mode in in_probability),
        *(f"{mode} fails" for mode in dict.fromkeys(_failed(variant))),
    ]


def _failed(variant: VariantResult) -> list[str]:
    return [found.mode for found in variant.equivalence if found.verdict is EquivalenceVerdict.FAILED]


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
    usual_tokens = statistics.median(other.workload.prompt_tokens for other in others if other.workload)
    ratio = record.median_s / usual_s
    if ratio > SLOW:
        long = record.workload.prompt_tokens > MANY_TOKENS * usual_tokens
        cause = f"long prefill, {record.workload.prompt_tokens} tokens" if long else "not the prompt's length"
        yield f"{three_digits(ratio)}× the usual latency: {cause}"


def _other_text(run: Run, record: Record) -> Iterator[str]:
    """Greedy text that differs from the same prompts' on the plainest way to run them.

    That is: one by one, else the smallest batch; with the usual cache.
    """
    if not record.workload or not record.outputs:
        return
    same_prompts = [
        other
        for other in _siblings(run, record)
        if other.outputs and other.workload and other.workload.prompts_digest == record.workload.prompts_digest
    ]
    plainest = min(same_prompts, key=_plainness, default=record)
    different = sum(a != b for a, b in zip(record.outputs, plainest.outputs, strict=True))
    if different:
        cause = "; it continues from the padding" if record.workload.padding_side == "right" else ""
        count = f"{different} of {len(record.outputs)} texts differ" if len(record.outputs) > 1 else "the text differs"
        yield f"{count} from {plainest.scenario.replace('_', ' ')} {plainest.case}{cause}"


def _plainness(record: Record) -> tuple[int, bool, bool]:
    if record.workload is None:
        return (0, True, True)
    return (record.workload.batch_size, record.workload.cache != "dynamic", record.workload.padding_side != "left")


def _unstable(record: Record) -> Iterator[str]:
    """Rounds that scatter widely."""
    variation = coefficient_of_variation(record.rounds_s)
    if variation is not None and stability(variation) == UNSTABLE:
        yield f"unstable (CV {variation * 100:.0f} %)"


def _of_blocks(run: Run, record: Record) -> Iterator[str]:
    """A speed-up that rests on disturbed rounds, or on none though others of the run rest on blocks."""
    if disturbed := disturbance(record):
        yield disturbed
    if is_taken_apart(run, record):
        yield "taken apart"
