"""The report of a run that goes on: it says so, reloads itself, and is one with the report that replaces it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from html_page import Page
from run_factory import full_run, make_record, make_run, make_variant

from llm_bench_fixtures.answer.need import DEFAULT_NEED
from llm_bench_fixtures.report import files
from llm_bench_fixtures.report.files import publish, publish_so_far
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.renderers.html import content_policy
from llm_bench_fixtures.report.renderers.terminal import lines_so_far
from llm_bench_fixtures.results.folder import EARLIER, claim, set_aside
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import read_run

SO_FAR = "after 3 of 24 cases"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    claim(tmp_path)
    return tmp_path


def grow(run: Run, folder: Path) -> str:
    """The page."""
    publish_so_far(run, registry(), folder, DEFAULT_NEED, SO_FAR)
    return (folder / "report.html").read_text(encoding="utf-8")


def finish(run: Run, folder: Path) -> str:
    """The page."""
    assert publish(run, registry(), folder, DEFAULT_NEED, draws=False).folder == folder
    return (folder / "report.html").read_text(encoding="utf-8")


def test_it_says_how_far_the_run_is_and_reloads_itself_until_that_ends(folder: Path) -> None:
    page = grow(full_run(), folder)
    warnings = [words for words in Page(page).texts if words.startswith("Unfinished")]
    assert re.fullmatch(
        r"Unfinished: this is the report so far, after 3 of 24 cases, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC.",
        *warnings,
    )
    assert 'data-reload="10"' in page
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in page
    assert "location.reload()" in page
    last = finish(full_run(), folder)
    assert "Unfinished" not in last
    assert "reload" not in last
    assert "refresh" not in last


def test_the_policy_lets_the_page_reload(folder: Path) -> None:
    page = grow(replace(full_run()), folder)
    scripts = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    own = next(script for script in scripts if "location.reload()" in script)
    digest = re.search("script-src ('sha256-[^;]*)", content_policy((own,)))
    assert digest
    assert digest[1].replace("'", "&#39;") in page


def test_it_is_no_interrupted_run_unless_nothing_replaces_it(folder: Path) -> None:
    page = grow(full_run(), folder)
    assert "interrupted" not in page
    assert read_run(folder / "results.json").interrupted
    finish(full_run(), folder)
    assert not read_run(folder / "results.json").interrupted


def test_the_report_before_it_stays_aside_until_the_run_has_ended(folder: Path) -> None:
    finish(full_run(), folder)
    set_aside(folder)
    grow(full_run(), folder)
    assert (folder / EARLIER / "report.html").is_file()
    finish(full_run(), folder)
    assert not (folder / EARLIER).exists()


def test_what_a_killed_run_has_left_pushes_out_no_whole_report(folder: Path) -> None:
    whole = finish(full_run(), folder)
    set_aside(folder)
    grow(full_run(), folder)
    set_aside(folder)  # as the next run does
    assert (folder / EARLIER / "report.html").read_text(encoding="utf-8") == whole


def test_ctrl_c_while_it_is_written_is_raised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "render_report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        grow(full_run(), folder)


def test_a_folder_that_can_not_be_written_costs_nothing_meanwhile(tmp_path: Path) -> None:
    """The end of the run says so."""
    (tmp_path / "report").write_text("no folder")
    found = publish_so_far(full_run(), registry(), tmp_path / "report", DEFAULT_NEED, SO_FAR)
    assert found is not None
    assert found.answer.lines


def test_the_terminal_says_the_first_sentences_of_the_answer() -> None:
    run = make_run([make_record("bf16")], [make_variant("bf16")])
    found = findings_of(run, registry(), so_far=SO_FAR)
    assert found.answer.lines == ("Only bf16 was measured: there is nothing to choose between.",)
    assert list(lines_so_far(found, 200)) == [
        "llm-bench: so far, after 3 of 24 cases: Only bf16 was measured: there is nothing to choose between."
    ]
