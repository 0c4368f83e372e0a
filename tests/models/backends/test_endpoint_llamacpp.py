"""A real server: llama.cpp's, within this process, serving the embedded model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("gguf")
pytest.importorskip("xllamacpp")

from llamacpp_server import CONTEXT, serving

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.measure.open_loop import run_open_loop
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.models.backends.endpoint import EndpointModel
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.workloads import Prompts, Workload

if TYPE_CHECKING:
    from conftest import MakeRequest


@pytest.fixture(scope="module")
def model(
    make_request: MakeRequest, tiny_source: ModelSource, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EndpointModel]:
    endpoint = Variant("endpoint", "endpoint", "llama.cpp")
    with serving(tiny_source, tmp_path_factory.mktemp("gguf")) as url:
        model = load_variant(make_request(endpoint, endpoint=url)).model
        yield model
        model.close()


def test_it_is_found_out_what_the_server_does(model: EndpointModel) -> None:
    facts = model.facts
    assert facts.label.endswith("(llamacpp)")
    assert facts.context_length == CONTEXT
    assert facts.runs_source  # its tokens are those of the embedded model
    assert facts.notes == ("the server reports no token ids: its texts are tokenized again to be compared",)


def test_it_continues_as_transformers_does(
    model: EndpointModel, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    """In float32, both alone and in a batch of unequal prompts."""
    rows = prompts.varied(4)
    for workload in (Workload(rows, 12, batch_size=1), Workload(rows, 12, batch_size=4)):
        found, expected = (run_round(one, workload) for one in (model, tiny_fp32))
        assert [prompts.decode(ids) for ids in found.continuations] == [
            prompts.decode(ids) for ids in expected.continuations
        ]
        assert all(len(batch.tokens_s) == 12 for batch in found.batches)


def test_likelihoods_that_it_ignores_silently_are_not_taken(model: EndpointModel) -> None:
    with pytest.raises(WorkloadUnsupported, match="prompt_logprobs: it was ignored; echo: it was ignored"):
        model.token_log_likelihoods([(5, 6, 7)])


def test_under_load_each_request_has_its_tokens_and_no_cached_prompt(model: EndpointModel, prompts: Prompts) -> None:
    rows = [prompts.unlike(32, number, f"{number}" * 40) for number in range(6)]
    began_s = time.perf_counter()
    found = run_open_loop(model, [0.02 * number for number in range(6)], rows, 8)
    assert [(one.failure, one.tokens, one.prompt_tokens, one.cached_tokens) for one in found] == [("", 8, 32, 0)] * 6
    assert all(0 < one.ttft_s < one.latency_s < time.perf_counter() - began_s for one in found)
