"""How far pooled runs agree: each run's figure, the pooled one, and the distance between them."""

from __future__ import annotations

import pytest
from run_factory import make_block_record, make_record, make_run, make_variant

from llm_bench_fixtures.answer.agreement import Agreement, agreement_of, contradicted, rank
from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.results.pooled import pooled_run
from llm_bench_fixtures.results.record import MemoryFacts, Run

ABC = ("a", "b", "c")


def run_of(speedup: float, peak: int = 10**7) -> Run:
    records = [
        make_block_record("fp32", 1.0, 0.0, memory=MemoryFacts(peak)),
        make_block_record("bf16", speedup, memory=MemoryFacts(peak // 2)),
    ]
    return make_run(records, [make_variant(), make_variant("bf16")])


def of(*runs: Run) -> Agreement:
    found = agreement_of(evidence_of(pooled_run(runs)))
    assert found is not None
    return found


def test_a_single_run_agrees_with_nothing() -> None:
    assert agreement_of(evidence_of(run_of(2.0))) is None


def test_each_run_has_its_own_speedup_next_to_the_pooled_one() -> None:
    reference, found = of(run_of(1.9), run_of(2.0)).variants
    assert [one and one.ratio for one in found.speedups] == [pytest.approx(1.9), pytest.approx(2.0)]
    assert found.pooled is not None
    assert found.pooled.ratio == pytest.approx((1.9 * 2.0) ** 0.5)
    assert found.spread == pytest.approx(2.0 / 1.9 - 1)
    assert (reference.variant, reference.speedups, reference.pooled) == ("fp32", (), None)


def test_runs_disagree_where_chance_does_not_explain_their_distance() -> None:
    """5 % apart is what processes differ by; twice as fast is not."""
    assert [one.disagrees for one in of(run_of(1.9), run_of(2.0)).variants] == [False, False]
    assert [one.disagrees for one in of(run_of(1.0), run_of(2.0)).variants] == [False, True]


def test_latency_and_memory_stand_run_by_run() -> None:
    found = of(run_of(2.0, 8_000_000), run_of(2.0, 10_000_000), run_of(2.0, 12_000_000)).variants[1]
    assert found.memory.runs == (4_000_000, 5_000_000, 6_000_000)
    assert found.memory.pooled == 5_000_000
    assert found.memory.spread == pytest.approx(0.5)
    assert found.latency_s.spread == pytest.approx(0)


def test_a_run_without_the_variant_has_no_figure() -> None:
    alone = make_run([make_record("fp32")])
    found = of(run_of(2.0), run_of(2.0), alone).variants[1]
    assert found.speedups[2] is None
    assert found.latency_s.runs[2] is None


def test_a_rank_is_as_wide_as_what_is_not_shown() -> None:
    assert [rank(one, ABC, ()) for one in ABC] == [(1, 3)] * 3
    assert [rank(one, ABC, {("a", "b"), ("a", "c"), ("b", "c")}) for one in ABC] == [(1, 1), (2, 2), (3, 3)]
    assert [rank(one, ABC, {("a", "c")}) for one in ABC] == [(1, 2), (1, 3), (2, 3)]


def test_only_orders_that_are_both_shown_contradict_each_other() -> None:
    machines = [{("a", "b")}, {("b", "a"), ("a", "c")}, set[tuple[str, str]]()]
    assert [contradicted(one, machines) for one in ABC] == [["b"], ["a"], []]
