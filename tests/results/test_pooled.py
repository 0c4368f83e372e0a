"""Several runs as one: what is put together, and what an answer makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import make_block_record, make_record, make_run, make_variant, skipped_record

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.peaks import peaks_of
from llm_bench_fixtures.results.pooled import pooled_record, pooled_run, quality_differences
from llm_bench_fixtures.results.record import MemoryFacts, Run, Status
from llm_bench_fixtures.results.speedup import record_speedup


def run_of(speedup: float, spread: float = 0.01, **variant: float) -> Run:
    records = [make_block_record("fp32", 1.0, 0.0), make_block_record("bf16", speedup, spread)]
    return make_run(records, [make_variant(), make_variant("bf16", **variant)])


def test_a_single_run_stays_as_it_is() -> None:
    record = make_record()
    assert pooled_record([record]) is record
    assert record.by_run == (record,)


def test_a_record_has_the_rounds_of_all_runs_and_knows_each() -> None:
    one, other = make_record(rounds_s=(1.0, 2.0)), make_record(rounds_s=(3.0,))
    found = pooled_record([one, None, other])
    assert found.rounds_s == (1.0, 2.0, 3.0)
    assert found.by_run == (one, None, other)


def test_its_memory_and_further_values_are_the_middle_ones_of_the_runs() -> None:
    records = [make_record(memory=MemoryFacts(size), extra={"mine": float(size)}) for size in (30, 10, 20)]
    found = pooled_record(records)
    assert found.memory == MemoryFacts(20)
    assert found.extra == {"mine": 20.0}


def test_times_that_a_run_lacks_are_left_out_for_all() -> None:
    """Else the reference's rounds would stand beside those of another run."""
    found = pooled_record([make_block_record(reference_s=(1.0, 1.0, 1.0)), make_record()])
    assert found.reference_s == ()
    assert len(found.rounds_s) == 8


def test_a_test_that_one_run_skipped_has_the_rounds_of_the_others() -> None:
    measured = make_record()
    assert pooled_record([skipped_record("fp32", "why"), measured]).rounds_s == measured.rounds_s
    assert pooled_record([skipped_record("fp32", "why"), None]).status is Status.SKIPPED


def test_the_speedup_is_the_mean_of_the_runs_and_its_interval_is_narrower() -> None:
    """1.93 and 2.0 times as fast: their geometric mean, as both runs are as sure."""
    run = pooled_run([run_of(1.93), run_of(1.93), run_of(2.0), run_of(2.0)])
    found, alone = (record_speedup(one.records[1]) for one in (run, run_of(1.93)))
    assert found is not None
    assert alone is not None
    assert found.ratio == pytest.approx((1.93 * 2.0) ** 0.5)
    assert found.relative_half_width < alone.relative_half_width


def test_runs_that_differ_far_more_than_their_rounds_widen_the_interval() -> None:
    found = record_speedup(pooled_run([run_of(1.2), run_of(2.4)]).records[1])
    assert found is not None
    assert found.low < 1.2
    assert found.high > 2.4


def test_the_answer_of_pooled_runs_comes_from_the_same_evidence() -> None:
    """Ten rounds that scatter by 8 % don't show 5 %; those of six runs do."""
    noisy = run_of(1.05, 0.08)
    alone, together = evidence_of(noisy), evidence_of(pooled_run([noisy] * 6))
    gains = [seen.gain(seen.common["bf16"], seen.common["fp32"]) for seen in (alone, together)]
    assert [gain.is_faster for gain in gains] == [False, True]


def test_two_variants_are_compared_within_each_run() -> None:
    records = [make_block_record(name, speedup) for name, speedup in (("bf16", 1.5), ("nf4", 3.0))]
    seen = evidence_of(pooled_run([make_run([make_block_record("fp32", 1.0, 0.0), *records])] * 2))
    assert seen.gain(seen.common["nf4"], seen.common["bf16"]).ratio == pytest.approx(2.0)


def test_a_reference_that_was_only_measured_next_to_others_is_pooled_too() -> None:
    """Bug that this would be: its rounds in one piece, the others' run by run."""
    run = make_run([make_block_record("bf16", 2.0)], [make_variant(), make_variant("bf16")])
    seen = evidence_of(pooled_run([run] * 2))
    assert seen.reference is not None
    assert len(seen.reference.by_run) == 2


def test_peaks_have_the_range_of_all_runs() -> None:
    runs = [
        make_run([make_record("fp32", memory=MemoryFacts(size)), make_record("bf16", memory=MemoryFacts(size))])
        for size in (100, 300, 200)
    ]
    found = peaks_of(evidence_of(pooled_run(runs)), "own_memory_bytes")["fp32"]
    assert (found.value, found.low, found.high) == (200, 100, 300)


def test_identical_work_in_the_same_blocks_is_no_pair_apart_though_one_was_settled_earlier() -> None:
    record = make_block_record("fp16", 1.0)
    short = replace(record, variant="fp32", rounds_s=record.rounds_s[:4], reference_s=record.reference_s[:4])
    run = make_run(
        [record, replace(short, test="other")],
        [make_variant(), make_variant("fp16", configuration=("configuration of fp32"))],
    )
    assert evidence_of(run).noise.pairs == 0
    assert evidence_of(pooled_run([run] * 2)).noise.pairs == 0


def test_quality_that_differs_between_runs_is_named() -> None:
    runs = [run_of(2.0, quality={"perplexity": value}) for value in (20.0, 20.0, 20.5)]
    assert list(quality_differences(pooled_run(runs))) == ["perplexity of bf16: 20 to 20.5"]
    assert not list(quality_differences(pooled_run(runs[:2])))


def test_what_a_load_costs_is_the_median_and_an_absent_variant_is_one_only_where_all_runs_lack_it() -> None:
    absent = replace(run_of(2.0), variants=(make_variant(load_s=9.0), make_variant("bf16", status=Status.SKIPPED)))
    found = pooled_run([absent, run_of(2.0), run_of(2.0)]).variants
    assert found[0].load_s == 0.5
    assert found[1].status is Status.MEASURED
