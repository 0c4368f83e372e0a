"""Requests sent at times that were drawn beforehand, whether or not earlier ones are answered: an open loop.

A client that waits for an answer before it sends more spares the server just when it is slow, and leaves out the
waiting that its users would have. So the times are those of a Poisson process, and every latency counts from the
planned time: a request that the client sends late has been waiting since then.

Source: G. Tene, "How not to measure latency", 2015 (coordinated omission).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate, repeat, takewhile
from typing import Annotated

import msgspec

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.models.model import Model, Reply, Send, TakesRequests
from llm_bench_fixtures.progress import tell_share
from llm_bench_fixtures.reading import LONGEST_S, Count, Text
from llm_bench_fixtures.workloads import TokenIds

SinceStart = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]
MOMENTS = "sent_s", "first_token_s", "last_token_s"  # times of a reply
MOST_REQUESTS = 100_000  # requests in one load: each is held, with its prompt, until the last is answered


class Request(msgspec.Struct, frozen=True):
    """One request of a load. Times are seconds from the load's start."""

    planned_s: SinceStart
    sent_s: SinceStart
    first_token_s: SinceStart | None = None
    """None: it failed."""
    last_token_s: SinceStart | None = None
    tokens: Count = 0
    """New ones."""
    prompt_tokens: Count | None = None
    """Tokens of the prompt as the server counts them. None: not reported."""
    cached_tokens: Count | None = None
    """Prompt tokens that came from a cache. None: not known."""
    failure: Text = ""
    is_clients: bool = False
    """Whether it failed for want of the client's file descriptors or ports."""

    @property
    def lag_s(self) -> float:
        """How late it was sent, by the client's fault."""
        return self.sent_s - self.planned_s

    @property
    def ttft_s(self) -> float | None:
        """Time from the planned start to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.planned_s

    @property
    def tpot_s(self) -> float | None:
        """None for fewer than two tokens."""
        if self.first_token_s is None or self.last_token_s is None or self.tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.tokens - 1)

    @property
    def latency_s(self) -> float | None:
        """Time from the planned start to the last token."""
        return None if self.last_token_s is None else self.last_token_s - self.planned_s


def poisson_times(rate_per_s: float, seconds: float, seed: int) -> tuple[float, ...]:
    """The times of a Poisson process up to so many seconds: the same for the same seed.

    Raises InvalidSetting where more than MOST_REQUESTS are to be expected, before they take all memory.
    """
    if rate_per_s * seconds > MOST_REQUESTS:
        raise InvalidSetting(
            f"{rate_per_s:g} requests/s in {seconds:g} s are {rate_per_s * seconds:,.0f} requests; the most of one "
            f"load are {MOST_REQUESTS:,}: take a lower rate of --llm-request-rates or a shorter --llm-load-time"
        )
    coin = random.Random(f"{seed} {rate_per_s}")  # noqa: S311  # no secret
    waits_s = (coin.expovariate(rate_per_s) for _ in repeat(None))
    return tuple(takewhile(lambda at_s: at_s < seconds, accumulate(waits_s)))


def run_open_loop(
    model: Model, planned_s: Sequence[float], prompts: Sequence[TokenIds], new_tokens: int
) -> tuple[Request, ...]:
    """Send a request at each of the planned times, and wait for all answers. prompts: one for each.

    Raises WorkloadUnsupported for a model that takes one request at a time.
    """
    if not isinstance(model, TakesRequests):
        raise WorkloadUnsupported(f"{model.variant.id} is no server: it takes one request at a time")
    return model.run_requests(lambda send: _send_all(send, planned_s, prompts, new_tokens))


async def _send_all(
    send: Send, planned_s: Sequence[float], prompts: Sequence[TokenIds], new_tokens: int
) -> tuple[Request, ...]:
    started_s = time.perf_counter()
    tasks = []
    for after_s, prompt in zip(planned_s, prompts, strict=True):
        await asyncio.sleep(started_s + after_s - time.perf_counter())  # below 0: lets the others have their turn
        tasks.append(asyncio.ensure_future(send(prompt, new_tokens)))
        tell_share(len(tasks) / len(planned_s))
    try:
        replies = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return tuple(_request(after_s, reply, started_s) for after_s, reply in zip(planned_s, replies, strict=True))


def _request(planned_s: float, reply: Reply, started_s: float) -> Request:
    """Request with the reply's facts, whose times are those since the start."""
    facts = asdict(reply)
    times_s = {name: facts[name] - started_s for name in MOMENTS if facts[name] is not None}
    return Request(planned_s, **{**facts, **times_s})
