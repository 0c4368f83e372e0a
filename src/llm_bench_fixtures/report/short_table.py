"""The table that a terminal and a pull request show: a row a variant, one unit a column, better and worse marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import BATCHES
from llm_bench_fixtures.answer.peaks import PEAKS, WEIGHTS, is_less, memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import interval_of, is_near_lossless
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.options.quality_limit import QualityMeasure
from llm_bench_fixtures.report.blocks import speedup_or_ratio
from llm_bench_fixtures.report.cells import describe_prompts, metric_cell, title_of
from llm_bench_fixtures.report.choices import Counted, flips_each_way
from llm_bench_fixtures.report.document import Table, Tone
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.quality import change_cell
from llm_bench_fixtures.results.formatting import (
    BYTE_SIZES,
    MISSING,
    SECOND_SIZES,
    common_unit,
    five_digits,
    format_metric,
    three_digits,
    with_spread,
)
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Record, Scenario, VariantResult

LABEL = "what ran"
BATCHED = "batched"
FLIPS = "flips"
BATCHED_MEANS = "batched: tokens/s at the largest batch, and its size"
ELSEWHERE = "*"  # after a figure of a variant that was not measured on the headline's workload
ELSEWHERE_MEANS = f"{ELSEWHERE}: measured on other prompts or settings only, named at the variant"
ERRORS = {
    "latency": "half the distance between the quartiles of the latency",
    "perplexity": "one standard error of the perplexity's change",
    "change": "one standard error of the perplexity's change",
}
_INTERVAL = re.compile(r"\([\d.,]+–[\d.,]+")


@dataclass(frozen=True)
class Column:
    """A column of figures."""

    name: str
    """Without the unit, which the header adds."""
    unit: str
    cells: Mapping[str, str]
    """By variant; one that is absent has no value."""
    tones: Mapping[str, Tone]
    """By variant; one that is absent shows no difference from the reference."""

    @property
    def has_values(self) -> bool:
        return any(cell != MISSING for cell in self.cells.values())

    @property
    def header(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name


def variants_table(findings: Findings, variants: Sequence[VariantResult], names: Sequence[str] = ()) -> Table:
    """A row a variant. One that didn't run has its reason. Columns without a value are left out.

    names: of the columns of figures, to show only these.
    """
    shown = [one for one in figure_columns(findings) if one.has_values and (not names or one.name in names)]
    rows = []
    tones: dict[tuple[int, int], Tone] = {}
    for index, variant in enumerate(variants):
        rows.append((variant.id, what_ran(findings, variant), *(one.cells.get(variant.id, MISSING) for one in shown)))
        found = {(index, place): one.tones.get(variant.id) for place, one in enumerate(shown, 2)}
        tones |= {place: tone for place, tone in found.items() if tone is not None}
    header = ("variant", LABEL, *(column.header for column in shown))
    return Table(header, tuple(rows), frozenset(range(2, len(header))), tones)


def short_table(findings: Findings) -> Table:
    """That of a pull request or a paper: every variant, the columns that an answer needs, and a project's own
    metrics."""
    is_batched = len(findings.largest_batch) > 1
    throughput = BATCHED if is_batched else "tokens/s"
    own = [metric.column for metric in findings.added]
    names = ("latency", "speed-up", throughput, "weights", "peak", "perplexity", "top-1", FLIPS, *own)
    return variants_table(findings, findings.run.variants, names)


def legend(table: Table, names: Sequence[str] = (), interval: str = "(a–b)") -> Iterator[str]:
    """What its figures are, in lines to stand beneath it.

    names: of the columns that are shown; all without any. interval: how the reader sees one.
    """
    shown = [place for place, name in enumerate(table.header) if name in (names or table.header)]
    cells = {table.header[place].partition(",")[0]: [row[place] for row in table.rows] for place in shown}
    if BATCHED in cells:
        yield BATCHED_MEANS
    if any(ELSEWHERE in cell for name, them in cells.items() if name != LABEL for cell in them):
        yield ELSEWHERE_MEANS
    errors = dict.fromkeys(means for name, means in ERRORS.items() if any("±" in cell for cell in cells.get(name, ())))
    has_intervals = any(_INTERVAL.search(cell) for name, them in cells.items() if name != LABEL for cell in them)
    parts = [f"±: {', '.join(errors)}"] if errors else []
    parts += [f"{interval}: the 95 % interval"] if has_intervals else []
    if parts:
        yield "; ".join(parts)


def what_ran(findings: Findings, variant: VariantResult) -> str:
    """In words, with what is unusual about it and what its figures are of if not of the headline's workload; why it
    didn't run."""
    if variant.label:
        record = findings.elsewhere.get(variant.id)
        where = [f"{ELSEWHERE} {describe_prompts(record)} (“{_title(findings, record)}”)"] if record else []
        return "; ".join([variant.label, *findings.variant_flags[variant.id], *where])
    return f"{variant.status}: {first_line(variant.reason)}"


def _title(findings: Findings, record: Record) -> str:
    named = {scenario.name: scenario for scenario in findings.run.scenarios}
    return title_of(named.get(record.scenario, Scenario(record.scenario)))


def figure_columns(findings: Findings) -> Iterator[Column]:
    """Every column of figures, from the left to the right."""
    speeds = _speed_tones(findings, findings.common)
    yield _marked(_seconds("TTFT", "ttft_s", findings), findings)
    yield _marked(_seconds("TPOT", "tpot_s", findings), findings)
    yield _marked(_latency(findings, speeds), findings)
    speedups = {name: speedup_or_ratio(one, findings) for name, one in _records(findings).items()}
    yield _marked(Column("speed-up", "", speedups, speeds), findings)
    yield _marked(_of_metric(findings.metrics["output_tokens_per_s"], findings, speeds), findings)
    yield _batched(findings)
    yield _bytes("weights", WEIGHTS, findings)
    peak = next((name for name in PEAKS if name == memory_metric(findings)), PEAKS[-1])
    yield _marked(_bytes("peak", peak, findings), findings)
    yield Column("perplexity", "", _perplexities(findings), _quality_tones(findings))
    yield from (_of_metric(findings.metrics[name], findings, {}) for name in ("kld_mean", "top1_agreement"))
    yield Column(FLIPS, "", {one.id: _flips(one) for one in findings.run.variants if one.label}, {})
    yield from (_of_metric(metric, findings, {}) for metric in findings.added)


def _records(findings: Findings) -> dict[str, Record]:
    """By variant, the record that its figures are of."""
    return {**findings.common, **findings.elsewhere}


def _marked(column: Column, findings: Findings) -> Column:
    """The column with a mark at each figure of another workload than the headline's, before the figure's interval."""
    cells = {name: marked(cell) if name in findings.elsewhere else cell for name, cell in column.cells.items()}
    return replace(column, cells=cells)


def marked(cell: str) -> str:
    """The figure of another workload than the headline's."""
    figure, space, interval = cell.partition(" ")
    return cell if cell == MISSING else f"{figure}{ELSEWHERE}{space}{interval}"


def _speed_tones(seen: Evidence, records: Mapping[str, Record]) -> dict[str, Tone]:
    """Of the variants that are faster or slower than the reference's record by a difference that this run can show."""
    reference = records.get(seen.run.reference)
    if reference is None:
        return {}
    gains = {name: seen.gain(one, reference) for name, one in records.items() if not seen.ran_the_reference(name)}
    faster = {name: Tone.BETTER for name, gain in gains.items() if gain.is_faster}
    return faster | {name: Tone.WORSE for name, gain in gains.items() if gain.is_slower}


def _seconds(title: str, name: str, findings: Findings) -> Column:
    values = _values(findings.metrics[name], findings)
    unit, size = common_unit(values.values(), SECOND_SIZES)
    return Column(title, unit, {key: three_digits(one / size) for key, one in values.items()}, {})


def _latency(findings: Findings, tones: Mapping[str, Tone]) -> Column:
    """The median of the rounds and half the distance between their quartiles."""
    records = _records(findings)
    unit, size = common_unit((one.median_s for one in records.values()), SECOND_SIZES)
    cells = {}
    for name, record in records.items():
        low, median, high = (seconds / size for seconds in record.quartiles_s)
        is_one = len(record.rounds_s) < 2
        cells[name] = three_digits(median) if is_one else with_spread(median, (high - low) / 2)
    return Column("latency", unit, cells, tones)


def _of_metric(metric: Metric, findings: Findings, tones: Mapping[str, Tone]) -> Column:
    """As the long tables show it."""
    values = _values(metric, findings)
    return Column(metric.column, "", {name: format_metric(value, metric) for name, value in values.items()}, tones)


def _batched(findings: Findings) -> Column:
    """Tokens per second at the largest batch and its size, which is a variant's own where it lacks the headline's."""
    metric = findings.metrics["output_tokens_per_s"]
    own = sorted(findings.run.measured(BATCHES), key=_batch_size)
    cells = {}
    for name, record in ({record.variant: record for record in own} | {**findings.largest_batch}).items():
        size = _batch_size(record)
        cells[name] = f"{metric_cell(metric, record, findings.run.variant(name))} ({size})"
    return Column(BATCHED, "tokens/s", cells, _speed_tones(findings, findings.largest_batch))


def _batch_size(record: Record) -> int:
    return record.workload.batch_size if record.workload else 0


def _bytes(title: str, name: str, findings: Findings) -> Column:
    values = _values(findings.metrics[name], findings)
    unit, size = common_unit(values.values(), BYTE_SIZES)
    cells = {key: three_digits(value / size) for key, value in values.items()}
    return Column(title, unit, cells, _memory_tones(findings, name))


def _memory_tones(seen: Evidence, metric: str) -> dict[str, Tone]:
    peaks = peaks_of(seen, metric)
    reference = peaks.get(seen.run.reference)
    if reference is None:
        return {}
    less = {name: Tone.BETTER for name, one in peaks.items() if is_less(one, reference, metric)}
    return less | {name: Tone.WORSE for name, one in peaks.items() if is_less(reference, one, metric)}


def _perplexities(findings: Findings) -> dict[str, str]:
    """The reference's perplexity and the others' change; why there is none."""
    return {one.id: _perplexity(one) for one in findings.run.variants if one.label}


def _perplexity(variant: VariantResult) -> str:
    change, perplexity = change_cell(variant), variant.quality.get("perplexity")
    if change != MISSING or perplexity is None:
        return variant.quality_note if change == MISSING and variant.quality_note else change
    return five_digits(perplexity)


def _flips(variant: VariantResult) -> str:
    """Of how many answers, and the 95 % interval of their share in percent."""
    found = flips_each_way(variant).get("flips")
    if found is None:
        return MISSING
    return f"{found.number}/{variant.quality['choice_items']:.0f} ({percent_interval(found)})"


def percent_interval(found: Counted) -> str:
    return f"{100 * found.low:.2g}–{100 * found.high:.2g} %"


def _quality_tones(findings: Findings) -> dict[str, Tone]:
    """Of the variants that are not near-lossless, and whose whole interval is on one side of the reference's."""
    tones = {}
    for variant in findings.run.variants:
        found = interval_of(variant, QualityMeasure.PPL_RATIO)
        if found is not None and not is_near_lossless(variant) and not found.low <= 1 <= found.high:
            tones[variant.id] = Tone.WORSE if found.low > 1 else Tone.BETTER
    return tones


def _values(metric: Metric, findings: Findings) -> dict[str, float]:
    """By variant that has one. Weights and quality are the variant's, whether or not it was timed."""
    found = {}
    records = _records(findings)
    for variant in findings.run.variants:
        record = records.get(variant.id)
        if record is None and (metric.name == WEIGHTS or metric.name in variant.quality):
            record = Record("", "", "", variant.id, variant.status)
        value = metric.of(record, variant) if record and variant.label else None
        if value is not None:
            found[variant.id] = value
    return found
