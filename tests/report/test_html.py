"""The report as one page: nothing in it runs, nothing is fetched."""

from __future__ import annotations

import base64
from dataclasses import replace as replaced
from pathlib import Path

import pytest
from html_page import Page
from run_factory import FALLBACK, full_run, make_provenance, make_run, make_variant, skipped_record

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.html import render_html
from llm_bench_fixtures.report.plots import Plot, write_plots
from llm_bench_fixtures.report.sections import build_document
from llm_bench_fixtures.results.metrics import Direction, Kind, Metric, Unit, registry
from llm_bench_fixtures.results.record import Run

HOSTILE = (
    "<script>alert(1)</script><img src=http://example.org/x.png onerror=alert(1)> | `code` \n"
    "'\"><a href='javascript:alert(1)'>x</a> ](x) </td></table></html> &amp; {{ 7 * 7 }} <!-- "
)
KNOWN_TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "div", "section", "p", "ul", "li", "table", "thead",
    "tbody", "tr", "th", "td", "img", "dl", "dt", "dd", "footer",
}  # fmt: skip


def hostile_run() -> Run:
    """A full run, every text of which that comes from elsewhere is hostile."""
    run = full_run(provenance=make_provenance(model=HOSTILE, hardware=HOSTILE, corpus=HOSTILE, command=HOSTILE))
    records = [replaced(record, outputs=(HOSTILE,), reason=HOSTILE, case=HOSTILE) for record in run.records]
    variants = [replaced(variant, label=variant.label and HOSTILE, notes=(HOSTILE,)) for variant in run.variants]
    variants[-1] = replaced(variants[-1], reason=HOSTILE)
    own = [replaced(record, scenario=HOSTILE, test=f"{record.test} again") for record in records]
    return replaced(run, records=(*records, *own), variants=tuple(variants))


def render(run: Run, *plots: Plot) -> str:
    return render_html(build_document(findings_of(run, registry())), plots)


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    run = hostile_run()
    return Page(render(run, *write_plots(findings_of(run, registry()), tmp_path_factory.mktemp("plots"))))


def test_hostile_text_makes_no_element(hostile_page: Page) -> None:
    assert set(hostile_page.tags) <= KNOWN_TAGS
    assert hostile_page.open_tags == []
    assert hostile_page.comments == []


def test_hostile_text_makes_no_attribute(hostile_page: Page) -> None:
    names = {name for name, _ in hostile_page.attributes}
    assert names == {"lang", "charset", "name", "content", "class", "src", "alt"}


def test_hostile_text_can_still_be_read(hostile_page: Page) -> None:
    assert any(HOSTILE in text for text in hostile_page.texts)


def test_nothing_is_fetched(hostile_page: Page) -> None:
    sources = [value for name, value in hostile_page.attributes if name in ("src", "href", "srcset", "action")]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not any("http:" in value or "https:" in value for _, value in hostile_page.attributes)
    page = render(full_run())
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_a_hostile_column_name_stays_in_its_attribute() -> None:
    own = Metric("mine", "Mine", HOSTILE, Unit.NONE, Direction.NEITHER, Kind.QUALITY, "mine")
    run = full_run()
    variants = tuple(replaced(variant, quality={**variant.quality, "mine": 1.0}) for variant in run.variants)
    page = Page(render_html(build_document(findings_of(replaced(run, variants=variants), registry([own]))), ()))
    assert set(page.tags) <= KNOWN_TAGS
    assert {name for name, _ in page.attributes} == {"lang", "charset", "name", "content", "class"}


def test_the_plots_are_in_the_page(tmp_path: Path) -> None:
    path = tmp_path / "batch.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\nnot much of a picture")
    page = Page(render(full_run(), Plot(path, "Throughput", "batch")))
    (source,) = [value for name, value in page.attributes if name == "src"]
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == path.read_bytes()
    assert ("alt", "Throughput") in page.attributes


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
