"""Which variants are scored, when, and what becomes of one that can't be."""

from __future__ import annotations

from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest
from run_factory import make_record, make_variant

from llm_bench_fixtures.errors import CorpusTooShort, NotReached
from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.session.deadline import Deadline
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.scoring import Scoring, gather
from llm_bench_fixtures.session.setup import Setup


def test_the_scores_of_several_hooks_are_one() -> None:
    assert gather([CorpusScore({"loss": 2.0}, (1.0, 3.0)), {"own": 0.5}]) == (
        CorpusScore({"loss": 2.0, "own": 0.5}, (1, 3)),
        "",
    )


def test_nobody_scored() -> None:
    assert gather([]) == (CorpusScore({}, ()), "")


def test_what_is_not_finite_is_left_out_and_named() -> None:
    assert gather([{"loss": inf, "own": 1.0, "another": nan}]) == (
        CorpusScore({"own": 1.0}, ()),
        "not finite: another, loss",
    )


def test_what_a_hook_notes_is_kept() -> None:
    scores = [CorpusScore({}, (), ("first",)), {"own": 1.0}, CorpusScore({}, (), ("second",))]
    assert gather(scores)[0].notes == ("first", "second")


def test_blocks_are_kept_only_where_every_one_is_finite() -> None:
    """Two runs are paired by their blocks, one by one."""
    assert gather([CorpusScore({"loss": 2.0}, (1.0, inf))]) == (CorpusScore({"loss": 2.0}, ()), "")


class Case:
    """Variants that are loaded, in that order, of which the reference is fp32. Scoring a failing one raises."""

    def __init__(self, *loaded: str, fails: str = "", random_weights: bool = False, limit_s: float = inf) -> None:
        """limit_s: of a run that began so long ago that it is over; infinite: of one without a limit."""
        self.asked: list[str] = []
        self.fails = fails
        self.results = RunBuilder("fp32")
        setup: Any = Setup(parse_settings({}), Progress(), deadline=Deadline(limit_s, 0.0, lambda: 1e9))
        setup.source, setup.corpus = SimpleNamespace(random_weights=random_weights), None
        self.loader = VariantLoader(setup, self.results)
        for name in loaded:
            self.load(name)
        self.scoring = Scoring(setup, self.results, self.loader, self._score)

    def load(self, name: str) -> None:
        model: Any = SimpleNamespace(variant=SimpleNamespace(id=name), close=lambda: None)
        self.loader._loaded[name] = model
        self.results.add_variant(make_variant(name, quality={}, quality_note="not scored yet", notes=("loaded",)))

    def _score(self, model: Any, _: object) -> list[CorpusScore]:
        name = model.variant.id
        self.asked.append(name)
        if name == self.fails:
            raise CorpusTooShort("there is no token to score")
        return [CorpusScore({"loss": 2.0}, (2.0,), ("scored",))]

    def model(self, name: str) -> Any:
        return next(model for model in self.loader.loaded if model.variant.id == name)


def test_all_that_are_loaded_are_scored_once_and_the_reference_first() -> None:
    case = Case("bf16", "fp32")
    assert case.scoring.due == {"bf16", "fp32"}
    case.scoring.score_loaded()
    case.load("int8")
    case.scoring.score_loaded()
    assert case.asked == ["fp32", "bf16", "int8"]
    assert case.scoring.due == frozenset()
    scored = case.results.variant("bf16")
    assert (scored.quality, scored.quality_note, scored.loss_blocks) == ({"loss": 2.0}, "", (2.0,))
    assert scored.notes == ("loaded", "scored")


def test_the_fastest_is_scored_next() -> None:
    """A run whose time ends while it scores then knows most of what may win."""
    case = Case("bf16", "int8", "fp32", "nf4")
    for name, seconds in (("fp32", 1.0), ("bf16", 0.9), ("int8", 0.3)):
        case.results.add_record(make_record(name, seconds))
    case.scoring.score_loaded()
    assert case.asked == ["fp32", "int8", "bf16", "nf4"]


def test_at_the_end_those_that_were_closed_are_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: one that was to come again in another group, and didn't, ended the run without a quality or a reason."""
    case = Case("fp32", "bf16", "int8")
    closed = case.loader._loaded.pop("bf16"), case.loader._loaded.pop("int8")
    planned: Any = tuple(model.variant for model in closed)
    monkeypatch.setattr(VariantLoader, "known", planned)

    def load(_: object, variant: Any) -> Any:
        if variant.id == "int8":
            raise NotReached("30 min")
        return closed[0]

    monkeypatch.setattr(VariantLoader, "load", load)
    case.scoring.score_the_rest()
    assert case.asked == ["fp32", "bf16"]
    assert case.results.variant("bf16").quality == {"loss": 2.0}
    left = case.results.variant("int8")
    assert (left.unscored, left.quality_note) == (True, str(NotReached("30 min")))
    assert not case.scoring.failures


def test_one_that_is_asked_for_is_scored_after_the_reference_and_before_the_others() -> None:
    case = Case("bf16", "int8", "fp32")
    case.scoring.score(case.model("int8"))
    assert case.asked == ["fp32", "int8"]
    assert case.scoring.due == {"bf16"}


def test_one_that_can_not_be_scored_keeps_its_times_and_costs_the_others_nothing() -> None:
    case = Case("fp32", "bf16", fails="fp32")
    case.scoring.score_loaded()
    failed = case.results.variant("fp32")
    assert (failed.status, failed.quality_note) == (Status.MEASURED, "CorpusTooShort: there is no token to score")
    assert case.results.variant("bf16").quality == {"loss": 2.0}
    assert list(case.scoring.failures) == ["fp32"]
    case.scoring.score_loaded()
    assert case.asked == ["fp32", "bf16"]


def test_whoever_asks_for_one_that_can_not_be_scored_is_told_each_time() -> None:
    case = Case("fp32", "bf16", fails="bf16")
    for _ in range(2):
        with pytest.raises(CorpusTooShort):
            case.scoring.score(case.model("bf16"))
    assert case.asked == ["fp32", "bf16"]


def test_those_that_leave_for_good_are_scored_and_the_reference_whenever_it_leaves() -> None:
    case = Case("fp32", "bf16", "int8")
    case.scoring.to_come = frozenset({"fp32", "bf16"})
    case.scoring.score_leaving(["bf16"])
    assert case.asked == []
    case.scoring.score_leaving(["fp32", "bf16", "int8"])
    assert case.asked == ["fp32", "int8"]


def test_ctrl_c_leaves_a_variant_to_be_scored() -> None:
    case = Case("fp32")
    case.scoring._score = interrupted
    with pytest.raises(KeyboardInterrupt):
        case.scoring.score_loaded()
    assert case.scoring.due == {"fp32"}
    assert case.results.variant("fp32").quality_note == "not scored yet"


def interrupted(*_: object) -> Any:
    raise KeyboardInterrupt


def test_what_there_is_no_time_for_has_no_quality_and_is_no_failure() -> None:
    case = Case("fp32", limit_s=60.0)
    case.scoring.score_loaded()
    assert case.asked == []
    assert case.results.variant("fp32").quality_note == "not reached in 60 s"
    assert (case.scoring.failures, case.scoring.due) == ({}, frozenset())
    with pytest.raises(NotReached):  # skips a test that reads it
        case.scoring.score(case.model("fp32"))


def test_random_weights_are_not_scored() -> None:
    case = Case("fp32", random_weights=True)
    case.scoring.score_loaded()
    assert (case.asked, case.scoring.due) == ([], frozenset())


def earlier(name: str, **changes: Any) -> Any:
    return make_variant(name, **{"quality": {"loss": 2.0, "ppl_ratio": 1.0, "ppl_ratio_error": 0.0}, **changes})


@pytest.mark.parametrize(
    ("bf16", "tests", "due"),
    [
        ({}, ("fp32", "bf16"), set()),
        ({}, ("fp32", "bf16", "new"), {"fp32"}),  # with which the new one is compared
        ({"quality": {}, "quality_note": "not scored yet"}, ("fp32", "bf16"), {"fp32", "bf16"}),
        ({"unscored": True}, ("fp32", "bf16"), {"fp32", "bf16"}),
        ({"unscored": True}, ("fp32",), set()),  # nobody asks for it
        ({"status": Status.SKIPPED, "quality": {}}, ("fp32", "bf16"), set()),
    ],
)
def test_what_an_earlier_session_scored_is_kept_and_the_reference_scored_again_for_the_others(
    bf16: dict[str, Any], tests: tuple[str, ...], due: set[str]
) -> None:
    case = Case()
    for one in (earlier("fp32", quality={"loss": 2.0}), earlier("bf16", **bf16)):
        case.results.add_variant(one)
    case.scoring.go_on_with(tests, is_final=lambda one: bool(one.quality) and not one.unscored)
    assert case.scoring.due == due
    assert {one.id for one in case.results.variants if one.quality_note == "not scored yet"} == due


def test_what_is_scored_anew_loses_what_was_noted_of_its_sample() -> None:
    case = Case()
    note = "quality is of a sample: 1,000 of 8,000 tokens"
    case.results.add_variant(earlier("bf16", unscored=True, loss_blocks=(2.0,), notes=("loaded", note)))
    case.scoring.go_on_with(["bf16"], is_final=lambda _: False)
    found = case.results.variant("bf16")
    assert (found.quality, found.loss_blocks, found.unscored, found.notes) == ({}, (), False, ("loaded",))


def test_what_has_random_weights_keeps_its_note() -> None:
    case = Case(random_weights=True)
    case.results.add_variant(earlier("bf16", quality={}, quality_note="random weights"))
    case.scoring.go_on_with(["bf16", "new"], is_final=lambda _: False)
    assert case.results.variant("bf16").quality_note == "random weights"
    assert case.scoring.is_scored("bf16")
