"""What no run can have, and a damaged file or one made by others may: no end, or lists that don't fit each other.

Whoever reads a run refuses these, so that no later code has to check for them. What a field may hold, its type says.

The limits are far from real runs: a whole suite on 14 variants, with the times of all tokens, is a file of 1.6 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec

from llm_bench_fixtures.reading import LARGEST
from llm_bench_fixtures.results.formatting import format_bytes
from llm_bench_fixtures.results.record import Record, RecordHead, Run, Status
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR
from llm_bench_fixtures.text import LONGEST, printable, without_middle


MOST_BYTES = 128 * 2**20  # of a file
MOST_VALUES = 8_000_000  # in a file: read, each takes up to 60 bytes, however short it is there
SHOWN = 200  # characters of a name in a message


def faults_of_size(size_bytes: int, values: int = 0) -> Iterator[str]:
    """What is wrong with a file of so many bytes and values, in words that follow its name."""
    if size_bytes > MOST_BYTES:
        yield f"has {format_bytes(size_bytes)}, and no run has more than {format_bytes(MOST_BYTES)}"
    if values > MOST_VALUES:
        yield f"has {values:,} values, and no run has more than {MOST_VALUES:,}"


def faults_of_run(run: Run[RecordHead]) -> Iterator[str]:
    """What is wrong with the run, apart from its records, in words that follow "is damaged: "."""
    for variant in run.variants:
        errors = (value for name, value in variant.quality.items() if name.endswith("_error"))
        if min(errors, default=0) < 0:
            yield f"{_shown(variant.id)} has an error below 0"


def faults_of_record(record: Record) -> Iterator[str]:
    """What is wrong with the record."""
    if record.status is not Status.MEASURED:
        return
    if not record.rounds_s:
        yield f"{_shown(record.test)} was measured in no rounds"
    if not _blocks_fit(record):
        yield f"{_shown(record.test)} has blocks that don't fit its rounds"
    if not _raw_fits(record):
        yield f"{_shown(record.test)} has times of tokens that don't fit its rounds"


def _blocks_fit(record: Record) -> bool:
    """Whether what was measured along with each round is there for each or for none."""
    lengths = {len(one) for one in (record.reference_s, record.waited_s, record.reference_waited_s)}
    expected = record.expected_variance
    is_variance = expected == NO_PRIOR or (0 < expected.variance <= LARGEST and 0 < expected.freedom <= LARGEST)
    return lengths <= {0, len(record.rounds_s)} and is_variance


def _raw_fits(record: Record) -> bool:
    """Whether each round has its batches, and each batch its tokens, or none has."""
    rounds, batches = len(record.rounds_s), len(record.batch_rows)
    whole = all(len(one) == batches for one in chain(record.batches_s, record.tokens_s))
    return whole and {len(record.batches_s), len(record.tokens_s)} <= {0, rounds} and len(record.energy_j) <= rounds


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


def _shown(name: str) -> str:
    return printable(name[:SHOWN])
