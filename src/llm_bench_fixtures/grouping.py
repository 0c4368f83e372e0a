"""Items by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
KeyT = TypeVar("KeyT")


def grouped(items: Iterable[T], key: Callable[[T], KeyT]) -> dict[KeyT, list[T]]:
    """Items of each key, in the order in which they come; the keys in that of their first items."""
    found: dict[KeyT, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
