from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from families import BY_NAME, IS_TRANSFORMERS_5
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.weights import bytes_read_by_forward, fault_in, storage_bytes, unmap, weight_tensors
from llm_bench_fixtures.processes.memory import status_bytes

MakeRequest = Callable[..., LoadRequest]

# As in the tests of the backends: all weights of the embedded model, and of those the quantized ones.
TINY_WEIGHTS = 4096 * 256 + 512 * 256 + 4 * (12 * 256**2 + 9 * 256 + 4 * 256) + 2 * 256
POSITION_TABLE = 512 * 256


def test_the_position_table_is_only_looked_up_and_the_tied_token_table_read(tiny_fp32: TransformersModel) -> None:
    assert tiny_fp32.facts.weight_bytes_read == 4 * (TINY_WEIGHTS - POSITION_TABLE)


def test_bfloat16_reads_half(make_request: MakeRequest, tiny_fp32: TransformersModel) -> None:
    assert load_variant(make_request("bf16")).facts.weight_bytes_read == (tiny_fp32.facts.weight_bytes_read or 0) // 2


@pytest.mark.parametrize("variant", ["bnb-int8", "bnb-nf4", "bnb-fp4"])
def test_quantized_weights_are_read_with_their_scales(
    variant: str, make_request: MakeRequest, tiny_fp32: TransformersModel
) -> None:
    """The tables stay float32."""
    pytest.importorskip("bitsandbytes")
    model = load_variant(make_request(variant)).model
    assert model.facts.weight_bytes_read == model.facts.weight_bytes - 4 * POSITION_TABLE


def test_causal_masks_are_no_weights(tiny_fp32: TransformersModel) -> None:
    """GPT-2 makes one of context x context in each layer: of a small model of a long context, 4.2 of what were called
    10 MB of weights, so that int8 seemed to save 17 % instead of 30 %."""
    masks_bytes = sum(buffer.nbytes for buffer in tiny_fp32.module.buffers())
    assert masks_bytes >= 4 * 512 * 512 or (IS_TRANSFORMERS_5 and not masks_bytes)
    assert tiny_fp32.facts.weight_bytes == 4 * TINY_WEIGHTS


def test_a_buffer_is_a_weight_if_a_checkpoint_holds_it_and_it_is_no_mask() -> None:
    module = torch.nn.Module()
    module.register_buffer("scales", torch.zeros(3))
    module.register_buffer("angles", torch.zeros(5), persistent=False)
    module.register_buffer("mask", torch.zeros(7, dtype=torch.bool))
    module.weight = torch.nn.Parameter(torch.zeros(2))
    assert sum(tensor.numel() for tensor in weight_tensors(module)) == 2 + 3


def test_a_tower_for_pictures_is_not_read_by_text() -> None:
    """Gemma 3 of both media: its decoder's layers and norm, and its output layer, which is the table of tokens."""
    family = BY_NAME["gemma3"]
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model(**family.config))
    read = sum(weight.numel() for weight in module.get_decoder().parameters())
    assert bytes_read_by_forward(module) == (4 * read, None)
    assert sum(weight.numel() for weight in module.parameters()) > read


@pytest.mark.skipif(sys.platform != "linux", reason="mapped pages are told apart on Linux")
def test_what_is_mapped_comes_into_memory_or_moves_out_of_its_file(tmp_path: Path) -> None:
    """A load that maps a file takes no time, and the first pass takes the load's."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(32 << 20))
    before = status_bytes()["RssFile"]
    weight = torch.from_file(str(path), size=8 << 20)
    half = weight[: 4 << 20]
    assert status_bytes()["RssFile"] - before < 1 << 20
    fault_in([weight])
    assert status_bytes()["RssFile"] - before > 31 << 20
    unmap([weight, half])
    assert status_bytes()["RssFile"] - before < 1 << 20
    assert storage_bytes([weight, half]) == 32 << 20
    assert (weight.numel(), half.numel(), float(half.sum())) == (8 << 20, 4 << 20, 0.0)


def test_a_token_table_of_its_own_is_only_looked_up() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_hidden_layers": 1}
    module = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=101, tie_word_embeddings=False, **sizes))
    table = module.get_input_embeddings().weight.nbytes
    read = sum(weight.nbytes for weight in module.parameters()) - table
    assert bytes_read_by_forward(module) == (read, None)


def test_an_onnx_graph_is_read_but_for_what_is_only_looked_up(tmp_path: Path) -> None:
    """A table of 5 x 4 that is only looked up, one of 7 x 4 that is multiplied too, and a matrix of 4 x 3 in int8.

    The weights' file is gone: shapes and types are enough.
    """
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    from llm_bench_fixtures.models.backends.onnx_graphs import quantized_share, weight_bytes

    weights = [
        helper.make_tensor("looked_up", TensorProto.FLOAT, [5, 4], bytes(5 * 4 * 4), raw=True),
        helper.make_tensor("tied", TensorProto.FLOAT, [7, 4], bytes(7 * 4 * 4), raw=True),
        helper.make_tensor("matrix", TensorProto.INT8, [4, 3], bytes(4 * 3), raw=True),
    ]
    nodes = [
        helper.make_node("Gather", ["looked_up", "ids"], ["positions"]),
        helper.make_node("Gather", ["tied", "ids"], ["tokens"]),
        helper.make_node("Transpose", ["tied"], ["head"]),
        helper.make_node("MatMul", ["tokens", "head"], ["logits"]),
        helper.make_node("Cast", ["matrix"], ["cast"], to=TensorProto.FLOAT),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [None])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, 7])
    model = helper.make_model(helper.make_graph(nodes, "graph", [ids], [logits], weights))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    graph = onnx.load(path, load_external_data=False).graph
    assert weight_bytes(graph) == (4 * 5 * 4 + 4 * 7 * 4 + 4 * 3, 4 * 7 * 4 + 4 * 3)
    assert quantized_share(model.graph) == 4 * 3 / (5 * 4 + 7 * 4 + 4 * 3)
