"""The page of a history in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_browser import NEEDS_A_BROWSER
from run_factory import make_provenance

from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.history.trend import Group, Level, TrendFilter, TrendLine
from llm_bench_fixtures.report.history import render_trend
from llm_bench_fixtures.results.record import RunState

pytestmark = NEEDS_A_BROWSER
COMMITS = "https://example.org/o/r/commit/"
VALUES = (1.0, 1.01, 0.99, 1.0, 1.5, 1.51, 1.49, 1.5)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs of two variants, of which bf16 steps after the fourth."""
    runs = tuple(
        Heading(Path(f"{at}.json"), make_provenance(commit=f"{at:040x}"), RunState.COMPLETE, True, 1, 1)
        for at in range(8)
    )
    levels = (Level(0, 3, 4, 1.0), Level(4, 7, 4, 1.5))
    lines = (
        TrendLine("latency_s", "fp32", 1, tuple(range(8)), VALUES[:4] * 2, (Level(0, 7, 8, 1.0),)),
        TrendLine("latency_s", "bf16", 1, tuple(range(8)), VALUES, levels),
    )
    group = Group(fingerprint_of(runs[0].provenance), runs, lines)
    file = tmp_path_factory.mktemp("trend") / "trend.html"
    page = render_trend([group], TrendFilter(), [], file.parent, COMMITS)
    file.write_text(page, encoding="utf-8")
    return file


PLACE = """() => {
  const canvas = document.querySelector(".canvas");
  canvas.scrollIntoView({ block: "center", behavior: "instant" });
  const trace = canvas.data.find((one) => one.meta === "bf16" && one.hovertext);
  const { xaxis, yaxis } = canvas._fullLayout;
  const box = canvas.getBoundingClientRect();
  const at = (x, y) => [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
  return at(trace.x[5], trace.y[5]);
}"""


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_draws_its_charts_and_nothing_is_wider_than_the_window(
    history: Path, open_page: Any, width: int, theme: str
) -> None:
    opened = open_page(history, viewport={"width": width, "height": 900}, color_scheme=theme)
    assert opened.page.locator(".main-svg .trace path").count() > 0
    assert opened.widest() == 0
    assert opened.complaints == []
    assert opened.requests == [history.as_uri()]


def test_the_pointer_sees_a_run_and_a_click_opens_its_commit(history: Path, open_page: Any) -> None:
    opened = open_page(history)
    x, y = opened.ask(PLACE)
    opened.ask("window.open = (address) => { window.opened = address; }")
    opened.page.mouse.move(x + 20, y)
    opened.page.mouse.move(x, y)
    opened.page.wait_for_selector(".hoverlayer .hovertext")
    assert "bf16" in opened.page.text_content(".hoverlayer")
    opened.page.mouse.click(x, y)
    opened.page.wait_for_function("window.opened")
    assert opened.ask("window.opened") == f"{COMMITS}{5:040x}"


def test_a_drag_zooms_in_and_a_chip_leaves_its_variant_alone(history: Path, open_page: Any) -> None:
    opened = open_page(history)
    x, y = opened.ask(PLACE)
    ends = "document.querySelector('.canvas')._fullLayout.xaxis.range"
    before = opened.ask(ends)
    opened.page.mouse.move(x - 60, y + 40)
    opened.page.mouse.down()
    opened.page.mouse.move(x + 60, y + 42, steps=5)
    opened.page.mouse.up()
    opened.page.wait_for_function(f"{ends}[0] > {before[0]}")
    opened.page.click("#variants [data-variant='bf16']")
    shown = "document.querySelector('.canvas').data.filter((one) => one.visible).map((one) => one.meta)"
    assert set(opened.ask(shown)) == {"bf16"}
