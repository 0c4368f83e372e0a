from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PretrainedConfig

from llm_bench_fixtures.errors import AnotherModel
from llm_bench_fixtures.models.trial import Trial, length_for, tokens, uncompared
from llm_bench_fixtures.models.variants import Precision

TRIAL = Trial(torch.zeros(1, 5, dtype=torch.int64), torch.tensor([[1.0, -10.0]] * 5))


def off_by(*gaps: float) -> torch.Tensor:
    """What an engine gives that is so far off at each position."""
    return (TRIAL.expected + torch.tensor(gaps)[:, None])[None]


def test_a_500th_of_the_largest_logit_is_float_error() -> None:
    TRIAL.check("it", off_by(*[0.019] * 5))
    for gap in (0.021, math.nan):
        with pytest.raises(
            AnotherModel, match=r"^it's conversion computes something else than transformers: after the same 5 tokens, "
        ):
            TRIAL.check("it", off_by(*[gap] * 5))


def test_weights_that_were_given_in_16_bits_explain_more() -> None:
    TRIAL.check("it", off_by(*[0.3] * 5), Precision.FLOAT16)
    with pytest.raises(AnotherModel, match=r"with weights in float16, its logits differ by 5.0% of the largest, and "):
        TRIAL.check("it", off_by(*[0.5] * 5), Precision.FLOAT16)
    TRIAL.check("it", off_by(*[0.9] * 5), Precision.BFLOAT16)
    with pytest.raises(AnotherModel, match=r"rounding explains 10.0%$"):
        TRIAL.check("it", off_by(*[1.1] * 5), Precision.BFLOAT16)


def test_most_positions_have_to_differ() -> None:
    """One expert instead of another, whose scores are close, is float error, too."""
    TRIAL.check("it", off_by(0, 0, 0, 5, 5))
    with pytest.raises(AnotherModel):
        TRIAL.check("it", off_by(0, 0, 5, 5, 5))


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({}, 320),
        ({"max_position_embeddings": 100}, 100),
        ({"sliding_window": None}, 320),
        ({"sliding_window": 24}, 320),
        ({"sliding_window": 512}, 576),
        ({"sliding_window": 512, "max_position_embeddings": 550}, 550),
        ({"sliding_window": 4096}, 320),
    ],
)
def test_the_text_is_longer_than_a_short_window(config: dict[str, Any], length: int) -> None:
    assert length_for(SimpleNamespace(**config)) == length


@pytest.mark.parametrize(
    ("window", "context", "is_told"),
    [(4096, 32_768, True), (577, 1000, True), (576, 1000, False), (4096, 4096, False), (None, 1000, False)],
)
def test_a_window_that_the_text_does_not_go_past_is_told(window: int | None, context: int, is_told: bool) -> None:
    """A window as long as the context changes nothing."""
    config = PretrainedConfig(sliding_window=window, max_position_embeddings=context)
    notes = (f"its sliding window of {window:,} tokens was not compared with transformers'",) if is_told else ()
    assert uncompared(config) == notes


def test_the_text_is_spread_over_the_vocabulary() -> None:
    assert tokens(100, 4).tolist() == [[12, 37, 62, 87]]
