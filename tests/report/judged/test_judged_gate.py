"""What the gate says, for people and for machines: short where nothing moved, and nothing in it is obeyed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import make_block_record, make_provenance, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.decision import Decision, decide, no_baseline
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.rules import Rules, parse_rules
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.judged.causes import MOST_CAUSES
from llm_bench_fixtures.report.judged.changes import (
    MOST_ANNOTATIONS,
    comparison_json,
    comparison_report,
    decision_json,
    failures,
    gate_report,
    github_annotations,
)
from llm_bench_fixtures.report.renderers.markdown import judged_markdown
from llm_bench_fixtures.report.renderers.terminal import judged_lines
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
    return "\n".join(judged_lines(gate_report(decision), width))


def test_where_nothing_moved_it_is_short() -> None:
    decision = judged(many(150, 1000), many(150, 1000))
    lines = list(judged_lines(gate_report(decision), 100))
    assert "Judged 150 of 150 tests. Values that can fail the gate: " in " ".join("\n".join(lines).split())
    assert len(lines) < 12


def test_what_regressed_is_told_with_both_values_the_change_and_what_was_allowed() -> None:
    text = text_of(judged(many(1, 100_000_000), many(1, 150_000_000)))
    assert "= llm-gate: regressed =" in text
    assert "1 value of 1 test or variant regressed." in text
    assert "fp32: peak memory 100 MB → 150 MB, +50.0 % in S0 (allowed: 10 % or 5.00 MB)" in " ".join(text.split())


def of_variants(count: int, peak: int) -> Run:
    names = [f"v{number:02}" for number in range(count)]
    sizes = [peak + number * 10**7 for number in range(count)]
    records = [make_record(name, memory=MemoryFacts(size)) for name, size in zip(names, sizes, strict=True)]
    return make_run(records, [make_variant(name) for name in names])


def moved_variants(count: int) -> Decision:
    """One more variant didn't move, so that each of the others is a cause of its own."""
    still = make_record("still", memory=MemoryFacts(10**8))
    base, head = (
        replace(run, records=(*run.records, still), variants=(*run.variants, make_variant("still")))
        for run in (of_variants(count, 10**8), of_variants(count, 3 * 10**8))
    )
    return judged(base, head)


def test_many_causes_are_cut_and_it_says_so() -> None:
    decision = moved_variants(MOST_CAUSES + 7)
    text = text_of(decision)
    assert text.count("peak memory") == MOST_CAUSES
    assert "... and 7 more" in text
    whole = "\n".join(judged_lines(gate_report(decision), 100, verbose=True))
    assert whole.count("peak memory") == MOST_CAUSES + 7


def test_the_values_of_a_cause_are_shown_on_request_and_folded() -> None:
    decision = judged(many(3, 10**8), many(3, 2 * 10**8))
    assert "peak memory +100 MB in 3 tests" in text_of(decision)
    assert "S1" not in text_of(decision)
    assert "S1" in "\n".join(judged_lines(gate_report(decision), 100, verbose=True))
    shown = judged_markdown(gate_report(decision))
    assert shown.index("- fp32: peak memory +100 MB") < shown.index("<details>") < shown.index("| fp32 | S1 |")


def test_a_tests_timings_are_one_line_that_its_latency_leads() -> None:
    text = " ".join(text_of(judged(many(1, 1), many(1, 1, 2.0))).split())
    assert "fp32: latency and 2 other timings 1.00 s → 2.00 s, +100.0 % (+73.9 % to +130.0 %) in S0" in text


def test_with_a_probe_both_changes_are_shown() -> None:
    base, head = (
        make_run([make_record(median_s=seconds, probe_s=((0.001 * slow, 0.001 * slow),) * 5)])
        for seconds, slow in ((1.0, 1.0), (3.0, 1.5))
    )
    text = " ".join(text_of(judged(base, head)).split())
    assert "1.00 s → 3.00 s, +100.0 % (raw +200.0 %)" in text
    assert "By the probe, the machine took +50.0 % time for the same work." in text


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
    text, page = text_of(decision), judged_markdown(gate_report(decision))
    for shown in (text, page):
        assert "\x1b" not in shown
        assert not any(line.lstrip().startswith("::error") for line in shown.splitlines())
    assert "<img" not in page
    assert "@everyone" not in page
    (annotation,) = github_annotations(decision)
    assert "\n" not in annotation
    assert annotation.startswith("::error ")
    assert annotation.isprintable()


def test_github_annotations_name_the_cause_and_its_file() -> None:
    (annotation,) = github_annotations(judged(many(1, 10**8), many(1, 2 * 10**8)))
    assert annotation == (
        "::error file=benchmarks/test_s0.py,title=llm-gate%3A regressed::fp32: peak memory 100 MB → 200 MB, +100.0 %25 "
        "in S0 (allowed: 10 %25 or 5.00 MB)"
    )


def test_a_cause_in_several_files_is_one_annotation_without_a_file() -> None:
    (annotation,) = github_annotations(judged(many(3, 10**8), many(3, 2 * 10**8)))
    assert annotation.startswith("::error title=llm-gate%3A regressed::fp32: peak memory +100 MB in 3 tests")


@pytest.mark.parametrize(("causes", "last"), [(10, "peak memory"), (12, "3 more causes")])
def test_at_most_ten_annotations_are_made(causes: int, last: str) -> None:
    *others, final = github_annotations(moved_variants(causes))
    assert len(others) == MOST_ANNOTATIONS - 1
    assert last in final


def test_an_annotation_is_escaped_as_github_documents() -> None:
    """Percent signs and line breaks in the message; colons and commas in properties too."""
    decision = replace(no_baseline("50%, a: b\r\nc", frozenset()), advice="Do it.")
    (annotation,) = github_annotations(decision)
    assert annotation == "::error title=llm-gate%3A no baseline::50%25, a: b%0D%0Ac. Do it."
    hostile = make_record(scenario="a,b:c%", memory=MemoryFacts(10**8))
    worse = replace(hostile, memory=MemoryFacts(2 * 10**8))
    (annotation,) = github_annotations(judged(make_run([hostile]), make_run([worse])))
    assert annotation.startswith("::error file=benchmarks/test_a%2Cb%3Ac%25.py,title=llm-gate%3A regressed::")


def test_what_else_failed_is_one_failure_and_what_passed_none() -> None:
    option = "--llm-gate-missing=pass (llm-bench gate: --missing=pass)"
    text = f"no run is saved. Save one with --benchmark-autosave; {option} lets a first run pass."
    assert list(failures(no_baseline("no run is saved", frozenset()))) == [("no baseline", text)]
    assert list(failures(judged(many(1, 1), many(1, 1)))) == []


def test_a_comparison_alone_has_no_verdict_on_the_whole() -> None:
    comparison = judged(many(1, 10**8), many(1, 2 * 10**8)).comparison
    assert comparison is not None
    text = " ".join("\n".join(judged_lines(comparison_report(comparison), 100)).split())
    assert "= llm-bench compare =" in text
    assert "Baseline: 0001_a.json" in text
    assert "Compared: this run" in text
    assert "Regressed (1 value)" in text


def in_blocks(speedup: float) -> Run:
    return make_run([make_block_record(spread=0.0), make_block_record("bf16", speedup)])


def test_a_speedup_that_regressed_is_listed_and_what_it_cannot_see_is_said_once() -> None:
    text = text_of(judged(in_blocks(2.0), in_blocks(1.5)), width=10_000)
    assert "bf16: speed-up 2.00 → 1.50, −25.0 %" in text
    assert text.count("Speed-ups over fp32 are judged by their intervals: 1 test. False-alarm rate: at most 1 %.") == 1
    assert "Slowdowns shared with fp32 are invisible here; use llm-bench pair." in text
    assert "Times are advisory between saved runs" in text


def test_without_blocks_nothing_is_said_of_speedups() -> None:
    assert "Speed-ups over" not in text_of(judged(many(2, 1), many(2, 1)))


def test_the_json_has_every_cause_and_every_value() -> None:
    decision = judged(many(3, 10**8), many(3, 2 * 10**8))
    data = decision_json(decision)
    (cause,) = data["causes"]
    assert (cause["name"], cause["metric"], cause["verdict"]) == ("fp32", "own_memory_bytes", "regressed")
    assert (cause["tests"], cause["judged_tests"]) == (
        [f"benchmarks/test_s{at}.py::test_s{at}[-fp32]" for at in range(3)],
        3,
    )
    assert (cause["ratios"], cause["text"]) == (pytest.approx([2, 2]), "fp32: peak memory +100 MB in 3 tests")
    assert (data["status"], data["exit_status"]) == ("regressed", 20)
    assert decision.comparison is not None
    peaks = [row for row in comparison_json(decision.comparison)["values"] if row["metric"] == "own_memory_bytes"]
    assert [(row["base"], row["head"]) for row in peaks] == [(10**8, 2 * 10**8)] * 3
    assert decision_json(no_baseline("none", frozenset())) == {
        "status": "no_baseline", "exit_status": 21, "reason": "none",
    }  # fmt: skip
