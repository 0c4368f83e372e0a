"""How long a run takes, and with what: expected from its size and the machine's limits, corrected by what was seen."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from statistics import median

from llm_bench_fixtures.measure.timing import Round
from llm_bench_fixtures.models.needs import FLOAT32_BYTES
from llm_bench_fixtures.progress import about
from llm_bench_fixtures.workloads import CacheKind, Workload

CALLS_PER_LAYER = 140  # operations in a layer's pass: GPT-2's with a cache, as torch's profiler counts them
CALLS_PER_MASK = 2500  # operations that take as long as transformers' mask of a padded batch, in each pass
PROCESS_CALLS = 200_000  # small operations that take as long as starting a process
LONG_S = 600.0  # a run that takes longer is told what makes it short
FADED = 0.5  # weight of what a variant's earlier rounds showed, next to its last ones: machines change within a run
FADED_CASE = 0.9  # weight of a case's time next to that of the case after it
EXPECTED_CASES = 6.0  # weight of the expectation next to the first case, which has costs that none has after it
MARGIN = 1.2  # a limit that has room for all, over the seconds that are expected


class WorkKind(StrEnum):
    """The kinds of work that a run's time goes into."""

    MAKING = "exports"
    LOADING = "loading"
    QUALITY = "quality"
    TASKS = "tasks"
    ROUNDS = "rounds"
    CHECKS = "checks"
    FURTHER = "further rounds"  # in the time that all else leaves


@dataclass(frozen=True)
class MachineSpeed:
    """How fast a machine is at what runs consist of."""

    read_bytes_per_s: float
    """Bytes per second of weights that are multiplied with one position."""
    flops_per_s: float
    """Floating-point operations per second of float32 matrix products, on a CPU of the model's shape."""
    copy_bytes_per_s: float
    """Bytes per second copied into memory that was not used before."""
    hash_bytes_per_s: float
    call_s: float
    """Seconds of an operation on next to nothing."""
    rows_bytes_per_s: float = 0.0
    """Bytes per second of weights that torch multiplies with a few positions in float32: as little as a quarter of
    `read_bytes_per_s` was seen. 0: `read_bytes_per_s`."""


@dataclass(frozen=True)
class Phases:
    """Seconds of work, by the kind of its forward passes."""

    prefill_s: float = 0.0
    """Seconds of passes over many positions at a time; without a cache each pass is."""
    decode_s: float = 0.0
    """Seconds of passes over one position of each row."""

    @property
    def total_s(self) -> float:
        return self.prefill_s + self.decode_s

    def __add__(self, other: Phases) -> Phases:
        return Phases(self.prefill_s + other.prefill_s, self.decode_s + other.decode_s)

    def __rmul__(self, factor: float) -> Phases:
        return Phases(factor * self.prefill_s, factor * self.decode_s)


@dataclass(frozen=True)
class Runner:
    """One variant of a model on a machine."""

    machine: MachineSpeed
    weights: int
    layers: int
    bytes_per_weight: float = FLOAT32_BYTES
    flops_per_s: float = 0.0
    """Floating-point operations per second of matrix products in its precision; 0: as in float32."""
    is_made: bool = False
    """Whether its engine has files of its own, which are checked before each load."""
    is_plain: bool = False
    """Whether torch multiplies its weights, as they are, in float32."""

    def pass_s(self, positions: float, *, is_padded: bool = False) -> float:
        """A forward pass over so many positions: as long as reading the weights takes, or computing with them."""
        computing_s = 2 * self.weights * positions / (self.flops_per_s or self.machine.flops_per_s)
        of_rows = self.machine.rows_bytes_per_s if self.is_plain and positions > 1 else 0.0
        reading_s = self.weights * self.bytes_per_weight / (of_rows or self.machine.read_bytes_per_s)
        calls = CALLS_PER_LAYER * (self.layers + 1) + (CALLS_PER_MASK if is_padded else 0)
        return max(computing_s, reading_s) + calls * self.machine.call_s

    def round_of(self, workload: Workload) -> Phases:
        """All batches of a workload, as if each were the average of them."""
        batches, padded_tokens = len(workload.groups), workload.padded_tokens
        rows, positions = len(workload.prompts) / batches, (workload.prompt_tokens + padded_tokens) / batches
        new_tokens = round(workload.steps / batches)
        prefills = new_tokens if workload.cache is CacheKind.OFF else 1
        pass_s = partial(self.pass_s, is_padded=padded_tokens > 0)
        prefills_s = sum(pass_s(positions + done * rows) for done in range(prefills))
        return batches * Phases(prefills_s, (new_tokens - prefills) * pass_s(rows))

    def round_s(self, workload: Workload) -> float:
        """Seconds of a round."""
        return self.round_of(workload).total_s

    def load_s(self, first: Workload) -> float:
        """Start a process, read the weights and convert them, check them, and generate once. first: of that."""
        read, held = self.weights * FLOAT32_BYTES, self.weights * self.bytes_per_weight
        checked_s = (read + held) / self.machine.hash_bytes_per_s if self.is_made else 0.0
        copied_s = (2 * read + held) / self.machine.copy_bytes_per_s
        return PROCESS_CALLS * self.machine.call_s + copied_s + checked_s + self.round_s(first)


def _phases_of(workload: Workload, rounds: Sequence[Round]) -> Phases:
    """Median seconds of prefill and of decode; without a cache all is prefill."""
    if workload.cache is CacheKind.OFF:
        return Phases(prefill_s=median(done.latency_s for done in rounds))
    decode_s = [sum(done.decode_steps_s) for done in rounds]
    prefill_s = [done.latency_s - later_s for done, later_s in zip(rounds, decode_s, strict=True)]
    return Phases(median(prefill_s), median(decode_s))


@dataclass(frozen=True)
class Piece:
    """A piece of work, as it is expected before anything is seen."""

    fixed_s: float = 0.0
    phases: Phases = Phases()
    """Passes whose expected seconds a variant's own speed corrects."""
    repeated: Phases = Phases()
    """More of that, which is repeated until `least_s` have passed."""
    least_s: float = 0.0

    def seconds(self, pace: Phases) -> float:
        """pace: how many times as long as expected the variant's passes of each kind take."""
        return self.fixed_s + _at(pace, self.phases) + max(_at(pace, self.repeated), self.least_s)


def _at(pace: Phases, phases: Phases) -> float:
    return pace.prefill_s * phases.prefill_s + pace.decode_s * phases.decode_s


AS_EXPECTED = Phases(1.0, 1.0)


def sample_name(number: int) -> str:
    """The name of scoring a variant on the sample of that number, from 0."""
    return str(number or "")


def load_name(done: int) -> str:
    """The name of a variant's load after `done` earlier ones."""
    return f"after {done}" if done else ""


class Forecast:
    """Work that a run has yet to do, in seconds by kind.

    Each variant's passes are corrected by how long those took that were seen, and then each kind of work by how long it
    took so far for what it was expected to take.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[WorkKind, dict[tuple[str, str], Piece]] = {work: {} for work in WorkKind}
        self._done: dict[WorkKind, list[tuple[float, str, Piece]]] = defaultdict(list)  # its weight, of a variant
        self._taken: dict[WorkKind, float] = defaultdict(float)
        self._spent: dict[WorkKind, float] = defaultdict(float)  # on what wasn't expected, too
        self._going: tuple[WorkKind, float, float] | None = None  # expected seconds, and since when
        self._runners: dict[str, Runner] = {}
        self._seen: dict[str, tuple[Phases, Phases]] = {}  # rounds by variant: expected, and taken

    def expect(self, work: WorkKind, variant: str, seconds: float, name: str = "") -> None:
        """Add a piece of work on a variant. name: which of several."""
        self._left[work][name, variant] = Piece(seconds)

    def expect_passes(self, work: WorkKind, variant: str, phases: Phases, name: str = "") -> None:
        """Add a piece that consists of passes."""
        self._left[work][name, variant] = Piece(phases=phases)

    def expect_rounds(self, variant: str, case: str, warm_up: Phases, least: Phases, least_s: float = 0.0) -> None:
        """Add a case's rounds. least: the fewest timed ones. least_s: that timed ones get in any case."""
        self._left[WorkKind.ROUNDS][case, variant] = Piece(phases=warm_up, repeated=least, least_s=least_s)

    def timed_s(self, counts: Callable[[str], bool]) -> float:
        """Seconds that the timed rounds of cases to come take. counts: whether a case does, by its name."""
        left = self._left[WorkKind.ROUNDS].items()
        timed = [(variant, replace(one, fixed_s=0.0, phases=Phases())) for (case, variant), one in left if counts(case)]
        return self.correction(WorkKind.ROUNDS) * self._seconds(timed)

    def expect_runner(self, variant: str, runner: Runner) -> None:
        """Note how the variant is expected to run."""
        self._runners[variant] = runner

    def saw(self, variant: str, workload: Workload, rounds: Sequence[Round]) -> None:
        """Correct what the variant has yet to run by rounds of it."""
        if (runner := self._runners.get(variant)) is not None and rounds:
            expected, taken = self._seen.get(variant, (Phases(), Phases()))
            expected += runner.round_of(workload)
            self._seen[variant] = FADED * expected, FADED * (taken + _phases_of(workload, rounds))

    def _pace(self, variant: str) -> Phases:
        """How many times as long as expected its passes take."""
        expected, taken = self._seen.get(variant, (AS_EXPECTED, AS_EXPECTED))
        return Phases(
            taken.prefill_s / expected.prefill_s if expected.prefill_s else 1.0,
            taken.decode_s / expected.decode_s if expected.decode_s else 1.0,
        )

    def forget(self, variant: str, name: str | None = None, works: Collection[WorkKind] = tuple(WorkKind)) -> None:
        """Nothing more comes of the variant. name, works: or of those pieces of its work that are called so, and of
        these kinds."""
        for pieces in (self._left[work] for work in works):
            for piece in [piece for piece in pieces if piece[1] == variant and name in (None, piece[0])]:
                del pieces[piece]

    def join(self, work: WorkKind) -> None:
        """Make one nameless piece of each variant's pieces of that work, which are of fixed times."""
        pieces = self._left[work]
        for name, variant in [place for place in pieces if place[0]]:
            more = pieces.pop((name, variant))
            one = pieces.get(("", variant), Piece())
            pieces["", variant] = Piece(one.fixed_s + more.fixed_s)

    def forget_all(self) -> None:
        """Nothing is known of what is to come."""
        for pieces in self._left.values():
            pieces.clear()

    def done(self, work: WorkKind, variants: Collection[str], seconds: float, name: str = "") -> None:
        """Note how long a piece of work took, on these variants together. What wasn't expected corrects nothing."""
        self._spent[work] += seconds
        found = [(variant, self._left[work].pop((name, variant), None)) for variant in variants]
        expected = [(variant, piece) for variant, piece in found if piece is not None]
        if expected:
            faded = FADED_CASE if work is WorkKind.ROUNDS else 1.0
            before = [(faded * weight, variant, piece) for weight, variant, piece in self._done[work]]
            self._done[work] = [*before, *((1.0, variant, piece) for variant, piece in expected)]
            self._taken[work] = faded * self._taken[work] + seconds

    @contextmanager
    def doing(self, work: WorkKind, *variants: str, name: str = "") -> Iterator[None]:
        """The block is a piece of work. What `done` notes within it doesn't count for it."""
        before_s, noted_s = self._clock(), sum(self._spent.values())
        outer, self._going = self._going, (work, self._seconds(self._pieces(work, variants, name)), before_s)
        try:
            yield
        finally:
            took_s = self._clock() - before_s
            self._going = outer and (outer[0], outer[1], outer[2] + took_s)
            self.done(work, variants, took_s - (sum(self._spent.values()) - noted_s), name)

    def _pieces(self, work: WorkKind, variants: Iterable[str], name: str) -> list[tuple[str, Piece]]:
        """The expected pieces of that name, of these variants."""
        left = self._left[work]
        return [(variant, left[name, variant]) for variant in variants if (name, variant) in left]

    def _seconds(self, pieces: Iterable[tuple[str, Piece]]) -> float:
        """Sum of the pieces, each at its variant's pace."""
        return sum(piece.seconds(self._pace(variant)) for variant, piece in pieces)

    def correction(self, work: WorkKind) -> float:
        """How many times as long as expected it has taken so far; with the piece that goes on, once that is longer.

        Of rounds, the expectation counts next to what was seen, less with each case.
        """
        taken_s, done = self._taken[work], self._done[work]
        expected_s = sum(weight * piece.seconds(self._pace(variant)) for weight, variant, piece in done)
        factor = taken_s / expected_s if expected_s else 1.0
        if self._going is not None and self._going[0] is work:
            going_s, passed_s = self._going[1], self._clock() - self._going[2]
            if going_s and passed_s > factor * going_s:
                factor = (taken_s + passed_s) / (expected_s + going_s)
        if work is not WorkKind.ROUNDS:
            return factor
        oldest = min((weight for weight, *_ in done), default=1.0)
        seen, expected = (1.0 - FADED_CASE * oldest) / (1.0 - FADED_CASE), EXPECTED_CASES * oldest
        return (seen * factor + expected) / (seen + expected)

    def expected_s(self, work: WorkKind, variant: str, name: str = "") -> float:
        """Seconds that a piece of work will take; 0 where nobody expected it."""
        return self.correction(work) * self._seconds(self._pieces(work, [variant], name))

    def least_rounds_s(self, variants: Collection[str], case: str) -> float:
        """Seconds that the least rounds of a case take, as expected."""
        pieces = self._pieces(WorkKind.ROUNDS, variants, case)
        least = ((variant, replace(piece, least_s=0.0)) for variant, piece in pieces)
        return self.correction(WorkKind.ROUNDS) * self._seconds(least)

    def first_case(self, variant: str) -> str:
        """The name of the first case that is expected of the variant; empty where none is."""
        return next((name for name, other in self._left[WorkKind.ROUNDS] if other == variant), "")

    @property
    def left_by_work(self) -> Mapping[WorkKind, float]:
        """Seconds of each kind that is to come; without what has passed of the piece that goes on."""
        left = {work: self.correction(work) * self._left_s(work) for work in WorkKind}
        if self._going is not None:
            work, going_s, since_s = self._going
            left[work] = max(left[work] - min(self._clock() - since_s, self.correction(work) * going_s), 0.0)
        return {work: seconds for work, seconds in left.items() if self._left[work]}

    def _left_s(self, work: WorkKind) -> float:
        """Seconds to come, corrected by the variants' pace and not by the kind of work."""
        return self._seconds((variant, piece) for (_, variant), piece in list(self._left[work].items()))

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done; None where nothing is to come."""
        left = self.left_by_work
        return sum(left.values()) if left else None

    def describe(self, limit_s: float, shorter: Sequence[str] = ()) -> str:
        """How long the run takes and with what, and what would make a long one short. limit_s: the run's time. shorter:
        what would, besides a limit."""
        left = self.left_by_work
        parts = ", ".join(f"{work} {_told(work, seconds)}" for work, seconds in left.items())
        told = f"about {about(total_s := sum(left.values()))}"
        if total_s <= min(limit_s, LONG_S):
            return f"{told}: {parts}"
        if total_s <= limit_s:
            return f"{told}: {parts}. Shorter: {', '.join((*shorter, '--llm-time'))}"
        ways = f" Shorter: {', '.join(shorter)}." if shorter else ""
        room = f"--llm-time {_with_room_for(total_s)} has room for all"
        return f"{told}, but the limit is {about(limit_s)}: {parts}.{ways} {room}"


def _with_room_for(seconds: float) -> str:
    """A limit that has room for so many, as --llm-time reads it, which takes a week at most."""
    minutes = math.ceil(MARGIN * seconds / 600) * 10
    if minutes < 120:
        return f"{minutes}m"
    hours = math.ceil(minutes / 60)
    return f"{hours}h" if hours <= 7 * 24 else "none"


def _told(work: WorkKind, seconds: float) -> str:
    return "0 s (cached)" if work is WorkKind.MAKING and not seconds else about(seconds)
