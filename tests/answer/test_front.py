"""The Pareto front: who beats whom in everything together."""

from __future__ import annotations

from run_factory import make_block_record, make_run, make_variant

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.front import front
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Reader
from llm_bench_fixtures.answer.picks import picks_of
from llm_bench_fixtures.answer.standings import standings_for
from llm_bench_fixtures.results.record import MemoryFacts, Run


def front_of(run: Run) -> set[str]:
    seen = evidence_of(run)
    return {*front([*seen.common], standings_for(Reader.LATENCY, seen, DEFAULT_NEED), picks_of(seen, DEFAULT_NEED)[:1])}


def test_a_picked_variant_is_on_the_front() -> None:
    """bf16 and int8 are as fast as each other, and bf16 needs less memory; for latency either is picked."""
    quality = {"perplexity": 20.0, "ppl_ratio": 1.0}
    variants = [make_variant(), *(make_variant(name, quality=quality, configuration=name) for name in ("bf16", "int8"))]
    measured = (("fp32", 1.0, 0.0, 100), ("bf16", 2.0, 0.01, 50), ("int8", 2.001, 0.01, 90))
    records = [
        make_block_record(name, speedup, spread, memory=MemoryFacts(peak * 10**6))
        for name, speedup, spread, peak in measured
    ]
    run = make_run(records, variants)
    assert picks_of(evidence_of(run), DEFAULT_NEED)[0].alike == ("int8", "bf16")
    assert front_of(run) == {"bf16", "int8"}


def test_one_that_keeps_the_limit_is_not_beaten_by_one_that_does_not() -> None:
    """ort-int8 is faster and smaller, and its perplexity may be 2 % higher or the same: nobody can tell."""
    unsure = {"perplexity": 20.4, "ppl_ratio": 1.02, "ppl_ratio_error": 0.02}
    variants = [make_variant(), make_variant("ort-int8", weight_bytes=1_000_000, quality=unsure)]
    run = make_run([make_block_record(spread=0.0), make_block_record("ort-int8", 2.0)], variants)
    assert front_of(run) == {"fp32", "ort-int8"}
