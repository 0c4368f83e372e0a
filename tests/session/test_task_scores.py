"""Which items of tasks variants are asked, and how their answers are compared with the reference's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import pytest
from run_factory import make_provenance, make_variant

from llm_bench_fixtures.errors import WorkerDied, WorkloadUnsupported
from llm_bench_fixtures.measure.harness import HarnessTask, Member, TaskAnswers
from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.session import tasks
from llm_bench_fixtures.session.deadline import NO_LIMIT, Deadline
from llm_bench_fixtures.session.forecast import Forecast, WorkKind
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.session.tasks import TaskScores, blocks_of, compared

ACC = TaskMetric("acc", higher_is_better=True, is_share=True)


def answers(*groups: Sequence[float], weights: Sequence[float] = (1.0,), is_mean: bool = True) -> TaskAnswers:
    """Of a task, or of a group of tasks with their weights; of what is no mean, the exponential of the items' mean."""
    aggregate = fmean if is_mean else lambda items: math.exp(fmean(items))
    members = tuple(
        Member(weight, tuple(items), aggregate, is_mean) for weight, items in zip(weights, groups, strict=True)
    )
    items = sum(map(len, groups))
    facts = TaskFacts("quiz", (ACC,), items, items, 0, "digest")
    value = sum(member.weight * aggregate(member.items) for member in members)
    return TaskAnswers(facts, {"acc": value}, {"acc": members})


def test_a_variant_is_compared_item_by_item() -> None:
    """Differences of 0, -1, 1 and 1: a mean of 0.25, a variance of 2.75 / 3, over four items."""
    assert compared(answers((1, 0, 1, 1)), answers((1, 1, 0, 0))) == {
        "task_quiz_acc": 0.75,
        "task_quiz_acc_change": 0.25,
        "task_quiz_acc_change_error": pytest.approx(math.sqrt(2.75 / 3 / 4)),
        "task_quiz_acc_lost": 1,
        "task_quiz_acc_gained": 2,
    }


def test_the_same_answers_differ_in_nothing() -> None:
    found = compared(answers((1, 0, 1)), answers((1, 0, 1)))
    assert {name: value for name, value in found.items() if name != "task_quiz_acc"} == {
        "task_quiz_acc_change": 0.0,
        "task_quiz_acc_change_error": 0.0,
        "task_quiz_acc_lost": 0,
        "task_quiz_acc_gained": 0,
    }


def test_the_reference_and_who_has_none_are_compared_with_nothing() -> None:
    own = answers((1, 0))
    assert compared(own, own) == compared(own, None) == {"task_quiz_acc": 0.5}


def test_a_group_weighs_its_tasks() -> None:
    """Differences of 1 and 0: an error of 0.5, of which a quarter counts; of the other 0."""
    now, was = (answers(items, (1, 1, 1), weights=(0.25, 0.75)) for items in ((1, 1), (0, 1)))
    found = compared(now, was)
    assert found["task_quiz_acc_change"] == 0.125
    assert found["task_quiz_acc_change_error"] == 0.125
    assert (found["task_quiz_acc_lost"], found["task_quiz_acc_gained"]) == (0, 1)


def test_what_is_no_mean_has_an_error_all_the_same_and_no_flips() -> None:
    """All items are 1 higher: the exponential of their mean is e times as large, whichever items are left out."""
    was = (1.0, 2.0, 4.0)
    found = compared(answers([item + 1 for item in was], is_mean=False), answers(was, is_mean=False))
    left_out = [(math.e - 1) * math.exp(fmean(pair)) for pair in ((2, 4), (1, 4), (1, 2))]
    expected = math.sqrt(2 / 3 * sum((one - fmean(left_out)) ** 2 for one in left_out))
    assert found["task_quiz_acc_change_error"] == pytest.approx(expected)
    assert not {"task_quiz_acc_lost", "task_quiz_acc_gained"} & found.keys()


def test_grades_between_right_and_wrong_do_not_flip() -> None:
    assert "task_quiz_acc_lost" not in compared(answers((0.5, 1)), answers((1, 1)))


def test_items_that_a_task_leaves_out_for_one_variant_make_no_pairs() -> None:
    found = compared(answers((1, 0)), answers((1, 0, 0)))
    assert found == {"task_quiz_acc": 0.5, "task_quiz_acc_change": pytest.approx(1 / 6)}


def test_blocks_are_means_of_stretches_in_order() -> None:
    """250 items in 100 stretches of two or three."""
    found = dict(blocks_of(answers([float(item) for item in range(250)])))["task_quiz_acc"]
    assert (len(found), found[0], found[1], found[-1]) == (100, 0.5, 3.0, 248.0)


@pytest.mark.parametrize(
    "one",
    [answers((1.0, 2.0), is_mean=False), answers((1, 1), (0,), weights=(0.5, 0.5))],
    ids=["no mean", "not all items alike"],
)
def test_what_is_no_mean_of_all_items_has_no_blocks(one: TaskAnswers) -> None:
    assert dict(blocks_of(one)) == {}


class Case:
    """Variants and a task of 1,000 items, each of which takes so many seconds; fp32 is the reference."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        limit_s: float = math.inf,
        item_s: float = 1.0,
        expected_s: float = 700.0,
    ) -> None:
        self.now_s = 0.0
        self.item_s = item_s
        self.asked: list[tuple[str, int]] = []
        self.fails: dict[str, Exception] = {}
        monkeypatch.setattr(tasks, "ask", self.ask)
        self.task = HarnessTask("quiz", {}, {}, 1, 0, "digest", {"quiz": 1000})
        self.forecast = Forecast(lambda: self.now_s)
        deadline = Deadline(limit_s, 0.0, lambda: self.now_s) if limit_s < math.inf else NO_LIMIT
        setup: Any = Setup(parse_settings({}), Progress(), deadline=deadline)
        setup.tasks, setup.forecast = (self.task,), self.forecast
        variants = [SimpleNamespace(id=name) for name in ("fp32", "bf16", "missing")]
        for variant in variants[:2]:
            self.forecast.expect(WorkKind.TASKS, variant.id, expected_s, "quiz")
        self.loader: Any = SimpleNamespace(known=variants, loaded=[], load=lambda one: self.load(one.id))
        self.results = RunBuilder("fp32")
        self.scored: set[str] = set()
        is_scored = self.scored.__contains__
        self.saved: list[Run] = []
        self.tasks = TaskScores(setup, self.loader, self.results, is_scored, self.save, lambda: self.now_s)

    def ask(self, task: HarnessTask, model: Any, chosen: Mapping[str, list[int]] | None) -> TaskAnswers:
        name = model.variant.id
        if name in self.fails:
            raise self.fails[name]
        items = len(chosen["quiz"]) if chosen else task.items
        self.asked.append((name, items))
        self.now_s += self.item_s * items
        return answers([1.0] * items)

    def load(self, name: str) -> None:
        self.loader.loaded.append(SimpleNamespace(variant=SimpleNamespace(id=name)))
        if name not in {one.id for one in self.results.variants}:
            self.results.add_variant(make_variant(name, quality={"perplexity": 20.0}, notes=("loaded",)))

    def score(self, name: str) -> Any:
        return self.tasks.score(self.task, cast(Any, SimpleNamespace(variant=SimpleNamespace(id=name))))

    def save(self) -> None:
        self.saved.append(self.run)

    @property
    def run(self) -> Run:
        return self.results.build(make_provenance(tasks=self.tasks.facts), {})

    def go_on_with(self, before: Run, *tested: str) -> None:
        """Begin with what an earlier session has, whose quality is known."""
        self.results.go_on_with(before)
        self.scored |= {one.id for one in before.variants}
        self.tasks.go_on_with(before, tested)


def test_without_a_time_limit_all_items_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    assert case.score("fp32").metrics == {"task_quiz_acc": 1.0}
    assert case.score("bf16").metrics["task_quiz_acc_lost"] == 0
    assert case.asked == [("fp32", 1000), ("bf16", 1000)]
    assert [task.name for task in case.tasks.facts] == ["quiz"]


def test_what_there_is_time_for_is_asked_of_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 items take 8 s. Of 100 s, less 6 for the report, half of the rest is for the two variants that are expected:
    43 s, in which each has 21 items."""
    case = Case(monkeypatch, limit_s=100.0)
    first, second = case.score("fp32"), case.score("bf16")
    assert case.asked == [("fp32", 8), ("fp32", 21), ("bf16", 21)]
    assert first.notes == second.notes == ("quiz is of a sample: 21 of 1,000 items; all take about 17 min",)


def test_what_is_to_come_is_expected_to_take_what_the_first_items_took(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, limit_s=100.0)
    case.score("fp32")
    assert case.forecast.left_by_work[WorkKind.TASKS] < 50  # in place of 700
    assert case.forecast.expected_s(WorkKind.TASKS, "missing", "quiz") == 0


def test_a_limit_that_has_room_for_all_asks_all(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, limit_s=1000.0, item_s=0.01)
    assert case.score("fp32").notes == ()
    assert case.asked == [("fp32", 8), ("fp32", 1000)]


def test_where_all_is_expected_to_fit_easily_none_are_timed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice 20 s for two variants, of the 47 that are half of what is left."""
    case = Case(monkeypatch, limit_s=100.0, item_s=0.01, expected_s=10.0)
    case.score("fp32")
    assert case.asked == [("fp32", 1000)]
    case = Case(monkeypatch, limit_s=100.0, item_s=0.01, expected_s=12.0)
    case.score("fp32")
    assert case.asked == [("fp32", 8), ("fp32", 1000)]


def test_a_variant_that_there_is_no_time_for_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, limit_s=100.0)
    case.score("fp32")
    case.now_s = 80.0
    assert case.score("bf16").notes == ("quiz was not asked: not reached in 2 min: it takes about 21 s",)
    case.now_s = 200.0
    late = case.score("bf16")
    assert (late.metrics, late.notes) == ({}, ("quiz was not asked: not reached in 2 min",))


def test_a_variant_that_can_not_be_asked_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch, limit_s=100.0)
    case.fails["bf16"] = WorkloadUnsupported("it gives no logits")
    assert case.score("bf16").notes == ("quiz can't be asked: it gives no logits",)
    case.score("fp32")
    assert case.asked == [("fp32", 8), ("fp32", 43)]  # timed in its place, and the only one that is left


def test_those_that_are_loaded_and_scored_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    for name in ("fp32", "bf16"):
        case.load(name)
    case.scored.add("fp32")
    case.tasks.ask()
    case.scored.add("bf16")
    case.tasks.ask()
    assert case.asked == [("fp32", 1000), ("bf16", 1000)]
    known = case.results.variant("bf16")
    assert known.quality == {
        "perplexity": 20.0,
        **case.results.variant("fp32").quality,
        **{f"task_quiz_acc_{end}": 0 for end in ("change", "change_error", "lost", "gained")},
    }
    assert known.notes == ("loaded",)
    assert known.item_blocks == {"task_quiz_acc": (1.0,) * 100}


def test_what_fails_is_a_note_and_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.load("fp32")
    case.scored.add("fp32")
    case.fails["fp32"] = WorkerDied("fp32: the process that it ran in", "was killed")
    case.tasks.ask()
    known = case.results.variant("fp32")
    assert known.notes == ("loaded", "quiz was not asked: WorkerDied: fp32: the process that it ran in was killed")
    assert (known.quality, list(case.tasks.failures)) == ({"perplexity": 20.0}, ["fp32"])


def test_what_is_not_finite_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.load("fp32")
    case.scored.add("fp32")
    monkeypatch.setattr(tasks, "ask", lambda *_: answers([math.inf]))
    case.tasks.ask()
    known = case.results.variant("fp32")
    assert (known.quality, known.notes[-1]) == (
        {"perplexity": 20.0},
        "quiz has values that are not finite: task_quiz_acc",
    )
    assert known.item_blocks == {}


def earlier(monkeypatch: pytest.MonkeyPatch, *asked: str, limit_s: float = math.inf, **fails: Exception) -> Run:
    """A run that has scored both variants, and asked these."""
    case = Case(monkeypatch, limit_s)
    case.fails = fails
    for name in ("fp32", "bf16"):
        case.load(name)
    case.scored.update(asked)
    case.tasks.ask()
    return case.run


def test_a_run_that_lacks_nothing_keeps_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: its tasks were gone from the results, and the values had no row in any table."""
    before, case = earlier(monkeypatch, "fp32", "bf16"), Case(monkeypatch)
    case.go_on_with(before, "fp32", "bf16")
    assert case.tasks.due == frozenset()
    case.tasks.ask_the_rest()
    assert (case.asked, case.run.variants) == ([], before.variants)
    assert [task.name for task in case.run.provenance.tasks] == ["quiz"]


def test_answers_that_are_missing_are_asked_for_with_the_reference_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: nothing was loaded, and nothing was said."""
    for asked in ((), ("fp32",)):
        before, case = earlier(monkeypatch, *asked), Case(monkeypatch)
        case.go_on_with(before, "fp32", "bf16")
        assert case.tasks.due == {"fp32", "bf16"}
        case.tasks.ask_the_rest()
        assert (case.asked, case.tasks.due) == ([("fp32", 1000), ("bf16", 1000)], frozenset())
        assert case.run.variants == earlier(monkeypatch, "fp32", "bf16").variants


def test_a_variant_without_tests_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    before, case = earlier(monkeypatch, "fp32"), Case(monkeypatch)
    case.go_on_with(before, "fp32")
    assert case.tasks.due == frozenset()
    assert [task.name for task in case.tasks.facts] == ["quiz"]


def test_after_each_variant_the_answers_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a run that was killed while it asked the second variant had lost the first one's answers."""
    case = Case(monkeypatch)
    case.fails = {"bf16": cast(Exception, KeyboardInterrupt())}
    for name in ("fp32", "bf16"):
        case.load(name)
        case.scored.add(name)
    with pytest.raises(KeyboardInterrupt):
        case.tasks.ask()
    (saved,) = case.saved
    assert saved == replace(earlier(monkeypatch, "fp32"), session_s=saved.session_s)


def test_the_sample_stays_and_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time for all items, the others are asked those that the first were. Bug: the note stood there twice."""
    before, case = earlier(monkeypatch, "fp32", limit_s=100.0), Case(monkeypatch)
    case.go_on_with(before, "fp32", "bf16")
    case.tasks.ask_the_rest()
    assert case.asked == [("fp32", 21), ("bf16", 21)]
    sampled = "quiz is of a sample: 21 of 1,000 items; all take about 17 min"
    assert [case.results.variant(name).notes for name in ("fp32", "bf16")] == [("loaded", sampled)] * 2


def test_what_failed_is_asked_again_and_leaves_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    before, case = earlier(monkeypatch, "fp32", "bf16", bf16=WorkerDied("bf16", "was killed")), Case(monkeypatch)
    assert before.variants[1].notes == ("loaded", "quiz was not asked: WorkerDied: bf16 was killed")
    case.go_on_with(before, "fp32", "bf16")
    case.tasks.ask_the_rest()
    assert case.results.variant("bf16").notes == ("loaded",)


def test_who_can_not_be_asked_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, case = earlier(monkeypatch, "fp32", "bf16", bf16=WorkloadUnsupported("no logits")), Case(monkeypatch)
    case.go_on_with(before, "fp32", "bf16")
    assert case.tasks.due == frozenset()


def test_answers_stay_where_there_is_no_time_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before, case = earlier(monkeypatch, "fp32"), Case(monkeypatch, limit_s=100.0)
    case.now_s = 200.0
    case.go_on_with(before, "fp32", "bf16")
    case.tasks.ask_the_rest()
    assert case.results.variant("fp32") == before.variants[0]
    assert case.results.variant("bf16").notes == ("loaded", "quiz was not asked: not reached in 2 min")


def test_who_can_not_be_loaded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.go_on_with(earlier(monkeypatch), "fp32", "bf16")

    def load(variant: Any) -> None:
        raise WorkerDied(variant.id, "was killed")

    case.loader.load = load
    case.tasks.ask_the_rest()
    assert case.results.variant("bf16").notes == ("loaded", "quiz was not asked: WorkerDied: bf16 was killed")
    assert (case.tasks.due, case.tasks.failures.keys()) == (frozenset(), {"fp32", "bf16"})


def test_other_threads_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.load("fp32")
    case.results.add_variant(make_variant("bf16", threads_of="fp32"))
    case.load("bf16")
    case.scored |= {"fp32", "bf16"}
    assert case.tasks.due == {"fp32"}
    case.tasks.ask()
    assert case.asked == [("fp32", 1000)]


def test_a_sample_takes_the_same_part_of_each_task() -> None:
    task = HarnessTask("quiz", {}, {}, 1, 0, "", {"one": 100, "other": 50})
    assert [len(chosen) for chosen in task.some(15).values()] == [10, 5]
    assert [len(chosen) for chosen in task.some(1).values()] == [1, 1]


def test_a_larger_sample_holds_the_smaller_one() -> None:
    task = HarnessTask("quiz", {}, {}, 1, 0, "", {"one": 100, "other": 3})
    few, more = task.some(11), task.some(21)
    assert [len(few[name]) for name in ("one", "other")] == [10, 1]
    assert set(few["one"]) < set(more["one"])
    assert few["one"] == sorted(few["one"])
