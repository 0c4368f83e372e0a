"""What of two runs of different machines or models can stand in one column, and why the rest can't."""

from __future__ import annotations

from enum import StrEnum

from llm_bench_fixtures.answer.peaks import PEAKS, memory_metric
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.words.workload import describe_headline
from llm_bench_fixtures.results.formatting import count


class Aspect(StrEnum):
    """What of a run may be incomparable with the first run's."""

    LATENCY = "latency"
    SPEEDUP = "speed-up"
    THROUGHPUT = "throughput"
    PEAK = "peak memory"
    QUALITY = "quality"
    FLIPS = "flips"


def obstacles(first: Findings, other: Findings) -> dict[Aspect, str]:
    """Why these can't be compared between the two runs."""
    found: dict[Aspect, str] = {}
    workload, reference = _other_workload(first, other), _other_reference(first, other)
    batch = _difference("another batch", _batch(first), _batch(other))
    peak = _difference("another kind of peak", _peak(first), _peak(other))
    corpus = _difference("another corpus", first.run.provenance.corpus, other.run.provenance.corpus)
    questions = _difference("other questions", first.run.provenance.choices, other.run.provenance.choices)
    for aspect, reasons in (
        (Aspect.LATENCY, (workload,)),
        (Aspect.SPEEDUP, (workload, reference)),
        (Aspect.THROUGHPUT, (batch,)),
        (Aspect.PEAK, (workload, peak)),
        (Aspect.QUALITY, (corpus, reference)),
        (Aspect.FLIPS, (questions, reference)),
    ):
        reason = next(filter(None, reasons), "")
        if reason:
            found[aspect] = reason
    return found


def _difference(what: str, first: str, other: str) -> str:
    """Empty where one of the two has nothing to compare."""
    return f"{what}: {other}; the first run's: {first}" if first and other and first != other else ""


def _other_workload(first: Findings, other: Findings) -> str:
    return _difference("another workload", _workload(first), _workload(other))


def _workload(findings: Findings) -> str:
    """In numbers only: two tokenizers cut other tokens from the same text."""
    return describe_headline(findings)


def _other_reference(first: Findings, other: Findings) -> str:
    return _difference("another reference", _reference(first), _reference(other))


def _reference(findings: Findings) -> str:
    """As it ran; empty where it didn't."""
    variant = findings.run.variant(findings.run.reference)
    return f"{findings.run.reference}, {variant.label}" if variant and variant.label else ""


def _batch(findings: Findings) -> str:
    some = next(iter(findings.largest_batch.values()), None)
    if some is None or some.workload is None:
        return ""
    facts = some.workload
    tokens = f"{count(facts.prompt_tokens, 'token')} and {count(facts.new_tokens, 'new token')}"
    return f"{count(facts.prompts, 'prompt')} of {tokens} in all, batch {facts.batch_size}"


def _peak(findings: Findings) -> str:
    """Which peak was measured, and of what; empty where none was."""
    metric = memory_metric(findings)
    if metric not in PEAKS:
        return ""
    title = findings.metrics[metric].title
    return f"{title}, {'each variant apart' if findings.run.provenance.isolated else 'all in one process'}"
