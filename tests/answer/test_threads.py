"""The sweep over numbers of threads: what it shows, and that it changes nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_factory import make_block_record, make_record, make_run, make_variant

from llm_bench_fixtures.answer.noise import MachineNoise
from llm_bench_fixtures.answer.threads import THREADS, compare_threads, without_sweep
from llm_bench_fixtures.results.pooled import pooled_run
from llm_bench_fixtures.results.record import Record, Run, VariantResult

CALM = MachineNoise()


def swept(name: str, speedup: float, spread: float = 0.001, **more: Any) -> Record:
    return make_block_record(name, speedup, spread, scenario=THREADS, **more)


def threads_of(name: str, number: int) -> VariantResult:
    return make_variant(f"{name}-{number}t", threads=number, threads_of=name)


def run_of(*others: Record) -> Run:
    """fp32, and bf16 that is twice as fast; in one thread fp32 is half as fast, bf16 a half faster."""
    records = [swept("fp32", 1.0, 0.0), swept("fp32-1t", 0.5), swept("bf16", 2.0), swept("bf16-1t", 3.0)]
    variants = [make_variant("fp32"), make_variant("bf16"), threads_of("fp32", 1), threads_of("bf16", 1)]
    return make_run([*others, *records], variants)


def test_each_is_compared_with_itself_by_default() -> None:
    slower, faster = compare_threads(run_of(), CALM)
    assert (slower.threads, slower.of.variant, slower.over.variant) == (1, "fp32-1t", "fp32")
    assert (faster.of.variant, faster.over.variant) == ("bf16-1t", "bf16")
    assert slower.found is not None
    assert faster.found is not None
    assert slower.found.ratio == pytest.approx(0.5, rel=0.01)
    assert faster.found.ratio == pytest.approx(1.5, rel=0.01)
    assert (slower.is_better, slower.is_worse) == (False, True)
    assert (faster.is_better, faster.is_worse) == (True, False)


def test_nothing_is_claimed_that_identical_work_shows_too() -> None:
    noisy = MachineNoise(least=0.4, most=1.6, comparisons=5)
    assert not any(one.is_better or one.is_worse for one in compare_threads(run_of(), noisy))


def test_without_blocks_and_without_the_default_nothing_is_compared() -> None:
    run = run_of()
    bare = [replace(one, reference_s=()) for one in run.records]
    assert [one.found for one in compare_threads(replace(run, records=tuple(bare)), CALM)] == [None, None]
    no_default = tuple(one for one in run.records if one.variant != "bf16")
    assert [one.of.variant for one in compare_threads(replace(run, records=no_default), CALM)] == ["fp32-1t"]


def test_the_rest_of_a_run_is_without_the_sweep() -> None:
    precise = make_record("fp32"), make_record("bf16", 0.5)
    rest = without_sweep(run_of(*precise))
    assert rest.records == precise
    assert [one.id for one in rest.variants] == ["fp32", "bf16"]


def test_of_nothing_but_a_sweep_what_runs_by_default_stays() -> None:
    assert [one.variant for one in without_sweep(run_of()).records] == ["fp32", "bf16"]


def test_a_variant_that_was_chosen_in_a_number_of_threads_stays() -> None:
    run = run_of(make_record("fp32"), make_record("bf16-1t"))
    assert [one.id for one in without_sweep(run).variants] == ["fp32", "bf16", "bf16-1t"]


def test_a_run_without_a_sweep_is_itself() -> None:
    run = make_run([make_record()])
    assert without_sweep(run) is run


def test_of_pooled_runs_each_is_without_it() -> None:
    pooled = pooled_run([run_of(make_record("fp32")), run_of(make_record("fp32"))])
    rest = without_sweep(pooled)
    assert [len(one.variants) for one in (rest, *getattr(rest, "runs", ()))] == [2, 2, 2]
    assert [one.is_better for one in compare_threads(pooled, CALM)] == [False, True]
