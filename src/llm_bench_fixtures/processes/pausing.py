"""Pauses at whole tokens, in which others have their turn: what is timed stands still meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Meter = Callable[[], float]


class Pauses:
    """Where a round pauses. The sides that take turns within a round share whatever the machine is like meanwhile."""

    def __init__(self, pause: Callable[[], None], tokens: int) -> None:
        """pause: returns when the others' turns are over. tokens: after so many of this side's."""
        self._pause = pause
        self._tokens = tokens
        self._since = 0
        self._held: list[_Held] = []

    def hold(self, meter: Meter) -> Meter:
        """The meter, standing still in pauses. The one that is held last stops first and goes on last."""
        self._held.append(held := _Held(meter))
        return held

    def release(self) -> None:
        """Hold no meter any more: the round that read them is over, and the next one has its own."""
        self._held.clear()

    def after_token(self, left: int, *, may_pause: bool = True) -> bool:
        """Pause, if so many tokens have come since the last pause; whether it paused.

        left: how many are still to come: what follows the last pause is no shorter than what follows the others.
        may_pause: whether this is a place to pause at; if not, a pause that is due comes after the next token.
        """
        self._since += 1
        if not may_pause or self._since < self._tokens or left < self._tokens:
            return False
        self._since = 0
        for held in reversed(self._held):
            held.stop()
        self._pause()
        for held in self._held:
            held.go_on()
        return True


@dataclass
class _Held:
    meter: Meter
    stopped_at: float = 0.0
    paused: float = 0.0

    def __call__(self) -> float:
        return self.meter() - self.paused

    def stop(self) -> None:
        self.stopped_at = self.meter()

    def go_on(self) -> None:
        self.paused += self.meter() - self.stopped_at
