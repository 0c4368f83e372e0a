"""What a run's tests share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import make_provenance

from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.session.deadline import Deadline
from llm_bench_fixtures.session.forecast import WorkKind
from llm_bench_fixtures.session.provenance import completed_by
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.session.setup import Setup


@pytest.mark.parametrize(("limit_s", "left_s"), [(1000.0, 300.0), (100.0, 94.0)])
def test_what_a_run_still_takes_is_cut_by_its_limit(limit_s: float, left_s: float) -> None:
    """300 s are expected. Of a limit of 100 s, 4 s and 2 % are the report's."""
    progress = Progress()
    deadline = Deadline(limit_s, 0.0, clock=lambda: 0.0)
    setup = Setup(parse_settings({}), progress, deadline=deadline)
    session = BenchSession(setup, "fp32", lambda *_: (), pytest.fail)
    assert progress.run_left_s() is None
    session.setup.forecast.expect(WorkKind.LOADING, "fp32", 300.0)
    assert progress.run_left_s() == pytest.approx(left_s)


def test_an_earlier_session_completes_what_is_known_later() -> None:
    now = make_provenance(corpus="mine.txt (1 token)", prompts="mine.jsonl (0), 4 prompts")
    before = replace(now, corpus=f"{now.corpus}, in strided windows", prompts=f"{now.prompts}; timed: 2")
    others = replace(now, corpus="other.txt", prompts="mine.jsonl (0), 40 prompts; timed: 2")
    assert completed_by(now, before) == before
    assert completed_by(now, others) == now
    assert completed_by(replace(now, prompts=""), before).prompts == ""
