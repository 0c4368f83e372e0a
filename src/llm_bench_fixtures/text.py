"""Text from elsewhere, made fit to be shown: a saved run may come from anybody."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

# Control and format characters move the cursor, change colours, set a terminal's title or turn text around; the
# separators break lines; surrogates can't be encoded.
UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# What a spreadsheet takes for the beginning of a formula; the last four are the wide forms, which Excel takes too.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# What turns text around that stands beside it: marks, embeddings, overrides and isolates of Unicode's bidi algorithm.
TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INSTEAD = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """The text on one line, with a replacement character for each character that is not printable."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(INSTEAD if unicodedata.category(character) in UNPRINTABLE else character for character in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def encodable(text: str) -> str:
    """The text with a question mark for each surrogate: for each byte of a file's name that is no text. No JSON reader
    takes one, and no channel does."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def csv_text(text: str) -> str:
    """The text of a cell of CSV: without control characters, and with an apostrophe before what would be a formula."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown


def readable(text: str) -> str:
    """The text for a page: line breaks, tabs and joiners stay; a replacement character stands for each character that
    turns text around, controls a device or can't be encoded."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _is_readable(character) else INSTEAD for character in text)


def _is_readable(character: str) -> bool:
    if character in "\n\t":
        return True
    return character not in TURNING and unicodedata.category(character) not in UNPRINTABLE - {"Cf"}


def harmless(lines: Iterable[str]) -> Iterator[str]:
    """Lines without commands to a terminal or to a CI runner, which takes `::` at the start or `##[` for a command."""
    for line in lines:
        yield re.sub(r"^(\s*):(?=:)", r"\1: ", printable(line)).replace("##[", "## [")
