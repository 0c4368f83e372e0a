"""How long a server that hangs is asked for more: each timeout costs a minute, and a suite has many requests."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from llm_bench_fixtures.errors import EndpointFailed

MOST_TIMEOUTS = 3  # in a row


class Patience:
    """With a server that hangs: it is asked no more after so many timeouts in a row. Those of requests at the same time
    are one."""

    def __init__(self) -> None:
        self._timeouts = 0
        self._last_s = -math.inf

    def check(self) -> None:
        """Raise EndpointFailed where there is none left."""
        if self._timeouts >= MOST_TIMEOUTS:
            raise EndpointFailed(f"no answer in time {MOST_TIMEOUTS} times in a row, so it isn't asked any more")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """A request."""
        self.check()
        import httpx2

        sent_s = time.monotonic()
        try:
            yield
        except (httpx2.TimeoutException, TimeoutError):
            if sent_s >= self._last_s:
                self._timeouts, self._last_s = self._timeouts + 1, time.monotonic()
            raise
        except Exception:
            self._timeouts = 0
            raise
        self._timeouts = 0
