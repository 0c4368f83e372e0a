"""Tells the session how far its plan is, and the user what the run has found by then."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from llm_bench_fixtures.plugin.finish import write_so_far
from llm_bench_fixtures.plugin.internals import terminal_width
from llm_bench_fixtures.plugin.items import ORDERED, PLAN, case_of, identify, is_benchmark, variant_of
from llm_bench_fixtures.plugin.stash import SESSION, is_kept, runs_in_turns
from llm_bench_fixtures.plugin.terminal_progress import tell
from llm_bench_fixtures.progress import Milestone
from llm_bench_fixtures.report.renderers.terminal import lines_so_far
from llm_bench_fixtures.session.plan import Place, Plan, Stage

REST_S = 60.0  # between two reports of one stage, at least
REST_SHARE = 50.0  # times as long as writing the last one took: at most 2 % of the run go into them


@dataclass
class Growth:
    """State of what has been shown of a run that goes on."""

    has_answer: bool = False
    told: list[str] = field(default_factory=list)
    """Lines that the terminal was told last."""
    took_s: float = 0.0
    """Seconds that writing the last report took."""
    rests_until_s: float = 0.0
    """End of the rest, on time.monotonic()'s clock."""


GROWTH: pytest.StashKey[Growth] = pytest.StashKey()


def after_test(item: pytest.Item, following: pytest.Item | None) -> None:
    """Where a stage ends with the test, tell the session, and show the answer so far in the terminal and the report.

    Likewise after the first case that compares variants, which quality follows where a plugin orders the tests, so that
    there are no stages. In long stages the report alone is written anew at times.
    """
    config = item.config
    if SESSION not in config.stash or PLAN not in config.stash or not runs_in_turns(config):
        return
    session, place, after = config.stash[SESSION], _place(item), _place(following) if following else None
    if (variant := variant_of(item)) is not None:
        session.setup.forecast.forget(variant.id, case_of(item))
    ends_stage = place is not None and place != after
    if ends_stage:
        session.scoring.to_come = _variants_from(following)
        session.end_stage()
    if following is None or place is None or after is None or session.deadline.is_over or is_kept(item):
        return  # the whole report is next, or nothing was measured
    growth = config.stash.setdefault(GROWTH, Growth())
    had_answer = growth.has_answer
    if ends_stage or (not growth.has_answer and _compares(item, following)):
        _grow(item.session, growth, shows=True)
    elif growth.has_answer:
        renew_report(item.session)
    has_first = growth.has_answer and not had_answer
    is_time = ends_stage and _is_time_for_quality(config.stash[PLAN], place, after)
    is_due = has_first if config.stash[ORDERED] else is_time
    if is_due and session.due:
        session.score_loaded()
        session.end_stage()
        _grow(item.session, growth, shows=True)


def renew_report(session: pytest.Session) -> None:
    """Write the report so far, unless that was done a short while ago."""
    growth, left_s = session.config.stash.setdefault(GROWTH, Growth()), session.config.stash[SESSION].deadline.left_s
    if time.monotonic() >= growth.rests_until_s and left_s > growth.took_s:
        _grow(session, growth, shows=False)


def _variants_from(following: pytest.Item | None) -> frozenset[str]:
    """The ids of the variants that have tests from this one on."""
    items = following.session.items[following.session.items.index(following) :] if following else []
    return frozenset(variant.id for item in items if (variant := variant_of(item)))


def _is_time_for_quality(plan: Plan, place: Place, after: Place) -> bool:
    """Whether the cases that come before quality are over, for the variants that are loaded."""
    if after.group != place.group:
        return Stage.QUALITY in plan.visits[place.visit].stages
    return after.stage > Stage.QUALITY


def _place(item: pytest.Item) -> Place | None:
    """None of a test without a variant."""
    variant = variant_of(item)
    return item.config.stash[PLAN].place(case_of(item), variant.id) if variant else None


def _compares(item: pytest.Item, following: pytest.Item) -> bool:
    """Whether the test is the last one of a case that was measured on two variants."""
    if not is_benchmark(item) or (is_benchmark(following) and case_of(following) == case_of(item)):
        return False
    blank, run = identify(item), item.config.stash[SESSION].run()
    return len([one for one in run.measured(blank.scenario) if one.case == blank.case]) > 1


def _grow(session: pytest.Session, growth: Growth, *, shows: bool) -> None:
    """Write the report so far. shows: whether the terminal says its answer, too."""
    config, began_s = session.config, time.monotonic()
    cases = config.stash[SESSION].progress.planned[Milestone.CASE]
    findings = write_so_far(session, f"after {cases.done} of {cases.total} cases")
    ended_s = time.monotonic()
    growth.took_s = ended_s - began_s
    growth.rests_until_s = ended_s + max(REST_S, REST_SHARE * growth.took_s)
    if findings is None:
        return
    growth.has_answer = True
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if shows and reporter is not None and config.get_verbosity() >= 0:
        lines = [*lines_so_far(findings, terminal_width(reporter))]
        if lines != growth.told:
            reporter.ensure_newline()
            tell(reporter, lines)
            growth.told = lines
