"""Check that the built site fetches nothing from elsewhere: no font, script, style or picture of another host.

python tools/check_site.py build/site

A link that a reader may follow is no fetch. Prints each foreign address with its page; exit status 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

FOREIGN = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
FETCHED = ("src", "srcset", "poster", "data")
FETCHING_LINKS = frozenset({"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"})


class Fetches(HTMLParser):
    """Collects the foreign addresses that a browser asks for when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        values = {name: value or "" for name, value in attrs}
        addresses = [values[name] for name in FETCHED if name in values]
        if tag == "link" and FETCHING_LINKS & set(values.get("rel", "").split()):
            addresses.append(values.get("href", ""))
        self.found += [address for address in addresses if FOREIGN.match(address)]
        self.found += IN_STYLE.findall(values.get("style", ""))

    def handle_endtag(self, _: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += IN_STYLE.findall(data)


def foreign_addresses(name: str, text: str) -> list[str]:
    """Addresses on other hosts that the page or style sheet of that name and text fetches."""
    if name.endswith(".css"):
        return IN_STYLE.findall(text)
    page = Fetches()
    page.feed(text)
    return page.found


def check(site: Path) -> Iterator[str]:
    """A line for each foreign address."""
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            found = foreign_addresses(path.name, path.read_text(encoding="utf-8"))
            yield from (f"{path.relative_to(site)}: {address}" for address in found)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not list(folder.rglob("*.html")):
        sys.exit(f"{folder} holds no page")
    lines = list(check(folder))
    print(*lines or ["the site fetches nothing from elsewhere"], sep="\n")
    sys.exit(bool(lines))
