"""The report as one page: nothing from elsewhere runs in it, nothing is fetched."""

from __future__ import annotations

import base64
import gzip
import re
import sys
from dataclasses import replace as replaced
from pathlib import Path

import pytest
from html_page import Page
from run_factory import (
    FALLBACK,
    absent_variant,
    full_run,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    skipped_record,
    whole_suite,
)

from llm_bench_fixtures.report.charts.pictures import pictures, write_plots
from llm_bench_fixtures.report.charts.spec import Plot
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.page.build import render_report
from llm_bench_fixtures.report.renderers.html import page_scripts
from llm_bench_fixtures.results.metrics import Direction, Kind, Metric, Unit, registry
from llm_bench_fixtures.results.record import Run

HOSTILE = (
    "</script><script>alert(1)</script><img src=http://example.org/x.png onerror=alert(1)> | `code` \n"
    "'\"><a href='javascript:alert(1)'>x</a> ](x) </td></table></html> &amp; {{ 7 * 7 }} <!-- \0\u202e\u2028"
)
READABLE = HOSTILE.replace("\0", "\ufffd").replace("\u202e", "\ufffd").replace("\u2028", "\ufffd")
KNOWN_TAGS = {
    "html", "head", "meta", "title", "style", "script", "noscript", "body", "header", "nav", "main", "section",
    "article", "footer", "h1", "h2", "h3", "div", "p", "a", "b", "small", "span", "mark", "code", "pre", "button", "ul",
    "li", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "img", "dl", "dt", "dd",
    "details", "summary", "template", "label", "select", "option", "input", "output",
}  # fmt: skip
KNOWN_ATTRIBUTES = {
    "lang", "charset", "http-equiv", "name", "content", "id", "class", "style", "href", "type", "title", "role",
    "scope", "tabindex", "src", "alt", "dir", "popover", "popovertarget", "data-all", "data-variant", "data-scenario",
    "data-chart", "data-reference", "data-of", "data-better", "data-sort", "data-slot", "data-measure", "data-words",
    "for", "value", "min", "max", "step", "hidden",
}  # fmt: skip


def hostile_run() -> Run:
    """A full run, every text of which that comes from elsewhere is hostile."""
    run = full_run(provenance=make_provenance(model=HOSTILE, hardware=HOSTILE, corpus=HOSTILE, command=HOSTILE))
    records = [replaced(record, outputs=(HOSTILE,), reason=HOSTILE, case=HOSTILE) for record in run.records]
    variants = [replaced(variant, label=variant.label and HOSTILE, notes=(HOSTILE,)) for variant in run.variants]
    variants[-1] = replaced(variants[-1], reason=HOSTILE)
    own = [replaced(record, scenario=HOSTILE, test=f"{record.test} again") for record in records]
    return replaced(run, records=(*records, *own), variants=tuple(variants))


def render(run: Run, *plots: Plot, added: tuple[Metric, ...] = ()) -> str:
    return render_report(findings_of(run, registry(added)), plots)


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    run = hostile_run()
    with pytest.MonkeyPatch.context() as patch:
        first_two = list(pictures(findings_of(run, registry())))[:2]
        patch.setattr("llm_bench_fixtures.report.charts.pictures.pictures", lambda _: first_two)
        plots = write_plots(findings_of(run, registry()), tmp_path_factory.mktemp("plots"))
    return Page(render(run, *plots))


def test_hostile_text_makes_no_element(hostile_page: Page) -> None:
    assert set(hostile_page.tags) <= KNOWN_TAGS
    assert hostile_page.open_tags == []
    assert hostile_page.comments == []


def test_hostile_text_makes_no_attribute(hostile_page: Page) -> None:
    names = {name for name, _ in hostile_page.attributes}
    assert {name for name in names if not name.startswith("aria-")} <= KNOWN_ATTRIBUTES
    assert {name for name in names if name.startswith("aria-")} <= {
        "aria-label", "aria-labelledby", "aria-pressed", "aria-hidden", "aria-valuetext", "aria-live"
    }  # fmt: skip


def test_hostile_text_can_still_be_read(hostile_page: Page) -> None:
    assert any(READABLE in text for text in hostile_page.texts)
    assert not any(set(text) & set("\0\u202e\u2028") for text in hostile_page.texts)


def test_hostile_text_in_an_attribute_is_only_that(hostile_page: Page) -> None:
    chips = [value for name, value in hostile_page.attributes if name == "data-scenario"]
    assert READABLE in chips


def test_nothing_is_fetched(hostile_page: Page) -> None:
    sources = [value for name, value in hostile_page.attributes if name in ("src", "srcset", "action")]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert all(value.startswith("#") for name, value in hostile_page.attributes if name == "href")
    own = re.sub('"plotly">[^<]*<', '"plotly"><', render(full_run())).partition("<script>")[0]
    assert "http:" not in own
    assert "https:" not in own
    assert "url(" not in own
    assert "@import" not in own


def test_a_browser_is_told_to_run_nothing_else_and_to_fetch_nothing(hostile_page: Page) -> None:
    (policy,) = [value for name, value in hostile_page.attributes if value.startswith("default-src 'none'")]
    assert policy.count("'sha256-") == 2
    assert "unsafe-eval" not in policy


@pytest.mark.slow("draws all pictures")
def test_plotly_is_in_the_page_once_and_packed_and_the_page_stays_small(tmp_path: Path) -> None:
    """Of a run as large as the default suite. Six megabytes are the limit; unpacked, plotly alone takes 4.6."""
    run = whole_suite()
    page = render(run, *write_plots(findings_of(run, registry()), tmp_path))
    (packed,) = re.findall('<script type="application/gzip" id="plotly">([^<]*)</script>', page)
    assert b"* plotly.js v" in gzip.decompress(base64.b64decode(packed))[:200]
    assert "* plotly.js v" not in page
    assert len(page.encode()) < 6_000_000 / 2


def test_a_page_without_charts_has_no_plotly() -> None:
    page = Page(render(make_run([skipped_record("fp32", "why")], [absent_variant("fp32", "why")])))
    assert ("id", "plotly") not in page.attributes
    assert "why" in page.texts


def test_without_plotly_a_page_has_its_tables_and_says_what_draws_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Page(render(full_run()))
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    page_scripts.cache_clear()
    bare = Page(render(full_run()))
    page_scripts.cache_clear()
    hint = "plotly, which draws this page’s charts, is not installed: pip install 'llm-bench-fixtures[charts]'"
    assert ("id", "plotly") not in bare.attributes
    assert [hint in page.texts for page in (bare, full)] == [True, False]
    assert bare.tags.count("table") == full.tags.count("table") > 0


def test_a_hostile_column_name_stays_in_its_attribute() -> None:
    own = Metric("mine", "Mine", HOSTILE, Unit.NONE, Direction.NEITHER, Kind.QUALITY, HOSTILE)
    run = full_run()
    variants = tuple(replaced(variant, quality={**variant.quality, "mine": 1.0}) for variant in run.variants)
    page = Page(render(replaced(run, variants=variants), added=(own,)))
    assert set(page.tags) <= KNOWN_TAGS
    assert any(READABLE in value for name, value in page.attributes if name == "aria-label")


def test_each_picture_is_in_the_page_once_for_browsers_that_run_no_scripts(tmp_path: Path) -> None:
    plots = []
    for name in ("batch", "precision", "summary", "machine"):
        path = tmp_path / f"{name}.svg"
        path.write_bytes(b"<svg>not much of a picture: " + name.encode())
        plots.append(Plot(path, f"What {name} shows", name))
    html = render(full_run(), *plots)
    page = Page(html)
    pictures = [base64.b64decode(value.partition(",")[2]) for name, value in page.attributes if name == "src"]
    assert sorted(pictures) == sorted(plot.path.read_bytes() for plot in plots)
    assert {value for name, value in page.attributes if name == "alt"} == {plot.title for plot in plots}
    outside = re.sub(r"<noscript>.*?</noscript>", "", html, flags=re.DOTALL)
    assert "<img" not in outside


@pytest.mark.slow("draws pictures")
def test_a_run_without_quality_shows_the_picture_of_speed_and_memory_instead_of_the_chart(tmp_path: Path) -> None:
    run = full_run()
    run = replaced(run, variants=tuple(replaced(variant, quality={}) for variant in run.variants))
    html = render(run, *write_plots(findings_of(run, registry()), tmp_path))
    assert 'data-chart="tradeoff"' not in html
    outside = re.sub(r"<noscript>.*?</noscript>", "", html, flags=re.DOTALL)
    assert outside.count("<img") == 1
    assert 'alt="Memory against latency against perplexity"' in outside


def test_every_table_and_chart_is_named_and_every_head_says_what_it_heads() -> None:
    page = Page(render(full_run()))
    assert page.tags.count("caption") == page.tags.count("table")
    assert page.tags.count("main") == page.tags.count("h1") == 1
    scopes = [value for name, value in page.attributes if name == "scope"]
    assert set(scopes) == {"col", "row"}
    assert len(scopes) == page.tags.count("th")


def test_every_explanation_that_a_head_offers_is_in_the_glossary() -> None:
    page = Page(render(full_run()))
    asked = {value for name, value in page.attributes if name == "popovertarget"}
    assert len(asked) > 20
    assert asked <= {value for name, value in page.attributes if name == "id"}
    assert any("start of a prompt's batch to its first new token" in text for text in page.texts)


def test_a_text_of_a_scenario_without_cases_has_no_empty_heading() -> None:
    """Bug: where the texts were those of one case, which has no name, an empty heading stood above them."""
    assert "<h3></h3>" not in render(make_run([make_record(outputs=("Paris",))]))


def test_the_page_starts_with_the_answer() -> None:
    texts = Page(render(full_run())).texts
    answer = findings_of(full_run(), registry()).answer
    places = [texts.index(text) for text in ("What to use here", *answer.lines, "The variants", "Run it again")]
    assert places == sorted(places)
    for one in answer.recommendations:
        assert one.sentence in texts


@pytest.mark.parametrize(
    "text",
    [
        "Loaded: tiny | device=cpu | dtype=float32",
        FALLBACK,
        "1.25×",
        "autocast-fp16",
        findings_of(full_run(), registry()).takeaways[0],
    ],
)
def test_what_must_be_in_it(text: str) -> None:
    assert text in Page(render(full_run())).texts


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_that_measured_nothing(interrupted: bool) -> None:
    run = make_run([skipped_record("fp32", "no reason")], [make_variant()], interrupted=interrupted)
    page = Page(render(run))
    assert "no reason" in page.texts
    assert any("was interrupted" in text for text in page.texts) is interrupted
    assert "img" not in page.tags


def test_what_helps_has_a_column_only_where_something_helps() -> None:
    reason = "it needs an accelerator"
    heads = re.compile("<th scope=.col.[^>]*>what helps</th>")
    assert not heads.search(render(make_run([skipped_record("fp32", reason)], [absent_variant("fp32", reason)])))
    reason = "it is not installed: pip install it"
    assert heads.search(render(make_run([skipped_record("fp32", reason)], [absent_variant("fp32", reason)])))
