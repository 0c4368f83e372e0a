"""Tasks of lm-evaluation-harness: asks every variant the same items, as many as the run has time for, and compares the
answers with the reference's, item by item.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean, stdev

from llm_bench_fixtures.errors import NotReached, TimeUp, WorkloadUnsupported, first_line, named
from llm_bench_fixtures.measure.choices import count_flips
from llm_bench_fixtures.measure.harness import HarnessTask, Member, TaskAnswers, ask
from llm_bench_fixtures.measure.quality import LOSS_BLOCKS, CorpusScore
from llm_bench_fixtures.measure.tasks import TaskFacts
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.progress import Phase, about
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics.tasks import CHANGE, CHANGE_ERROR, GAINED, LOST, task_metrics, value_name
from llm_bench_fixtures.results.record import Run, Status, VariantResult
from llm_bench_fixtures.session.forecast import WorkKind
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.scoring import done_before, gather
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.statistics.spread import jackknife_error

FIRST_ITEMS = 8  # items of each task whose time tells how many there is time for
EASILY = 2.0  # times as long as expected, for which there has to be room where none are timed
REFUSED, UNASKED, SAMPLE = "can't be asked", "was not asked", "is of a sample"  # how notes on a task go on
NOTES = (REFUSED, UNASKED, SAMPLE, "has values that are")
TASKS_PART = 0.5  # share of the time left when the first variant is asked; the rest is for the cases to come


@dataclass(eq=False)
class TaskScores:
    """Asks variants the tasks, keeps the answers, and tells the results."""

    _setup: Setup
    _loader: VariantLoader
    _results: RunBuilder
    _is_scored: Callable[[str], bool]
    """Tells whether a variant's quality is known, which comes first."""
    _save: Callable[[], None] = lambda: None
    """Keeps the results so far."""
    _clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._share: float | None = None  # share of the items that is asked; None until the first are timed
        self._item_s: dict[str, float] = {}  # seconds per item that the last variant took, by task
        self._answers: dict[tuple[str, str], TaskAnswers] = {}  # by task and variant
        self._before: dict[str, TaskFacts] = {}  # tasks of which an earlier session's answers are kept, by name
        self._asked: set[tuple[str, str]] = set()  # task and variant
        self.failures: dict[str, Exception] = {}
        """Error that asking raised, by variant."""

    def go_on_with(self, before: Run, variants: Collection[str]) -> None:
        """Begin with what an earlier session asked of the variants in the results. Others are asked the same items, and
        so is the reference again, since they are compared with its answers.

        variants: ids of those that have tests in this session.
        """
        metrics = {metric for one in self._results.variants for metric in one.quality}
        self._before = {task.name: task for task in before.provenance.tasks if task_metrics([task]).keys() & metrics}
        for task in self._setup.tasks:
            asked = done_before(self._results, variants, partial(self._has, task.name))
            self._asked |= {(task.name, name) for name in asked}

    def _has(self, task: str, variant: VariantResult) -> bool:
        """Whether an earlier session has the variant's answers, or why it gives none."""
        is_refused = any(note.startswith(f"{task} {REFUSED}") for note in variant.notes)
        return is_refused or bool(self._names(task) & variant.quality.keys())

    def _names(self, task: str) -> Collection[str]:
        """The metrics of the task, as far as it was asked."""
        return task_metrics(one for one in self.facts if one.name == task).keys()

    def is_asked(self, task: str, variant: str) -> bool:
        return (task, variant) in self._asked

    @property
    def due(self) -> frozenset[str]:
        """The variants that are scored and have yet to be asked."""
        results, tasks = self._results, self._setup.tasks
        measured = (one.id for one in results.variants if one.status is Status.MEASURED)
        scored = (name for name in measured if self._is_scored(name) and not results.same_but_for_threads(name))
        return frozenset(name for name in scored if not all(self.is_asked(task.name, name) for task in tasks))

    def ask(self) -> None:
        """Ask all that are loaded and scored, each once and the reference first. What one fails at is a note of it."""
        for model in self._loader.loaded:
            for task in self._setup.tasks if model.variant.id in self.due else ():
                if not self.is_asked(task.name, model.variant.id):
                    self._tell(task.name, model.variant.id, self.score(task, model))
                    self._save()

    def ask_the_rest(self) -> None:
        """Ask all that are due, those that aren't loaded as far as the run has time to load them."""
        for variant in self._loader.known:
            if variant.id in self.due:
                try:
                    self._loader.load(variant)
                except Exception as error:
                    for task in self._setup.tasks:
                        self._tell(task.name, variant.id, self._unasked(task.name, variant.id, error))
                self.ask()

    def _tell(self, task: str, variant: str, score: CorpusScore) -> None:
        """Keep the answers in the results, in place of earlier ones; those stay where it wasn't asked again."""
        self._asked.add((task, variant))
        known, names = self._results.variant(variant), self._names(task)
        found, missing = gather([score])
        answers = self._answers.get((task, variant))
        if answers is None and names & known.quality.keys():
            return
        kept = (note for note in known.notes if not note.startswith(tuple(f"{task} {how}" for how in NOTES)))
        lost = (f"{task} has values that are {missing}",) if missing else ()
        own = {metric: one for metric, one in blocks_of(answers) if all(map(math.isfinite, one))} if answers else {}
        quality = {metric: one for metric, one in known.quality.items() if metric not in names}
        blocks = {metric: one for metric, one in known.item_blocks.items() if metric not in names}
        quality |= found.metrics
        notes = (*kept, *found.notes, *lost)
        self._results.add_variant(replace(known, quality=quality, item_blocks={**blocks, **own}, notes=notes))

    @property
    def facts(self) -> tuple[TaskFacts, ...]:
        """The tasks that were asked."""
        return tuple({**self._before, **{task: answers.facts for (task, _), answers in self._answers.items()}}.values())

    def score(self, task: HarnessTask, model: ModelHandle) -> CorpusScore:
        """The metrics of the task, or a note on why the variant wasn't asked it, or not whole."""
        try:
            answers = self._answer(task, model)
        except Exception as error:  # raised by its process, or by the task's own code
            return self._unasked(task.name, model.variant.id, error)
        metrics = compared(answers, self._answers.get((task.name, self._results.reference)))
        return CorpusScore(metrics, (), tuple(self._of_a_sample(task, answers)))

    def _unasked(self, task: str, variant: str, error: Exception) -> CorpusScore:
        """Score that stands for a variant that couldn't be asked."""
        is_refused, is_late = isinstance(error, WorkloadUnsupported), isinstance(error, NotReached)
        if not (is_refused or is_late):
            self.failures[variant] = error
        why = str(error) if is_refused or is_late else first_line(named(error))
        return CorpusScore({}, (), (f"{task} {REFUSED if is_refused else UNASKED}: {why}",))

    def _answer(self, task: HarnessTask, model: ModelHandle) -> TaskAnswers:
        """Raises NotReached where the run has no time for it."""
        name = model.variant.id
        with self._setup.working(Phase.SCORING, f"asking {name} {task.name}", WorkKind.TASKS, name, task.name):
            items = self._asks(task, model)
            expected_s = self._item_s.get(task.name, 0.0) * items
            if not self._setup.deadline.fits(expected_s):
                raise TimeUp(f"it takes about {about(expected_s)}")
            self._answers[task.name, name] = answers = self._timed(task, model, items)
        return answers

    def _asks(self, task: HarnessTask, model: ModelHandle) -> int:
        """How many of the task's items every variant is asked."""
        if task.name in self._before:
            return self._before[task.name].items
        if self._share is None:
            self._share = self._affordable(model)
        return task.items if self._share is None else max(int(self._share * task.items), 1)

    def _timed(self, task: HarnessTask, model: ModelHandle, items: int) -> TaskAnswers:
        began_s = self._clock()
        answers = ask(task, model, task.some(items) if items < task.items else None)
        self._item_s[task.name] = (self._clock() - began_s) / answers.facts.items
        return answers

    def _affordable(self, model: ModelHandle) -> float | None:
        """The share of all items that every variant has time for, by how long the first take this one; None where it
        can't be asked any."""
        forecast, tasks = self._setup.forecast, self._setup.tasks
        room_s = TASKS_PART * self._setup.deadline.left_s
        expected_s = {
            one.id: sum(forecast.expected_s(WorkKind.TASKS, one.id, task.name) for task in tasks)
            for one in self._loader.known
        }
        if not self._setup.deadline.is_limited or 0 < EASILY * sum(expected_s.values()) <= room_s:
            return 1.0
        for task in tasks:
            with suppress(WorkloadUnsupported):  # the task says it when it is asked
                self._timed(task, model, min(FIRST_ITEMS, task.items))
        each_s = {task.name: self._item_s[task.name] * task.items for task in tasks if task.name in self._item_s}
        variants = [name for name, seconds in expected_s.items() if seconds] or [model.variant.id]
        total_s = len(variants) * sum(each_s.values())
        if not total_s:
            return None
        share = min(TASKS_PART * self._setup.deadline.left_s / total_s, 1.0)
        for variant in variants:
            for name, seconds in each_s.items():
                forecast.expect(WorkKind.TASKS, variant, seconds * share, name)
        return share

    def _of_a_sample(self, task: HarnessTask, answers: TaskAnswers) -> Iterator[str]:
        if answers.facts.items < task.items:
            asked, all_s = answers.facts.items, self._item_s[task.name] * task.items
            yield f"{task.name} {SAMPLE}: {asked:,} of {count(task.items, 'item')}; all take about {about(all_s)}"


def compared(own: TaskAnswers, reference: TaskAnswers | None) -> dict[str, float]:
    """The metrics by their names in the registry, and how far they differ from the reference's; nothing of that for the
    reference itself, or without its answers."""
    found: dict[str, float] = {}
    for metric, value in own.values.items():
        name = value_name(own.facts.name, metric)
        found[name] = value
        if reference is None or reference is own or metric not in reference.values:
            continue
        found[f"{name}_{CHANGE}"] = value - reference.values[metric]
        pairs = list(zip(own.members[metric], reference.members[metric], strict=True))
        if any(len(now.items) != len(was.items) for now, was in pairs):  # a task may leave items out of a metric
            continue
        errors = [_change_error(*pair) for pair in pairs]
        known = [one.weight * error for (one, _), error in zip(pairs, errors, strict=True) if error is not None]
        if len(known) == len(pairs):
            found[f"{name}_{CHANGE_ERROR}"] = math.hypot(*known)
        if all(_is_right_or_wrong(one) for pair in pairs for one in pair):
            flips = [count_flips(was.items, now.items) for now, was in pairs]
            found[f"{name}_{LOST}"], found[f"{name}_{GAINED}"] = map(sum, zip(*flips, strict=True))
    return found


def _change_error(own: Member, reference: Member) -> float | None:
    """Standard error of the metric's change, over the items as pairs; None for fewer than two."""
    items = len(own.items)
    if own.is_mean and items > 1:
        deviation = stdev(float(now - was) for now, was in zip(own.items, reference.items, strict=True))
        return deviation / math.sqrt(items)

    def change(kept: Sequence[int]) -> float:
        now, was = ([member.items[item] for item in kept] for member in (own, reference))
        return own.aggregate(now) - own.aggregate(was)

    return jackknife_error(items, change)


def _is_right_or_wrong(member: Member) -> bool:
    return member.is_mean and all(item in (0, 1) for item in member.items)


def blocks_of(answers: TaskAnswers) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Blocks of each metric that is a mean over all items alike, by name."""
    for metric, members in answers.members.items():
        items = [item for member in members for item in member.items]
        if all(member.is_mean and math.isclose(member.weight * len(items), len(member.items)) for member in members):
            blocks = min(len(items), LOSS_BLOCKS)
            ends = [len(items) * end // blocks for end in range(blocks + 1)]
            stretches = (map(float, items[start:end]) for start, end in pairwise(ends))
            yield value_name(answers.facts.name, metric), tuple(map(fmean, stretches))
