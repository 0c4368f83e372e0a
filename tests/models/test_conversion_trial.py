from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from families import BY_NAME
from transformers import PretrainedConfig

from llm_bench_fixtures.errors import AnotherModel
from llm_bench_fixtures.models.conversion import TextTrial, lengths_for, tokens, uncompared
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.variants import Precision

EXPECTED = torch.tensor([[1.0, -10.0]] * 5)
TRIAL = TextTrial(((torch.zeros(1, 5, dtype=torch.int64), EXPECTED),))
SHORT = torch.zeros(1, 2, dtype=torch.int64)
LONGROPE = {"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": 40}


def off_by(*gaps: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """An engine that is so far off at each position."""
    return lambda ids: (EXPECTED + torch.tensor(gaps)[:, None])[None, : ids.shape[1]]


def test_a_500th_of_the_largest_logit_is_float_error() -> None:
    TRIAL.check("it", off_by(*[0.019] * 5))
    for gap in (0.021, math.nan):
        with pytest.raises(
            AnotherModel, match=r"^it computes something else than transformers: after the same 5 tokens, "
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


def test_each_text_is_compared() -> None:
    trial = TextTrial((*TRIAL.texts, (SHORT, EXPECTED[:2])))
    trial.check("it", off_by(*[0.0] * 5))
    with pytest.raises(AnotherModel, match="after the same 2 tokens, "):
        trial.check("it", lambda ids: off_by(*[0.5 if ids is SHORT else 0] * 5)(ids))


@pytest.mark.parametrize(
    ("config", "lengths"),
    [
        ({}, (320,)),
        ({"max_position_embeddings": 100}, (100,)),
        ({"sliding_window": None}, (320,)),
        ({"sliding_window": 24}, (320,)),
        ({"sliding_window": 512}, (576,)),
        ({"sliding_window": 512, "max_position_embeddings": 550}, (550,)),
        ({"sliding_window": 4096}, (320,)),
        (LONGROPE, (320, 40)),
        ({**LONGROPE, "max_position_embeddings": 40}, (40,)),
        ({"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": 4096}, (320,)),
        ({**LONGROPE, "rope_scaling": {"rope_type": "yarn"}}, (320,)),
    ],
)
def test_a_text_is_longer_than_a_short_window_and_one_has_each_rotary_embedding(
    config: dict[str, Any], lengths: tuple[int, ...]
) -> None:
    assert lengths_for(SimpleNamespace(**config)) == lengths


@pytest.mark.parametrize(
    ("window", "context", "is_told"),
    [(4096, 32_768, True), (577, 1000, True), (576, 1000, False), (4096, 4096, False), (None, 1000, False)],
)
def test_a_window_that_the_text_does_not_go_past_is_told(window: int | None, context: int, is_told: bool) -> None:
    """A window as long as the context changes nothing."""
    config = PretrainedConfig(sliding_window=window, max_position_embeddings=context)
    notes = (f"its sliding window of {window:,} tokens was not compared with transformers'",) if is_told else ()
    assert uncompared(config) == notes


def test_a_rotary_embedding_that_no_text_has_is_told() -> None:
    """Bug: an export has the factors of short texts only, and gave other tokens without a word. The window begins at
    the same length."""
    config: Any = SimpleNamespace(
        rope_scaling={"rope_type": "longrope"},
        original_max_position_embeddings=4096,
        max_position_embeddings=131_072,
        sliding_window=4096,
    )
    config.get_text_config = lambda: config
    notes = ("its sliding window of 4,096 tokens", "its rotary embedding for texts of over 4,096 tokens")
    assert uncompared(config) == tuple(f"{note} was not compared with transformers'" for note in notes)


def test_a_trial_leaves_a_module_the_rotary_factors_that_it_was_loaded_with(tmp_path: Path) -> None:
    """An export that is made next keeps those. transformers 4 leaves those of the last text."""
    with quiet_libraries():
        module = BY_NAME["llama-longrope"].build(tmp_path).load_model(dtype=torch.float32)
    before = module.model.rotary_emb.inv_freq.clone()
    trial = TextTrial.of(module)
    assert [ids.shape[1] for ids, _ in trial.texts] == [320, 6]
    assert module.model.rotary_emb.inv_freq.tolist() == before.tolist()


def test_the_text_is_spread_over_the_vocabulary() -> None:
    assert tokens(100, 4).tolist() == [[12, 37, 62, 87]]
