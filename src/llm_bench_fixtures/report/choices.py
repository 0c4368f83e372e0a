"""What the report says of the answers to questions of multiple choice, and what they can't tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llm_bench_fixtures.measure.flips import exact_interval
from llm_bench_fixtures.report.document import Section, Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results.formatting import count, format_metric, format_share
from llm_bench_fixtures.results.metrics.choices import CHOICES
from llm_bench_fixtures.results.record import Run, VariantResult

BY_NAME = {metric.name: metric for metric in CHOICES}
SHOWN = ("choice_accuracy", "flips", "flips_lost", "flips_gained", "answers_changed")


@dataclass(frozen=True)
class Counted:
    """How many of the questions, and the 95 % interval of their share."""

    number: int
    share: float
    low: float
    high: float


def flips_each_way(variant: VariantResult) -> dict[str, Counted]:
    """By metric: all flips, the answers lost and those gained; empty where the variant was not compared."""
    quality, items = variant.quality, round(variant.quality.get("choice_items", 0))
    if not items or "flips" not in quality:
        return {}
    ways = {name: round(quality.get(name, 0.0)) for name in ("flips_lost", "flips_gained")}
    numbers = {"flips": sum(ways.values()), **ways}
    return {name: Counted(one, one / items, *exact_interval(one, items)) for name, one in numbers.items()}


def choice_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant that was asked; nothing where none was."""
    run = findings.run
    asked = _asked(run)
    if asked:
        header = ("variant", *(BY_NAME[name].column for name in SHOWN))
        rows = tuple((variant.id, *(_cell(variant, name) for name in SHOWN)) for variant in asked)
        flips = f" Flips are against {run.reference}, each way with its 95 % interval." if _any_flips(run) else ""
        note = f"{f'Of {run.provenance.choices}.' if run.provenance.choices else ''}{flips}".strip()
        yield Section("Multiple choice", Table(header, rows, frozenset(range(1, len(header)))), note)


def choice_footnotes(run: Run) -> Iterator[str]:
    """What a flip is, and which shares of flips so few questions can't tell from none."""
    if _any_flips(run):
        items = int(max(variant.quality["choice_items"] for variant in _asked(run)))
        yield (
            "A flip is an answer that was right and is wrong, or was wrong and is right. Where the two cancel out, the "
            "share of right answers hides them. The interval is Clopper and Pearson's, for questions like these."
        )
        yield (
            f"What flips can't tell: no flip in {count(items, 'question')} excludes only shares above "
            f"{format_share(least_told(items))}. Answers that a model is unsure of flip easily, so where few more are "
            "right than by guessing, flips say little of a better model."
        )


def least_told(items: int) -> float:
    """The high end of the interval where nothing flips: the share of flips at which that has a probability of 2.5 %."""
    return 1.0 - float(0.025 ** (1 / items))


def _any_flips(run: Run) -> bool:
    return any("flips" in variant.quality for variant in _asked(run))


def _asked(run: Run) -> list[VariantResult]:
    return [variant for variant in run.variants if variant.quality.get("choice_items")]


def _cell(variant: VariantResult, name: str) -> str:
    """The value; of flips, in all and each way, their number, share and interval."""
    found = flips_each_way(variant).get(name)
    if found is None:
        return format_metric(variant.quality.get(name), BY_NAME[name])
    share, low, high = map(format_share, (found.share, found.low, found.high))
    return f"{found.number} ({share}; {low} to {high})"
