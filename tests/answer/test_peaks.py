"""Memory by variant, and how far apart identical work is."""

from __future__ import annotations

from run_factory import make_record, make_run

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.peaks import peaks_of
from llm_bench_fixtures.results.record import MemoryFacts
from llm_bench_fixtures.statistics.spread import Estimate


def test_repeats_are_those_on_the_same_side_of_scoring() -> None:
    """Bug: scoring left 12 MB of fp32 and 90 of bf16 behind, so that no variant certainly took less than another."""
    early, again = (
        make_record(scenario="precision", case=case, memory=MemoryFacts(24 + place)) for place, case in enumerate("ab")
    )
    late = make_record(scenario="cache", memory=MemoryFacts(36, after_scoring=True))
    found = peaks_of(evidence_of(make_run([early, again, late])), "own_memory_bytes")
    assert found == {"fp32": Estimate(24, 25, value=24)}
