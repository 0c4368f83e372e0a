"""The page's part on another run: both values, the gate's verdict in words, and what did not change apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from html_page import Page
from page_runs import chart_run
from run_factory import make_run

from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.page.build import page_values, render_report
from llm_bench_fixtures.report.page.tables import PageTable
from llm_bench_fixtures.report.renderers.markdown import render_markdown
from llm_bench_fixtures.report.renderers.terminal import summary_lines
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run

HOSTILE = "</script><img src=x onerror=alert(1)> | `x` \0\u202e"


def heavier() -> Run:
    """bf16 has twice the weights, and ort-int8 half of them."""
    run = chart_run()
    weights = {"bf16": 4_000_000, "ort-int8": 500_000}
    changed = [replace(one, weight_bytes=weights.get(one.id, one.weight_bytes)) for one in run.variants]
    return replace(run, variants=tuple(changed))


def findings(base: Run, head: Run) -> Any:
    comparison = compare_runs(judged_run(base, "/runs/0001_a.json"), judged_run(head), Rules(()), registry())
    return findings_of(head, registry(), changes=Changes(comparison, "Use bf16."))


def tables(base: Run, head: Run) -> dict[str, PageTable]:
    found: dict[str, PageTable] = page_values(findings(base, head))["changes"]
    return found


def page_of(base: Run, head: Run) -> str:
    return render_report(findings(base, head))


def test_a_run_by_itself_has_no_such_part() -> None:
    run = chart_run()
    found = findings_of(run, registry())
    assert page_values(found)["changes"] == {}
    assert 'id="changes"' not in render_report(found)


def test_every_cause_has_a_row_with_both_values_and_a_verdict_in_words() -> None:
    moved = tables(chart_run(), heavier())["moved"]
    rows = dict(zip(moved.variants, moved.rows, strict=True))
    assert list(rows) == ["bf16", "ort-int8"]
    worse = rows["bf16"]
    assert [cell.words for cell in worse] == ["bf16", "weights", "2.00 MB → 4.00 MB, +100.0 %", "all", "regressed"]
    assert (worse[2].tone, worse[4].tone) == ("worse", "worse")
    assert [cell.words for cell in rows["ort-int8"]][2:] == ["1.00 MB → 500 kB, −50.0 %", "all", "improved"]
    assert rows["ort-int8"][4].tone == "better"


def test_every_value_that_changed_has_a_row() -> None:
    values = tables(chart_run(), heavier())["every_value"]
    assert [[cell.words for cell in row] for row in values.rows] == [
        ["bf16", "all", "Weights", "2.00 MB", "4.00 MB", "+100.0 %", "regressed"],
        ["ort-int8", "all", "Weights", "1.00 MB", "500 kB", "−50.0 %", "improved"],
    ]


def test_what_did_not_change_is_counted_and_has_no_colour() -> None:
    found = tables(chart_run(), chart_run())
    assert found["moved"].rows == ()
    assert len(found["still"].rows) > 0 == len(found["every_value"].rows)
    assert {cell.tone for row in found["still"].rows for cell in row} == {None}
    assert {row[4].words for row in found["still"].rows} == {"unchanged", "unchanged, advisory"}


def test_the_overview_has_both_runs_side_by_side() -> None:
    overview = tables(chart_run(), heavier())["overview"]
    cells = dict(zip(overview.variants, overview.table.cells("weights"), strict=True))
    assert (cells["bf16"].words, cells["bf16"].note, cells["bf16"].tone) == (
        "4.00 MB",
        "was 2.00 MB, +100.0 %",
        "worse",
    )
    assert (cells["fp32"].note, cells["fp32"].tone) == ("the same", "same")


def test_the_answer_says_in_a_sentence_what_changed_everywhere() -> None:
    found = findings(chart_run(), heavier())
    sentence = found.changes.sentence
    assert sentence.startswith("Worse than 0001_a: bf16: weights 2.00 MB → 4.00 MB, +100.0 %. Better than 0001_a: ")
    assert any(sentence in text for text in Page(page_of(chart_run(), heavier())).texts)
    assert "Worse than 0001_a: bf16: weights" in render_markdown(found)
    assert sentence in " ".join(" ".join(summary_lines(found, Path("x"), 100)).split())


def test_the_pull_request_has_the_short_version() -> None:
    markdown = render_markdown(findings(chart_run(), heavier()))
    assert "<summary>What changed against 0001_a</summary>" in markdown
    assert "| bf16 | weights | 2.00 MB → 4.00 MB, +100.0 % | all | regressed |" in markdown
    assert len(markdown.encode()) < 10_000


def test_the_other_runs_answer_and_machine_stand_beside() -> None:
    text = " ".join(Page(page_of(chart_run(provenance={"hardware": "old one"}), chart_run())).texts)
    assert "Use bf16." in text
    assert "old one, 2 threads; Linux" in text
    assert "Another machine: " in text


def test_hostile_names_stay_text() -> None:
    base = chart_run(provenance={"branch": HOSTILE, "hardware": HOSTILE})
    head = replace(heavier(), records=tuple(replace(one, case=HOSTILE, scenario=HOSTILE) for one in heavier().records))
    page = Page(page_of(base, head))
    assert "img" not in page.tags
    assert page.open_tags == []


def test_runs_without_anything_in_common_make_a_page_too() -> None:
    found = tables(make_run(), chart_run())
    assert "Nothing can be compared" in findings(make_run(), chart_run()).changes.sentence
    assert found["moved"].rows == found["overview"].rows == ()
    assert len(found["tests"].rows) == len(chart_run().measured())
