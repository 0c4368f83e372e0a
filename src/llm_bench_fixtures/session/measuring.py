"""The figures that tests ask for: those of a whole case are measured at once, and wait for the tests to come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from llm_bench_fixtures.answer.allocation import Allocation, weight_of
from llm_bench_fixtures.errors import LlmBenchError, NotReached, TimeUp
from llm_bench_fixtures.measure.energy import energy_meter
from llm_bench_fixtures.measure.support import check_supported
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.needs import RoundSize
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.progress import Left, Milestone, Phase, about
from llm_bench_fixtures.session.blocks import OBSERVED_LONGER, Blocks
from llm_bench_fixtures.session.budget import MOST_TIMES, USUAL_TIMES, TimeBudget, benchmark_s
from llm_bench_fixtures.session.case import CaseFigures, Entry, Measured, Pace, Spent
from llm_bench_fixtures.session.forecast import WorkKind
from llm_bench_fixtures.session.further import FurtherRounds, Visited
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.plan import Stage
from llm_bench_fixtures.session.rounds import CaseRounds
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.statistics.ratio import FEWEST_PAIRS
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate, estimate_prior
from llm_bench_fixtures.workloads import Workload

ROUNDS = 3  # timed ones of each benchmark at least, unless --llm-rounds names a number
# Weights of a model that is not warmed up for a whole round, nor observed in one of its own. Size decides and not time,
# so that all runs observe memory alike; a step of it takes over 10 ms, to which noting its pass adds 0.1 to 0.2.
LARGE_WEIGHTS = 2e8


@dataclass(eq=False)
class SideBySide:
    """Measures cases, and keeps what other tests will ask for."""

    _setup: Setup
    _loader: VariantLoader
    _reference: str
    """The id of the variant that the others are compared with."""
    _kept: Callable[[], frozenset[str]] | None = None
    """Tells which variants keep the limits of a winner, as far as that is known; None: all."""

    def __post_init__(self) -> None:
        setup = self._setup
        self.budget = TimeBudget(benchmark_s(setup.settings.max_noise), lambda: setup.deadline.left_s)
        self._stage: Callable[[str], Stage] | None = None  # of a case; None: not known
        self._not_reached: dict[str, str] = {}  # reasons by case
        # Seconds of a case's least rounds for each step of one, by scenario.
        self._least_s: dict[str, list[float]] = defaultdict(list)
        self._waiting: dict[tuple[str, str, str], list[Measured | Exception]] = defaultdict(list)
        self.further = FurtherRounds(setup, self._loader, lambda: MOST_TIMES if self._is_large else USUAL_TIMES)
        self._of_reference: dict[str, Workload] = {}  # what the reference's own test runs, by case
        self._variances: list[VarianceEstimate] = []  # each comparison with the reference so far

    def expect(self, scenarios: Sequence[str]) -> None:
        """Share the time among so many benchmarks more. scenarios: of each of them."""
        self.budget.expect([self._scenario_weight(scenario) for scenario in scenarios])

    def _scenario_weight(self, scenario: str) -> float:
        return weight_of(scenario, has_own=self._setup.own is not None)

    def forgo(self, scenarios: Sequence[str]) -> None:
        """Share the time among so many benchmarks less."""
        self.budget.forgo([self._scenario_weight(scenario) for scenario in scenarios])

    def go_by(self, stage: Callable[[str], Stage], benchmarks: Sequence[tuple[str, str]]) -> None:
        """Let only those cases get more time than others that the answer goes by. The time of all stays as it is.

        stage: of a case. benchmarks: case and scenario of each that is still to come.
        """
        self.forgo([scenario for _, scenario in benchmarks])
        self._stage = stage
        self.budget.expect([self.weight_of(*one) for one in benchmarks])

    def weight_of(self, case: str, scenario: str) -> float:
        """Weight of a benchmark's share in the time; above 1 where the answer goes by the case."""
        weight = self._scenario_weight(scenario)
        return weight if weight > 1 and self._stage_of(case) is not Stage.OTHER else 1.0

    def _stage_of(self, case: str) -> Stage:
        """Until `go_by` tells, the answer goes by all cases."""
        return self._stage(case) if self._stage else Stage.LATENCY

    def first_rounds(self, case: str, variants: Collection[str]) -> int | None:
        """Timed rounds that are enough at first, as further ones follow; None: as many as are usual, as before quality.

        A case's first rounds share one state of the machine, and those that come later have others. variants: the ids
        of those that take turns.
        """
        is_late = self._is_large and self._stage_of(case) > Stage.QUALITY
        return FEWEST_PAIRS if is_late and self._is_followed(case, variants) else None

    def _is_followed(self, case: str, variants: Collection[str]) -> bool:
        """Whether further rounds of a case follow where they have time. variants: the ids of those that take turns."""
        return self._has_further_rounds(case) and self._reference in variants and len(variants) > 1

    def _has_further_rounds(self, case: str) -> bool:
        """Whether a case has further rounds where its variants take turns and are loaded together: with a large model,
        whose rounds are long and few, in what a given time leaves; else where it is known that the answer goes by it.
        """
        settings, groups = self._setup.settings, self._loader.lineup.groups
        has_turns = len(groups) == 1 and len(groups[0]) > 1
        if not has_turns or not settings.max_noise:
            return False
        if self._is_large:
            return "time" in settings.given and self._setup.deadline.is_limited
        return settings.rounds is None and self._stage is not None and self._stage(case) is not Stage.OTHER

    def expect_further(self) -> None:
        """Expect further rounds in the time that is left besides all else."""
        self.further.expect(self._has_further_rounds)

    def measure(
        self,
        case: str,
        scenario: str,
        model: ModelHandle,
        workload: Workload,
        others: Callable[[], Sequence[Variant]],
        take_again: Callable[[Measured], None] = lambda _: None,
    ) -> Measured:
        """The figures of one variant of a case, which may have been measured already.

        case: the same for tests that differ in the variant alone. others: gives the variants of its tests that
        are still to come; they are measured along, on the same workload. take_again: takes the figures with further
        rounds, after each block of these. Raises what failed, NotReached where the run has no time for the case.
        """
        key = (case, model.variant.id, workload.digest)
        if not self._waiting[key]:
            beside = () if self._differs(case, model.variant) else others()
            try:
                with self._setup.deadline.reaching():
                    self._measure_case(case, scenario, model, workload, beside)
            except NotReached:
                if not self._waiting[key]:
                    raise
        found = self._waiting[key].pop(0)
        if isinstance(found, Exception):
            raise found
        self.further.hand_on(found, take_again)
        return found

    def _differs(self, case: str, variant: Variant) -> bool:
        """Whether the variant was measured along on a workload that its test hasn't asked for, as each may do."""
        return any(figures and place[:2] == (case, variant.id) for place, figures in self._waiting.items())

    def _measure_case(
        self, case: str, scenario: str, model: ModelHandle, workload: Workload, others: Sequence[Variant]
    ) -> None:
        """Raises TimeUp where the case isn't expected to fit in the time that is left, or was cut."""
        if case in self._not_reached:
            raise TimeUp(self._not_reached[case])
        self._setup.deadline.check()
        with self._loader.making_room(model.variant, RoundSize.of(workload)) as has_room:
            entries = self._entries(case, model, workload, [other for other in others if has_room(other)])
            self._measure_entries(case, scenario, model.variant, entries)

    def _measure_entries(self, case: str, scenario: str, asking: Variant, entries: Mapping[str, Entry]) -> None:
        """asking: the variant whose test it is."""
        weight = self.weight_of(case, scenario)
        steps = sum(entry.workload.steps for entry in entries.values())
        expected_s = self._expected_s(scenario, steps) or self._setup.forecast.least_rounds_s(entries, case)
        if not self._setup.deadline.fits(expected_s):
            self._not_reached[case] = f"its least rounds take about {about(expected_s)}, which is more than was left"
            raise TimeUp(self._not_reached[case])  # with fewer variants later on, too
        self.expect_further()
        pace = self._pace(case, entries, weight)
        progress = self._setup.progress
        text = case.rpartition("::")[2].removeprefix("test_")
        foreseen = self._setup.forecast.doing(WorkKind.ROUNDS, *entries, name=case)
        # Measured several times where large rounds have no room together.
        part = f"{case} of group {self._loader.lineup.place(asking)}"
        for name, entry in entries.items():
            entry.expected_s = self._setup.forecast.least_rounds_s([name], case) / pace.rounds
        with progress.part(Milestone.CASE, part), foreseen, progress.stepped(Phase.GENERATING, text) as show:

            def step(doing: str, detail: str, left: Left | None) -> None:
                self._setup.deadline.check()
                show(doing, detail, left)

            blocks = Blocks(CaseRounds({**entries}, self._reference, pace), step)
            found: CaseFigures = {}
            try:
                found = blocks.measure()
            except BaseException:
                found = blocks.rounds.complete()
                raise
            finally:
                spent = blocks.spent
                self._keep(case, weight, asking.id, entries, found, spent)
        if self._is_followed(case, entries):
            self.further.add(Visited(case, blocks, spent.rounds_s, found))
        self._note_least(scenario, entries, found)

    def _note_least(self, scenario: str, entries: Mapping[str, Entry], found: CaseFigures) -> None:
        """Note how long the least rounds of a case's variants take, for each decode step of one round."""
        settings = self._setup.settings
        untimed = settings.warmup_rounds - 1 if self._is_large else OBSERVED_LONGER * settings.warmup_rounds
        rounds = (settings.rounds or FEWEST_PAIRS) + max(untimed, 0)
        known = {name: median(one.rounds_s) for name, one in found.items() if isinstance(one, Measured) and one.rounds}
        steps = sum(entries[name].workload.steps for name in known)
        if steps:
            self._least_s[scenario].append(rounds * sum(known.values()) / steps)

    def _expected_s(self, scenario: str, steps: int) -> float:
        """Seconds that the least rounds of so many decode steps take: as the slowest of the scenario's cases so far,
        else as the middle one of all; 0 before any."""
        seen = self._least_s.get(scenario)
        others = list(chain.from_iterable(self._least_s.values()))
        return steps * (max(seen) if seen else median(others or [0.0]))

    def _keep(
        self, case: str, weight: float, asking: str, entries: Mapping[str, Entry], found: CaseFigures, spent: Spent
    ) -> None:
        """Keep what was measured, for the tests that will ask for it, and the time that it took.

        asking: the variant whose test it is. That one is over, also where it was cut short; what else isn't in `found`
        is measured again.
        """
        self.budget.spend(len({asking, *found}), spent.rounds_s, weight)
        self.budget.wait(spent.waited_s, found_calm=spent.found_calm)
        for variant, measured in found.items():
            self._waiting[case, variant, entries[variant].workload.digest].append(measured)
            if isinstance(measured, Measured):
                self._setup.forecast.saw(variant, entries[variant].workload, measured.rounds)
                self._variances.append(measured.variance)

    @property
    def _is_large(self) -> bool:
        return self._setup.source.weights >= LARGE_WEIGHTS

    def _pace(self, case: str, entries: Mapping[str, Entry], weight: float) -> Pace:
        settings = self._setup.settings
        benchmarks = sum(entry.is_asked_for for entry in entries.values())
        return Pace(
            settings.rounds or self.first_rounds(case, entries) or ROUNDS,
            settings.warmup_rounds,
            settings.max_noise,
            self.budget.share_s(benchmarks, weight),
            FEWEST_PAIRS if settings.rounds is None else None,
            self.budget.patience_s(benchmarks, weight),
            settings.probe,
            self._is_large,
            not energy_meter(self._setup.device).source,
            self._setup.busy_cores,
            estimate_prior(self._variances),
            Allocation(decides=weight > 1, kept=self._kept() if self._kept else None),
            0.0 if self._is_followed(case, entries) else self.budget.run_share_s(benchmarks, weight),
        )

    def _entries(
        self, case: str, model: ModelHandle, workload: Workload, others: Sequence[Variant]
    ) -> Mapping[str, Entry]:
        """Who takes turns: the asking variant, the others that run the same workload, and the reference."""
        if model.variant.id == self._reference:
            self._of_reference[case] = workload
        entries = {model.variant.id: Entry(model, workload, cores=model.variant.threads)}
        waiting = {place[1] for place, figures in self._waiting.items() if figures and place[0] == case}
        for variant in others:  # without those whose figures wait since a time limit cut the case short
            partner = None if variant.id in waiting else self._loader.beside(variant)
            if partner is not None and _same_tokens(partner, model) and _is_supported(partner, workload):
                entries[variant.id] = Entry(partner, workload, cores=variant.threads)
        if self._reference not in entries:
            reference = self._loader.reference()
            own = workload if reference and _same_tokens(reference, model) else self._of_reference.get(case)
            if reference is not None and own is not None and _is_supported(reference, own):
                beside = Entry(reference, own, is_asked_for=False, cores=reference.variant.threads)
                entries = {self._reference: beside, **entries}
        return entries


def _same_tokens(one: ModelHandle, other: ModelHandle) -> bool:
    """Whether both read token ids alike: those of --llm-model."""
    return one.facts.runs_source and other.facts.runs_source


def _is_supported(model: ModelHandle, workload: Workload) -> bool:
    try:
        check_supported(model, workload)
    except LlmBenchError:
        return False
    return True
