"""A pytest plugin that adds real work to each decode step, for measure_pairs.py: a version that is slower by so much.

The environment says how much: LLM_BENCH_INJECT is a JSON object with the number of small matrix-vector products in each
decode step, by test; those of "*" are for every other test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from typing import Any

import pytest

PRODUCTS = json.loads(os.environ["LLM_BENCH_INJECT"])
SIZE = 64  # of the matrix, 16 kB: beside the model's weights it takes no place in any cache


class Extra:
    """The products of each decode step of the test in hand."""

    def __init__(self) -> None:
        import torch

        self.products = 0
        self._matrix = torch.eye(SIZE)
        self._vector = torch.ones(SIZE)

    def work(self) -> None:
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
    """Work before each token after the first is told of, which is within the decode step."""
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
