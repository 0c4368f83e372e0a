"""What configs of transformers' tell of a model."""

from __future__ import annotations

import pytest
import torch

from llm_bench_fixtures.models.transformers import DEFAULT_CONTEXT, TransformersModel, context_of
from llm_bench_fixtures.workloads import CacheKind


@pytest.mark.parametrize(
    ("model_type", "name", "tokens"),
    [
        pytest.param("llama", "max_position_embeddings", 256, id="its usual name"),
        pytest.param("gpt2", "n_positions", 256, id="another one that its type has"),
        pytest.param("mpt", "max_seq_len", 256, id="MPT's, with which every row was an error"),
        pytest.param("whisper", "max_target_positions", 256, id="a decoder's"),
        pytest.param("mamba", "hidden_size", DEFAULT_CONTEXT, id="none, as states have no limit"),
    ],
)
def test_a_context_is_read_by_whichever_name_the_config_has(model_type: str, name: str, tokens: int) -> None:
    """Bug: only the usual name was read."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type, **{name: 256})
    assert context_of(config.get_text_config(decoder=True)) == tokens


def test_positions_that_begin_after_the_padding_token_leave_fewer_for_a_text() -> None:
    """Bug: RoBERTa was published with 514 positions, of which a text has 512."""
    from transformers import AutoConfig

    assert context_of(AutoConfig.for_model("roberta", max_position_embeddings=514, pad_token_id=1)) == 512


def test_shown_logits_are_the_models_own_for_every_token(tiny_fp32: TransformersModel) -> None:
    """The first new token's logits are those of a plain pass over the prompt."""
    ids = torch.ones(1, 3, dtype=torch.int64)
    mask = torch.ones_like(ids)
    _, shown = tiny_fp32.generate_with_logits(ids, mask, 2, CacheKind.DYNAMIC)
    assert torch.isfinite(shown).all()
    torch.testing.assert_close(shown[:, 0], tiny_fp32.logits(ids, mask)[:, -1])


def test_no_step_compares_the_vocabulary_with_the_end_of_a_text(
    tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it took 1.9 ms of each token's time for a vocabulary of 151,936 tokens, by transformers' own processor."""
    from transformers.generation import logits_process

    monkeypatch.delattr(logits_process.MinNewTokensLengthLogitsProcessor, "__call__")
    ids = torch.ones(1, 3, dtype=torch.int64)
    output = tiny_fp32.generate(ids, torch.ones_like(ids), 3, CacheKind.DYNAMIC)
    assert output.shape == (1, 6)
