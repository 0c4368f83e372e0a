"""Which differences a run's records support."""

from __future__ import annotations

import math

import pytest
from run_factory import BLOCKS_S, make_block_record, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.results.noise import Gain
from llm_bench_fixtures.statistics import ratio
from llm_bench_fixtures.statistics.ratio import Speedup
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate


@pytest.mark.parametrize(("rounds", "claims"), [(2, False), (3, True)])
def test_two_rounds_in_blocks_claim_nothing_by_themselves(rounds: int, claims: bool) -> None:
    """Bug: 44× was recommended without an interval, by the scatter of two rounds of each on a busy machine."""
    blocks = BLOCKS_S[:rounds]
    fp32 = make_block_record("fp32", 1.0, spread=0.0, reference_s=blocks)
    fast = make_block_record("fast", 44.0, spread=0.001, reference_s=blocks)
    evidence = evidence_of(make_run([fp32, fast], [make_variant("fp32"), make_variant("fast")]))
    found = evidence.gain(fast, fp32)
    assert found.ratio == pytest.approx(44, rel=0.3)
    assert isinstance(found, Speedup if claims else Gain)
    assert found.is_faster is claims


def test_throughput_goes_by_what_the_runs_other_cases_show_of_the_scatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pairs with half of the variance that 4 degrees of freedom lead to expect: together that is 5 degrees of 0.9
    times 1 % squared, and t is 2.5706."""
    monkeypatch.setattr(ratio, "PROCESS_DEVIATION", 0.0)
    workload = make_workload("batch 8", "batch", prompts=8, batch_size=8, new_tokens=128)
    reference_s, prior = (2.0, 2.0 * math.exp(0.01)), VarianceEstimate(0.01**2, 4.0)
    fp32, fast = (
        make_record(
            name,
            scenario="batch",
            case="8",
            workload=workload,
            rounds_s=rounds_s,
            reference_s=reference_s,
            expected_variance=prior,
        )
        for name, rounds_s in (("fp32", reference_s), ("fast", (1.0, 1.0)))
    )
    evidence = evidence_of(make_run([fp32, fast]))
    assert set(evidence.largest_batch) == {"fp32", "fast"}
    found = evidence.speedup(evidence.largest_batch["fast"])
    assert found is not None
    assert math.log(found.ratio) == pytest.approx(math.log(2) + 0.005)
    assert math.log(found.high / found.ratio) == pytest.approx(2.570582 * 0.01 * math.sqrt(0.9 / 2))


@pytest.mark.parametrize(("cases", "is_known"), [(9, True), (8, False)])
def test_two_variants_that_drift_together_are_compared_without_it(cases: int, is_known: bool) -> None:
    """In every other case both gain twice as much over the reference. Nine cases show that their own ratio stays 2;
    of eight it isn't known, and both drifts add up. Gaining once more gives the same."""
    records = [
        make_block_record(
            name,
            speedup * 2 ** (case % 2),
            spread=0.0,
            scenario="prompt_length",
            case=str(case),
            workload=make_workload(f"prompt {case}", prompt_tokens=8 + case),
            drift=VarianceEstimate(0.1, 7) if speedup > 1 else NO_PRIOR,
        )
        for case in range(cases)
        for name, speedup in (("fp32", 1.0), ("slow", 1.5), ("fast", 3.0))
    ]
    evidence = evidence_of(make_run(records))
    for _ in range(2):
        found = evidence.gain(evidence.common["fast"], evidence.common["slow"])
        assert isinstance(found, Speedup)
        assert found.ratio == pytest.approx(2.0)
        assert (found.high / found.ratio < 1.1) is is_known
