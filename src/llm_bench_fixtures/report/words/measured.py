"""What ran and how it was measured, in words that tables and sentences share: workloads, prompts, scenarios and
speed-ups."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import Headline
from llm_bench_fixtures.report.tables.table import Cell
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, format_change
from llm_bench_fixtures.results.metrics import METRICS, Metric
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status
from llm_bench_fixtures.statistics.spread import interval

NEXT_TO_EACH_OTHER, OF_ROUNDS = "compares rounds that ran next to each other", "medians of all rounds"
MOST_NAMED = 4  # rows, in a sentence
OWN_METRICS = frozenset(metric.name for metric in METRICS)
RatioRow: TypeAlias = tuple[str, Cell, Cell, Cell]
"""A name with the reference's latency, the own one and the speed-up, which may differ from their ratio."""


def describe_workload(record: Record) -> str:
    """One line: prompts, tokens, batch and cache."""
    workload = record.facts
    prompts = "one prompt" if workload.prompts == 1 else f"{workload.prompts} prompts"
    tokens = f"{count(workload.prompt_tokens, 'prompt token')}, {count(workload.new_tokens, 'new token')}"
    return f"{prompts}, {tokens}, batch {workload.batch_size}, cache {workload.cache}"


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
    if where := describe_headline(seen):
        return f"{where[:1].upper()}{where[1:]}{end}"
    has_failed = any(record.status is Status.ERROR for record in seen.run.records)
    return "No benchmark was timed whose test passed." if has_failed else "Nothing was timed."


def headline_prompts(headline: Headline) -> str:
    """The prompts alone, within a sentence: "one prompt of 16, 64 or 256 tokens"."""
    some = next(iter(headline.common.values()), None)
    if lengths := pooled_lengths(headline):
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
    return Cell(value=ratio, low=low, high=high, notation=Notation.TIMES).text()


def timing_costs(run: Run) -> Iterator[str]:
    """Cost of taking the tokens' times, of each variant for which that was measured."""
    for variant, ratios in run.instrumentation_ratios.items():
        found = interval(ratios)
        if found is None:
            yield f"What taking each token's time costs {variant} is not known from {count(len(ratios), 'pair')}."
        else:
            change, low, high = map(format_change, (statistics.geometric_mean(ratios), found.low, found.high))
            sure = f"95 % interval {low} to {high}, {len(ratios)} alternated pairs"
            yield f"Recording token times changed {variant}'s latency by {change} ({sure})."


def odd_ratios(rows: Iterable[RatioRow], is_what: str = NEXT_TO_EACH_OTHER, are_what: str = OF_ROUNDS) -> Iterator[str]:
    """A clause on the speed-ups whose interval doesn't hold the ratio of the latencies that stand next to them.

    is_what: what the speed-up is. are_what: what the latencies are.
    """
    if odd := [name for name, *cells in rows if _is_odd(*cells)]:
        whose = ", ".join(odd) if len(odd) <= MOST_NAMED else f"{len(odd)} rows"
        yield f"{whose}: the speed-up {is_what}, the latencies are {are_what}, so their ratio differs"


def _is_odd(reference: Cell, own: Cell, found: Cell) -> bool:
    if not reference.value or not own.value or found.low is None or found.high is None or found.low == found.high:
        return False
    return not found.low <= reference.value / own.value <= found.high


def added_metrics(run: Run, metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics that a project added and that some record or variant has a value for."""
    present = {name for record in run.records for name in record.extra}
    present |= {name for variant in run.variants for name in variant.quality}
    return [metric for metric in metrics.values() if metric.name in present - OWN_METRICS]


def scenarios_of(run: Run) -> dict[str, Scenario]:
    """Scenarios by name: those that the run names, in its order; then any others that records are of."""
    named = {one.name: one for one in run.scenarios}
    return named | {one.scenario: Scenario(one.scenario) for one in run.records if one.scenario not in named}


def title_of(scenario: Scenario) -> str:
    """Title from the scenario's marker, else made of its name."""
    return scenario.title or scenario.name.replace("_", " ").capitalize()
