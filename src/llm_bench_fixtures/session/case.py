"""A case: the variants that run its workload, at which pace, and what was measured of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from llm_bench_fixtures.answer.allocation import EVENLY, Allocation
from llm_bench_fixtures.measure.timing import Round
from llm_bench_fixtures.measure.work import Observation
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.statistics.ratio import LEAST_PAIRS, log_ratios, trimmed_variance
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate
from llm_bench_fixtures.workloads import Workload


@dataclass(frozen=True)
class Pace:
    """How many rounds, and for how long."""

    rounds: int
    """Timed rounds of each variant, at least."""
    warmup_rounds: int
    max_noise: float
    """How wide half an interval may be, relative to its middle; 0: only `rounds`."""
    share_s: float
    """Seconds for all rounds of the case, but for the least ones."""
    fewest_rounds: int | None = None
    """Timed rounds where they are long and the interval is narrow enough by then, or, of a small model where the answer
    doesn't go by the case, its time is over; None: `rounds`."""
    patience_s: float = 0.0
    """Seconds to wait, besides, while other work keeps cores busy, and to run other blocks in place of crowded ones."""
    probes: bool = False
    is_large: bool = False
    """Whether the model is so large that no round is spent to warm up or to observe."""
    may_preempt: bool = True
    """Whether a process may be suspended in the middle of a step: not where energy is counted, as its meter would count
    what the others use meanwhile."""
    cores: int = 1
    """Cores that a round occupies. 0 disables waiting: oversubscribed threads always look busy."""
    expected_variance: VarianceEstimate = NO_PRIOR
    """Expected variance of the log ratio of a pair of rounds, from the cases before this one."""
    allocation: Allocation = EVENLY
    """Which speed-ups have to be surer than others."""
    longer_s: float = math.inf
    """Seconds beyond its least rounds' that the case may take at most while the answer is open."""


@dataclass
class Entry:
    """One variant of a case: how it runs the workload, and what was measured of it."""

    model: ModelHandle
    workload: Workload
    is_asked_for: bool = True
    """Whether a test wants its figures; the reference runs in any case."""
    cores: int | None = None
    """Cores that a round occupies; None: the pace's."""
    expected_s: float = 0.0
    """How long a round is expected to take; 0: not known."""
    observation: Observation | None = None
    rounds: dict[int, Round] = field(default_factory=dict)
    """Rounds by their numbers; those of a block have the same ones for all variants."""
    last_s: float = 0.0
    """How long its last round took."""
    step_s: float = 0.0
    """How long a decode step of it took; 0 before the first round."""
    is_watched: bool = False
    """Whether memory and work are observed in its next round."""
    failure: Exception | None = None


@dataclass(frozen=True)
class Measured:
    """Measurements of one variant of a case."""

    observation: Observation | None
    rounds: tuple[Round, ...]
    reference_rounds: tuple[Round, ...] = ()
    """Rounds of the reference in the same blocks; empty where there was no reference among them."""
    crowded_rounds: int = 0
    """How many more there were, in blocks that are left out because other programs ran in them."""
    core_to_core: tuple[float, ...] = ()
    """Time in which a core read what another had just written, over that in which it read it again: mean of the looks
    in each round's block; empty where these were too few."""

    @property
    def waited_s(self) -> tuple[float, ...]:
        """Seconds that each round's threads waited for a core; empty where the system doesn't tell."""
        return _waited(self.rounds)

    @property
    def reference_waited_s(self) -> tuple[float, ...]:
        return _waited(self.reference_rounds)

    @property
    def rounds_s(self) -> tuple[float, ...]:
        return tuple(done.latency_s for done in self.rounds)

    @property
    def reference_s(self) -> tuple[float, ...]:
        return tuple(done.latency_s for done in self.reference_rounds)

    @property
    def pairs(self) -> list[float]:
        """Log ratios of its pairs of rounds; none where there was no reference among them."""
        return log_ratios(self.reference_s, self.rounds_s) if self.reference_rounds else []

    @property
    def variance(self) -> VarianceEstimate:
        """Variance between its pairs of rounds; with too few it says nothing."""
        return trimmed_variance(self.pairs) if len(self.pairs) >= LEAST_PAIRS else NO_PRIOR


CaseFigures: TypeAlias = Mapping[str, Measured | Exception]
"""What was measured of each variant of a case, or what failed, by variant."""


@dataclass(frozen=True)
class Spent:
    """Run time that a case took, and what that was worth."""

    rounds_s: float
    """Seconds from the first block on, without those that are listed below."""
    waited_s: float
    """Seconds waited for other work to end."""
    found_calm: bool
    """Whether other work left any turn alone; also where there was none to disturb."""


def _waited(rounds: tuple[Round, ...]) -> tuple[float, ...]:
    known = tuple(done.waited_s for done in rounds if done.waited_s is not None)
    return known if len(known) == len(rounds) else ()
