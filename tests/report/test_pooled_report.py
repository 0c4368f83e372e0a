"""What is said of pooled runs: how far they agree, and where they contradict each other."""

from __future__ import annotations

from dataclasses import replace

from run_factory import make_block_record, make_run, make_variant, make_workload

from llm_bench_fixtures.report.agreement import agreement_sections
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.pooled import pooled_run
from llm_bench_fixtures.results.record import MemoryFacts, Run


def run_of(speedup: float, source: str = "", perplexity: float = 20.0) -> Run:
    memory = {"memory": MemoryFacts(10_000_000)}
    records = [make_block_record("fp32", 1.0, 0.0, **memory), make_block_record("bf16", speedup, **memory)]
    variants = [make_variant(), make_variant("bf16", quality={"perplexity": perplexity})]
    return make_run(records, variants, source=source)


def pooled(*runs: Run) -> Findings:
    named = [replace(run, source=f"/runs/{at}/results.json") for at, run in enumerate(runs, 1)]
    return findings_of(pooled_run(named), registry())


def test_a_single_run_says_nothing_of_it() -> None:
    found = findings_of(run_of(2.0), registry())
    assert found.agreement is None
    assert not list(agreement_sections(found))
    assert "pooled" not in found.header


def test_runs_that_agree_are_counted_and_their_distance_is_said() -> None:
    found = pooled(run_of(2.0), run_of(2.02))
    assert found.header.endswith("| 2 runs pooled")
    assert "2 runs of the same version are pooled: their speed-ups differ by at most 1 % (bf16)." in found.takeaways
    assert not [warning for warning in found.warnings if "disagree" in warning]


def test_speedups_that_only_some_of_the_runs_have_are_named() -> None:
    """Bug: "2 runs pooled" stood over speed-ups of one run, which had no time for more."""
    shorter = run_of(2.0)
    shorter = replace(shorter, records=shorter.records[:1])
    whole = run_of(2.0)
    workload = make_workload("batch 8", "batch", prompts=8, batch_size=8, new_tokens=64)
    batches = [
        make_block_record(name, speedup, spread, scenario="batch", case="8", workload=workload)
        for name, speedup, spread in (("fp32", 1.0, 0.0), ("bf16", 3.0, 0.01))
    ]
    found = pooled(replace(whole, records=(*whole.records, *batches)), shorter)
    assert (
        "2 runs of the same version are pooled. Speed-ups of fewer runs: bf16 (1 of 2), bf16 at batch 8 (1 of 2)."
        in found.takeaways
    )


def test_runs_that_contradict_each_other_are_warned_of() -> None:
    """Twice as fast in one of them, which no chance explains."""
    found = pooled(run_of(1.0), run_of(2.0))
    (warning,) = [warning for warning in found.warnings if "disagree" in warning]
    assert warning.startswith("The runs disagree on bf16: 1.00× to 2.00×, which is more than chance explains.")


def test_quality_that_differs_is_warned_of() -> None:
    found = pooled(run_of(2.0), run_of(2.0, perplexity=20.5))
    (warning,) = [warning for warning in found.warnings if "Quality differs" in warning]
    assert warning.endswith("perplexity of bf16: 20 to 20.5.")


def test_there_is_a_table_of_speedups_of_latencies_and_of_memory() -> None:
    speedups, latencies, memory = agreement_sections(pooled(run_of(2.0), run_of(2.02)))
    assert [column.head for column in speedups.table.columns] == ["variant", "pooled", "1", "2", "differ by"]
    (row,) = speedups.table.texts
    assert [row[0], row[-1]] == ["bf16", "1 %"]
    assert [cell.partition(" ")[0] for cell in row[1:4]] == ["2.01×", "2.00×", "2.02×"]
    assert [row[0] for row in latencies.table.texts] == ["fp32", "bf16"]
    assert list(memory.table.texts) == [["fp32", *["10.0"] * 3, "0 %"], ["bf16", *["10.0"] * 3, "0 %"]]
