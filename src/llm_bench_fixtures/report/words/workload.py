"""What ran, in words that stand in tables and sentences alike: workloads, prompts, scenarios, speed-ups."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import Headline
from llm_bench_fixtures.report.renderers.figures import text
from llm_bench_fixtures.report.tables.table import Cell
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, format_change
from llm_bench_fixtures.results.metrics import METRICS, Metric
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status
from llm_bench_fixtures.statistics.spread import interval

OWN_METRICS = frozenset(metric.name for metric in METRICS)


def describe_workload(record: Record) -> str:
    """One line: prompts, tokens, batch and cache."""
    workload = record.facts
    parts = (
        "one prompt" if workload.prompts == 1 else f"{workload.prompts} prompts",
        count(workload.prompt_tokens, "prompt token"),
        count(workload.new_tokens, "new token"),
        f"batch {workload.batch_size}",
        f"cache {workload.cache}",
    )
    return ", ".join(parts)


def describe_headline(headline: Headline) -> str:
    """The workload whose figures are shown, and the prompts that speed-ups are pooled over; empty without any."""
    some = next(iter(headline.common.values()), None)
    if some is None:
        return ""
    lengths = pooled_lengths(headline)
    over = f"; speed-ups are means over prompts of {listed(lengths, 'and')} tokens" if lengths else ""
    return f"{describe_workload(some)}{over}"


def headline_sentence(seen: Evidence, end: str = ".") -> str:
    """The workload whose figures are shown, or that there is none; times of a benchmark whose test failed count for
    nothing."""
    where = describe_headline(seen)
    if where:
        return f"{where[:1].upper()}{where[1:]}{end}"
    has_failed = any(record.status is Status.ERROR for record in seen.run.records)
    return "No benchmark was timed whose test passed." if has_failed else "Nothing was timed."


def headline_prompts(headline: Headline) -> str:
    """The prompts alone, within a sentence: "one prompt of 16, 64 or 256 tokens"."""
    some = next(iter(headline.common.values()), None)
    lengths = pooled_lengths(headline)
    if lengths:
        return f"one prompt of {listed(lengths, 'or')} tokens"
    return describe_prompts(some) if some else MISSING


def pooled_lengths(headline: Headline) -> list[str]:
    """Prompt tokens of the cases that speed-ups are pooled over; empty where they are of one case."""
    cases = next(iter(headline.cases.values()), ())
    return [str(case.facts.prompt_tokens) for case in cases] if len(cases) > 1 else []


def listed(names: Sequence[str], word: str) -> str:
    """The names in a sentence: "a, b and c"."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def describe_prompts(record: Record) -> str:
    """The prompts alone, within a sentence."""
    workload = record.facts
    if workload.prompts == 1:
        return f"one prompt of {workload.prompt_tokens:,} tokens"
    alone = ", one at a time" if workload.batch_size == 1 else ""
    return f"{workload.prompts:,} prompts of {workload.prompt_tokens:,} tokens together{alone}"


def times_words(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio, with its interval if that has a width: "1.38× (1.34–1.41)"."""
    return text(Cell(value=ratio, low=low, high=high, notation=Notation.TIMES))


def instrumentation_sentences(run: Run) -> Iterator[str]:
    """Cost of taking the tokens' times, of each variant for which that was measured."""
    for variant, ratios in run.instrumentation_ratios.items():
        found = interval(ratios)
        if found is None:
            yield f"What taking each token's time costs {variant} is not known from {count(len(ratios), 'pair')}."
        else:
            yield (
                f"Taking each token's time changed the latency of {variant} by "
                f"{format_change(statistics.geometric_mean(ratios))} (95 % interval {format_change(found.low)} to "
                f"{format_change(found.high)}, {len(ratios)} alternated pairs)."
            )


def added_metrics(run: Run, metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics that a project added and that some record or variant has a value for."""
    present = {name for record in run.records for name in record.extra}
    present |= {name for variant in run.variants for name in variant.quality}
    return [metric for metric in metrics.values() if metric.name in present - OWN_METRICS]


def title_of(scenario: Scenario) -> str:
    """Title from the scenario's marker, else made of its name."""
    return scenario.title or scenario.name.replace("_", " ").capitalize()
