"""report.html: what its template shows, from what the report says of a run, or of several; and the answers under every
quality limit that would change who may be recommended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_bench_fixtures.answer.bounds import bounds, estimates_of
from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.need import Limit, QualityMeasure, Standing, quality_limit
from llm_bench_fixtures.answer.peaks import WEIGHTS, memory_metric
from llm_bench_fixtures.answer.standings import near_lossless
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.measure.equivalence import first_divergence
from llm_bench_fixtures.report.about import facts, footnotes, repeat_command
from llm_bench_fixtures.report.agreement import agreement_sections, in_utc
from llm_bench_fixtures.report.charts.plotly import figures_of
from llm_bench_fixtures.report.charts.spec import Plot
from llm_bench_fixtures.report.charts.variants import SWEEPS, runs_charts, sweep_charts
from llm_bench_fixtures.report.charts.whole_run import phases_chart, roofline_chart, tradeoff_chart
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.judged.causes import MOVED, TONES, Cause, JudgedRow, causes_table, rows_table
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.page.tables import PageTable, Term, chips_of, explained, glossary, heatmap, summary_table
from llm_bench_fixtures.report.renderers.html import render_page
from llm_bench_fixtures.report.runs import MOST_SHOWN, Runs, about_table, answers_table, notes
from llm_bench_fixtures.report.tables.by_variant import SHORT, need_sections, summary_section, variant_sections
from llm_bench_fixtures.report.tables.on_request import sections_on_request
from llm_bench_fixtures.report.tables.scenarios import absent_texts, mean_sections, scenario_of_texts, scenario_sections
from llm_bench_fixtures.report.tables.table import ALIKE, MACHINE, SUMMARY, VARIANT, Cell, Column, Section, Table, Tone
from llm_bench_fixtures.report.words.answer import Answer, answer_of
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.text import printable

RELOAD_S = 10  # between two looks of a page whose run goes on
COMMAND = "Command"  # the fact that stands as commands of its own
DOUBTS = {Verdict.INCONCLUSIVE: "?", Verdict.NOT_MEASURED: "–", Verdict.NEW: "+", Verdict.VANISHED: "−"}
ALIKE_MEANS = f"{ALIKE} near-lossless: too near the reference to rank or sort by quality."
OF_VARIANT = (WEIGHTS, "perplexity", "top1_agreement")  # metrics of the overview that no test has by itself
TITLES = {
    QualityMeasure.PPL_RATIO: "by perplexity",
    QualityMeasure.TOP1_AGREEMENT: "by agreement on the likeliest token (top-1)",
}


@dataclass(frozen=True)
class SharedText:
    """One text, and the variants that wrote it."""

    variants: tuple[str, ...]
    same: str
    """Beginning that is the reference's too; the whole text where it is the reference's."""
    different: str = ""
    """Text from the first character on that is another."""
    is_reference: bool = False
    ends_early: bool = False
    """Whether the text is the beginning of the reference's, which goes on."""


def render_report(findings: Findings, plots: Sequence[Plot] = ()) -> str:
    """The page. plots: pictures for browsers that run no scripts."""
    return render_page("report.html", page_values(findings, plots), findings=findings)


def render_runs(runs: Runs) -> str:
    """The page of several runs."""
    are_few, table = len(runs.runs) <= MOST_SHOWN, runs.table
    charts = tuple(runs_charts(runs.runs)) if are_few else ()
    terms = glossary(table.names, runs.runs[0].findings.metrics)
    footnotes, meanings = tuple(notes(runs.runs)), tuple(terms.values())
    page = {"title": runs.title, "footnotes": footnotes, "glossary": meanings, "figures": figures_of(charts)}
    shown = table.with_columns((0, *range(2, len(table.columns))))
    return render_page(
        "runs.html",
        page,
        runs=runs,
        chips=chips_of(run.findings.run for run in runs.runs),
        charts=charts,
        answers=None if are_few else PageTable("What to use where", answers_table(runs)),
        agreement=[PageTable(one.title, one.table, one.note) for one in runs.agreement],
        main=PageTable("The variants by machine and model", shown, terms=terms),
        about=PageTable("Where the runs come from", about_table(runs.runs)),
    )


def page_values(findings: Findings, plots: Sequence[Plot] = ()) -> dict[str, Any]:
    """Values that the template needs besides the findings."""
    run, summary, sections = findings.run, summary_section(findings), list(all_sections(findings))
    heads = (name for section in (summary, *sections) for name in section.table.names)
    terms = glossary([*SHORT, *heads], findings.metrics)
    tradeoff, sweeps = tradeoff_chart(findings), list(sweep_charts(findings))
    tones = f"▴ measurably better, ▾ measurably worse than {run.reference}."
    in_charts = (SUMMARY, MACHINE, *(sweep.scenario for sweep in SWEEPS))
    beneath = [plot for plot in plots if plot.scenario not in in_charts]
    machine = [chart for chart in (phases_chart(findings), roofline_chart(findings)) if chart]
    return {
        "title": f"Text generation of {run.provenance.model}",
        "subtitle": f"{run.provenance.hardware} · {in_utc(run.provenance.started)}",
        "warnings": list(filter(None, (findings.noisy, *findings.warnings))),
        "limits": limit_scales(findings, findings.answer),
        "changes": change_tables(findings, findings.changes, terms) if findings.changes else {},
        "facts_before": list(facts(findings.changes.comparison.base)) if findings.changes else [],
        "chips": chips_of([run]),
        "tradeoff": tradeoff,
        "tradeoff_plots": _plots_of(SUMMARY, plots)[:1],
        "summary": summary_table(findings, terms),
        "summary_note": " ".join([summary.note, tones, *([ALIKE_MEANS] if near_lossless(run) else [])]),
        "heatmap": heatmap(findings),
        "sweeps": sweeps,
        "sweep_plots": [plot for sweep in SWEEPS for plot in _plots_of(sweep.scenario, plots)],
        "machine": machine,
        "machine_plots": _plots_of(MACHINE, plots),
        "machine_note": "" if findings.decode in findings.takeaways else findings.decode,
        "agreement": [explained(run, section, terms) for section in agreement_sections(findings)],
        "texts": prompt_texts(run),
        "texts_note": absent_texts(run),
        "scenarios": [(section.scenario, section.title) for section in sections if section.scenario],
        "sections": [explained(run, section, terms, beneath) for section in (summary, *sections)],
        "facts": [fact for fact in facts(run) if fact[0] != COMMAND],
        "command": repeat_command(run),
        "footnotes": list(footnotes(findings)),
        "glossary": list(terms.values()),
        "reload_s": RELOAD_S if findings.so_far else 0,
        "written_s": round(time.time()),
        "figures": figures_of([*([tradeoff] if tradeoff else []), *sweeps, *machine]),
    }


def all_sections(findings: Findings) -> Iterator[Section]:
    """Every table but the summary."""
    yield from need_sections(findings)
    yield from mean_sections(findings)
    yield from variant_sections(findings)
    yield from scenario_sections(findings)
    yield from sections_on_request(findings, findings.threads)


def _plots_of(scenario: str, plots: Sequence[Plot]) -> tuple[Plot, ...]:
    return tuple(plot for plot in plots if plot.scenario == scenario)


def prompt_texts(run: Run) -> dict[str, tuple[SharedText, ...]]:
    """First text of each variant for each prompt of the scenario; variants that wrote the same stand together, the
    reference's first."""
    shown = scenario_of_texts(run)
    records = [record for record in run.records if record.scenario == shown and record.outputs]
    cases = grouped(records, lambda record: record.case)
    return {case: _continuations(them, run.reference) for case, them in cases.items()}


def _continuations(records: Sequence[Record], reference: str) -> tuple[SharedText, ...]:
    texts = {record.variant: record.outputs[0] for record in records}
    own = texts.get(reference)
    by_text = grouped(texts, lambda variant: texts[variant])
    ordered = sorted(by_text.items(), key=lambda item: item[0] != own)  # the reference's first
    return tuple(_continuation(text, variants, own) for text, variants in ordered)


def _continuation(text: str, variants: Sequence[str], own: str | None) -> SharedText:
    if own is None or text == own:
        return SharedText(tuple(variants), text, is_reference=text == own)
    place = first_divergence(text, own)
    return SharedText(tuple(variants), text[:place], text[place:], ends_early=place == len(text))


def change_tables(findings: Findings, changes: Changes, terms: Mapping[str, Term]) -> dict[str, PageTable]:
    """The run next to another one: the variants before and now, what changed by cause, and what did not change."""
    tests = [(one.test, one.coverage.value, one.reason) for one in changes.tests]
    moved = [row for row in changes.rows if row.verdict in MOVED]
    return {
        "overview": PageTable("The variants in both runs", _overview(findings, changes), terms=terms),
        "moved": _causes("What changed", [one for one in changes.moved if not one.first.is_advisory]),
        "advisory": _causes("What changed, advisory", [one for one in changes.moved if one.first.is_advisory]),
        "every_value": PageTable("Values that changed", rows_table(moved)),
        "still": _causes("What did not change, or is not known", changes.still),
        "tests": PageTable("Tests that one run lacks", Table.of_texts(("test", "is", "because"), tests)),
    }


def _causes(title: str, causes: Sequence[Cause]) -> PageTable:
    """The page's filter hides no cause of several variants."""
    of = tuple(one.name if len(one.variants) == 1 else "" for one in causes)
    return PageTable(title, causes_table(causes), of=of)


def _overview(findings: Findings, changes: Changes) -> Table:
    """A row a variant of both runs, on the workload of the first table: before, now, and the verdict's colour."""
    judged = {(one.test or one.variant, one.metric.name): one for one in changes.rows}
    names = ("speedup", "latency_s", memory_metric(findings), *OF_VARIANT)
    shown = [findings.metrics[name] for name in dict.fromkeys(names)]
    rows = []
    for variant, record in findings.common.items():
        subjects = (variant if one.name in OF_VARIANT else printable(record.test) for one in shown)
        found = [judged.get((subject, one.name)) for subject, one in zip(subjects, shown, strict=True)]
        if any(found):
            rows.append((Cell(variant), *map(_both, found)))
    table = Table((Column(VARIANT), *map(Column.of, shown)), tuple(rows))
    return table.with_columns(at for at in range(len(shown) + 1) if not all(row[at].is_missing for row in rows))


def _both(one: JudgedRow | None) -> Cell:
    """The value now, and below it the one before with the change; grey where neither better nor worse is shown."""
    if one is None:
        return Cell()
    if one.base == one.head:
        return Cell(one.after, rank=one.head, note="the same", tone=Tone.SAME)
    note = f"was {one.before}, {one.change} {DOUBTS.get(one.verdict, '')}".rstrip()
    return Cell(one.after, rank=one.head, note=note, tone=TONES.get(one.verdict, Tone.SAME))


@dataclass(frozen=True)
class LimitStep:
    """A limit, and the answer under it. Others that let the same variants through have the same picks."""

    answer: Answer
    limit: Limit
    keeps: tuple[str, ...]
    """The variants that are shown to keep it, without the reference and what ran the same."""
    words: str
    """The limit and who keeps it: "perplexity at most 1 % above fp32's: kept by bf16"."""


@dataclass(frozen=True)
class LimitScale:
    """All steps of one measure of quality, the strictest first."""

    measure: QualityMeasure
    steps: tuple[LimitStep, ...]

    @property
    def title(self) -> str:
        return TITLES[self.measure]

    def place(self, limit: Limit) -> int:
        """The index of the step that the limit is."""
        return next((place for place, step in enumerate(self.steps) if step.limit == limit), 0)


def limit_scales(seen: Evidence, answer: Answer) -> tuple[LimitScale, ...]:
    """A scale for each measure that some variant was measured by, that of the answer's own limit first.

    The answer is a step of it. Empty where no limit would change who may be recommended, and where none was asked for.
    """
    given = answer.need.quality
    if given is None:
        return ()
    measures = sorted(QualityMeasure, key=lambda measure: measure != given.name)
    scales = (LimitScale(measure, tuple(_limit_steps(seen, measure, answer, given))) for measure in measures)
    found = tuple(scale for scale in scales if scale.steps)
    return found if any(len(scale.steps) > 1 for scale in found) else ()


def _limit_steps(seen: Evidence, measure: QualityMeasure, answer: Answer, given: Limit) -> Iterator[LimitStep]:
    """Nothing where no variant was measured by it."""
    found = estimates_of(seen.run, measure)
    strictest = [one.low if measure is QualityMeasure.TOP1_AGREEMENT else one.high for one in found.values()]
    for bound in bounds(strictest, measure, given) if found else ():
        limit = quality_limit(measure, bound)
        answered = answer if limit == given else answer_of(seen, answer.need.with_quality(limit))
        keeps = tuple(name for name, one in found.items() if limit.standing_of(one) is Standing.WITHIN)
        kept = f"kept by {', '.join(keeps) or 'no other variant'}"
        yield LimitStep(answered, limit, keeps, f"{limit.words(seen.run.reference)}: {kept}")
