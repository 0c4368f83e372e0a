"""What the variants wrote, each text cut where it departs from the reference's; and what was skipped or failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_bench_fixtures.measure.equivalence import first_divergence
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.values import Continuation, MissingBenchmarks, PromptTexts
from llm_bench_fixtures.report.tables.scenarios import scenario_of_texts
from llm_bench_fixtures.results.record import Record, Run

INSTALL = "pip install "  # with which the reasons of what isn't installed end


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


def absences(findings: Findings) -> Iterator[MissingBenchmarks]:
    for one in findings.skipped_or_failed:
        reason, found, what = one.reason.partition(INSTALL)
        install = f"{INSTALL}{what}" if found else ""
        yield MissingBenchmarks(one.variant, one.status.value, reason.rstrip(": "), install, str(one.benchmarks))
