"""What no run can have, and a damaged file or one made by others may: figures that can't be, lists that don't fit each
other, texts and lists without end. Whoever reads a run refuses these, so that no later code has to check for them.

The limits are far from real runs: a whole suite on 14 variants, with the times of all tokens, is a file of 1.6 MB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec

from llm_bench_fixtures.results.formatting import format_bytes
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.record import Record, RecordHead, Run, Status, VariantResult
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate
from llm_bench_fixtures.text import LONGEST, printable, without_middle

T = TypeVar("T")

MOST_BYTES = 128 * 2**20  # of a file
MOST_VALUES = 8_000_000  # in a file: read, each takes up to 60 bytes, however short it is there
LONGEST_NAME = LONGEST  # characters of a test's id, or a metric's: parametrized by a prompt of 25,000 tokens
LONGEST_TEXT = 1_000_000  # characters of a reason, or a command line
MOST_VARIANTS, MOST_RECORDS = 200, 20_000
LARGEST = 1e30  # of any figure: more than all FLOPs of a year, and far from where floats overflow
SHORTEST_S, LONGEST_S = 1e-9, 1e9  # of a round: a tick of the clock, and thirty years
SHOWN = 200  # characters of a name in a message


def faults_of_size(size_bytes: int, values: int = 0) -> Iterator[str]:
    """What is wrong with a file of so many bytes and values, in words that follow its name."""
    if size_bytes > MOST_BYTES:
        yield f"has {format_bytes(size_bytes)}, and no run has more than {format_bytes(MOST_BYTES)}"
    if values > MOST_VALUES:
        yield f"has {values:,} values, and no run has more than {MOST_VALUES:,}"


def faults_of_run(run: Run[RecordHead]) -> Iterator[str]:
    """What is wrong with the run, apart from its records, in words that follow "is damaged: "."""
    if len(run.variants) > MOST_VARIANTS or len(run.records) > MOST_RECORDS:
        yield f"{len(run.variants):,} variants and {len(run.records):,} records"
    for text in _texts(tuple(value for name, value in vars(run).items() if name not in ("variants", "records"))):
        yield from _too_long(text, LONGEST_TEXT)
    for variant in run.variants:
        yield from _faults_of_variant(variant)
    for point in run.loads:
        yield from _faults_of_load(point)


def faults_of_record(record: Record) -> Iterator[str]:
    """What is wrong with the record."""
    yield from faults_of_names((record.test, record.scenario, record.case, record.variant))
    for text in _texts((record.reason, record.gate, record.workload)):
        yield from _too_long(text, LONGEST_TEXT)
    if record.status is not Status.MEASURED:
        return
    if not record.rounds_s or not _all_within(record.rounds_s, SHORTEST_S):
        yield f"{_shown(record.test)} was measured in no time"
    if not _blocks_fit(record):
        yield f"{_shown(record.test)} has blocks that don't fit its rounds"
    if not _raw_fits(record):
        yield f"{_shown(record.test)} has times of tokens that don't fit its rounds"


def faults_of_names(names: Collection[str]) -> Iterator[str]:
    """What is wrong with the names of tests, variants or metrics."""
    for name in names:
        yield from _too_long(name, LONGEST_NAME)


def faults_of_metrics(of: str, metrics: Mapping[str, float]) -> Iterator[str]:
    """What is wrong with metrics by name. of: the test or variant that they are of."""
    yield from faults_of_names(metrics.keys())
    for name, value in metrics.items():
        if abs(value) > LARGEST:
            yield f"{_shown(of)}: {_shown(name)} is {value:.3g}"


def _faults_of_variant(variant: VariantResult) -> Iterator[str]:
    yield from faults_of_names((variant.id,))
    for text in _texts(variant):
        yield from _too_long(text, LONGEST_TEXT)
    yield from faults_of_metrics(variant.id, variant.quality)
    errors = [value for name, value in variant.quality.items() if name.endswith("_error")]
    times = (variant.load_s, variant.compile_s, variant.conversion_s, variant.first_generate_s)
    sizes = (variant.weight_bytes, variant.resident_before_load_bytes, *times)
    if min(errors, default=0) < 0 or max(map(abs, (*variant.loss_blocks, *filter(None, sizes))), default=0) > LARGEST:
        yield f"{_shown(variant.id)} has an impossible figure"


def _faults_of_load(point: LoadPoint) -> Iterator[str]:
    yield from faults_of_names((point.test, point.variant))
    times = [point.window_s, *(one.planned_s for one in point.requests), *(one.sent_s for one in point.requests)]
    ends = [one.last_token_s for one in point.requests if one.last_token_s is not None]
    if not (point.window_s >= SHORTEST_S and point.rate_per_s > 0) or not _all_within((*times, *ends), 0.0):
        yield f"{_shown(point.test)} has a load in no time"


def _blocks_fit(record: Record) -> bool:
    """Whether what was measured along with each round is there for each or for none, and what took time did."""
    waits = (record.waited_s, record.reference_waited_s)
    lengths = {len(one) for one in (record.reference_s, *waits)}
    took_time = _all_within(chain(record.reference_s, *record.probe_s), SHORTEST_S)
    waited = _all_within(chain(*waits), -LONGEST_S)  # below 0 where a thread ended in a round
    return lengths <= {0, len(record.rounds_s)} and took_time and waited and _is_variance(record.expected_variance)


def _is_variance(expected: VarianceEstimate) -> bool:
    return expected == NO_PRIOR or (0 < expected.variance <= LARGEST and 0 < expected.freedom <= LARGEST)


def _raw_fits(record: Record) -> bool:
    """Whether each round has its batches, and each batch its tokens, or none has."""
    rounds, batches = len(record.rounds_s), len(record.batch_rows)
    lengths = {len(one) for one in (record.batches_s, record.tokens_s)}
    whole = all(len(one) == batches for one in chain(record.batches_s, record.tokens_s))
    took_time = all(tokens and min(tokens) > 0 for tokens in chain.from_iterable(record.tokens_s))
    has_rows = min(record.batch_rows, default=1) > 0 and record.pauses >= 0 and record.crowded_rounds >= 0
    return whole and lengths <= {0, rounds} and len(record.energy_j) <= rounds and took_time and has_rows


def _all_within(times_s: Iterable[float], least: float) -> bool:
    return all(least <= seconds <= LONGEST_S for seconds in times_s)


def _texts(value: object) -> Iterator[str]:
    """Every text in the value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts((*value.keys(), *value.values()))
    elif isinstance(value, tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, msgspec.Struct):
        yield from _texts(msgspec.structs.astuple(value))
    elif is_dataclass(value):
        yield from _texts(tuple(vars(value).values()))


def bounded(value: T) -> T:
    """The value with each of its texts, names included, cut to what readers take."""
    cut: Any = value
    if isinstance(value, str):
        cut = value if len(value) <= LONGEST else without_middle(value)
    elif isinstance(value, Mapping):
        cut = {bounded(name): bounded(one) for name, one in value.items()}
    elif isinstance(value, tuple) and not (value and isinstance(value[0], float)):  # rounds have many thousand times
        cut = tuple(map(bounded, value))
    elif isinstance(value, msgspec.Struct):
        cut = msgspec.structs.replace(value, **bounded(msgspec.structs.asdict(value)))
    elif is_dataclass(value) and not isinstance(value, type):
        cut = replace(value, **{field.name: bounded(getattr(value, field.name)) for field in fields(value)})
    return cast(T, cut)


def _too_long(text: str, longest: int) -> Iterator[str]:
    if len(text) > longest:
        yield f"a text of {len(text):,} characters, {_shown(text[:SHOWN])!r}..."


def _shown(name: str) -> str:
    return printable(name[:SHOWN])
