"""A pytest plugin that slows down each decode step by real work, for measure_pairs.py.

The environment variable LLM_BENCH_INJECT is a JSON object with the number of small matrix-vector products in each
decode step, by test; the number of "*" is for all tests without one of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from typing import Any

import pytest

PRODUCTS = json.loads(os.environ["LLM_BENCH_INJECT"])
SIZE = 64  # rows of the matrix, which has 16 kB: it displaces next to nothing of the model in the processor's caches


class Extra:
    """The products of each decode step of the current test."""

    def __init__(self) -> None:
        import torch

        self.products = 0
        self._matrix = torch.eye(SIZE)
        self._vector = torch.ones(SIZE)

    def work(self) -> None:
        """Multiply in float32 wherever it is called: under autocast a product takes more than twice as long."""
        import torch

        with torch.autocast("cpu", enabled=False):
            for _ in range(self.products):
                self._vector = self._matrix @ self._vector


EXTRA: list[Extra] = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    value = yield
    if fixturedef.argname == "llm_model":
        EXTRA[:] = [Extra()]
        slow_down(value, EXTRA[0])
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    for extra in EXTRA:
        extra.products = PRODUCTS.get(item.nodeid, PRODUCTS.get("*", 0))
    return (yield)


def slow_down(model: Any, extra: Extra) -> None:
    """Do the work before `on_token` is called for each token after the first, which is within the decode step."""
    generate = model.model.generate

    def slower(*args: Any, on_token: Callable[[], None] | None = None, **kwargs: Any) -> Any:
        tokens = 0

        def tick() -> None:
            nonlocal tokens
            tokens += 1
            if tokens > 1:
                extra.work()
            if on_token is not None:
                on_token()

        return generate(*args, on_token=tick, **kwargs)

    model.model.generate = slower
