"""What configs of transformers' tell of a model."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from transformers import LogitsProcessorList

from llm_bench_fixtures.models.transformers import DEFAULT_CONTEXT, Forbidden, TransformersModel, context_of
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


def test_only_the_forbidden_token_is_passed_over_and_logits_that_are_shown_stay() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [4.0, 5.0, 0.0]])
    assert Forbidden(1, copies=True)(torch.zeros(2, 1), logits).argmax(dim=1).tolist() == [2, 0]
    assert logits[:, 1].tolist() == [3.0, 5.0]


def test_scores_that_are_not_shown_are_changed_in_place() -> None:
    """Bug: their copy woke torch's thread pool at each step, on the cores that another engine was about to use."""
    scores = torch.tensor([[1.0, 3.0, 2.0], [4.0, 5.0, 0.0]])
    forbidden = Forbidden(1)(torch.zeros(2, 1), scores)
    assert forbidden.data_ptr() == scores.data_ptr()
    assert scores.tolist() == [[1.0, -math.inf, 2.0], [4.0, -math.inf, 0.0]]


def test_transformers_finds_the_forbidding_signature_ready_and_still_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: at each step transformers had the signature of a bound method worked out anew."""
    forbidden = Forbidden(0)
    looked_at = []
    monkeypatch.setattr(inspect.Signature, "replace", lambda self, **_: looked_at.append(self) or self)
    scores = LogitsProcessorList([forbidden])(torch.zeros(1, 1), torch.zeros(1, 2))
    assert scores.tolist() == [[-math.inf, 0.0]]
    assert looked_at == []  # a bound method's is replaced by one without `self`


@pytest.mark.parametrize(("shows", "copies"), [(False, 0), (True, 2)])
def test_scores_are_copied_only_where_logits_are_shown(
    shows: bool, copies: int, tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.ones(1, 3, dtype=torch.int64)
    found = []

    def look(self: Forbidden, given: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        result = call(self, given, scores)
        found.append(result.data_ptr() != scores.data_ptr())
        return result

    call = Forbidden.__call__
    monkeypatch.setattr(Forbidden, "__call__", look)
    generate = tiny_fp32.generate_with_logits if shows else tiny_fp32.generate
    generate(ids, torch.ones_like(ids), 2, CacheKind.DYNAMIC)
    assert (len(found), sum(found)) == (2, copies)


def test_shown_logits_are_the_models_own_for_the_forbidden_token_too(tiny_fp32: TransformersModel) -> None:
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
