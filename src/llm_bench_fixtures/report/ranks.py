"""The order of the variants by speed on each machine, as far as it is shown, and where machines contradict others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Table
from llm_bench_fixtures.text import first_few

AGREE = "yes"
Pairs = Collection[tuple[str, str]]  # pairs of variants, the first of which is shown to be faster than the second

TITLE = "Ranks by machine"
NOTE = (
    "1 is the fastest on the workload of the answer. 2–4: the rank is one of these; the others are too close to "
    "tell. At 95 % confidence, a few of many orders may be chance."
)


@dataclass(frozen=True)
class Ranks:
    sentence: str
    """Whether the machines agree, and where they don't."""
    table: Table


def shown_order(seen: Evidence) -> Iterator[tuple[str, str]]:
    for over, of in combinations(seen.common.values(), 2):  # the reference stands first
        gain = seen.gain(of, over)
        if gain.is_faster or gain.is_slower:
            yield (of.variant, over.variant) if gain.is_faster else (over.variant, of.variant)


def rank(variant: str, variants: Collection[str], shown: Pairs) -> tuple[int, int]:
    """The best and the worst that the variant may have."""
    faster = sum((other, variant) in shown for other in variants)
    slower = sum((variant, other) in shown for other in variants)
    return 1 + faster, len(variants) - slower


def contradicted(variant: str, machines: Sequence[Pairs]) -> list[str]:
    """The variants that it is shown to be faster than on one machine, and slower on another."""
    slower = {after for pairs in machines for before, after in pairs if before == variant}
    faster = {before for pairs in machines for before, after in pairs if after == variant}
    return sorted(slower & faster)


def ranks_of(runs: Sequence[tuple[str, str, Evidence]]) -> Ranks | None:
    """runs: of each what runs, the machine, and its evidence. None where no two machines measured the same, or one
    machine did so twice."""
    runs = [one for one in runs if one[-1].common]
    groups: dict[str, dict[str, Evidence]] = {}
    for what, machine, seen in runs:
        groups.setdefault(what, {})[machine] = seen
    shared = {what: found for what, found in groups.items() if len(found) > 1}
    if not shared or sum(map(len, groups.values())) < len(runs):
        return None
    machines = list(dict.fromkeys(machine for found in shared.values() for machine in found))
    rows = [row for what, found in shared.items() for row in _rows(what, found, machines)]
    apart = list(dict.fromkeys(row[0].text for row in rows if row[-1].text != AGREE))
    columns = (Column("what"), Column(VARIANT), *map(Column, machines), Column("agree"))
    return Ranks(_sentence(list(shared), apart), Table(columns, tuple(rows)))


def _sentence(shared: Sequence[str], apart: Sequence[str]) -> str:
    if not apart:
        return "As far as is shown, all machines have the variants in the same order."
    agree = len(shared) - len(apart)
    others = f"; elsewhere ({agree}) they agree, as far as is shown" if agree else ""
    return f"Machines have the variants in different orders for {', '.join(first_few(apart))}{others}."


def _rows(what: str, found: Mapping[str, Evidence], machines: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    shown = {machine: frozenset(shown_order(seen)) for machine, seen in found.items()}
    for variant in dict.fromkeys(name for seen in found.values() for name in seen.common):
        cells = [_cell(variant, shown[one], found[one]) if one in found else Cell() for one in machines]
        others = contradicted(variant, list(shown.values()))
        yield (Cell(what), Cell(variant), *cells, Cell(f"no: {', '.join(others)}" if others else AGREE))


def _cell(variant: str, shown: Pairs, seen: Evidence) -> Cell:
    if variant not in seen.common:
        return Cell()
    low, high = rank(variant, seen.common, shown)
    return Cell(f"{low}" if low == high else f"{low}–{high}", rank=(low + high) / 2)
