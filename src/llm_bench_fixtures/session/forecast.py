"""How long a run takes, and with what: expected from its size and the machine's limits, corrected by what was seen."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.progress import about

FLOAT32_BYTES = 4
CALLS_PER_LAYER = 60  # of small operations, that a layer's pass makes in Python
PROCESS_CALLS = 200_000  # of small operations, that starting a process is worth
AGAIN = "again"  # the name of a variant's second load, where not all fit in memory together
LONG_S = 600.0  # a run that takes longer is told what makes it short
SHORTER = '-k "prompt_length or batch", fewer --llm-variants, or --llm-time'


class Work(StrEnum):
    """The kinds of work that a run's time goes into."""

    MAKING = "exports"
    LOADING = "loading"
    QUALITY = "quality"
    ROUNDS = "rounds"


@dataclass(frozen=True)
class Machine:
    """How fast a machine is at what runs consist of."""

    read_bytes_per_s: float
    """Of weights that are multiplied with one position."""
    flops_per_s: float
    """Of matrix products in float32."""
    copy_bytes_per_s: float
    """Into memory that was not used before."""
    hash_bytes_per_s: float
    call_s: float
    """Of an operation on next to nothing."""


@dataclass(frozen=True)
class Runner:
    """One variant of a model on a machine."""

    machine: Machine
    weights: int
    layers: int
    bytes_per_weight: float = FLOAT32_BYTES
    flops_per_s: float = 0.0
    """Of matrix products in its precision; 0: as in float32."""
    is_made: bool = False
    """Whether its engine has files of its own, which are checked before each load."""

    def pass_s(self, positions: float) -> float:
        """A forward pass over so many positions: as long as reading the weights takes, or computing with them."""
        computing_s = 2 * self.weights * positions / (self.flops_per_s or self.machine.flops_per_s)
        reading_s = self.weights * self.bytes_per_weight / self.machine.read_bytes_per_s
        return max(computing_s, reading_s) + CALLS_PER_LAYER * (self.layers + 1) * self.machine.call_s

    def round_s(self, shape: Shape) -> float:
        """All batches of a workload."""
        batches = -(-shape.prompts // shape.batch_size)
        rows = shape.prompts / batches
        later = ((shape.tokens + done if shape.has_no_cache else 1) for done in range(1, shape.new_tokens))
        return batches * (self.pass_s(rows * shape.tokens) + sum(self.pass_s(rows * tokens) for tokens in later))

    def load_s(self, first: Shape) -> float:
        """Start a process, read the weights and convert them, check them, and generate once. first: of that."""
        read, held = self.weights * FLOAT32_BYTES, self.weights * self.bytes_per_weight
        checked_s = (read + held) / self.machine.hash_bytes_per_s if self.is_made else 0.0
        copied_s = (2 * read + held) / self.machine.copy_bytes_per_s
        return PROCESS_CALLS * self.machine.call_s + copied_s + checked_s + self.round_s(first)

    def quality_s(self, positions: float, passes: int) -> float:
        """Score texts of so many positions in so many passes."""
        return passes * self.pass_s(positions / passes) if passes else 0.0


@dataclass(frozen=True)
class Shape:
    """The size of a workload, as far as it can be told before its test runs."""

    tokens: float
    """Of a prompt, on average."""
    new_tokens: int
    prompts: int = 1
    batch_size: int = 1
    has_no_cache: bool = False


@dataclass(frozen=True)
class Made:
    """What an engine has made of a model for a variant; at most one of a variant and a model is known."""

    variant: str
    """Whose load made it."""
    model: str
    """Tells models apart."""
    weights: int
    seconds: float
    is_current: bool
    """Whether it is used again."""


def making_s(variant: str, model: str, weights: int, made: Collection[Made], unknown_s: float) -> float:
    """Seconds that making the variant's form of the model takes: none where it is there, else as long as the last time,
    or as of the model that is nearest in size, by the weights. unknown_s: where there is no such."""
    own = [one for one in made if one.variant == variant]
    same = [one for one in own if one.model == model]
    if same:
        return 0.0 if same[0].is_current else same[0].seconds
    sizes = [one for one in own if one.weights]
    if not sizes:
        return unknown_s
    nearest = min(sizes, key=lambda one: max(one.weights / weights, weights / one.weights))
    return nearest.seconds * weights / nearest.weights


class Forecast:
    """What a run has yet to do, in seconds by the kind of work: each kind is corrected by how long its work took so far
    for what it was expected to take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[Work, dict[tuple[str, str], float]] = {work: {} for work in Work}
        self._expected: dict[Work, float] = defaultdict(float)  # of what is done
        self._taken: dict[Work, float] = defaultdict(float)
        self._spent: dict[Work, float] = defaultdict(float)  # on what wasn't expected, too
        self._going: tuple[Work, float, float] | None = None  # expected seconds, and since when
        self._steps_s: dict[str, float] = {}  # by variant, as expected
        self._rounds: dict[tuple[str, str], tuple[float, float]] = {}  # seconds that steps take, and the least

    def expect(self, work: Work, variant: str, seconds: float, name: str = "") -> None:
        """Add a piece of work on a variant. name: which of several."""
        self._left[work][name, variant] = seconds

    def expect_rounds(self, variant: str, seconds: float, least_s: float, name: str) -> None:
        """Add a case of the variant. seconds: of its least rounds. least_s: that it gets in any case."""
        self._rounds[name, variant] = seconds, least_s
        self.expect(Work.ROUNDS, variant, max(seconds, least_s), name)

    def expect_step(self, variant: str, seconds: float) -> None:
        """Note how long a decode step of the variant is expected to take."""
        self._steps_s[variant] = seconds

    def saw_step(self, variant: str, seconds: float) -> None:
        """Correct the variant's rounds by how long its first decode steps took."""
        expected_s = self._steps_s.pop(variant, 0.0)
        pieces = self._left[Work.ROUNDS]
        for piece in [piece for piece in pieces if piece[1] == variant and expected_s]:
            rounds_s, least_s = self._rounds[piece]
            pieces[piece] = max(rounds_s * seconds / expected_s, least_s)

    def forget(self, variant: str, name: str | None = None) -> None:
        """Nothing more comes of the variant. name: or of those pieces of its work that are called so."""
        for pieces in self._left.values():
            for piece in [piece for piece in pieces if piece[1] == variant and name in (None, piece[0])]:
                del pieces[piece]

    def done(self, work: Work, variants: Collection[str], seconds: float, name: str = "") -> None:
        """Note how long a piece of work took, on these variants together. What wasn't expected corrects nothing."""
        self._spent[work] += seconds
        expected_s = sum(self._left[work].pop((name, variant), 0.0) for variant in variants)
        if expected_s:
            self._expected[work] += expected_s
            self._taken[work] += seconds

    @contextmanager
    def doing(self, work: Work, *variants: str, name: str = "") -> Iterator[None]:
        """The block is a piece of work. Work of another kind that `done` notes within it doesn't count for it."""
        before_s, others_s = self._clock(), self._others_s(work)
        outer, self._going = self._going, (work, self._uncorrected_s(work, variants, name), before_s)
        try:
            yield
        finally:
            self._going = outer
            within_s = self._others_s(work) - others_s
            self.done(work, variants, self._clock() - before_s - within_s, name)

    def _others_s(self, work: Work) -> float:
        return sum(seconds for other, seconds in self._spent.items() if other is not work)

    def correction(self, work: Work) -> float:
        """How many times as long as expected it has taken so far; with the piece that goes on, once that is longer."""
        taken_s, expected_s = self._taken[work], self._expected[work]
        factor = taken_s / expected_s if expected_s else 1.0
        if self._going is not None and self._going[0] is work:
            going_s, passed_s = self._going[1], self._clock() - self._going[2]
            if going_s and passed_s > factor * going_s:
                return (taken_s + passed_s) / (expected_s + going_s)
        return factor

    def expected_s(self, work: Work, variant: str, name: str = "") -> float:
        """Seconds that a piece of work will take; 0 where nobody expected it."""
        pieces = self._left[work]
        return self.correction(work) * pieces[name, variant] if (name, variant) in pieces else 0.0

    def _uncorrected_s(self, work: Work, variants: Collection[str], name: str) -> float:
        return sum(self._left[work].get((name, variant), 0.0) for variant in variants)

    @property
    def left_by_work(self) -> Mapping[Work, float]:
        """Seconds of each kind that is to come; without what has passed of the piece that goes on."""
        left = {work: self.correction(work) * sum(list(pieces.values())) for work, pieces in self._left.items()}
        if self._going is not None:
            work, going_s, since_s = self._going
            left[work] = max(left[work] - min(self._clock() - since_s, self.correction(work) * going_s), 0.0)
        return {work: seconds for work, seconds in left.items() if self._left[work]}

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done; None where nothing is to come."""
        left = self.left_by_work
        return sum(left.values()) if left else None

    def describe(self, limit_s: float) -> str:
        """How long the run takes and with what, and what would make a long one short. limit_s: the run's time."""
        left = self.left_by_work
        parts = ", ".join(f"{work} {_told(work, seconds)}" for work, seconds in left.items())
        total_s = sum(left.values())
        within = f", of which {about(limit_s)} are given" if total_s > limit_s else ""
        shorter = f". Shorter: {SHORTER}" if total_s > min(limit_s, LONG_S) else ""
        return f"about {about(total_s)}{within}: {parts}{shorter}"


def _told(work: Work, seconds: float) -> str:
    return "0 s (cached)" if work is Work.MAKING and not seconds else about(seconds)
