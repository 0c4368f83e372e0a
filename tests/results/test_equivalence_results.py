"""Equivalence in the results: it is kept with its variant, comes back from the file, and stands beside the speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_factory import make_record, make_run, make_variant
from shown_table import header, rows

from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, ExecutionMode
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.page.build import all_sections
from llm_bench_fixtures.report.tables.by_variant import summary_section
from llm_bench_fixtures.report.words.flags import variant_flags
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run, write_run

EQUAL = Equivalence(ExecutionMode.CACHE, EquivalenceVerdict.EQUAL)
TIE = Equivalence(ExecutionMode.BATCH, EquivalenceVerdict.TIE, prompt=0, token=3, gap=0.0002, tolerance=0.001)
OTHER_TEXT = Equivalence(
    ExecutionMode.LEFT_PADDING, EquivalenceVerdict.DIVERGES, prompt=1, token=2, gap=0.42, tolerance=0.001
)
OTHER_PROBABILITY = Equivalence(ExecutionMode.BATCH, EquivalenceVerdict.DIVERGES, prompt=1, gap=0.42, tolerance=0.001)
NO_STATIC = Equivalence(
    ExecutionMode.STATIC_CACHE, EquivalenceVerdict.NOT_SUPPORTED, reason="ort-fp32 can't generate with cache static"
)
ALL = (EQUAL, NO_STATIC, OTHER_TEXT, TIE)


def test_it_is_kept_with_its_variant_in_order() -> None:
    builder = RunBuilder("fp32")
    builder.add_variant(make_variant("fp32"))
    for found in ALL:
        builder.add_equivalence("fp32", found)
    assert builder.variant("fp32") == make_variant("fp32", equivalence=ALL)


def test_it_comes_back_from_the_file(tmp_path: Path) -> None:
    run = make_run([make_record()], [make_variant(equivalence=ALL)])
    write_run(run, tmp_path / RESULTS_FILE)
    assert read_run(tmp_path / RESULTS_FILE) == run


@pytest.mark.parametrize(
    ("found", "remarks"),
    [
        ((EQUAL, TIE, NO_STATIC), []),
        ((OTHER_TEXT,), ["left padding changes its text"]),
        ((OTHER_PROBABILITY,), ["batch changes its probabilities"]),
        ((OTHER_TEXT, OTHER_TEXT), ["left padding changes its text"]),
        ((OTHER_TEXT, OTHER_PROBABILITY), ["left padding changes its text", "batch changes its probabilities"]),
    ],
)
def test_only_a_divergence_is_a_remark(found: tuple[Equivalence, ...], remarks: list[str]) -> None:
    assert variant_flags(make_variant(equivalence=found)) == remarks


def test_a_divergence_stands_beside_the_speed() -> None:
    run = make_run([make_record()], [make_variant(equivalence=(OTHER_TEXT,))])
    table = summary_section(findings_of(run, registry())).table
    cells = dict(zip(header(table), *rows(table), strict=True))
    assert cells["what ran"] == "float32; left padding changes its text"
    assert cells["latency, s"] == "1.00 ± 0.01"


def test_each_variant_has_a_row_of_its_ways() -> None:
    variants = [
        make_variant("fp32", equivalence=(EQUAL, OTHER_TEXT)),
        make_variant("ort-fp32", equivalence=(EQUAL, NO_STATIC)),
        make_variant("bf16"),
    ]
    sections = all_sections(findings_of(make_run([make_record()], variants), registry()))
    (section,) = (section for section in sections if section.title == "Same text however it is run")
    assert header(section.table) == ("variant", "cache", "left padding", "static cache")
    assert rows(section.table) == (
        ("fp32", "equal", "diverges: 0.42 nats (tolerance 0.001)", "–"),
        ("ort-fp32", "equal", "–", "not supported"),
    )


def test_nothing_compared_is_no_section() -> None:
    titles = [section.title for section in all_sections(findings_of(make_run([make_record()]), registry()))]
    assert "Same text however it is run" not in titles
