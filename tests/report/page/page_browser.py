"""A page in headless Chromium, and what it complained of."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FOUND = next(filter(None, map(shutil.which, BROWSERS)), None)
HOSTILE = (
    "</script><img src=x onerror=alert(1)><b>bold</b> <a href='javascript:alert(1)'>x</a> \"'&amp; %{y} \0\u202e $x^2$"
)
NEEDS_A_BROWSER = [
    pytest.mark.nightly("starts a browser"),
    pytest.mark.skipif(FOUND is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
]


@dataclass
class Opened:
    """A page in the browser, and what it complained of or asked the network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.page.evaluate(script, *arguments)

    def visible(self, selector: str) -> list[str]:
        """The texts of the visible elements."""
        found = self.page.locator(selector)
        return [found.nth(index).inner_text() for index in range(found.count()) if found.nth(index).is_visible()]

    def chart(self, name: str) -> list[dict[str, Any]]:
        """The variants' traces of a chart, as plotly has them."""
        script = "name => document.querySelector(`[data-chart='${name}'] > .canvas`).data.filter(trace => trace.meta)"
        traces: list[dict[str, Any]] = self.ask(script, name)
        return traces

    def widest(self) -> int:
        """Pixels by which the page is wider than the window."""
        wider: int = self.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return wider
