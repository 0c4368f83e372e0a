"""The end of pytest's output, whatever the terminal's width."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from page_runs import wide_run
from run_factory import (
    FALLBACK,
    absent_variant,
    asking,
    full_run,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    skipped_record,
)

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.renderers.terminal import summary_lines
from llm_bench_fixtures.results.metrics import Direction, Kind, Metric, Unit, registry
from llm_bench_fixtures.results.record import Run, Status

WIDTHS = (60, 80, 120, 200)
FOLDER = Path("llm-bench-report")


LOOSE = asking("ppl_ratio<=1.02")


def lines_of(run: Run, width: int) -> list[str]:
    return list(summary_lines(findings_of(run, registry(), LOOSE), FOLDER, width))


def header_of(lines: Iterable[str]) -> str:
    return next(line for line in lines if line.startswith("variant"))


def long_run() -> Run:
    run = full_run(
        provenance=make_provenance(model="an-organization/a-model-with-a-name-of-ninety-characters-" + "x" * 40)
    )
    long_label = "ONNX Runtime CPUExecutionProvider, int8 weights, activations quantized as they come " * 2
    variants = [replace(variant, label=variant.label and long_label) for variant in run.variants]
    variants[-1] = absent_variant("ort-fp32", "no " + "very" * 60 + " good reason")
    return replace(run, variants=tuple(variants))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", [full_run, long_run])
def test_no_line_is_wider_than_the_terminal(make: object, width: int) -> None:
    lines = lines_of(make(), width)  # type: ignore[operator]
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_no_figure_is_cut(width: int) -> None:
    """Bug: a change of the perplexity that begins with a minus sign was no figure, and was cut."""
    run = wide_run()
    lower = {"ppl_ratio": 0.98913, "ppl_ratio_error": 0.00084}
    variants = [replace(one, quality={**one.quality, **lower}) if one.id != "fp32" else one for one in run.variants]
    lines = lines_of(replace(run, variants=tuple(variants)), width)
    assert [line for line in lines if re.search(r"\d…", line)] == []
    assert sum("−1.09 % ± 0.08 %" in line for line in lines) >= len(variants) - 1
    latencies = [line for line in lines if re.search(r"\d ± \d", line)]
    assert len(latencies) >= len(variants)


@pytest.mark.parametrize("width", WIDTHS)
def test_what_must_be_there_at_any_width(width: int) -> None:
    text = " ".join(" ".join(lines_of(full_run(), width)).split())
    assert "Loaded: tiny | device=cpu | dtype=float32" in text
    assert FALLBACK in text
    assert "Use bf16 for the lowest latency and the least memory: 1.25× as fast as fp32" in text
    assert "Report: llm-bench-report/report.html" in text
    assert "latency" in text
    assert "perplexity" in text
    for variant in full_run().variants:
        assert variant.id in text
    assert "float16 autocast needs an accelerator; on CPU use autocast-bf16" in text


def test_a_wide_terminal_shows_every_column_in_one_unit() -> None:
    assert re.split("  +", header_of(lines_of(full_run(), 200))) == [
        "variant", "what ran", "TTFT, ms", "TPOT, ms", "latency, ms", "speed-up", "tokens/s", "batched, tokens/s",
        "weights, MB", "peak, MB", "perplexity", "KLD", "top-1",
    ]  # fmt: skip


def test_on_a_narrow_terminal_columns_go_the_least_needed_first() -> None:
    header = header_of(lines_of(full_run(), 80))
    assert "top-1" not in header
    assert "what ran" not in header
    for name in ("latency, ms", "speed-up", "tokens/s", "perplexity"):
        assert name in header


def test_the_narrowest_terminal_keeps_the_speed_up() -> None:
    """Bug: it gave way to the tokens per second, which the latency tells as well."""
    header = header_of(lines_of(full_run(), 50))
    assert "speed-up" in header
    assert "tokens/s" not in header


def test_what_has_no_room_in_the_table_stands_below_it() -> None:
    lines = lines_of(full_run(), 80)
    assert f"fp16: {FALLBACK}" in lines
    assert not any(line.startswith("fp16: ") for line in lines_of(full_run(), 200))


@pytest.mark.parametrize("limit", ["ppl_ratio<=1.02", "ppl_ratio<=1.01"])
def test_no_line_is_said_twice(limit: str) -> None:
    found = findings_of(full_run(), registry(), asking(limit))
    lines = [line for line in summary_lines(found, FOLDER, 200) if line.strip()]
    assert len(lines) == len(set(lines))


def test_the_answer_stands_before_the_table() -> None:
    lines = lines_of(full_run(), 80)
    answer = next(index for index, line in enumerate(lines) if line.startswith("Use bf16 "))
    assert answer < lines.index(header_of(lines))


def test_where_the_reference_is_kept_the_sentence_says_so_once() -> None:
    """The readers' own sentences would say it again; what would be faster but for the limit is new."""
    lines = list(summary_lines(findings_of(full_run(), registry()), FOLDER, 200))
    assert sum("no other variant within the quality limit" in line.lower() for line in lines) == 1
    assert any(
        " bf16 is 1.25× as fast as fp32, but may or may not keep the quality limit (not decided" in line
        for line in lines
    )


def test_a_figure_stays_with_its_unit() -> None:
    """Whatever the width: no line begins with a unit."""
    for width in range(60, 100):
        for line in lines_of(full_run(), width):
            assert not re.match(r"\s*(%|ms|s|MB)(?!\w)", line), line


def test_hostile_text_moves_no_cursor() -> None:
    hostile = "\x1b[2J\x1b]0;title\x07 | \r\u202e"
    run = full_run(provenance=make_provenance(model=hostile, passed_over=(hostile,)))
    variants = [replace(one, label=one.label and hostile, reason=one.reason and hostile) for one in run.variants]
    for width in WIDTHS:
        text = "".join(lines_of(replace(run, variants=tuple(variants)), width))
        assert text.isprintable()
        assert "[2J" in text


def test_a_projects_own_columns_give_way_before_ours() -> None:
    own = Metric("mine", "Mine", "my own column", Unit.NONE, Direction.NEITHER, Kind.QUALITY, "mine")
    variant = make_variant(quality={"perplexity": 20.0, "mine": 1.0})
    run = make_run([make_record()], [variant])
    findings = findings_of(run, registry([own]))
    wide, narrow = (header_of(summary_lines(findings, FOLDER, width)) for width in (200, 95))
    assert "my own column" in wide
    assert "my own" not in narrow
    assert "TTFT" in narrow


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_that_measured_nothing(width: int, interrupted: bool) -> None:
    run = make_run(
        [skipped_record("fp32", "no reason")], [absent_variant("fp32", "no reason")], interrupted=interrupted
    )
    text = "\n".join(lines_of(run, width))
    assert "Nothing was timed." in text
    assert "skipped: no reason" in text


def test_candidates_that_were_not_used_stand_below_the_one_that_was() -> None:
    lines = lines_of(make_run([make_record()], provenance=make_provenance(passed_over=("mine: no such folder",))), 80)
    assert lines[3] == "Not used: mine: no such folder."


def test_times_of_a_benchmark_whose_test_failed_are_not_denied() -> None:
    """Bug: "Nothing was timed" stood below pytest-benchmark's table of its times."""
    failed = replace(skipped_record("fp32", "AssertionError"), status=Status.ERROR)
    assert "No benchmark was timed whose test passed." in lines_of(make_run([failed], interrupted=True), 80)


def test_a_run_interrupted_before_its_first_variant() -> None:
    assert "Nothing was timed." in lines_of(make_run([], [make_variant()], interrupted=True), 80)


def test_what_is_not_worth_using_has_a_line_a_variant_and_no_label_twice() -> None:
    """Bug: all stood in one paragraph, and what a fallback ran stood there and below the table."""
    lines = lines_of(full_run(), 120)
    first = lines.index("Not worth using on one prompt of 64 tokens, batch 1:")
    assert lines[first + 1] == "  fp16 is identical to fp32 here"
    assert lines[first + 2].startswith("  bnb-nf4 is 50 % slower ")
    assert sum(FALLBACK in line for line in lines) == 1


def test_below_the_table_stands_what_its_figures_are() -> None:
    lines = lines_of(full_run(), 200)
    assert (
        lines.count(
            "±: half the distance between the quartiles of the latency, one standard error of the perplexity's change"
        )
        == 1
    )
