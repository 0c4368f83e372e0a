"""Where measuring time does most for the answer: on the workloads that decide, and on variants that may win there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from llm_bench_fixtures.answer.headline import BATCHES, OWN, PROMPT_LENGTHS
from llm_bench_fixtures.statistics.ratio import WIDE, LogRatio
from llm_bench_fixtures.statistics.spread import CONFIDENCE

DECIDES = 4.0  # times as much time as other tests
CAN_NOT_WIN = 2.0  # times the half-width asked for
MAY_WIN = 0.5  # times the half-width asked for; for each of several rivals where the answer is decided
EVEN = math.log1p(WIDE) / math.sqrt(2)  # half-width of either interval that lets two rivals be called equally fast


def weight_of(scenario: str, *, has_own: bool = False) -> float:
    """Weight of a test's share in a run's time; 1 for scenarios that don't decide the answer. has_own: the run has the
    user's own prompts, which decide then."""
    return DECIDES if scenario in ((OWN,) if has_own else (PROMPT_LENGTHS, BATCHES)) else 1.0


@dataclass(frozen=True)
class Allocation:
    """What a case's speed-ups are needed for."""

    decides: bool = False
    """Whether the answer goes by the case."""
    kept: frozenset[str] | None = None
    """The variants that keep the limits of a winner; None: all."""

    def half_widths(self, ratios: Mapping[str, LogRatio], asked: float) -> dict[str, float]:
        """How wide half the interval of each speed-up may be. asked: where nothing else is known.

        ratios: by variant, those over the reference that are known, the reference's own among them.
        """
        rivals = contenders(ratios) | contenders(self._kept(ratios))
        finest = MAY_WIN * asked if self.decides and len(rivals) > 1 else asked
        return {name: finest if name in rivals else CAN_NOT_WIN * asked for name in ratios}

    def open_in(self, ratios: Mapping[str, LogRatio]) -> frozenset[str]:
        """The rivals for the fastest of those that keep the limits, as far as their own intervals are too wide to tell
        them apart. It stands for the report's comparison, which pairs rivals and pools cases. Empty where nothing is
        decided.

        ratios: as in `half_widths`.
        """
        kept = self._kept(ratios) if self.decides else {}
        rivals, confidence = contenders(kept), 1 - (1 - CONFIDENCE) / claims(len(ratios) - 1)
        wide = {name for name in rivals if kept[name].margin(confidence) > EVEN}
        return frozenset(wide if len(rivals) > 1 else ())

    def _kept(self, ratios: Mapping[str, LogRatio]) -> Mapping[str, LogRatio]:
        return {name: ratio for name, ratio in ratios.items() if self.kept is None or name in self.kept}


def claims(variants: int) -> int:
    """How many comparisons a report makes of so many variants: on two workloads each with the reference, and the best
    with each other one."""
    return max(2 * (2 * variants - 1), 1)  # none of no variant


def contenders(ratios: Mapping[str, LogRatio]) -> frozenset[str]:
    """The variants that may be the fastest: those not shown to be slower than another.

    Each interval is widened for as many as there are (Bonferroni).
    """
    confidence = 1 - (1 - CONFIDENCE) / max(len(ratios), 1)
    margins = {name: ratio.margin(confidence) for name, ratio in ratios.items()}
    least = max((ratio.centre - margins[name] for name, ratio in ratios.items()), default=0.0)
    return frozenset(name for name, ratio in ratios.items() if ratio.centre + margins[name] >= least)


EVENLY = Allocation()
