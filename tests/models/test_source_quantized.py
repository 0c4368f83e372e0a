from __future__ import annotations

from typing import Any

import pytest

from llm_bench_fixtures.models.source import StoredQuantization, stored_quantization

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"}
INT8 = {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}},
}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"quantization_config": AWQ}, "awq, 4 bits in groups of 128"),
        ({"quantization_config": GPTQ}, "gptq, 8 bits"),
        ({"quantization_config": NF4}, "bitsandbytes, nf4"),
        ({"quantization_config": INT8}, "bitsandbytes, int8"),
        ({"quantization_config": PACKED}, "compressed-tensors, pack-quantized, 4 bits"),
        ({"compression_config": PACKED}, "compressed-tensors, pack-quantized, 4 bits"),
        ({"text_config": {"quantization_config": GPTQ}}, "gptq, 8 bits"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"bits": 4}}, "of an unknown method, 4 bits"),
        ({"quantization_config": {"quant_method": "x" * 999, "bits": "many"}}, "x" * 60),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": 3}},
            "compressed-tensors",
        ),
    ],
)
def test_a_config_says_how_its_weights_are_quantized(config: Any, text: str) -> None:
    assert str(stored_quantization(config)) == text


@pytest.mark.parametrize("config", [None, [], "text", {}, {"quantization_config": None}, {"quantization_config": 4}])
def test_other_configs_say_nothing(config: Any) -> None:
    assert stored_quantization(config) is None


def test_a_scheme_that_is_not_told_leaves_the_method() -> None:
    assert str(StoredQuantization("fp8", "")) == "fp8"
