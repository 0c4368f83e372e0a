"""The rounds of a case's variants so far, block by block: which of them count, and what they measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from llm_bench_fixtures.session.case import Entry, Measured, Pace
from llm_bench_fixtures.statistics.ratio import LogRatio, log_ratio

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round

# A block is crowded, and says little, if other work is found before more than this share of its turns. With both cores
# taken, single rounds of 35 ms took 7 s.
CROWDED_SHARE = 0.1
LEAST_CORE_LOOKS = 3  # of which a block's mean is, or more: single ones scatter by 20 %
LONG_ROUND_S = 2.0  # longer rounds are as many as the interval needs
FREEDOM_FOR_FEW = 1.0  # of the expected variance: with it two pairs tell as much of their scatter as three without

Rounds: TypeAlias = "dict[int, Round]"
"""Rounds by number: those of a block follow each other, and have the same numbers for all variants."""


@dataclass
class CaseRounds:
    """The rounds of a case's variants so far."""

    entries: dict[str, Entry]
    """The variants, by id."""
    reference: str
    """The id of the variant that the others are compared with, if it is among them."""
    pace: Pace
    in_a_row: int = 1
    """How many rounds each variant has in a block."""
    crowded: list[float] = field(default_factory=list)
    """Share of the turns of each block that is over before which other work ran."""
    looked: list[list[float]] = field(default_factory=list)
    """What the looks of each block found, from core to core; that of the current one included."""

    @property
    def blocks(self) -> int:
        """How many blocks are over."""
        return len(self.crowded)

    @property
    def alive(self) -> dict[str, Entry]:
        """The variants that haven't failed."""
        return {name: entry for name, entry in self.entries.items() if entry.failure is None}

    @property
    def fewest(self) -> int:
        """Rounds that can be enough: fewer where a block has one that takes seconds, or the answer doesn't go by it."""
        is_long = any(entry.last_s > LONG_ROUND_S for entry in self.alive.values())
        return ((is_long or self.may_be_few) and self.pace.fewest_rounds) or self.pace.rounds

    @property
    def may_be_few(self) -> bool:
        """Whether few rounds are enough where they have taken the case's time, as those of many batches do: of a small
        model, in pairs, where the answer doesn't go by the case. One round of a large model takes longer than that."""
        pace, has_pairs = self.pace, len(self.entries) > 1 and self.reference in self.alive
        is_known = pace.max_noise > 0 and pace.expected_variance.freedom >= FREEDOM_FOR_FEW
        return has_pairs and is_known and not pace.is_large and not pace.allocation.decides

    def complete(self) -> dict[str, Measured]:
        """Results of variants that have their least rounds, of those that a test asks for."""
        return {
            name: measured
            for name, entry in self.entries.items()
            if entry.is_asked_for
            if isinstance(measured := self.result(name), Measured) and len(measured.rounds) >= self.fewest
        }

    def result(self, name: str) -> Measured | Exception:
        """What was measured of a variant, or what failed."""
        entry = self.entries[name]
        return self.measured(entry) if entry.failure is None else entry.failure

    def measured(self, entry: Entry) -> Measured:
        """What was measured of a variant so far."""
        base = self._base_of(entry)
        rounds = entry.rounds if base is None else _shared(entry.rounds, base)
        counted = self._counted(rounds)
        return Measured(
            entry.observation,
            tuple(counted.values()),
            tuple(base[number] for number in counted) if base else (),
            len(rounds) - len(counted),
            self._core_to_core(counted),
        )

    def ratio(self, measured: Measured) -> LogRatio | None:
        """Log ratio of the reference's rounds over the variant's next to them; None where they are too few."""
        if not measured.reference_rounds:
            return None
        return log_ratio(measured.reference_s, measured.rounds_s, self.pace.expected_variance)

    def calm(self, entry: Entry) -> int:
        """How many rounds of a variant are in blocks that weren't crowded."""
        return sum(self._crowding(number) <= CROWDED_SHARE for number in entry.rounds)

    def has_least(self, entry: Entry) -> bool:
        """Whether a variant has as many rounds as are run in any case."""
        return len(entry.rounds) >= self.pace.rounds

    def outlives_reference(self, entry: Entry) -> bool:
        """Whether the reference failed, but late enough for its turns to be paired with."""
        is_dead = self.reference in self.entries and self.reference not in self.alive
        return is_dead and self._base_of(entry) is not None

    def _counted(self, rounds: Rounds) -> Rounds:
        """Rounds of the blocks that weren't crowded; if fewer than the least rounds are left, of the least crowded
        ones, and of all that are as crowded as these."""
        shares = sorted(map(self._crowding, rounds))
        most = max(shares[: self.fewest], default=0.0)
        return {number: done for number, done in rounds.items() if self._crowding(number) <= max(most, CROWDED_SHARE)}

    def _crowding(self, number: int) -> float:
        """Share of the turns of that round's block before which other work ran; 0 of a block that is still going on."""
        block = number // self.in_a_row
        return self.crowded[block] if block < len(self.crowded) else 0.0

    def _core_to_core(self, rounds: Rounds) -> tuple[float, ...]:
        """Mean of the looks in each round's block; none where one had too few."""
        found = [self.looked[number // self.in_a_row] for number in rounds]
        return tuple(map(fmean, found)) if all(len(one) >= LEAST_CORE_LOOKS for one in found) else ()

    def _base_of(self, entry: Entry) -> Rounds | None:
        """Reference turns to pair with; None without another reference, or if it failed too early."""
        reference = self.entries.get(self.reference)
        if reference is None or len(self.entries) == 1:
            return None
        if reference.failure is None or len(_shared(entry.rounds, reference.rounds)) >= self.pace.rounds:
            return reference.rounds
        return None


def _shared(rounds: Rounds, base: Rounds) -> Rounds:
    """Rounds of the blocks that both have."""
    return {number: done for number, done in rounds.items() if number in base}
