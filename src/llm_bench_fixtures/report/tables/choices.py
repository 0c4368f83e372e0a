"""What the report says of the answers to questions of multiple choice, and what they can't tell."""

from __future__ import annotations

from collections.abc import Iterator

from llm_bench_fixtures.measure.choices import exact_interval
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Section, Table, metric_column
from llm_bench_fixtures.results.formatting import count, format_share
from llm_bench_fixtures.results.metrics.choices import CHOICES
from llm_bench_fixtures.results.record import Run, VariantResult

BY_NAME = {metric.name: metric for metric in CHOICES}
FLIPS = ("flips", "flips_lost", "flips_gained")
SHOWN = ("choice_accuracy", *FLIPS, "answers_changed")


def flip_cells(variant: VariantResult) -> dict[str, Cell]:
    """By metric: all flips, the answers lost and those gained, with the 95 % intervals of their shares."""
    quality, items = variant.quality, round(variant.quality.get("choice_items", 0))
    if not items or "flips" not in quality:
        return {name: Cell() for name in FLIPS}
    ways = {name: round(quality.get(name, 0.0)) for name in FLIPS[1:]}
    return {name: _counted(number, items) for name, number in {FLIPS[0]: sum(ways.values()), **ways}.items()}


def _counted(number: int, items: int) -> Cell:
    low, high = exact_interval(number, items)
    return Cell(value=number, low=low, high=high, of=items)


def choice_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant that was asked; nothing where none was."""
    run = findings.run
    asked = _asked(run)
    if asked:
        columns = (Column(VARIANT), *(metric_column(BY_NAME[name]) for name in SHOWN))
        rows = tuple((Cell(variant.id), *_cells(variant)) for variant in asked)
        flips = f" Flips are against {run.reference}, each way with its 95 % interval." if _any_flips(run) else ""
        note = f"{f'Of {run.provenance.choices}.' if run.provenance.choices else ''}{flips}".strip()
        yield Section("Multiple choice", Table(columns, rows), note)


def choice_footnotes(run: Run) -> Iterator[str]:
    """What a flip is, and which shares of flips so few questions can't tell from none."""
    if _any_flips(run):
        items = int(max(variant.quality["choice_items"] for variant in _asked(run)))
        yield (
            "A flip is an answer that turned from right to wrong, or from wrong to right. Where the two cancel out, "
            "the share of right answers hides them. The interval is Clopper and Pearson's, for questions like these."
        )
        yield (
            f"Limits of flips: none in {count(items, 'question')} rules out only shares above "
            f"{format_share(least_told(items))}. Answers that a model is unsure of flip easily, so flips say little "
            "where a model does hardly better than guessing."
        )


def least_told(items: int) -> float:
    """The high end of the interval where nothing flips: the share of flips at which that has a probability of 2.5 %."""
    return 1.0 - float(0.025 ** (1 / items))


def _any_flips(run: Run) -> bool:
    return any("flips" in variant.quality for variant in _asked(run))


def _asked(run: Run) -> list[VariantResult]:
    return [variant for variant in run.variants if variant.quality.get("choice_items")]


def _cells(variant: VariantResult) -> Iterator[Cell]:
    flips = flip_cells(variant)
    for name in SHOWN:
        yield flips[name] if name in flips else Cell(value=variant.quality.get(name))
