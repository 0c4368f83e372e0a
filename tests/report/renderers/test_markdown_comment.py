"""report.md: short enough for a pull request, and safe in it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from run_factory import (
    FALLBACK,
    asking,
    full_run,
    make_block_record,
    make_record,
    make_run,
    make_variant,
    skipped_record,
    whole_suite,
)

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.renderers.markdown import render_markdown
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run

HOSTILE = (
    "<script>alert(1)</script> | `code` \n# title\n[link](http://example.org) ![](x) *b* _i_ ~s~ \\| & ](y) \r"
    "@everyone #1 </details> $x$ \x1b[31m"
)
CELL_BORDER = re.compile(r"(?<!\\)\|")
LOOSE = asking("ppl_ratio<=1.02")


def render(run: Run) -> str:
    return render_markdown(findings_of(run, registry(), LOOSE))


def hostile_run() -> Run:
    """A full run, every text of which that comes from elsewhere is hostile."""
    run = full_run()
    run = replace(run, provenance=replace(run.provenance, model=HOSTILE, branch=HOSTILE, command=HOSTILE))
    records = [replace(one, outputs=(HOSTILE,), reason=HOSTILE, case=HOSTILE, scenario=HOSTILE) for one in run.records]
    variants = [replace(one, label=one.label and HOSTILE, notes=(HOSTILE,)) for one in run.variants]
    variants[-1] = replace(variants[-1], reason=HOSTILE)
    return replace(run, records=tuple(records), variants=tuple(variants))


def test_the_answer_stands_first() -> None:
    lines = render(full_run()).splitlines()
    assert lines[0] == "## Text generation of tiny"
    assert lines[4].startswith("**Use bf16 for the lowest latency and the least memory: 1.25× as fast as fp32, ")


def test_the_header_line_is_there_as_it_is() -> None:
    assert "\nLoaded: tiny | device=cpu | dtype=float32\n" in render(full_run())


def test_the_table_is_short() -> None:
    """Without a second variant at any batch size there is the throughput of one prompt."""
    lines = render(full_run()).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("|"))
    assert lines[first].split(" | ") == [
        "| variant", "what ran", "latency, ms", "speed-up", "tokens/s", "weights, MB", "peak, MB", "perplexity",
        "top-1 |",
    ]  # fmt: skip
    assert lines[first + 4].split(" | ") == [
        "| bf16", "bfloat16", "80.0 ± 0.8", "1.25×", "200", "2.00", "12.0", "+1.0 % ± 0.2 %", "98.5 % |",
    ]  # fmt: skip
    assert f"| fp16 | {FALLBACK} |" in render(full_run())
    assert "| ort-fp32 | error: OutOfMemory: 512 bytes asked for | – |" in render(full_run())


def test_what_is_not_in_the_table_is_folded() -> None:
    text = render(full_run())
    visible = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert visible.count("\n|") == 2 + 6
    assert len([line for line in visible.splitlines() if line]) == 5 + 2 + 6 + 1
    assert "\n±: half the distance between the quartiles of the latency, one standard error of " in visible
    titles = re.findall("<summary>(.*)</summary>", text)
    assert titles == [
        "The answer for each goal, with its cost",
        "More that follows from this run",
        "Every case: the reference&#x27;s latency, and the others&#x27; speed-ups",
        "About this run",
    ]
    assert text.count("<details>") == text.count("</details>") == len(titles)


def test_every_case_has_a_row() -> None:
    text = render(full_run())
    assert "| scenario | case | fp32 | fp16 | bf16 | bnb-nf4 |" in text
    assert "| Precision |  | 100 ms | 102 ms | 80.0 ms | – |" in text
    assert "| Batch size | 1 | 800 ms | – | – | – |" in text
    assert "|  | 4 | 400 ms | – | – | – |" in text  # its scenario stands at the first of its cases


def test_the_scenarios_are_in_the_runs_order_of_them() -> None:
    """Those that it doesn't name come last, under a title made of their name."""
    names = ("of_my_own", "batch", "precision")
    records = [make_record(scenario=name) for name in names]
    rows = re.findall(r"^\| ([^|]*) \|  \|", render(make_run(records)), re.MULTILINE)
    assert rows == ["Precision", "Batch size", "Of my own"]


def test_speedups_stand_in_the_cases_where_there_are_some() -> None:
    run = make_run([make_block_record(spread=0.0, case="a"), make_block_record("bf16", 2.0, case="a")])
    assert "| Precision | a | 1.02 s | 2.00 |" in render(run)


def test_takeaways_and_the_command_are_there() -> None:
    text = render(full_run())
    assert "- On fp32, batch 4 gives 2.00× the throughput of batch 1" in text
    assert "- Command: pytest benchmarks/" in text


def test_what_a_variant_that_loaded_could_not_run_is_grouped() -> None:
    reasons = ("no static cache", "no static cache", "too long\nand more")
    records = [skipped_record("fp32", reason, case=str(index)) for index, reason in enumerate(reasons)]
    text = render(make_run([make_record(), *records]))
    assert "<summary>Skipped and failed</summary>\n\n- fp32: 3 benchmarks skipped: no static cache and 1 other" in text


def test_every_table_row_has_as_many_cells_as_its_header() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", render(hostile_run()), re.MULTILINE):
        assert len({len(CELL_BORDER.findall(line)) for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    "markup",
    [
        "<script", "\n# title", "[link]", "](http", "](y)", "`code`", "*b*", " _i_", "~s~", "\r", "@everyone", "#1",
        "http://", "$x$", "\x1b", "| `",
    ],
)  # fmt: skip
def test_hostile_text_is_no_markup(markup: str) -> None:
    assert markup.strip() in HOSTILE
    text = render(hostile_run()).replace("\\\\", "")  # an escaped backslash escapes nothing
    assert not re.search(r"(?<!\\)" + re.escape(markup), text)


def test_hostile_text_closes_no_fold() -> None:
    text = render(hostile_run())
    assert text.count("<details>") == text.count("</details>")


def test_hostile_text_can_still_be_read() -> None:
    text = render(hostile_run())
    assert (
        "&lt;script&gt;alert(1)&lt;/script&gt; \\| \\`code\\`  ↵ # title ↵ \\[link\\](http:\u200b//example.org)" in text
    )


def test_warnings_are_shown() -> None:
    said = "> **The run was interrupted; this is what had finished by then. --llm-resume goes on with it.**"
    assert said in render(full_run(interrupted=True))


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_that_measured_nothing(interrupted: bool) -> None:
    run = make_run([skipped_record("fp32", "no reason")], [make_variant()], interrupted=interrupted)
    text = render(run)
    assert "**Nothing was measured, so there is no answer.**" in text
    assert "Nothing was timed." in text
    assert "- fp32: 1 benchmark skipped: no reason" in text
    assert ("interrupted" in text) is interrupted


def test_a_whole_suite_fits_into_a_comment_with_all_its_parts() -> None:
    text = render(whole_suite())
    assert len(text.encode()) < 10_000
    assert "<summary>Every case" in text
    assert "<summary>About this run" in text


def test_a_table_that_is_too_long_by_itself_is_cut_and_says_so() -> None:
    """Bug: the file was too long and said nothing."""
    names = [f"variant-{at}" for at in range(300)]
    run = make_run([make_record(name) for name in names], [make_variant(name) for name in names])
    text = render_markdown(findings_of(run, registry()))
    assert len(text.encode()) < 10_000
    assert text.endswith("**Cut here, as it is too long for a comment: `report.html` has the rest.**\n")
    assert text.count("<details>") == text.count("</details>")
