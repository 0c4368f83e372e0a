from __future__ import annotations

from math import inf, nan

from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.session.loader import Quality, gather


def test_the_scores_of_several_hooks_are_one() -> None:
    assert gather([CorpusScore({"loss": 2.0}, (1.0, 3.0)), {"own": 0.5}]) == Quality({"loss": 2.0, "own": 0.5}, (1, 3))


def test_nobody_scored() -> None:
    assert gather([]) == Quality()


def test_what_is_not_finite_is_left_out_and_named() -> None:
    assert gather([{"loss": inf, "own": 1.0, "another": nan}]) == Quality({"own": 1.0}, (), "not finite: another, loss")


def test_what_a_hook_notes_is_kept() -> None:
    scores = [CorpusScore({}, (), ("first",)), {"own": 1.0}, CorpusScore({}, (), ("second",))]
    assert gather(scores).notes == ("first", "second")


def test_blocks_are_kept_only_where_every_one_is_finite() -> None:
    """Two runs are paired by their blocks, one by one."""
    assert gather([CorpusScore({"loss": 2.0}, (1.0, inf))]) == Quality({"loss": 2.0})
