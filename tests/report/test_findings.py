"""What is said of a run is computed once, and said alike everywhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from html_page import Page
from run_factory import absent_variant, asking, full_run, make_record, make_run, make_variant, skipped_record

from llm_bench_fixtures.answer.headline import headline_of
from llm_bench_fixtures.report.files import write_report
from llm_bench_fixtures.report.findings import Findings, SkippedOrFailed, findings_of
from llm_bench_fixtures.report.renderers.markdown import escape
from llm_bench_fixtures.report.renderers.terminal import summary_lines
from llm_bench_fixtures.report.words.answer import answer_of
from llm_bench_fixtures.report.words.takeaways import takeaways
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.noise import noise_floor
from llm_bench_fixtures.results.record import Run, Status


def found(run: Run) -> Findings:
    return findings_of(run, registry())


@contextmanager
def calls_of(*functions: Callable[..., Any]) -> Iterator[Counter[str]]:
    """How often each is called, under whatever name it was imported."""
    codes = {function.__code__: function.__name__ for function in functions}
    calls = Counter(dict.fromkeys(codes.values(), 0))

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            calls[codes[frame.f_code]] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_a_report_in_all_its_formats_computes_them_once(tmp_path: Path) -> None:
    run = make_run([make_record(), make_record("bf16", 0.5)])
    with calls_of(answer_of, takeaways, noise_floor, headline_of) as calls:
        findings = write_report(run, registry(), tmp_path)
        assert list(summary_lines(findings, tmp_path, 80))
    assert calls == {"answer_of": 1, "takeaways": 1, "noise_floor": 1, "headline_of": 1}


@pytest.mark.usefixtures("without_pictures")
def test_page_markdown_and_terminal_show_the_same_takeaways(tmp_path: Path) -> None:
    findings = write_report(full_run(), registry(), tmp_path)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    terminal = " ".join(" ".join(summary_lines(findings, tmp_path, 80)).split())
    assert len(findings.takeaways) >= 3
    for sentence in findings.takeaways:
        assert sentence in page.texts
        assert f"- {escape(sentence)}" in markdown
        assert f"- {sentence}" in terminal


@pytest.mark.usefixtures("without_pictures")
def test_markdown_and_terminal_begin_with_the_same_answer(tmp_path: Path) -> None:
    findings = write_report(full_run(), registry(), tmp_path, asking("ppl_ratio<=1.02"))
    sentence = findings.answer.sentence
    assert sentence.startswith("Use bf16 ")
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert markdown.splitlines()[4] == f"**{escape(sentence)}**"
    assert sentence in " ".join(" ".join(summary_lines(findings, tmp_path, 80)).split())


def test_the_common_workload_has_a_record_of_each_variant_that_ran_it() -> None:
    """bnb-nf4 ran the same prompt in another scenario; the others of the run didn't run at all."""
    findings = found(full_run())
    assert list(findings.common) == ["fp32", "fp16", "bf16", "bnb-nf4"]
    assert findings.reference is findings.common["fp32"]
    assert [record.variant for record in findings.others] == ["bf16", "bnb-nf4"]  # fp16 ran what fp32 ran


def test_flags_are_kept_by_test_and_by_variant() -> None:
    steady, unstable = make_record(), make_record("bf16", rounds_s=(1.0, 2.0, 3.0))
    findings = found(make_run([steady, unstable]))
    assert findings.flags == {steady.test: (), unstable.test: ("unstable (CV 50 %)",)}
    assert findings.variant_flags == {"fp32": (), "bf16": ()}


def test_what_was_skipped_is_counted_by_variant_and_the_first_line_of_its_reason() -> None:
    records = [skipped_record("fp16", f"not here\n{number}", case=str(number)) for number in range(3)]
    failed = skipped_record("fp32", "OutOfMemory", status=Status.ERROR)
    assert found(make_run([*records, failed])).skipped_or_failed == (
        SkippedOrFailed("fp16", Status.SKIPPED, "not here", 3),
        SkippedOrFailed("fp32", Status.ERROR, "OutOfMemory", 1),
    )


def test_a_run_that_measured_nothing_has_nothing_to_say() -> None:
    findings = found(make_run([], [absent_variant("fp32", "why")]))
    assert (findings.common, findings.takeaways, findings.decode, findings.reference) == ({}, (), "", None)


def test_what_the_clocks_cost_is_a_sentence_a_variant() -> None:
    """Ratios of 1.00 and 1.01, and their mirror: a geometric mean of 0.5 %."""
    ratios = (1.0, 1.01, 1.0, 1.01)
    run = make_run([make_record()], [make_variant()], instrumentation_ratios={"fp32": ratios, "bf16": ratios[:1]})
    known, unknown = found(run).instrumentation
    assert known.startswith("Recording token times changed fp32's latency by +0.5 % (95 % interval ")
    assert unknown == "What taking each token's time costs bf16 is not known from 1 pair."


def test_the_same_reason_in_other_words_stands_once() -> None:
    """Bug: "static cache is not supported: X can't ..." stood below "X can't ..."."""
    reasons = ("it can't", "static cache is not supported: it can't", "too long")
    records = [skipped_record("fp32", reason, case=reason) for reason in reasons]
    other = skipped_record("bf16", "static cache is not supported: it can't")
    found = findings_of(make_run([*records, other]), registry()).skipped_or_failed
    assert [(one.variant, one.reason, one.benchmarks) for one in found] == [
        ("fp32", "it can't", 2),
        ("fp32", "too long", 1),
        ("bf16", "static cache is not supported: it can't", 1),
    ]
