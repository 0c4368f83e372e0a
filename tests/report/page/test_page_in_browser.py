"""report.html in a real browser: it draws, sorts, filters and fits, fetches nothing and runs nothing but its own."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from page_browser import HOSTILE, NEEDS_A_BROWSER
from page_runs import chart_run, wide_run

from llm_bench_fixtures.answer.need import DEFAULT_NEED
from llm_bench_fixtures.report.files import publish_so_far, write_report
from llm_bench_fixtures.report.page import build
from llm_bench_fixtures.results.folder import claim
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run

pytestmark = NEEDS_A_BROWSER


def written(run: Run, folder: Path) -> Path:
    write_report(run, registry(), folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(chart_run(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All default variants that run on a CPU, with flips and long names of what ran."""
    return written(wide_run(), tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text of the run that comes from elsewhere is hostile, the ids of the variants too."""
    run = chart_run(provenance={"model": HOSTILE, "hardware": HOSTILE, "command": HOSTILE, "commit": HOSTILE})
    names = {variant.id: variant.id if variant.id == "fp32" else f"{variant.id} {HOSTILE}" for variant in run.variants}
    variants = [replace(one, id=names[one.id], label=one.label and HOSTILE, reason=HOSTILE) for one in run.variants]
    records = [replace(one, variant=names[one.variant], outputs=(HOSTILE,), reason=HOSTILE) for one in run.records]
    own = [replace(one, scenario=HOSTILE, case=HOSTILE, test=f"{one.test} again") for one in records]
    hostile_run = replace(run, variants=tuple(variants), records=(*records, *own))
    return written(hostile_run, tmp_path_factory.mktemp("hostile"))


def test_it_draws_every_chart_without_a_complaint_and_without_the_network(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    charts = opened.ask("[...document.querySelectorAll('[data-chart]')].map(one => one.dataset.chart)")
    drawn = opened.ask(
        "[...document.querySelectorAll('[data-chart]')].filter(one => one.querySelector('.main-svg .trace path'))"
        ".map(one => one.dataset.chart)"
    )
    assert len(charts) == 7
    assert drawn == charts
    assert opened.complaints == []
    assert opened.requests == [report.as_uri()]


NOTE_LIBRARY = """
new MutationObserver(() => { if (window.Plotly) window.hadLibraryAt ??= performance.now(); })
  .observe(document, { subtree: true, childList: true });
"""


def test_it_can_be_read_before_the_charts_library_is(report: Path, open_page: Any) -> None:
    """To read that takes most of a second."""
    opened = open_page(report)
    opened.page.add_init_script(NOTE_LIBRARY)
    opened.page.reload()
    opened.page.wait_for_function("window.hadLibraryAt")
    assert opened.ask("performance.getEntriesByName('first-contentful-paint')[0].startTime < window.hadLibraryAt")


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(report: Path, open_page: Any, width: int, theme: str) -> None:
    opened = open_page(report, viewport={"width": width, "height": 900}, color_scheme=theme)
    opened.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert opened.widest() == 0
    widest_chart = opened.ask(
        "Math.max(...[...document.querySelectorAll('.canvas')].map(one => one.scrollWidth - one.clientWidth))"
    )
    assert widest_chart == 0
    assert opened.complaints == []


TOO_WIDE = "[...document.querySelectorAll(`${where} .scroll`)].filter(one => one.scrollWidth > one.clientWidth)"
CUT = f"where => {TOO_WIDE}.map(one => one.getAttribute('aria-label'))"


@pytest.mark.parametrize("width", [1280, 1440])
def test_the_summary_of_all_default_variants_is_not_cut_off(wide: Path, open_page: Any, width: int) -> None:
    opened = open_page(wide, viewport={"width": width, "height": 900})
    assert len(opened.visible("#summary tbody th")) == 10
    assert "flips" in opened.page.inner_text("#summary thead")
    assert opened.ask(CUT, "#summary") == []


@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_every_table_fits_or_says_that_it_scrolls(wide: Path, open_page: Any, width: int) -> None:
    """The folded ones too. One that fits is no stop of the keyboard; of one that scrolls the last column comes into
    sight, and the first stays."""
    opened = open_page(wide, viewport={"width": width, "height": 900})
    opened.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    opened.page.wait_for_selector("#tables .scroll.wide")
    found = opened.ask(
        """[...document.querySelectorAll(".scroll")].map((one) => {
          const isWide = one.scrollWidth > one.clientWidth + 1;
          one.scrollLeft = one.scrollWidth;
          const [place, last] = [one, one.querySelector("thead th:last-child")].map((it) => it.getBoundingClientRect());
          const first = one.querySelector("thead th").getBoundingClientRect();
          const isTold = getComputedStyle(one, "::before").content.includes("scroll") && one.tabIndex === 0;
          const isReached = last.right <= place.right + 1 && Math.abs(first.left - place.left) <= 1;
          return [one.ariaLabel, isTold === isWide, !isWide || isReached, isWide || one.tabIndex === -1];
        })"""
    )
    assert len(found) > 10
    assert [name for name, *checks in found if not all(checks)] == []
    assert opened.widest() == 0


def test_on_a_phone_the_summary_of_all_default_variants_fits(wide: Path, open_page: Any) -> None:
    opened = open_page(wide, viewport={"width": 390, "height": 900})
    assert opened.widest() == 0
    assert opened.ask(CUT, "#summary") == []
    assert len(opened.visible("#summary thead th")) == 4


def test_in_print_no_table_of_all_default_variants_is_cut_off(wide: Path, open_page: Any) -> None:
    opened = open_page(wide, viewport={"width": 794, "height": 900})
    opened.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    opened.ask("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    assert opened.widest() <= 1
    assert opened.ask(CUT, "#summary") == []


def test_the_pointer_sees_the_record(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    place = opened.ask(
        """() => {
          const canvas = document.querySelector("[data-chart=tradeoff] > .canvas");
          canvas.scrollIntoView({ block: "center", behavior: "instant" });
          const trace = canvas.data.find((one) => one.meta === "bf16");
          const { xaxis, yaxis } = canvas._fullLayout;
          const box = canvas.getBoundingClientRect();
          const x = box.x + xaxis._offset + xaxis.d2p(trace.x[0]);
          return [x, box.y + yaxis._offset + yaxis.d2p(trace.y[0])];
        }"""
    )
    opened.page.mouse.move(place[0] + 30, place[1])
    opened.page.mouse.move(*place)
    opened.page.wait_for_selector("[data-chart=tradeoff] .hoverlayer .hovertext")
    text = opened.page.text_content("[data-chart=tradeoff] .hoverlayer")
    assert "bf16" in text
    assert "speed-up: 0.8" in text


def test_no_label_of_the_tradeoff_is_struck_through_by_an_error_bar(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    struck = opened.ask(
        """() => {
          const chart = document.querySelector("[data-chart=tradeoff]");
          const boxes = (what) => [...chart.querySelectorAll(what)].map((one) => one.getBoundingClientRect());
          const bars = boxes(".errorbar path");
          const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
          const shown = [...chart.querySelectorAll(".textpoint text")].filter((one) => one.textContent);
          const hit = (text) => bars.some((bar) => meets(text.getBoundingClientRect(), bar));
          return [bars.length > 0, shown.length > 0, shown.filter(hit).map((one) => one.textContent)];
        }"""
    )
    assert struck == [True, True, []]


def test_a_chip_leaves_its_variant_alone_in_tables_and_charts(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    opened.page.click("#variants [data-variant='bf16']")
    assert opened.visible("#summary tbody th") == ["bf16\nfloat32"]
    for chart in ("tradeoff", "batch-speedup", "phases", "roofline"):
        assert {trace["meta"] for trace in opened.chart(chart) if trace["visible"]} == {"bf16"}
    opened.page.click("#variants [data-variant='ort-int8']")
    assert {trace["meta"] for trace in opened.chart("tradeoff") if trace["visible"]} == {"bf16", "ort-int8"}
    opened.page.click("#variants [data-all]")
    assert len(opened.visible("#summary tbody th")) == 4
    assert opened.ask("document.querySelector('#variants [data-all]').getAttribute('aria-pressed')") == "true"
    assert opened.complaints == []


def test_a_click_on_a_bar_chooses_its_variant(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    opened.page.locator("[data-chart=phases] .bars .point path").first.click(force=True)
    assert opened.visible("#summary tbody th") == ["fp32\nfloat32"]


def test_a_chip_of_a_scenario_hides_what_is_of_others_and_opens_no_table(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    assert len(opened.visible(".fold h3")) > 4
    opened.page.click("#scenarios [data-scenario='batch']")
    assert opened.visible(".fold h3") == ["Batch size"]
    assert opened.visible(".fold td.number") == []
    assert opened.visible(".heat tbody th") == ["1\nBatch size", "4\nBatch size"]
    assert opened.visible("#sweeps figcaption h3") == ["Output throughput by batch", "Speed-up by batch"]


def test_the_heatmap_sorts_by_a_variant_and_back_by_scenario(report: Path, open_page: Any) -> None:
    """At batch 4 the speed-ups are four times as high as elsewhere."""
    opened = open_page(report)
    before = opened.visible(".heat tbody th")
    opened.page.click(".heat th[data-variant='bf16'] .sort")
    assert opened.visible(".heat tbody th")[0] == "4\nBatch size"
    opened.page.click(".heat thead th:first-child .sort")
    assert opened.visible(".heat tbody th") == before


def test_the_heatmap_has_the_columns_of_the_chosen_variants(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    opened.page.click("#variants [data-variant='bf16']")
    assert opened.visible(".heat thead th") == ["scenario and case", "bf16"]


def test_the_pointer_sees_the_interval_of_a_speed_up(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    opened.page.hover(".heat tr[data-scenario='batch'] td[data-variant='ort-int8'] >> nth=1")
    (tip,) = opened.visible(".tip")
    assert tip.startswith("ort-int8\nBatch size, 4\n6.00× (")
    assert "faster than fp32" in tip


def test_a_table_sorts_by_click_and_by_keyboard(report: Path, open_page: Any) -> None:
    """The best first: the highest speed-up, but the shortest time."""
    opened = open_page(report)
    ids = "[...document.querySelectorAll('#summary tbody tr')].map(row => row.dataset.variant)"
    opened.page.click("#summary th:has-text('speed-up') .sort")
    assert opened.ask(ids) == ["ort-int8", "ort-fp32", "fp32", "bf16"]
    head = opened.page.locator("#summary th", has_text="speed-up")
    assert head.get_attribute("aria-sort") == "descending"
    head.locator(".sort").press("Enter")
    assert opened.ask(ids) == ["bf16", "fp32", "ort-fp32", "ort-int8"]
    assert head.get_attribute("aria-sort") == "ascending"
    opened.page.locator("#summary th:has-text('latency') .sort").press(" ")
    assert opened.ask(ids)[0] == "ort-int8"
    assert head.get_attribute("aria-sort") is None


def test_a_heads_formula_opens_beside_it(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    assert opened.visible(".term") == []
    opened.page.click("#summary th:has-text('latency') .what")
    (entry,) = opened.visible(".term")
    assert entry.startswith("Latency lower is better")
    opened.page.keyboard.press("Escape")
    assert opened.visible(".term") == []


def test_the_theme_changes_and_changes_back(report: Path, open_page: Any) -> None:
    opened = open_page(report, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "document.querySelector('[data-chart=tradeoff] .xtick text').style.fill"
    light = opened.ask(ground), opened.ask(text)
    opened.page.click("#theme")
    dark = opened.ask(ground), opened.ask(text)
    assert light[0] == "rgb(255, 255, 255)"
    assert all(a != b for a, b in zip(light, dark, strict=True))
    opened.page.click("#theme")
    assert (opened.ask(ground), opened.ask(text)) == light
    assert open_page(report, color_scheme="dark").ask(ground) == dark[0]


def test_hostile_texts_stay_texts(hostile: Path, open_page: Any) -> None:
    """Hovered, filtered and sorted: no script runs, no element is made of them, nothing is asked of the network."""
    opened = open_page(hostile)
    for chip in range(opened.page.locator("#variants .chip").count()):
        opened.page.locator("#variants .chip").nth(chip).click()
    opened.page.locator("#summary .sort").first.click()
    opened.page.locator("[data-chart=phases] .bars .point").first.hover(force=True)
    assert (
        opened.ask("document.querySelectorAll('img[src=x], main b:not(.remarks b), a[href^=javascript]').length") == 0
    )
    assert opened.ask("[...document.querySelectorAll('svg a')].length") == 0
    assert "onerror=alert(1)" in opened.page.inner_text("#summary")
    assert "bf16 </script><img …" in opened.page.text_content("[data-chart=phases] .canvas")
    assert opened.widest() == 0
    assert opened.complaints == []
    assert opened.requests == [hostile.as_uri()]


def test_a_variant_with_a_hostile_id_is_filtered_like_any_other(hostile: Path, open_page: Any) -> None:
    opened = open_page(hostile)
    opened.page.locator("#variants .chip").nth(2).click()
    assert len(opened.visible("#summary tbody th")) == 1
    assert len([trace for trace in opened.chart("tradeoff") if trace["visible"]]) == 1


def test_without_scripts_there_are_tables_and_pictures(report: Path, open_page: Any) -> None:
    opened = open_page(report, java_script_enabled=False)
    assert len(opened.visible("#summary tbody th")) == 4
    assert opened.visible(".chip") == []
    assert opened.visible(".chart") == []
    pictures = opened.page.locator("#tradeoff img")
    assert [pictures.nth(at).get_attribute("alt") for at in range(pictures.count())] == [
        "Quality against speed, with the memory of each variant"
    ]
    assert pictures.first.is_visible()
    opened.page.click("#summary th:has-text('latency') .what")
    assert len(opened.visible(".term")) == 1


def test_the_keyboard_reaches_the_answer_first_and_sees_where_it_is(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    opened.page.keyboard.press("Tab")
    assert opened.ask("document.activeElement.className") == "skip"
    assert opened.page.locator(".skip").is_visible()
    opened.page.keyboard.press("Tab")
    assert opened.ask("document.activeElement.id") == "theme"
    assert opened.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unnamed = opened.ask(
        "[...document.querySelectorAll('button, a, [role=img], [role=region]')]"
        ".filter(one => !(one.getAttribute('aria-label') || one.textContent.trim())).length"
    )
    assert unnamed == 0


def test_it_prints_without_what_only_a_screen_needs(report: Path, open_page: Any) -> None:
    opened = open_page(report)
    pages = opened.page.pdf(format="A4")
    assert pages.startswith(b"%PDF")
    opened.ask("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    assert opened.visible(".chip") == []
    assert opened.visible(".what") == []
    assert opened.visible(".term") != []
    assert opened.widest() <= 1  # a pixel is what rounding makes of columns


def test_while_its_run_goes_on_it_reloads_itself_and_stays_where_it_was(
    tmp_path: Path, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock alone lets it reload, so that no look at it meets a page that is on its way."""
    monkeypatch.setattr(build, "RELOAD_S", 1000)
    claim(tmp_path)
    publish_so_far(chart_run(), registry(), tmp_path, DEFAULT_NEED, "after 3 of 24 cases")
    opened = open_page(tmp_path / "report.html", at=datetime.now(UTC))
    opened.page.evaluate("document.querySelectorAll('details')[1].open = true")
    opened.page.evaluate("scrollTo(0, 700)")
    reload(opened.page, 1000)
    assert opened.ask("[...document.querySelectorAll('details')].slice(0, 2).map(one => one.open)") == [False, True]
    assert opened.ask("scrollY") == 700
    assert "until the run ends" in opened.page.inner_text("[data-reload]")
    reload(opened.page, 1000)
    said = r"No news for 3\d min. If the run was killed, `llm-bench report FOLDER`, with this page's folder, reports .*"
    assert re.fullmatch(said, opened.page.inner_text("[data-reload]"))
    assert opened.complaints == []
    write_report(chart_run(), registry(), tmp_path)
    reload(opened.page, 10_000)
    assert opened.ask("document.querySelector('[data-reload]')") is None


def reload(page: Any, after_s: int) -> None:
    with page.expect_event("load"):
        page.clock.fast_forward(after_s * 1000)
