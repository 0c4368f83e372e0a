from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig

from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.transformers import TransformersModel, bytes_read_by_forward

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
    """The tables stay float32; buffers (masks) are in weight_bytes only."""
    pytest.importorskip("bitsandbytes")
    model = load_variant(make_request(variant)).model
    buffers = sum(buffer.nbytes for buffer in tiny_fp32.module.buffers())
    assert model.facts.weight_bytes_read == model.facts.weight_bytes - buffers - 4 * POSITION_TABLE


def test_a_token_table_of_its_own_is_only_looked_up() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_hidden_layers": 1}
    module = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=101, tie_word_embeddings=False, **sizes))
    table = module.get_input_embeddings().weight.nbytes
    assert bytes_read_by_forward(module) == sum(weight.nbytes for weight in module.parameters()) - table


def test_an_onnx_graph_is_read_but_for_what_is_only_looked_up(tmp_path: Path) -> None:
    """A table of 5 x 4 that is only looked up, one of 7 x 4 that is multiplied too, and a matrix of 4 x 3 in int8.

    The weights' file is gone: shapes and types are enough.
    """
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    from llm_bench_fixtures.models.backends.onnxruntime import weight_bytes_read

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
    assert weight_bytes_read(path) == 4 * 7 * 4 + 4 * 3
