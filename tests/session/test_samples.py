"""How much of a corpus and of the questions is scored, by scores that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from run_factory import make_variant

from llm_bench_fixtures.answer.need import DEFAULT_LIMIT, DEFAULT_NEED, Need, parse_limits
from llm_bench_fixtures.answer.standings import is_decided
from llm_bench_fixtures.errors import TimeUp
from llm_bench_fixtures.measure.choices import ChoiceItem, ChoiceSet
from llm_bench_fixtures.measure.quality import Part, Score, score_part
from llm_bench_fixtures.measure.reference import Compared
from llm_bench_fixtures.measure.windows import CutCorpus
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.session import samples
from llm_bench_fixtures.session.deadline import NO_LIMIT, Deadline
from llm_bench_fixtures.session.forecast import Forecast, WorkKind
from llm_bench_fixtures.session.reference import KeptReference
from llm_bench_fixtures.session.samples import Samples
from llm_bench_fixtures.statistics.spread import NORMAL_95
from llm_bench_fixtures.workloads import Corpus

TOKENS = 8000
ENDS = (1000, 2000, 4000, 8000)
ITEMS = tuple(ChoiceItem(f"prompt {number}", ("a", "b"), 0) for number in range(190))


class Case:
    """Variants of a corpus of 8,000 tokens, each of whose tokens takes so many seconds.

    The reference is fp32, whose loss is 2 nats on each token. Others differ by their gap, and scatter around it.
    """

    def __init__(
        self,
        token_s: float = 0.01,
        weights: float = 5e8,
        deadline: Deadline = NO_LIMIT,
        need: Need = DEFAULT_NEED,
    ) -> None:
        self.now_s = 0.0
        self.token_s = token_s
        self.scored: list[tuple[str, int | None]] = []
        self.limit_s = np.inf
        settings = SimpleNamespace(windows=None, window=0, stride=0)
        setup = SimpleNamespace(
            settings=settings,
            corpus=Corpus("corpus", ("a" * 30_000,)),
            choices=ChoiceSet("questions", ITEMS),
            source=SimpleNamespace(weights=weights),
            progress=Progress(),
            forecast=Forecast(lambda: self.now_s),
            need=need,
            deadline=deadline,
        )
        self.loader = SimpleNamespace(loaded=[], lineup=SimpleNamespace(is_apart=False))
        kept = KeptReference("fp32")
        self.samples = Samples(cast(Any, setup), cast(Any, self.loader), kept, lambda: self.now_s)

    def score(self, name: str, gap: float = 0.0, scatter: float = 0.0) -> Any:
        rng = np.random.default_rng(0)
        gaps = (gap + scatter * rng.standard_normal(TOKENS)).astype(np.float32)

        def call(function: Any, *args: Any, **_: Any) -> Any:
            if function is not score_part:
                return tuple(0 for _ in args[0])
            sample = args[2] if len(args) > 2 else None
            first, last = (0, TOKENS) if sample is None else (([0, *ENDS])[sample], ENDS[sample])
            self.now_s += self.token_s * (last - first)
            if self.now_s > self.limit_s:
                raise TimeUp
            self.scored.append((name, sample))
            places = np.arange(first, last)
            base = np.full(last - first, 2.0, np.float32)
            compared = None if name == "fp32" else Compared(base)
            share = (last - first) / TOKENS
            score = Score(base + gaps[places])
            return Part(score, places, compared, CutCorpus((), (), None, None, TOKENS, share, last == TOKENS))

        model: Any = SimpleNamespace(variant=SimpleNamespace(id=name), call=call)
        self.loader.loaded.append(model)
        return self.samples.score(model)

    def grow(self) -> dict[str, Any]:
        """By variant, the metrics after all that are loaded have grown."""
        self.samples.grow()
        return {name: self.samples._result(name, found).metrics for name, found in self.samples._found.items()}


def test_a_small_model_is_scored_whole_however_slow_the_machine_is() -> None:
    case = Case(token_s=1.0, weights=5e6)
    assert case.score("fp32").notes == ()
    assert case.score("bf16", 0.001, 1.0).metrics["scored_tokens"] == TOKENS
    assert case.scored == [("fp32", None), ("bf16", None)]


def test_a_large_model_that_is_fast_is_scored_whole() -> None:
    """The first sample takes 1 s, so the corpus takes 8."""
    case = Case(token_s=0.001)
    forecast = case.samples._setup.forecast
    for sample, seconds in (("", 1.0), ("1", 1.0), ("2", 6.0)):
        forecast.expect(WorkKind.QUALITY, "bf16", seconds, sample)
    case.score("fp32")
    assert forecast.expected_s(WorkKind.QUALITY, "bf16") == 8.0
    assert case.score("bf16").metrics["choice_items"] == len(ITEMS)
    assert case.scored == [("fp32", 0), ("fp32", None), ("bf16", None)]


def test_what_is_decided_by_the_first_sample_needs_no_more() -> None:
    """A standard error of 0.1 / sqrt(1000) = 0.3 %, on a perplexity 20 % above: far beyond the limit."""
    case = Case()
    case.score("fp32")
    score = case.score("int4", 0.18, 0.1)
    case.grow()
    assert case.scored == [("fp32", 0), ("int4", 0)]
    assert (score.metrics["scored_tokens"], score.metrics["choice_items"]) == (1000, 24)
    assert score.metrics["scored_share"] == 1 / 8
    assert score.notes == ("quality is of a sample: 1,000 of 8,000 tokens and 24 of 190 questions",)


def test_an_undecided_one_grows_to_half_a_percent_and_the_reference_with_it() -> None:
    """0.3 / sqrt(4000) = 0.47 %, but 0.67 % of half as many. The limit is 1 %, and the difference too."""
    case = Case()
    case.score("fp32")
    case.score("int8", 0.01, 0.3)
    metrics = case.grow()["int8"]
    assert metrics["scored_tokens"] == 4000
    assert metrics["ppl_ratio_error"] < 0.005
    order = [("fp32", 0), ("int8", 0), ("fp32", 1), ("int8", 1), ("fp32", 2), ("int8", 2)]
    assert case.scored == order


def test_a_sample_of_the_reference_is_its_own_work() -> None:
    """Each second sample takes 10 s, as expected; int8's is what makes fp32's needed."""
    case = Case()
    forecast = case.samples._setup.forecast
    for name in ("fp32", "int8"):
        forecast.expect(WorkKind.QUALITY, name, 10.0, "1")
    case.score("fp32")
    case.score("int8", 0.01, 0.2)
    assert case.grow()["int8"]["scored_tokens"] == 2000
    assert (forecast.correction(WorkKind.QUALITY), forecast.left_s) == (1.0, None)


def test_samples_grow_in_turns() -> None:
    """A time that ends in between leaves all with figures of as many tokens."""
    case = Case()
    case.score("fp32")
    for name in ("int8", "nf4"):
        case.score(name, 0.01, 0.3)
    case.grow()
    turns = [(name, sample) for sample in (1, 2) for name in ("fp32", "int8", "nf4")]
    assert case.scored == [("fp32", 0), ("int8", 0), ("nf4", 0), *turns]


def test_what_had_no_time_in_the_end_is_expected_no_more() -> None:
    case = Case(deadline=Deadline(10.0, 0.0, lambda: 0.0))
    forecast = case.samples._setup.forecast
    for sample in ("1", "2"):
        forecast.expect(WorkKind.QUALITY, "int4", 30.0, sample)
    forecast.expect(WorkKind.ROUNDS, "int4", 5.0)
    case.score("fp32")
    case.score("int4", 0.18, 0.1)
    case.grow()
    assert forecast.left_s == 65
    case.samples.go_on()
    assert forecast.left_s == 5


def test_what_scatters_too_much_is_scored_whole_and_says_nothing() -> None:
    case = Case()
    case.score("fp32")
    case.score("int8", 0.01, 2.0)
    case.grow()
    score = case.samples._result("int8", case.samples._found["int8"])
    assert score.metrics["scored_tokens"] == TOKENS
    assert score.notes == ("quality is of a sample: 24 of 190 questions",)
    assert "scored_share" not in score.metrics
    assert len(score.loss_blocks) == 100


def test_a_reference_that_is_gone_bounds_the_others() -> None:
    case = Case()
    case.loader.lineup.is_apart = True
    case.samples._setup.forecast.expect(WorkKind.QUALITY, "int8", 40.0, "3")
    case.score("fp32")  # 10 s, 20 s, and 40 s would be over FIXED_S
    case.loader.loaded.clear()
    case.score("int8", 0.01, 2.0)
    assert case.grow()["int8"]["scored_tokens"] == 4000
    assert [one for one in case.scored if one[0] == "fp32"] == [("fp32", 0), ("fp32", 1), ("fp32", 2)]
    assert case.samples._setup.forecast.left_s == 40  # it wasn't done in no time


def test_perplexities_of_samples_of_different_sizes_are_of_the_same_text() -> None:
    case = Case()
    results = RunBuilder("fp32")
    for name, gap, scatter in (("fp32", 0.0, 0.0), ("int4", 0.18, 0.1), ("int8", 0.01, 0.3)):
        score = case.score(name, gap, scatter)
        results.add_variant(make_variant(name, quality=score.metrics, notes=("loaded", *score.notes)))
    case.samples.grow()
    case.samples.retell(results)
    base, few = results.variant("fp32"), results.variant("int4")
    assert (base.quality["scored_tokens"], few.quality["scored_tokens"]) == (4000, 1000)
    assert base.notes == ("loaded", "quality is of a sample: 4,000 of 8,000 tokens and 24 of 190 questions")
    ratio = few.quality["perplexity"] / base.quality["perplexity"]
    assert ratio == pytest.approx(few.quality["ppl_ratio"], rel=1e-5)


def test_questions_that_decide_nothing_wait_and_the_reference_is_asked_first() -> None:
    case = Case()
    for name, gap, scatter in (("fp32", 0.0, 0.0), ("int8", 0.01, 0.3), ("nf4", 0.01, 2.0)):
        case.score(name, gap, scatter)
    asked = {name: one["choice_items"] for name, one in case.grow().items()}
    assert asked == {"fp32": 24, "int8": 24, "nf4": 24}  # the samples of int8 and nf4 are the third and the whole
    case.loader.loaded.reverse()
    case.samples.ask_more()
    found = {name: case.samples._result(name, one) for name, one in case.samples._found.items()}
    assert {name: one.metrics["choice_items"] for name, one in found.items()} == {"fp32": 190, "int8": 96, "nf4": 190}
    assert all("flips" in found[name].metrics for name in ("int8", "nf4"))
    assert found["nf4"].notes == ()


def test_questions_grow_with_the_samples_where_a_limit_is_of_answers() -> None:
    case = Case(need=Need(parse_limits("flips<=5%")))
    case.score("fp32")
    case.score("int8", 0.01, 2.0)
    assert case.grow()["int8"]["choice_items"] == 96  # without a flip in these the limit is kept


def test_questions_that_have_no_time_are_not_asked() -> None:
    """A question takes 1 s here, so that the others take 72 in the third sample and 166 once all is scored."""
    for left_s, asked in ((50.0, 24), (80.0, 96)):
        case = Case(deadline=Deadline((left_s + 4.0) / 0.98, 0.0, lambda: 0.0))
        case.score("fp32")
        case.samples._found["fp32"].asked_s = 24.0
        case.samples._found["fp32"].parts *= 3
        case.samples.ask_more()
        assert len(case.samples._found["fp32"].answers) == asked


def test_no_more_is_asked_than_what_a_closed_reference_has_answered() -> None:
    case = Case()
    case.score("fp32")
    case.score("int8", 0.01, 0.3)
    case.grow()
    del case.loader.loaded[0]
    case.samples.ask_more()
    metrics = case.samples._result("int8", case.samples._found["int8"]).metrics
    assert metrics["choice_items"] == 24
    assert "flips" in metrics


def test_a_sample_has_time_for_the_reference_too() -> None:
    """The next one takes the variant 10 s, and before it the reference 40."""
    now_s = 0.0
    for left_s, grows in ((45.0, False), (55.0, True)):
        case = Case(deadline=Deadline((left_s + 4.0) / 0.98, 0.0, lambda: now_s))
        case.score("fp32")
        case.score("int8", 0.01, 0.3)
        case.samples._found["fp32"].spent_s = 40.0
        case.samples._found["int8"].spent_s = 10.0
        case.grow()
        assert (("int8", 1) in case.scored) is grows


def test_what_fails_while_it_grows_keeps_its_figures_and_says_so() -> None:
    case = Case()
    case.score("fp32")
    case.score("int8", 0.01, 0.3)
    model = case.loader.loaded[1]
    model.call = failing
    assert case.grow()["int8"]["scored_tokens"] == 1000
    assert "no more of it was scored: RuntimeError: it died" in case.samples._found["int8"].notes


def failing(*_: object, **__: object) -> None:
    raise RuntimeError("it died")


def test_time_that_is_left_goes_to_what_is_not_decided_and_then_to_all() -> None:
    case = Case(deadline=Deadline(1e6, 0.0, lambda: 0.0))
    for name, gap, scatter in (("fp32", 0.0, 0.0), ("int4", 0.18, 0.1), ("int8", 0.01, 0.3)):
        case.score(name, gap, scatter)
    case.samples.grow()
    case.samples.go_on()
    assert case.scored[-5:] == [("fp32", 3), ("int8", 3), ("int4", 1), ("int4", 2), ("int4", 3)]
    notes = [case.samples._result(name, found).notes for name, found in case.samples._found.items()]
    assert notes == [(), (), ()]


def test_a_time_that_ends_between_samples_keeps_what_is_scored() -> None:
    case = Case()
    case.score("fp32")
    case.score("int8", 0.01, 2.0)
    case.limit_s = 35.0
    assert case.grow()["int8"]["scored_tokens"] == 1000


def test_a_ratio_just_beyond_the_limit_is_rarely_said_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.5 % of 4,000 runs, and 0.1 % for the looks; with four standard errors of that share at most 3.6 %."""
    rng = np.random.default_rng(1)
    bound, scatter, runs, wrong = DEFAULT_LIMIT.bound, 0.35, 4000, 0
    for _ in range(runs):
        gaps = np.log(bound) + scatter * rng.laplace(size=TOKENS) / np.sqrt(2)
        for look, end in enumerate(ENDS, 1):
            seen = gaps[:end]
            ratio = float(np.exp(seen.mean()))
            error = ratio * float(seen.std(ddof=1)) / np.sqrt(end)
            quality = {"ppl_ratio": ratio, "ppl_ratio_error": error}
            if error <= samples.ENOUGH * ratio or is_decided(quality, DEFAULT_NEED.limits, look):
                break
        wrong += ratio + NORMAL_95 * error <= bound
    assert wrong / runs <= 0.036


@pytest.mark.parametrize(
    ("quality", "others", "final"),
    [
        ({}, {}, True),  # by its nature it can't be scored
        ({}, {"quality_note": "not scored yet"}, False),
        ({"loss": 2.0}, {}, True),
        ({"loss": 2.0}, {"unscored": True}, False),
        ({"loss": 2.0, "scored_share": 0.1}, {}, True),  # it is compared with none
        ({"ppl_ratio": 1.005, "ppl_ratio_error": 0.001}, {}, True),  # five standard errors below the limit of 1.01
        ({"ppl_ratio": 1.008, "ppl_ratio_error": 0.001}, {}, False),  # two
        ({"ppl_ratio": 1.02, "ppl_ratio_error": 0.001}, {}, True),
    ],
)
def test_a_sample_that_decides_the_limit_is_final(
    quality: dict[str, float], others: dict[str, Any], *, final: bool
) -> None:
    if "ppl_ratio" in quality:
        quality = {"loss": 2.0, "scored_share": 0.125, "scored_tokens": 1000.0, **quality}
    case = Case()
    cast(Any, case.samples)._setup.choices = None
    assert case.samples.is_final(make_variant(quality=quality, **others)) is final


def test_where_questions_have_waited_an_open_limit_is_not_final() -> None:
    def is_final(ratio: float, asked: float) -> bool:
        quality = {"loss": 2.0, "scored_tokens": 8000.0, "ppl_ratio": ratio, "ppl_ratio_error": 0.001}
        return Case().samples.is_final(make_variant(quality={**quality, "choice_items": asked}))

    assert [is_final(1.009, asked) for asked in (24.0, 190.0)] == [False, True]
    assert is_final(1.02, 24.0)


def test_quality_is_final_once_the_questions_are_put_too() -> None:
    def is_final(*notes: str, **quality: float) -> bool:
        return Case().samples.is_final(make_variant(quality=quality, notes=notes))

    assert not is_final(loss=2.0)
    assert is_final(loss=2.0, choice_items=190.0)
    assert is_final("not asked the questions: no logits", loss=2.0)
