"""Counts the new tokens of prompts that an engine runs together, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable


class BatchCounter:
    """Tells of each new token of a batch once, when all rows have it."""

    def __init__(self, rows: int, on_token: Callable[[], None]) -> None:
        self._there = [0] * rows
        self._told = 0
        self._on_token = on_token

    def add(self, row: int) -> None:
        """A row has one more."""
        self.reach(row, self._there[row] + 1)

    def reach(self, row: int, tokens: int) -> None:
        """A row has so many in all."""
        self._there[row] = tokens
        while self._told < min(self._there):
            self._told += 1
            self._on_token()
