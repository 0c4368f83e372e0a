"""`llm-bench trend`: the page, and what the terminal says of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from html_page import Page
from run_factory import make_record, make_variant
from shell import HOSTILE, Output, Shell

from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.text import readable

SAFE_TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "div", "section", "p", "ul", "li", "table",
    "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "details", "summary", "footer", "a", "button", "caption",
    "figcaption", "figure", "header", "main", "nav", "noscript", "script", "small", "span",
}  # fmt: skip
SAFE_ATTRIBUTES = {
    "lang", "charset", "name", "content", "class", "http-equiv", "id", "href", "type", "role", "tabindex", "scope",
    "style", "title", "aria-label", "aria-labelledby", "aria-pressed", "data-all", "data-chart", "data-sort",
    "data-variant",
}  # fmt: skip


@dataclass
class Trend:
    """`llm-bench trend` and the page that it wrote."""

    shell: Shell
    page_file: Path

    def __call__(self, *arguments: str) -> tuple[Output, Page]:
        output = self.shell("trend", "-o", str(self.page_file), *arguments)
        assert output.status == 0, output.err
        return output, Page(self.page_file.read_text(encoding="utf-8"))

    def keep_levels(self, *medians_s: float) -> None:
        """Four runs a level, each of fp32 and bf16; only bf16 takes as long as told, fp32 always a second."""
        for number, median_s in enumerate([value * scale for value in medians_s for scale in (1, 1.01, 0.99, 1)], 1):
            self.shell.keep(number, both(median_s))


def chart_names(page: Page) -> list[str]:
    return [value for name, value in page.attributes if name == "data-chart"]


def charts_of(page: Page) -> list[str]:
    """The metrics that are drawn."""
    return [name.partition("-")[2] for name in chart_names(page)]


def both(median_s: float) -> Sequence[Record]:
    return [make_record("fp32", 1.0), make_record("bf16", median_s)]


@pytest.fixture
def trend(shell: Shell, tmp_path: Path) -> Trend:
    return Trend(shell, tmp_path / "trend.html")


def test_a_step_is_told_with_its_levels_and_its_commits(trend: Trend) -> None:
    trend.keep_levels(0.25, 0.5)
    output, page = trend("--metric", "latency_s")
    runs, advice, step, where = output.lines
    assert runs == "8 runs on main, 2026-01-01 00:00 to 2026-01-08 00:00 UTC"
    assert advice == "1 step found. Advice, not a verdict: the runs were measured at different times."
    place = "between 00000000 (2026-01-04 00:00) and 00000000 (2026-01-05 00:00)"
    assert step == f"  bf16 {place}: latency +100.0 % (worse), 250 ms to 500 ms"
    assert where == f"Page: {trend.page_file}"
    assert step.strip() in page.texts
    assert "Steps: advice, not a verdict" in page.texts
    assert charts_of(page) == ["latency_s"]


def test_without_a_step_it_says_so(trend: Trend) -> None:
    trend.keep_levels(0.5)
    output, page = trend()
    assert output.lines[1] == "No step found."
    assert "No step found." in page.texts


def test_a_higher_throughput_is_better(trend: Trend) -> None:
    trend.keep_levels(1.0, 0.5)
    output, _ = trend("--metric", "decode_tokens_per_s,latency_s")
    assert "decode tokens/s +100.0 % (better)" in output.out
    assert "latency −50.0 % (better)" in output.out


def test_what_did_not_move_is_said_and_not_drawn(trend: Trend) -> None:
    trend.keep_levels(0.5)
    _, page = trend("--metric", "weight_bytes,perplexity")
    assert "The same in all runs: weights, perplexity." in page.texts
    assert charts_of(page) == []
    assert "4.00 MB" in page.texts


def test_one_run_is_a_page(trend: Trend) -> None:
    trend.shell.keep(1, both(1.0))
    output, page = trend()
    assert output.lines[0] == "1 run on main, 2026-01-01 00:00 to 2026-01-01 00:00 UTC"
    assert "One run: nothing to follow yet." in page.texts
    assert charts_of(page) == []


def test_each_fingerprint_has_its_section(trend: Trend) -> None:
    for number, hardware in ((1, "old machine"), (2, "old machine"), (3, "new machine"), (4, "new machine")):
        trend.shell.keep(number, both(1.0 + number), hardware=hardware)
    _, page = trend()
    titles = [text for text in page.texts if text.startswith("tiny on ")]
    assert titles == ["tiny on new machine", "tiny on old machine"] * 2  # also in the navigation
    assert "old machine, 2 threads, Linux" in page.texts
    assert len({name.partition("-")[0] for name in chart_names(page)}) == 2


def test_of_several_groups_a_step_tells_which_it_is_in(trend: Trend) -> None:
    trend.keep_levels(0.5, 1.0)
    trend.shell.keep(20, both(1.0), hardware="another")
    output, page = trend("--metric", "latency_s")
    assert {"tiny on another", "tiny on a processor"} < set(page.texts)
    assert output.lines[2].startswith("  tiny on a processor: bf16 between ")


def test_groups_of_one_model_and_machine_are_told_apart_by_what_else_differs(trend: Trend) -> None:
    libraries = {"torch": "2.6.0", "transformers": "4.57.6"}
    for number, changed in enumerate(({}, {"torch": "2.7.0"}), 1):
        trend.shell.keep(number, both(1.0), hardware="M3, 8 cores", libraries={**libraries, **changed})
    trend.shell.keep(3, both(1.0), hardware="M3, 8 cores", libraries={"transformers": "4.57.6"})
    _, page = trend()
    titles = dict.fromkeys(text for text in page.texts if text.startswith("tiny on "))
    assert list(titles) == ["tiny on M3", "tiny on M3; torch 2.7.0", "tiny on M3; torch 2.6.0"]


def test_many_variants_are_not_all_drawn(trend: Trend) -> None:
    for number in (1, 2):
        trend.shell.keep(number, [make_record(f"v{index}", number + index) for index in range(15)])
    _, page = trend("--metric", "latency_s")
    assert "3 variants with fewer values are in the tables only." in page.texts
    assert "v14" in page.texts


def test_a_file_that_cannot_be_read_is_told_of(trend: Trend) -> None:
    trend.keep_levels(0.5)
    path = trend.shell.damage()
    output, page = trend()
    assert output.err.startswith(f"passed over: {path} can't be read")
    assert any(text.startswith(f"Not in it: {path}") for text in page.texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "latncy_s"), "unknown metric 'latncy_s'. Did you mean latency_s?\n"),
        (("--branch", "nothing"), "unknown branch 'nothing'. Known: main"),
        (("--variant", "fp64"), "unknown variant 'fp64'. Known: bf16, fp32"),
        (("--variant", "int16"), "unknown variant 'int16'. Did you mean bf16? Known: bf16, fp32"),
        (("--variant", "bnb-nf4"), "on bnb-nf4"),
        (("--variant", "ort-fp32-passive"), "on ort-fp32-passive"),
        (("--test", "nothing"), "of a test like 'nothing'"),
    ],
)
def test_what_is_not_there_is_an_error(trend: Trend, arguments: tuple[str, ...], message: str) -> None:
    trend.keep_levels(0.5)
    output = trend.shell("trend", "-o", str(trend.page_file), *arguments)
    assert output.status == 4
    assert message in output.err
    assert not trend.page_file.exists()


def test_a_storage_of_damaged_files_is_an_error(trend: Trend) -> None:
    trend.shell.damage()
    output = trend.shell("trend", "-o", str(trend.page_file))
    assert output.status == 4
    assert "none of the runs in" in output.err


def test_nothing_in_a_hostile_run_has_any_power(trend: Trend) -> None:
    """Neither in the page, nor in its charts, nor in the terminal."""
    variant = f"$\\frac{HOSTILE}"
    for number, median_s in enumerate([1.0] * 4 + [2.0] * 4, 1):
        records = [make_record(variant, median_s, case=HOSTILE, scenario=HOSTILE)]
        texts = dict.fromkeys(("model", "hardware", "platform", "corpus", "branch", "commit", "python"), HOSTILE)
        trend.shell.keep(number, records, [make_variant(variant)], name=f"x\x1b<img>{number}", **texts)
    output, page = trend()
    assert set(page.tags) <= SAFE_TAGS
    assert {name for name, _ in page.attributes} <= SAFE_ATTRIBUTES
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    assert any(readable(HOSTILE) in text for text in page.texts)
    assert not any(set(text) & {"\x1b", "\u202e"} for text in page.texts)
    assert "worse" in output.out
    assert not set(output.out + output.err) & {"\x1b", "\u202e"}
    assert [path.name for path in trend.page_file.parent.iterdir()] == [".benchmarks", "trend.html"]


def test_a_page_that_cannot_be_written_is_an_error(trend: Trend, tmp_path: Path) -> None:
    trend.keep_levels(0.5)
    output = trend.shell("trend", "-o", str(tmp_path))
    assert output.status == 4
    assert f"{tmp_path} can't be written" in output.err


def test_a_number_that_no_measurement_gives_hides_no_others(trend: Trend) -> None:
    trend.keep_levels(1.0, 1.5)
    for number, extreme in ((9, 1e308), (10, 5e-324)):
        path = trend.shell.keep(number, both(1.5))
        stored = json.loads(path.read_text(encoding="utf-8"))
        for benchmark in stored["benchmarks"]:
            benchmark["extra_info"]["llm_bench"]["metrics"]["latency_s"] = extreme
        path.write_text(json.dumps(stored), encoding="utf-8")
    output, _ = trend()
    assert "bf16 between" in output.out


def test_a_run_links_to_its_commit_where_the_repository_has_an_address(
    trend: Trend, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = "https://example.org/o/r/commit/"
    monkeypatch.setattr("llm_bench_fixtures.cli.trend.commits_address", lambda _: commits)
    trend.keep_levels(0.25, 0.5)
    _, page = trend("--metric", "latency_s")
    links = [value for name, value in page.attributes if name == "href" and not value.startswith("#")]
    assert set(links) <= {f"{commits}{number:040x}" for number in range(9)}
    in_sentence_and_table = [links.count(f"{commits}{number:040x}") for number in (4, 5)]
    assert in_sentence_and_table == [2, 2]
