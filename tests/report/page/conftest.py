"""One browser for the tests of a module, and pages in it. Puts this folder's helpers on sys.path."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from page_browser import FOUND, Opened
from waiting import BACKSTOP_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Any]:
    contexts = []

    def open_it(path: Path, *, at: datetime | None = None, **options: Any) -> Opened:
        """at: what its clock shows then."""
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(BACKSTOP_S * 1000)
        opened = Opened(context.new_page())
        if at is not None:
            opened.page.clock.install(time=at)
        opened.page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            opened.page.wait_for_selector("[data-chart]:not([data-drawn])", state="detached")
        return opened

    yield open_it
    for context in contexts:
        context.close()
