from __future__ import annotations

from math import inf, nan

import pytest

from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.session.loader import Quality, gather, is_served


def test_the_scores_of_several_hooks_are_one() -> None:
    assert gather([CorpusScore({"loss": 2.0}, (1.0, 3.0)), {"own": 0.5}]) == Quality({"loss": 2.0, "own": 0.5}, (1, 3))


@pytest.mark.parametrize(
    ("backend", "served"),
    [("endpoint", True), ("torch", False), ("no_such_package.backend", False), ("unknown", False)],
)
def test_a_model_is_in_a_server_where_its_backend_says_so(backend: str, served: bool) -> None:
    """A backend that isn't there is told of when its variant is loaded, not when the groups are planned."""
    assert is_served(Variant("own", backend, "does nothing")) is served


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
