"""Cells of a record's and a variant's values, which several tables hold."""

from __future__ import annotations

from collections.abc import Iterable

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.measure.choices import exact_interval
from llm_bench_fixtures.report.tables.table import Cell
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.ratio import Speedup

QUARTILES = "half the distance between the quartiles of the latency"
NEXT_TO_EACH_OTHER, OF_ALL_ROUNDS = "compares rounds that ran next to each other", "medians of all rounds"
MOST_NAMED = 4  # rows, in a sentence
FLIP_METRICS = ("flips", "flips_lost", "flips_gained")
CHANGE_ERROR = "one standard error of the perplexity's change"


def metric_cell(metric: Metric, record: Record | None, variant: VariantResult | None) -> Cell:
    return Cell(value=metric.of(record, variant) if record and variant else None)


def latency_cell(record: Record | None) -> Cell:
    """Median, and half the distance between the quartiles where there is more than one round."""
    if record is None or not record.rounds_s:
        return Cell()
    if len(record.rounds_s) < 2:
        return Cell(value=record.median_s)
    low, median, high = record.quartiles_s
    return Cell(value=median, error=(high - low) / 2)


def times_cell(found: Speedup | None) -> Cell:
    """A ratio with its 95 % interval."""
    return Cell(value=found.ratio, low=found.low, high=found.high, notation=Notation.TIMES) if found else Cell()


def speedup_cell(record: Record | None) -> Cell:
    """The speed-up over the reference's rounds of the same blocks."""
    return times_cell(record_speedup(record) if record else None)


def headline_speedup(record: Record | None, seen: Evidence) -> Cell:
    """The speed-up over the reference; the ratio of the medians where the two were measured in separate runs."""
    found, reference = seen.speedup(record) if record else None, seen.reference
    if found is not None:
        return times_cell(found)
    if record is None or reference is None or record.reference_s or record.workload != reference.workload:
        return Cell()
    return Cell(value=reference.median_s / record.median_s, notation=Notation.TIMES)


def odd_ratios(
    rows: Iterable[tuple[str, Cell, Cell, Cell]], is_what: str = NEXT_TO_EACH_OTHER, are_what: str = OF_ALL_ROUNDS
) -> tuple[str, ...]:
    """A clause on the speed-ups whose interval doesn't hold the ratio of the latencies that stand next to them.

    rows: a name, the reference's latency, the own latency and the speed-up of each. is_what: what the speed-up is.
    are_what: what the latencies are.
    """
    odd = [name for name, *cells in rows if _is_odd(*cells)]
    whose = ", ".join(odd) if len(odd) <= MOST_NAMED else f"{len(odd)} rows"
    told = f"the speed-up of {whose} {is_what}, so it is not the ratio of these latencies, which are {are_what}"
    return (told,) if odd else ()


def _is_odd(reference: Cell, own: Cell, found: Cell) -> bool:
    if not reference.value or not own.value or found.low is None or found.high is None or found.low == found.high:
        return False
    return not found.low <= reference.value / own.value <= found.high


def perplexity_change(variant: VariantResult) -> Cell:
    """The perplexity's change against the reference's, with its standard error."""
    quality = variant.quality
    return Cell(value=quality.get("ppl_ratio"), error=quality.get("ppl_ratio_error"), notation=Notation.CHANGE)


def flip_cells(variant: VariantResult) -> dict[str, Cell]:
    """By metric: all flips, the answers lost and those gained, with the 95 % intervals of their shares."""
    quality, items = variant.quality, round(variant.quality.get("choice_items", 0))
    if not items or "flips" not in quality:
        return {name: Cell() for name in FLIP_METRICS}
    ways = {name: round(quality.get(name, 0.0)) for name in FLIP_METRICS[1:]}
    return {name: _counted(number, items) for name, number in {FLIP_METRICS[0]: sum(ways.values()), **ways}.items()}


def _counted(number: int, items: int) -> Cell:
    low, high = exact_interval(number, items)
    return Cell(value=number, low=low, high=high, of=items)
