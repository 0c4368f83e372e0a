"""How fast a report's page opens, in headless Chromium.

    python tools/measure_page.py PAGE [PAGE ...] [--opens N] [--slower TIMES]

PAGE is a report.html, or a report's folder. Each is opened N times, every time in a new context of one browser that is
warm, so that nothing is cached but the browser itself. Printed are the page's size, and the median and the largest of:

- read: the first text is painted;
- used: tables sort and filters work;
- first chart, all charts: they are drawn, all of the page's, wherever it is scrolled to;
- held: the longest time that the page answered nothing, whether a chart or its library was busy.

All are milliseconds from the start of the navigation but the last, which is a length. --slower slows the processor down
as the browser's own tools do, for a weak one.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from readme_pictures import browser_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OPENS = 9
MOMENTS = ("read", "used", "first chart", "all charts", "held")
WATCH = """
window.drawnAt = [];
window.heldFor = [0];
new MutationObserver((changes) => changes.forEach(() => window.drawnAt.push(performance.now())))
  .observe(document, { subtree: true, attributeFilter: ["data-drawn"] });
new PerformanceObserver((list) => window.heldFor.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
"""
TELL = """
() => [
  performance.getEntriesByName("first-contentful-paint")[0].startTime,
  performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
  window.drawnAt[0] ?? 0,
  window.drawnAt.at(-1) ?? 0,
  Math.max(...window.heldFor),
]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    parser.add_argument("--opens", type=int, default=OPENS)
    parser.add_argument("--slower", type=float, default=1.0)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        for page in given.pages:
            path = page / "report.html" if page.is_dir() else page
            opened(browser, path, given.slower)  # the browser's own first page
            tell(path, [opened(browser, path, given.slower) for _ in range(given.opens)])
        browser.close()


def opened(browser: Browser, path: Path, slower: float) -> list[float]:
    """The moments, in milliseconds, each as MOMENTS names it."""
    context: Any = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("[data-chart]:not([data-drawn])", state="detached")
    page.wait_for_timeout(200)  # milliseconds, in which the last long task is told
    found: list[float] = page.evaluate(TELL)
    context.close()
    return found


def tell(path: Path, found: list[list[float]]) -> None:
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {len(found)} times")
    for name, values in zip(MOMENTS, zip(*found, strict=True), strict=True):
        print(f"  {name:12} {statistics.median(values):6.0f} ms, at most {max(values):.0f} ms")


if __name__ == "__main__":
    main()
