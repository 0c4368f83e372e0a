"""The generated texts beside the reference's, each cut where it departs from it."""

from __future__ import annotations

from collections.abc import Sequence

from llm_bench_fixtures.measure.divergence import first_divergence
from llm_bench_fixtures.report.page.values import Continuation, PromptTexts
from llm_bench_fixtures.report.scenarios import scenario_of_texts
from llm_bench_fixtures.results.record import Record, Run


def prompt_texts(run: Run) -> tuple[PromptTexts, ...]:
    """For each prompt of the scenario, the first text of each variant; those that wrote the same stand together."""
    shown = scenario_of_texts(run)
    records = [record for record in run.records if record.scenario == shown and record.outputs]
    cases = dict.fromkeys(record.case for record in records)
    return tuple(
        PromptTexts(case, _continuations([record for record in records if record.case == case], run.reference))
        for case in cases
    )


def _continuations(records: Sequence[Record], reference: str) -> tuple[Continuation, ...]:
    texts = {record.variant: record.outputs[0] for record in records}
    own = texts.get(reference)
    by_text: dict[str, list[str]] = {}
    for variant, text in texts.items():
        by_text.setdefault(text, []).append(variant)
    ordered = sorted(by_text.items(), key=lambda item: item[0] != own)  # the reference's first
    return tuple(_continuation(text, variants, own) for text, variants in ordered)


def _continuation(text: str, variants: Sequence[str], own: str | None) -> Continuation:
    if own is None or text == own:
        return Continuation(tuple(variants), text, is_reference=text == own)
    place = first_divergence(text, own)
    return Continuation(tuple(variants), text[:place], text[place:], ends_early=place == len(text))
