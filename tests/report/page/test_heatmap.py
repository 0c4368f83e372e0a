"""The heatmap: a cell for each case and variant."""

from __future__ import annotations

import math

from run_factory import make_block_record, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.page.tables import FAINTEST, STRONGEST, HeatCell, heatmap
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run


def shown(run: Run) -> list[list[HeatCell]]:
    return [cells for _, cells in heatmap(findings_of(run, registry()))]


def run_of(*speedups: tuple[str, float, float]) -> Run:
    """fp32, and in the same case others with their speed-ups and the spread of these."""
    records = [make_block_record(spread=0.0), *(make_block_record(*one) for one in speedups)]
    return make_run(records, [make_variant(), *(make_variant(name) for name, *_ in speedups)])


def test_a_cell_is_as_strong_as_its_speed_up() -> None:
    """Three times as fast has all of the colour, and as fast none but the least."""
    fast, slow = shown(run_of(("a", 3.0, 0.001), ("b", 1 / math.sqrt(3), 0.001)))[0]
    assert (fast.kind, fast.heat, fast.text) == ("faster", STRONGEST, "3.00×")
    assert (slow.kind, slow.heat) == ("slower", round((FAINTEST + STRONGEST) / 2))


def test_a_cell_whose_interval_includes_1_is_neither() -> None:
    (cell,) = shown(run_of(("a", 1.01, 0.3)))[0]
    assert cell.kind == "unclear"
    assert "no difference from fp32 is shown" in cell.tip


def test_the_tip_has_the_interval_and_the_time_that_it_is_of() -> None:
    (cell,) = shown(run_of(("a", 2.0, 0.01)))[0]
    name, case, value, words, beside = cell.tip.splitlines()
    assert (name, case, words) == ("a", "Precision", "faster than fp32")
    assert value == f"2.00× ({cell.interval})"
    assert beside == "fp32: 1.02 s"


def test_the_reference_and_variants_without_speed_ups_have_no_column() -> None:
    run = make_run([make_block_record(spread=0.0), make_block_record("a", 2.0), make_record("b")])
    assert [cell.variant for cell in shown(run)[0]] == ["a"]
    assert shown(make_run([make_record(), make_record("b")])) == []


def test_a_case_that_a_variant_did_not_run_is_absent() -> None:
    other = {"scenario": "batch", "case": "4", "workload": make_workload("4", "batch", batch_size=4)}
    records = [make_block_record(spread=0.0), make_block_record("a", 2.0), make_block_record("b", 2.0)]
    records += [make_block_record(spread=0.0, **other), make_block_record("b", 2.0, **other)]
    rows = {row.case: cells for row, cells in heatmap(findings_of(make_run(records), registry()))}
    assert rows["4"][0] == HeatCell("a", "–")
