"""Which differences a run's records support."""

from __future__ import annotations

import pytest
from run_factory import BLOCKS_S, make_block_record, make_run, make_variant

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.results.noise import Gain
from llm_bench_fixtures.statistics.ratio import Speedup


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
