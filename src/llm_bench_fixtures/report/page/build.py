"""The whole page, from what the report says of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from llm_bench_fixtures.answer.standings import near_lossless
from llm_bench_fixtures.report.agreement import agreement_sections
from llm_bench_fixtures.report.charts.machine import phases_chart, roofline_chart
from llm_bench_fixtures.report.charts.spec import Plot
from llm_bench_fixtures.report.charts.sweeps import SWEEPS, sweep_charts
from llm_bench_fixtures.report.charts.tradeoff import tradeoff_chart
from llm_bench_fixtures.report.charts.variants import looks_of
from llm_bench_fixtures.report.document import SKIPPED, TEXTS, Document
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.limits import limit_scales
from llm_bench_fixtures.report.page.changes import changes_part
from llm_bench_fixtures.report.page.heatmap import heatmap_of
from llm_bench_fixtures.report.page.repeat import repeat_command
from llm_bench_fixtures.report.page.tables import (
    ALIKE_MEANS,
    SHORT,
    glossary,
    summary_table,
    unranked,
    without,
    without_zeros,
)
from llm_bench_fixtures.report.page.texts import absences, prompt_texts
from llm_bench_fixtures.report.page.values import Chip, Page, PageSection, PageTable, Term
from llm_bench_fixtures.report.tables.scenarios import not_asked_sentence
from llm_bench_fixtures.report.tables.table import MACHINE, SUMMARY, WHAT_RAN, Section
from llm_bench_fixtures.results.record import Run

ELSEWHERE = frozenset({TEXTS, SKIPPED})  # sections of the document that the page shows in its own way
RELOAD_S = 10  # between two looks of a page whose run goes on
COMMAND = "Command"  # the fact that stands as commands of its own


def build_page(findings: Findings, document: Document, plots: Sequence[Plot]) -> Page:
    """plots: pictures for browsers that run no scripts."""
    run = findings.run
    terms = glossary(_heads(document), findings.metrics)
    machine = tuple(chart for chart in (phases_chart(findings), roofline_chart(findings)) if chart)
    return Page(
        title=document.title,
        header=document.header,
        subtitle=f"{run.provenance.hardware} · {_when(run.provenance.started)}",
        warnings=document.warnings,
        answer=findings.answer,
        limits=limit_scales(findings, findings.answer),
        changes=changes_part(findings, terms),
        takeaways=findings.takeaways,
        chips=tuple(_chips(run)),
        tradeoff=tradeoff_chart(findings),
        tradeoff_plots=_plots_of(SUMMARY, plots)[:1],
        summary=summary_table(findings, terms),
        summary_note=f"{document.summary.note} {_tones(run)}{f' {ALIKE_MEANS}' if near_lossless(run) else ''}",
        heatmap=heatmap_of(findings),
        sweeps=tuple(sweep_charts(findings)),
        sweep_plots=tuple(plot for sweep in SWEEPS for plot in _plots_of(sweep.scenario, plots)),
        machine=machine,
        machine_plots=_plots_of(MACHINE, plots),
        machine_note="" if findings.decode in findings.takeaways else findings.decode,
        agreement=tuple(_section(run, section, (), terms) for section in agreement_sections(findings)),
        texts=prompt_texts(run),
        texts_note=not_asked_sentence(run),
        absences=tuple(absences(findings)),
        scenarios=tuple((section.scenario, section.title) for section in document.sections if section.scenario),
        sections=tuple(_sections(run, document, plots, terms)),
        reference=document.reference,
        facts=tuple(fact for fact in document.facts if fact[0] != COMMAND),
        command=repeat_command(run),
        footnotes=document.footnotes,
        glossary=tuple(terms.values()),
        reload_s=RELOAD_S if findings.so_far else 0,
    )


def _when(started: str) -> str:
    """For people; as it stands where it is no time."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return started


def _tones(run: Run) -> str:
    return f"▴ measurably better, ▾ measurably worse than {run.reference}."


def _heads(document: Document) -> Iterator[str]:
    yield from SHORT
    for section in (document.summary, *document.sections):
        yield from section.table.names


def _chips(run: Run) -> Iterator[Chip]:
    """The variants that ran."""
    looks = looks_of(run)
    for variant in run.variants:
        if variant.label:
            yield Chip(variant.id, looks[variant.id].colour, variant.label)


def _plots_of(scenario: str, plots: Sequence[Plot]) -> tuple[Plot, ...]:
    return tuple(plot for plot in plots if plot.scenario == scenario)


def _sections(run: Run, document: Document, plots: Sequence[Plot], terms: Mapping[str, Term]) -> Iterator[PageSection]:
    """The whole summary, then the others; the pictures of sweeps stand beside their charts."""
    in_charts = {SUMMARY, *(sweep.scenario for sweep in SWEEPS)}
    yield _section(run, document.summary, (), terms)
    for section in document.sections:
        if section.title not in ELSEWHERE:
            pictures = () if section.scenario in in_charts else _plots_of(section.scenario, plots)
            yield _section(run, section, pictures, terms)


def _section(run: Run, section: Section, plots: tuple[Plot, ...], terms: Mapping[str, Term]) -> PageSection:
    scenario, shown = section.scenario, without_zeros(section.table)
    if scenario:
        shown = without(shown, WHAT_RAN)  # the summary says it, and tables must fit
    table = PageTable(section.title, unranked(shown, run), terms)
    return PageSection(section.title, table, section.note, scenario, plots)
