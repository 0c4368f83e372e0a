"""What the gate says, for people and for machines: short where nothing moved, and nothing in it is obeyed."""

from __future__ import annotations

from dataclasses import replace

from run_factory import make_block_record, make_provenance, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.decision import Decision, decide, no_baseline
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.rules import Rules, parse_rules
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.comparison import (
    MOST_ADVISORY,
    MOST_ROWS,
    comparison_report,
    failures,
    gate_lines,
    gate_markdown,
    gate_report,
    github_annotations,
)
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Blessing, MemoryFacts, Run

HOSTILE = "\x1b[31mred</script><img src=x onerror=alert(1)>\n::error::@everyone | `x`"


def many(count: int, peak: int, median_s: float = 1.0) -> Run:
    return make_run(
        [
            make_record(
                median_s=median_s,
                scenario=f"s{number}",
                memory=MemoryFacts(peak),
                workload=make_workload(f"workload {number}"),
            )
            for number in range(count)
        ]
    )


def judged(base: Run, head: Run, rules: str = "") -> Decision:
    comparison = compare_runs(judged_run(base, "0001_a.json"), judged_run(head), Rules(parse_rules(rules)), registry())
    return decide(comparison)


def text_of(decision: Decision, width: int = 100) -> str:
    return "\n".join(gate_lines(gate_report(decision), width))


def test_where_nothing_moved_it_is_short() -> None:
    decision = judged(many(150, 1000), many(150, 1000))
    lines = list(gate_lines(gate_report(decision), 100))
    assert "Gated 150 of 150 tests; values that block: " in "\n".join(lines)
    assert len(lines) < 12


def test_what_regressed_is_told_with_both_values_the_change_and_what_was_allowed() -> None:
    text = text_of(judged(many(1, 100_000_000), many(1, 150_000_000)))
    assert "= llm-gate: regressed =" in text
    assert "1 value of 1 test or variant regressed." in text
    assert "Peak memory: 100 MB → 150 MB, +50.0 % (allowed: 10 % or 5.00 MB)" in " ".join(text.split())


def test_long_lists_are_cut_and_say_so() -> None:
    regressed = text_of(judged(many(MOST_ROWS + 7, 10**8), many(MOST_ROWS + 7, 2 * 10**8)))
    assert regressed.count("Peak memory: ") == MOST_ROWS
    assert "... and 7 more" in regressed
    advisory = text_of(judged(many(MOST_ADVISORY + 2, 1), many(MOST_ADVISORY + 2, 1, 2.0)))
    assert advisory.count(" other timings: ") == MOST_ADVISORY
    assert "... and 2 more" in advisory


def test_a_tests_timings_are_one_line_that_its_latency_leads() -> None:
    text = " ".join(text_of(judged(many(1, 1), many(1, 1, 2.0))).split())
    assert "test_s0[-fp32]: Latency and " in text
    assert "1.00 s → 2.00 s, +100.0 % (allowed: 10 %)" in text


def test_with_a_probe_both_changes_are_shown() -> None:
    base, head = (
        make_run([make_record(median_s=seconds, probe_s=((0.001 * slow, 0.001 * slow),) * 5)])
        for seconds, slow in ((1.0, 1.0), (3.0, 1.5))
    )
    text = " ".join(text_of(judged(base, head)).split())
    assert "1.00 s → 3.00 s, +100.0 % (raw +200.0 %)" in text
    assert "The probe, always the same work, differed by +50.0 % from the baseline" in text


def test_what_differs_about_the_runs_is_told() -> None:
    head = make_run([make_record()], provenance=make_provenance(hardware="another"))
    text = " ".join(text_of(judged(make_run([make_record()]), head)).split())
    assert "Another machine: another, 2 threads, Linux; the baseline's: a processor, 2 cores" in text
    assert "Not judged: timing." in text


def test_a_blessed_baseline_says_why() -> None:
    comparison = judged(many(1, 1), many(1, 1)).comparison
    assert comparison is not None
    blessed = replace(comparison, base=replace(comparison.base, blessing=Blessing("worth it", "2026-01-02")))
    assert "Accepted as a baseline: worth it." in " ".join(text_of(decide(blessed)).split())


def test_nothing_of_a_saved_run_is_obeyed() -> None:
    """Neither by a terminal, nor in a page that shows the Markdown, nor by GitHub's runner."""
    provenance = make_provenance(branch=HOSTILE, hardware=HOSTILE)
    base = make_run([make_record(case=HOSTILE, memory=MemoryFacts(10**8))], provenance=provenance)
    head = make_run([make_record(case=HOSTILE, memory=MemoryFacts(2 * 10**8))], [make_variant(label=HOSTILE)])
    decision = judged(base, head)
    assert decision.status is ExitStatus.REGRESSED
    text, markdown = text_of(decision), gate_markdown(gate_report(decision))
    for shown in (text, markdown):
        assert "\x1b" not in shown
        assert not any(line.lstrip().startswith("::error") for line in shown.splitlines())
    assert "<img" not in markdown
    assert "@everyone" not in markdown
    (annotation,) = github_annotations(decision)
    assert "\n" not in annotation
    assert annotation.count("::error") == 2  # the command, and the test's name within its message


def test_github_annotations_name_the_file() -> None:
    (annotation,) = github_annotations(judged(many(1, 10**8), many(1, 2 * 10**8)))
    assert annotation.startswith(
        "::error file=benchmarks/test_s0.py,title=llm-gate%3A regressed::benchmarks/test_s0.py::"
    )


def test_what_else_failed_is_one_failure_and_what_passed_none() -> None:
    assert list(failures(no_baseline("no run is saved", frozenset()))) == [
        (
            "no baseline",
            "no run is saved. Save one with --benchmark-autosave; --llm-gate-missing=pass lets a first run pass.",
        )
    ]
    assert list(failures(judged(many(1, 1), many(1, 1)))) == []


def test_a_comparison_alone_has_no_verdict_on_the_whole() -> None:
    comparison = judged(many(1, 10**8), many(1, 2 * 10**8)).comparison
    assert comparison is not None
    text = " ".join("\n".join(gate_lines(comparison_report(comparison), 100)).split())
    assert "= llm-bench compare =" in text
    assert "Baseline: 0001_a.json" in text
    assert "Compared: this run" in text
    assert "Regressed (1)" in text


def in_blocks(speedup: float) -> Run:
    return make_run([make_block_record(spread=0.0), make_block_record("bf16", speedup)])


def test_a_speedup_that_regressed_is_listed_and_what_it_cannot_see_is_said_once() -> None:
    text = text_of(judged(in_blocks(2.0), in_blocks(1.5)), width=10_000)
    assert "Speed-up: 2.00 → 1.50, −25.0 % (allowed: 5 %)" in text
    assert text.count("Speed-ups over fp32 were judged by their intervals: 1 test.") == 1
    assert "What slows fp32 alike is not seen in them: there the exact counts and the probe speak." in text
    assert "Timing is advisory between saved runs" in text


def test_without_blocks_nothing_is_said_of_speedups() -> None:
    assert "Speed-ups over" not in text_of(judged(many(2, 1), many(2, 1)))
