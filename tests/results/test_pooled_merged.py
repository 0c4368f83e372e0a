"""Shards as one run: whose record is kept, and what a variant is paired with."""

from __future__ import annotations

from typing import Any

import pytest
from run_factory import (
    BLOCKS_S,
    absent_variant,
    make_block_record,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    skipped_record,
)

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, ExecutionMode
from llm_bench_fixtures.results.pooled import merged_run
from llm_bench_fixtures.results.record import Record, Run, Session, Status
from llm_bench_fixtures.results.speedup import mean_speedup_between, record_speedup

SLOWER_S = tuple(2 * seconds for seconds in BLOCKS_S)


def shard(day: int, *records: Record, **changes: Any) -> Run:
    origin = changes.pop("provenance", {})
    started = f"2026-01-0{day}T00:00:00+00:00"
    return make_run(records, provenance=make_provenance(started=started, **origin), source=f"shard {day}", **changes)


def by_variant() -> list[Run]:
    """The second on a machine that was half as fast by then; bf16 is twice as fast as fp32, nf4 half as fast."""
    reference = make_block_record("fp32", 1.0, 0.0)
    slow = make_block_record("fp32", 1.0, 0.0, SLOWER_S[:8])
    return [
        shard(1, reference, make_block_record("bf16", 2.0)),
        shard(2, slow, make_block_record("nf4", 0.5, reference_s=SLOWER_S[:8])),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_each_variant_stays_paired_with_its_own_shards_reference(order: int) -> None:
    run = merged_run(by_variant()[::order])
    found = {one.variant: one for one in run.records}
    assert found["nf4"].reference_s == SLOWER_S[:8]
    assert found["fp32"].rounds_s == BLOCKS_S, "the reference with the most rounds"
    speedups = {name: record_speedup(record) for name, record in found.items()}
    assert {name: one.ratio for name, one in speedups.items() if one} == pytest.approx(
        {"fp32": 1.0, "bf16": 2.0, "nf4": 0.5}
    )
    between = mean_speedup_between([(found["bf16"], found["nf4"])])
    assert between is not None
    assert between.ratio == pytest.approx(4.0), "by way of their references, though nf4's machine was slower"


def test_it_says_which_session_measured_what() -> None:
    first, second = by_variant()
    run = merged_run([second, first])
    assert run.provenance.started == second.provenance.started
    assert run.earlier == (Session(first.provenance.started, tuple(one.test for one in first.records)),)
    assert {one.id for one in run.variants} == {"fp32", "bf16", "nf4"}
    assert run.session_s == 24.0
    assert run.phase_s == {"loading": 4.0, "generating": 18.0}


def test_a_shard_that_is_merged_already_keeps_its_sessions() -> None:
    first, second = by_variant()
    third = shard(3, make_block_record("int8", 3.0, case="3"))
    run = merged_run([merged_run([first, second]), third])
    assert [session.started for session in run.earlier] == [one.provenance.started for one in (first, second)]


def test_shards_by_scenario_have_all_tests() -> None:
    first = shard(1, make_record("fp32"))
    second = shard(2, make_record("fp32", scenario="cache"), make_record("bf16", scenario="cache"))
    assert [one.scenario for one in merged_run([first, second]).records] == ["precision", "cache", "cache"]


def test_a_benchmark_that_two_measured_is_no_shards() -> None:
    runs = [shard(1, make_record("bf16", 1.0)), shard(2, make_record("bf16", 2.0))]
    with pytest.raises(InvalidSetting, match=r"shard 1 and shard 2 all measured .*bf16.* pools runs of one"):
        merged_run(runs)


@pytest.mark.parametrize("order", [1, -1])
def test_what_one_shard_measured_stands_before_what_another_skipped(order: int) -> None:
    measured, skipped = make_record("bf16"), skipped_record("bf16", "not here")
    runs = [
        shard(1, measured),
        shard(2, skipped, variants=[absent_variant("bf16", "not here")], failed_tests=1),
    ]
    run = merged_run(runs[::order])
    assert run.records == (measured,)
    assert [one.status for one in run.variants] == [Status.MEASURED]
    assert run.failed_tests == 1


def test_quality_and_execution_modes_come_from_whichever_shard_has_them() -> None:
    """Bug: those of the first run alone were kept, also of runs that are pooled."""
    cache, batch = (Equivalence(mode, EquivalenceVerdict.EQUAL) for mode in (ExecutionMode.CACHE, ExecutionMode.BATCH))
    unscored = make_variant("bf16", quality={}, unscored=True, equivalence=(cache,))
    scored = make_variant("bf16", quality={"perplexity": 21.0}, equivalence=(batch,))
    (found,) = merged_run([shard(1, variants=[unscored]), shard(2, variants=[scored])]).variants
    assert found.quality == {"perplexity": 21.0}
    assert not found.unscored
    assert set(found.equivalence) == {cache, batch}


def test_the_corpus_is_told_as_the_shard_tells_it_that_scored_it() -> None:
    runs = [shard(1, provenance={"corpus": "mine, in windows of 64"}), shard(2, provenance={"corpus": "mine"})]
    assert merged_run(runs).provenance.corpus == "mine, in windows of 64"


def test_a_check_that_passed_in_one_shard_is_not_hidden_by_a_skip_in_a_later_one() -> None:
    """Bug: the last shard's ending was kept."""
    runs = [shard(1, checked={"a": "", "b": "not here"}), shard(2, checked={"a": "not here", "b": "not here"})]
    assert merged_run(runs).checked == {"a": "", "b": "not here"}
