"""What the heads of columns mean: formula and direction from the metric registry, and words for the other columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llm_bench_fixtures.report.page.values import Term
from llm_bench_fixtures.report.tables.short import BATCHED
from llm_bench_fixtures.results.metrics import Direction, Metric

WORDS = {
    "variant": "one way to run the model: backend, precision and quantization",
    "what ran": "what was really run, which may differ from what was asked for",
    "change": "the perplexity against the reference's, less one; with its standard error",
    "case": "the value of what the scenario changes",
    "remarks": "what is unusual about the benchmark, with its likely cause",
    "stability": "a word for the coefficient of variation: below 5 % excellent, 10 % good, 20 % fair, else unstable",
    BATCHED: "tokens per second at the largest batch, and its size",
    "peak": "the highest memory of a round, as a rise over before the model was loaded",
    "benchmarks": "how many benchmarks of the variant ended like that",
}


def glossary(heads: Iterable[str], metrics: Mapping[str, Metric]) -> dict[str, Term]:
    """By the head's text; heads that need no explanation are left out. Where several metrics have the same head, the
    registry's first."""
    by_column = {metric.column: metric for metric in reversed(list(metrics.values()))}
    known = [head for head in dict.fromkeys(heads) if head in WORDS or head in by_column]
    return {head: _term(f"term-{place}", head, by_column.get(head)) for place, head in enumerate(known)}


def _term(key: str, head: str, metric: Metric | None) -> Term:
    if metric is None:
        return Term(key, head, WORDS[head])
    better = "" if metric.direction is Direction.NEITHER else metric.direction.value
    return Term(key, metric.title, metric.formula, better, metric.source)
