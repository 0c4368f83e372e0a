"""Every case's speed-ups."""

from __future__ import annotations

import pytest
from run_factory import make_block_record, make_record, make_run

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.tables.scenarios import case_rows
from llm_bench_fixtures.report.tables.table import Cell, Tone
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run


def in_blocks() -> Run:
    """Half the median of the reference's rounds, 1.025 s, is 512 ms: a speed-up of 2 in one case, of 1 in the other."""
    faster = make_block_record("bf16", 2.0, case="a")
    alike = make_block_record("bf16", 1.0, case="b")
    return make_run([make_block_record(case="a"), faster, make_block_record(case="b"), alike])


def test_a_cell_is_the_speed_up_with_its_interval_and_its_tone() -> None:
    first, second = case_rows(findings_of(in_blocks(), registry()))
    assert (first.case, list(first.cells)) == ("a", ["fp32", "bf16"])
    reference, faster, alike = *first.cells.values(), second.cells["bf16"]
    assert (reference.notation, reference.tone) == (Notation.SECONDS, None)
    assert reference.value == pytest.approx(1.025, rel=1e-3)
    assert (faster.value, faster.tone) == (pytest.approx(2.0), Tone.BETTER)
    assert 1.0 < (faster.low or 0) < 2.0 < (faster.high or 0)
    assert (alike.value, alike.tone) == (pytest.approx(1.0), None)


def test_what_was_not_measured_in_blocks_has_its_latency_and_what_did_not_run_nothing() -> None:
    run = make_run([make_record(median_s=0.1, case="a"), make_record("bf16", 0.05, case="b")])
    first, second = case_rows(findings_of(run, registry()))
    assert first.cells["bf16"] == second.cells["fp32"] == Cell()
    assert second.cells["bf16"] == Cell(value=pytest.approx(0.05), notation=Notation.SECONDS)
