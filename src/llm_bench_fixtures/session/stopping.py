"""When a case has enough rounds: which variants have another block, by what is measured so far and the time it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llm_bench_fixtures.session.case import Entry, Measured
from llm_bench_fixtures.session.rounds import CaseRounds
from llm_bench_fixtures.session.waits import CaseTime
from llm_bench_fixtures.statistics.ratio import LogRatio, are_far_apart
from llm_bench_fixtures.statistics.spread import CONFIDENCE, interval

# Minimum evidence: an early interval may be narrow by luck. So many blocks of so many seconds, or of any so many
# rounds.
ENOUGH_BLOCKS = 3
ENOUGH_ROUNDS = 6
ENOUGH_S = 0.6
OPEN_LONGER = 1.5  # times as long as its least rounds, that a case may take while the answer is open


@dataclass
class Stopping:
    """Tells which variants of a case have another block."""

    rounds: CaseRounds
    time: CaseTime
    least_s: float | None = None
    """How long the least blocks took, once they are done."""
    is_open: bool = False
    """Whether the case goes on because the answer is open."""

    def next_block(self, block_s: float) -> list[str]:
        """The variants of the next block; the reference is among them as long as any other is. block_s: how long the
        last block took."""
        alive, reference = self.rounds.alive, self.rounds.reference
        measured = {name: self.rounds.measured(entry) for name, entry in alive.items()}
        ratios = self._ratios(measured)
        widths = self._half_widths(measured, ratios)
        may_go_on = self.time.elapsed_s + block_s <= self.longest_s
        longer = self.rounds.pace.allocation.open_in(ratios) if may_go_on else frozenset()
        self.is_open = bool(longer)
        wanting = [
            name for name, one in measured.items() if self._wants_more(name, one, widths[name], goes_on=name in longer)
        ]
        others = [name for name in wanting if name != reference]
        with_reference = [reference] if reference in alive else []
        if others:
            return [*with_reference, *others]
        is_alone = len(alive) == 1 and all(entry.is_asked_for for entry in alive.values())
        return with_reference if is_alone and reference in wanting else []

    def note_block(self) -> None:
        """Note that a block of the case's first ones is over."""
        if self.least_s is None and self.rounds.blocks * self.rounds.in_a_row >= self.rounds.pace.rounds:
            self.least_s = self.time.elapsed_s

    @property
    def unsettled(self) -> dict[str, Entry]:
        """The reference, and the variants that further blocks are of use to: of a large model all, else those whose
        interval isn't as narrow as asked. Empty once the reference has failed."""
        alive, reference = self.rounds.alive, self.rounds.reference
        if reference not in alive:
            return {}
        if self.rounds.pace.is_large:
            return alive
        measured = {name: self.rounds.measured(entry) for name, entry in alive.items()}
        widths = self._half_widths(measured, self._ratios(measured))
        wide = [name for name, one in measured.items() if not self._is_settled(name, one, widths[name])]
        return {name: entry for name, entry in alive.items() if name in (reference, *wide)}

    @property
    def longest_s(self) -> float:
        """Seconds that the case may take while it is open which variant is the fastest; 0 until it has its least
        rounds."""
        least_s = self.least_s or 0.0
        return least_s + min((OPEN_LONGER - 1) * least_s, self.rounds.pace.longer_s)

    def _ratios(self, measured: Mapping[str, Measured]) -> dict[str, LogRatio]:
        found = {name: self.rounds.ratio(one) for name, one in measured.items()}
        return {name: ratio for name, ratio in found.items() if ratio is not None}

    def _half_widths(self, names: Iterable[str], ratios: Mapping[str, LogRatio]) -> dict[str, float]:
        """How wide half of each one's interval may be."""
        asked = self.rounds.pace.max_noise
        return dict.fromkeys(names, asked) | self.rounds.pace.allocation.half_widths(ratios, asked)

    def _wants_more(self, name: str, measured: Measured, half_width: float, *, goes_on: bool) -> bool:
        """half_width: how wide half its interval may be. goes_on: whether it has more time than the case's share."""
        rounds, pace, entry = self.rounds, self.rounds.pace, self.rounds.entries[name]
        if rounds.outlives_reference(entry):
            return False
        is_short_of_time = rounds.may_be_few and self.time.rounds_s >= pace.share_s
        has_few = rounds.fewest <= rounds.calm(entry) < pace.rounds
        if pace.max_noise and has_few and (is_short_of_time or self._is_narrow(name, measured, half_width)):
            # A third pair tells which of two that lie far apart is odd.
            return not rounds.has_least(entry) and are_far_apart(measured.pairs, pace.expected_variance)
        if not rounds.has_least(entry):
            return True
        if not pace.max_noise:
            return False
        if rounds.calm(entry) < pace.rounds and self.time.is_patient:
            return True
        if self.time.elapsed_s >= pace.share_s and not goes_on:
            return False
        return not self._is_settled(name, measured, half_width)

    def _is_settled(self, name: str, measured: Measured, half_width: float) -> bool:
        """Whether its interval is as narrow as asked, by as many rounds as that takes."""
        return _is_enough(measured) and self._is_narrow(name, measured, half_width)

    def _is_narrow(self, name: str, measured: Measured, half_width: float) -> bool:
        if measured.reference_rounds and name != self.rounds.reference:
            ratio = self.rounds.ratio(measured)
            return ratio is not None and ratio.margin_by_rounds(CONFIDENCE) <= half_width
        found = interval(measured.rounds_s)
        return found is not None and found.relative_half_width <= half_width


def _is_enough(measured: Measured) -> bool:
    """Whether there are enough rounds to believe an interval."""
    return len(measured.rounds) >= (ENOUGH_BLOCKS if sum(measured.rounds_s) >= ENOUGH_S else ENOUGH_ROUNDS)
