"""What a report says of numbers of threads."""

from __future__ import annotations

from typing import Any

from run_factory import make_block_record, make_record, make_run, make_variant
from shown_table import rows

from llm_bench_fixtures.answer.threads import THREADS
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.page.build import all_sections
from llm_bench_fixtures.results.metrics import registry


def findings(fp32_1t: float, bf16_1t: float, **changes: Any) -> Findings:
    """Of two variants that take as long by default, in two threads; the figures are how fast they are in one."""
    speedups = {"fp32": 1.0, "fp32-1t": fp32_1t, "bf16": 1.0001, "bf16-1t": bf16_1t}
    records = [
        make_block_record(name, speedup, 0.0 if name == "fp32" else 0.001, scenario=THREADS, **changes)
        for name, speedup in speedups.items()
    ]
    bases = {name: name.removesuffix("-1t") for name in speedups}
    variants = [
        make_variant(name, threads=1, threads_of=base) if name != base else make_variant(name)
        for name, base in bases.items()
    ]
    return findings_of(make_run([make_record(), *records], variants), registry())


def test_a_row_for_each_number_of_threads() -> None:
    (section,) = [one for one in all_sections(findings(0.5, 2.0)) if one.title == "Threads"]
    assert [row[:2] for row in rows(section.table)] == [("fp32", "2"), ("fp32", "1"), ("bf16", "2"), ("bf16", "1")]
    assert [row[3].partition(" ")[0] for row in rows(section.table)] == ["default", "0.500×", "default", "2.00×"]
    assert section.note == (
        "On one prompt, 64 prompt tokens, 16 new tokens, batch 1, cache dynamic. By default each variant computes in 2 "
        "threads."
    )


def test_what_is_better_is_said_with_its_gain_and_what_to_do() -> None:
    better, none = findings(0.5, 2.0).takeaways[:2]
    assert better.startswith("bf16 is 2.00× (")
    assert better.endswith(
        ") as fast in 1 thread as in 2, the default: run it as bf16-1t here, elsewhere with torch.set_num_threads 1."
    )
    assert none == "No number of threads is shown to be faster than the default, 2, for fp32."


def test_a_gain_while_threads_waited_for_a_core_is_doubtful_and_no_advice() -> None:
    """Other work on a core makes fewer threads faster by itself: ten pairs each of the two that are compared."""
    better, _ = findings(0.5, 2.0, reference_waited_s=(0.5,) * 10).takeaways[:2]
    assert better.endswith("the default, which is doubtful: in 20 of 20 pairs of rounds, threads waited for a core.")


def test_no_other_row_of_the_report_is_in_other_threads() -> None:
    found = findings(0.5, 2.0)
    assert [one.id for one in found.run.variants] == ["fp32", "bf16"]
    named = {cell.words for one in all_sections(found) for row in one.table.rows for cell in row}
    assert not any("1t" in text for text in named)
