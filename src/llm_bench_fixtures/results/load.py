"""A server under a load: the requests of one rate, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.reading import LARGEST, Count, Duration, Figure, Name
from llm_bench_fixtures.statistics.spread import percentile

LAG_SHARE = 0.1  # share of the median TTFT: requests sent later than this measure the client
LAG_FLOOR_S = 0.002  # a sleep of an event loop ends up to so much late
FEW = 100  # requests; below it a percentile of the lag is its largest


@dataclass(frozen=True)
class LoadPoint:
    """How a server answered requests at one rate. Requests that failed are in no latency, and are not good."""

    test: Name
    """The test's node id in pytest."""
    variant: Name
    rate_per_s: Annotated[float, Meta(gt=0, le=LARGEST)]
    """Requests per second that were planned, on average."""
    window_s: Duration
    """Seconds during which requests were sent."""
    prompt_tokens: Count
    """Tokens of each prompt, as planned."""
    new_tokens: Count
    """New tokens of each request."""
    ttft_limit_s: Figure
    tpot_limit_s: Figure
    requests: tuple[Request, ...]
    seed: int = 0
    """Seed of the planned times."""

    @property
    def function(self) -> str:
        """The test's function, without what it was called with."""
        return self.test.rpartition("::")[2].partition("[")[0]

    @property
    def series(self) -> tuple[object, ...]:
        """Loads in which this is the same differ by their rates alone."""
        name, _, values = self.test.partition("[")
        parts = values.removesuffix("]").split("-")
        if f"{self.rate_per_s:g}" in parts:
            parts.remove(f"{self.rate_per_s:g}")
        limits = (self.ttft_limit_s, self.tpot_limit_s)
        return (self.variant, name, *parts, self.prompt_tokens, self.new_tokens, *limits)

    @property
    def failures(self) -> Mapping[str, int]:
        """How many requests failed for which reason, the most frequent first."""
        return dict(Counter(one.failure for one in self.requests if one.failure).most_common())

    @property
    def good(self) -> int:
        """Requests that were answered within both limits."""
        return sum(map(self._is_good, self.requests))

    @property
    def goodput_per_s(self) -> float:
        """Good requests per second of the window."""
        return self.good / self.window_s

    @property
    def good_share(self) -> float:
        return self.good / len(self.requests) if self.requests else 0.0

    def _is_good(self, one: Request) -> bool:
        ttft_s, tpot_s = one.ttft_s, one.tpot_s
        if one.failure or ttft_s is None or ttft_s > self.ttft_limit_s:
            return False
        return tpot_s is None or tpot_s <= self.tpot_limit_s

    def percentile(self, of: Callable[[Request], float | None], share: float) -> float | None:
        """Percentile over the requests that were answered; None where they are too few for one to lie beyond it."""
        values = (of(one) for one in self.requests if not one.failure)
        return percentile([value for value in values if value is not None], share)

    @property
    def output_tokens_per_s(self) -> float | None:
        """New tokens of all answers / seconds to the last of them."""
        end_s = max((one.last_token_s for one in self.requests if one.last_token_s is not None), default=0.0)
        return sum(one.tokens for one in self.requests) / max(end_s, self.window_s) if end_s else None

    @property
    def drain_s(self) -> float:
        """Seconds after the window until the last answer: how much had queued up."""
        ends = [one.last_token_s for one in self.requests if one.last_token_s is not None]
        return max(max(ends, default=0.0) - self.window_s, 0.0)

    @property
    def cached_share(self) -> float | None:
        """Share of the prompts' tokens that came from a cache; None if the server doesn't report it."""
        told = [one for one in self.requests if one.prompt_tokens and one.cached_tokens is not None]
        if not told:
            return None
        return sum(one.cached_tokens or 0 for one in told) / sum(one.prompt_tokens or 0 for one in told)

    @property
    def lag_s(self) -> float:
        """How late requests were sent: the 99th percentile, of fewer than FEW the largest."""
        lags = [one.lag_s for one in self.requests]
        worst = percentile(lags, 0.99) if len(lags) >= FEW else max(lags, default=0.0)
        return worst or 0.0

    @property
    def lag_limit_s(self) -> float:
        """Lag beyond which the figures measure the client."""
        return max(LAG_FLOOR_S, LAG_SHARE * (self.percentile(lambda one: one.ttft_s, 0.5) or 0.0))

    @property
    def clients_failures(self) -> int:
        """Requests that failed for want of the client's file descriptors or ports."""
        return sum(one.is_clients for one in self.requests)

    @property
    def is_valid(self) -> bool:
        """Whether the client kept to its plan, and could."""
        return self.lag_s <= self.lag_limit_s and not self.clients_failures

    @property
    def early_share(self) -> float:
        """Share of answers that ended with fewer new tokens than were asked for."""
        answered = [one for one in self.requests if not one.failure]
        return sum(one.tokens < self.new_tokens for one in answered) / max(len(answered), 1)
