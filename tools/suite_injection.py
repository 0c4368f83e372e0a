"""A pytest plugin that slows one variant of a suite down by real work, for measure_repeatability.py.

The environment variable LLM_BENCH_SLOW is VARIANT:SHARE, such as ort-int8-dynamic:0.1: before each of its tokens the
variant's process multiplies small matrices, so many that its rounds take a tenth longer. How many that are is measured
once for each workload, in the variant's process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.turns import take_turns
from llm_bench_fixtures.models.loading import IsolatedModel

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.processes.calls import Preemptions
    from llm_bench_fixtures.workloads import Workload

SIZE = 64  # rows of the matrix, which has 16 kB: it displaces next to nothing of the model in the processor's caches
TRIALS = 3  # trials, of which the fastest counts
PRODUCTS = 1000  # products in a trial
_PRODUCTS: dict[str, float] = {}  # for each token, by the workload's digest; in the variant's process


def pytest_configure(config: pytest.Config) -> None:
    variant, _, share = os.environ["LLM_BENCH_SLOW"].rpartition(":")
    in_turns = IsolatedModel.in_turns

    def slower(
        self: IsolatedModel, preemptions: Preemptions, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        if self.variant.id != variant or function is not take_turns:
            return in_turns(self, preemptions, function, *args, **kwargs)
        self.call(settle_products, args[0], float(share))  # nobody preempts it there
        return in_turns(self, preemptions, slower_turns, *args, **kwargs)

    IsolatedModel.in_turns = slower  # type: ignore[method-assign]
    config.add_cleanup(lambda: setattr(IsolatedModel, "in_turns", in_turns))


def settle_products(model: Model, workload: Workload, share: float) -> None:
    """Find how many products before each token of the workload make its rounds longer by the share."""
    if workload.digest not in _PRODUCTS:
        _PRODUCTS[workload.digest] = products_for(model, workload, share)


def slower_turns(model: Model, pause: Callable[[], None], workload: Workload, **how: Any) -> tuple[Round, ...]:
    """`take_turns`, each token after its share of the work."""
    with working(model, _PRODUCTS[workload.digest]):
        return take_turns(model, pause, workload, **how)


def products_for(model: Model, workload: Workload, share: float) -> float:
    """How many products before each token make a round longer by the share."""
    rounds = [run_round(model, workload) for _ in range(TRIALS)]
    tokens = sum(len(batch.tokens_s) for batch in rounds[0].batches)
    return share * min(one.latency_s for one in rounds) / tokens / product_s()


def product_s() -> float:
    """Seconds of one product."""
    multiply, took_s = multiplier(), []
    for _ in range(TRIALS):
        began_s = time.perf_counter()
        multiply(PRODUCTS)
        took_s.append(time.perf_counter() - began_s)
    return min(took_s) / PRODUCTS


def multiplier() -> Callable[[int], None]:
    """Computes so many products, in float32 wherever it is called."""
    import torch

    matrix, vector = torch.eye(SIZE), torch.ones(SIZE)

    def multiply(products: int) -> None:
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            for _ in range(products):
                torch.mv(matrix, vector)

    return multiply


@contextmanager
def working(model: Model, products: float) -> Iterator[None]:
    """Let `generate` work, inside the block, before it tells of each token. products: on average."""
    generate, multiply = model.generate, multiplier()
    owed = 0.0

    def slower(*args: Any, on_token: Callable[[], None] | None = None, **kwargs: Any) -> Any:
        def tick() -> None:
            nonlocal owed
            owed += products
            multiply(int(owed))
            owed %= 1
            if on_token is not None:
                on_token()

        return generate(*args, on_token=tick, **kwargs)

    model.generate = slower  # type: ignore[method-assign]
    try:
        yield
    finally:
        model.generate = generate  # type: ignore[method-assign]
