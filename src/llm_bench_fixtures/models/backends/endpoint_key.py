"""The key for a server: where it is read, and how it is hidden in what a server says."""

from __future__ import annotations

import html
import os
import re
import string
from collections.abc import Mapping
from itertools import groupby

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.text import LONGEST

HIDDEN = "[key]"
PART = 8  # characters in a row of a key that are hidden, too: servers say "sk-12345***6789"
_ESCAPE = re.compile(r"\\u00([0-9a-f]{2})|\\x([0-9a-f]{2})|%([0-9a-f]{2})|(&#?\w{1,8};)|\\([^\w\s])", re.IGNORECASE)
_SPELLED = re.compile(f"{_ESCAPE.pattern}|.", re.IGNORECASE | re.DOTALL)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class Key:
    """A secret. It shows itself in headers alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        low = text.lower()
        self._parts = frozenset(low[start : start + PART] for start in range(len(low) - PART + 1))

    def __repr__(self) -> str:
        return f"Key({HIDDEN if self._text else ''})"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._text}"} if self._text else {}

    def hide(self, text: str) -> str:
        """The text without the key, which a server may repeat: in capitals, escaped for a URL, for JSON or for a page,
        or in part. It comes before a text is cut or its case changed. A key of under PART characters is hidden as it is
        spelled: words may have it in them."""
        if not self._parts:
            return text.replace(self._text, HIDDEN) if self._text else text
        plain = _ESCAPE.sub(_meant, text).translate(_LOWER)
        return self._without_parts(text[:LONGEST]) if any(part in plain for part in self._parts) else text

    def _without_parts(self, text: str) -> str:
        spelled = list(_SPELLED.finditer(text))  # a character each
        plain = "".join(map(_meant, spelled)).translate(_LOWER)
        starts = [start for start in range(len(plain)) if plain[start : start + PART] in self._parts]
        hidden = {place for start in starts for place in range(start, start + PART)}
        runs = groupby(enumerate(spelled), key=lambda one: one[0] in hidden)
        return "".join(HIDDEN if is_hidden else "".join(one.group() for _, one in run) for is_hidden, run in runs)


def _meant(spelled: re.Match[str]) -> str:
    """The character that is spelled so."""
    json, python, url, page, escaped = spelled.groups()
    if code := json or python or url:
        return chr(int(code, 16))
    return html.unescape(page)[:1] if page else escaped or spelled.group()


def read_key(variable: str, environment: Mapping[str, str] = os.environ) -> Key:
    """The key in an environment variable; an empty one where there is none. Raises InvalidSetting, which quotes
    nothing."""
    text = environment.get(variable, "").strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidSetting(f"{variable} holds what can't be a key: spaces, or characters beyond ASCII")
    return Key(text)
