"""Each family of models loads, generates, is observed and is checked for equivalence: a row of the table each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import AT_EACH_PUSH, BY_NAME, FAMILIES, PICKLE, Family, Keeps, tried

from llm_bench_fixtures.errors import BackendUnavailable, CandidateFailed
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.checks import check_loads, check_usable
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource, count_weights
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Workload

MakeRequest = Callable[..., LoadRequest]
PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23))
NEW_TOKENS = 3
FINE = {EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE, EquivalenceVerdict.NOT_SUPPORTED}


@pytest.fixture(params=map(tried, FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


def test_the_families_of_each_push_are_of_the_table() -> None:
    assert BY_NAME.keys() >= AT_EACH_PUSH


def test_a_family_is_measured(family: Family, make_request: MakeRequest, tmp_path: Path) -> None:
    with quiet_libraries():
        source = family.build(tmp_path)
        if family.refused:
            with pytest.raises(CandidateFailed, match=re.escape(family.refused)):
                check_all(source)
            return
        check_usable(source)
        if family.quantized_by:
            check_quantized(make_request, source)
            return
        model = load_variant(make_request("fp32", source)).model
        check_weights(model, count_weights(tmp_path) or count_pickled(tmp_path / PICKLE))
        check_what_is_kept(model, family.keeps)
        check_modes(model, family)


def check_all(source: ModelSource) -> None:
    """What a candidate is asked before it is loaded, and once it is."""
    check_usable(source)
    check_loads(source)


def count_pickled(path: Path) -> int:
    return sum(tensor.numel() for tensor in torch.load(path, weights_only=True).values())


def check_quantized(make_request: MakeRequest, source: ModelSource) -> None:
    """It runs as it is, and is nothing that could be cast."""
    pytest.importorskip("bitsandbytes")
    assert load_variant(make_request("checkpoint", source)).facts.quantized_share
    with pytest.raises(BackendUnavailable, match="are quantized already"):
        load_variant(make_request("fp32", source))


def check_weights(model: TransformersModel, weights: int) -> None:
    """Four bytes for each number in the files, whatever masks and tables the code makes beside them."""
    assert model.facts.weight_bytes == 4 * weights
    read = model.facts.weight_bytes_read
    assert read is not None
    assert 0 < read <= (model.facts.weight_bytes_most or 4 * weights) <= 4 * weights


def check_what_is_kept(model: TransformersModel, keeps: Keeps) -> None:
    passes = observe(model, Workload(PROMPTS, NEW_TOKENS, batch_size=2)).observed
    assert passes.forward_passes == NEW_TOKENS, passes.passes_reason
    if keeps is Keeps.UNSEEN:
        assert (passes.cache_bytes, passes.state_bytes) == (None, None)
        assert passes.cache_reason == "the model keeps its cache where it can't be seen"
        return
    has_keys, has_states = keeps in (Keeps.KEYS, Keeps.BOTH), keeps in (Keeps.STATES, Keeps.BOTH)
    assert bool(passes.cache_bytes) == has_keys
    assert bool(passes.state_bytes) == has_states
    assert bool(passes.cache_reason) == (not has_keys)


def change_by_padding(module: Any) -> float:
    """By transformers alone: how far the last position's logits move where padding with its mask stands before."""
    ids, mask = torch.tensor([[0, 0, 0, 0, *PROMPTS[1]]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    takes_positions = "position_ids" in inspect.signature(module.forward).parameters
    positions = (mask.cumsum(-1) - 1).clamp(min=0)

    def last(first: int) -> torch.Tensor:
        more = {"position_ids": positions[:, first:]} if takes_positions else {}
        logits: torch.Tensor = module(ids[:, first:], attention_mask=mask[:, first:], **more).logits[0, -1]
        return logits

    with torch.inference_mode():
        padded, plain = last(0), last(4)
    return float((padded - plain).abs().max())


def check_modes(model: TransformersModel, family: Family) -> None:
    """None changes the answers but those in which transformers' own code does; and the row then says so."""
    lets_padding_in = ExecutionMode.LEFT_PADDING in family.diverging and not family.by_generate
    assert (change_by_padding(model.module) > 0.01) == lets_padding_in
    for found in check_equivalence(model, PROMPTS, NEW_TOKENS):
        if found.mode in family.fails:
            assert found.verdict is EquivalenceVerdict.FAILED, found.sentence
        elif found.mode in family.diverging:
            assert found.verdict is EquivalenceVerdict.DIVERGES, found.sentence
            assert "transformers" in found.reason
        else:
            assert found.verdict in FINE, found.sentence
