"""Tells the session how far its plan is."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.plugin.items import PLAN, case_of, variant_of
from llm_bench_fixtures.plugin.stash import SESSION, runs_in_turns
from llm_bench_fixtures.session.plan import Place


def after_test(item: pytest.Item, following: pytest.Item | None) -> None:
    """Where a stage ends with the test, tell the session."""
    config = item.config
    if SESSION not in config.stash or PLAN not in config.stash or not runs_in_turns(config):
        return
    place = _place(item)
    if place is not None and place != (_place(following) if following else None):
        config.stash[SESSION].end_stage()


def _place(item: pytest.Item) -> Place | None:
    """None of a test without a variant."""
    variant = variant_of(item)
    return item.config.stash[PLAN].place(case_of(item), variant.id) if variant else None
