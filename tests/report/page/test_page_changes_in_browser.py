"""The parts of the page that compare, in a real browser: they fit, filter and sort, and the limit moves the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_browser import HOSTILE, NEEDS_A_BROWSER, Opened
from page_runs import chart_run
from run_factory import asking
from test_page_changes import heavier

from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.files import write_report, write_runs_report
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.runs import runs_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run

pytestmark = NEEDS_A_BROWSER
OPEN_ALL = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
LEAD = "#answer .lead"


def lead(opened: Any) -> str:
    """What to use, as the page says it first."""
    return " ".join(opened.page.locator(LEAD).all_inner_texts())


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    base, head = judged_run(chart_run(), "/runs/0001_a.json"), heavier()
    changes = Changes(compare_runs(base, judged_run(head), Rules(()), registry()), "Keep fp32.")
    write_report(head, registry(), folder, changes=changes)
    return folder / "report.html"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three machines and models, one of which can't be compared in quality, with hostile names."""
    folder = tmp_path_factory.mktemp("runs")
    found = (
        chart_run(),
        chart_run(provenance={"hardware": "a server with a long name, 128 cores"}),
        chart_run(provenance={"model": HOSTILE, "hardware": HOSTILE, "corpus": HOSTILE}),
    )
    named = [findings_of(replace(run, source=f"/runs/{at}.json"), registry()) for at, run in enumerate(found)]
    write_runs_report(runs_of(named, [HOSTILE]), folder)
    return folder / "report.html"


def fits(opened: Opened) -> bool:
    opened.ask(OPEN_ALL)
    return opened.widest() == 0


@pytest.mark.parametrize("width", [390, 1440])
def test_both_pages_fit_the_window(compared: Path, runs: Path, open_page: Any, width: int) -> None:
    for path in (compared, runs):
        opened = open_page(path, viewport={"width": width, "height": 900})
        assert fits(opened)
        assert opened.complaints == []
        assert opened.requests == [path.as_uri()]


def test_what_did_not_change_is_folded_and_grey(compared: Path, open_page: Any) -> None:
    opened = open_page(compared)
    assert opened.visible(".still td") == []
    opened.ask(OPEN_ALL)
    colour = "getComputedStyle(document.querySelector(`#changes ${0}`)).color"
    of = [opened.ask(colour.replace("${0}", place)) for place in (".still td", ".changes:not(.still) tbody td")]
    assert of[0] != of[1]


def test_a_changed_value_has_its_colour_and_its_word(compared: Path, open_page: Any) -> None:
    opened = open_page(compared)
    rows = opened.visible("#changes .changes tbody tr")
    assert len(rows) == 2
    assert "regressed" in rows[0]
    colours = [
        opened.ask(f"getComputedStyle(document.querySelector('#changes .changes td.{tone}')).color")
        for tone in ("worse", "better")
    ]
    assert colours[0] != colours[1]


def test_the_changes_are_filtered_and_sorted_like_the_other_tables(compared: Path, open_page: Any) -> None:
    opened = open_page(compared)
    opened.page.click("#variants [data-variant='bf16']")
    assert [row.split()[0] for row in opened.visible("#changes .changes tbody tr")] == ["bf16"]
    opened.page.click("#variants [data-all]")
    opened.page.click("#changes .changes:not(.still) th:has-text('change') .sort")
    assert [row.split()[0] for row in opened.visible("#changes .changes tbody tr")] == ["ort-int8", "bf16"]
    assert opened.complaints == []


def test_the_limit_moves_the_answer_to_what_python_says_under_it(compared: Path, open_page: Any) -> None:
    """ort-int8 is the fastest, and its perplexity 2 % higher: 1.02196 at the end of its interval."""
    opened = open_page(compared)
    before = lead(opened)
    opened.page.focus("#limit")
    opened.page.keyboard.press("End")
    words = opened.page.inner_text("#limit-words")
    assert words == "perplexity at most 2.2 % above fp32's: kept by bf16, ort-fp32, ort-int8"
    expected = findings_of(heavier(), registry(), asking("ppl_ratio<=1.022")).answer
    assert lead(opened) == expected.sentence != before
    assert opened.visible("#answer .pick") == [one.name for one in expected.recommendations]
    assert opened.page.get_attribute("#limit", "aria-valuetext") == words
    assert opened.page.text_content("#said") == expected.sentence
    opened.page.click("#limit-back")
    assert lead(opened) == before
    assert opened.visible("#limit-back") == []
    assert opened.complaints == []


def test_the_measure_of_the_limit_changes_too(tmp_path: Path, open_page: Any) -> None:
    run = _with_agreement(chart_run())
    write_report(run, registry(), tmp_path)
    opened = open_page(tmp_path / "report.html")
    opened.page.select_option("#limit-measure", "top1_agreement")
    assert opened.page.inner_text("#limit-words").startswith("top-1 agreement of at least 100 % with fp32: kept by ")
    assert "top1_agreement ≥ 100 %" in opened.page.inner_text("#answer")
    opened.page.select_option("#limit-measure", "ppl_ratio")
    assert "ppl_ratio ≤ 1.01" in opened.page.inner_text("#answer")
    assert opened.complaints == []


def _with_agreement(run: Run) -> Run:
    shares = {"top1_agreement": 0.95, "scored_tokens": 10_000.0}
    variants = [
        replace(one, quality={**one.quality, **shares}) if "ppl_ratio" in one.quality else one for one in run.variants
    ]
    return replace(run, variants=tuple(variants))


def test_several_runs_are_one_table_that_sorts_and_filters(runs: Path, open_page: Any) -> None:
    opened = open_page(runs)
    assert opened.page.locator("#summary table").count() == 1
    assert len(opened.visible("#summary tbody tr")) == 4 * 3
    opened.page.click("#variants [data-variant='bf16']")
    assert len(opened.visible("#summary tbody tr")) == 3
    opened.page.click("#summary th:has-text('speed-up') .sort")
    opened.page.click("#theme")
    assert opened.ask("document.querySelectorAll('img, main b:not(.plain b)').length") == 0
    assert any("another corpus" in text for text in opened.visible("#incomparable li"))
    assert opened.complaints == []


def test_several_runs_without_scripts_are_a_table(runs: Path, open_page: Any) -> None:
    opened = open_page(runs, java_script_enabled=False)
    assert len(opened.visible("#summary tbody tr")) == 12
    assert opened.visible(".chip") == []


def test_without_scripts_the_limit_can_not_be_moved(compared: Path, open_page: Any) -> None:
    opened = open_page(compared, java_script_enabled=False)
    assert opened.visible("#limits") == []
    assert lead(opened)
