from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from families import BY_NAME, IS_TRANSFORMERS_5, change_config
from small_models import write_model

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, check_equivalence
from llm_bench_fixtures.models.backends import CATALOGUE, checkpoint
from llm_bench_fixtures.models.backends.checkpoint import with_reference
from llm_bench_fixtures.models.checks import check_usable
from llm_bench_fixtures.models.device import ResolvedPrecision, resolve_device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource, StoredQuantization
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.workloads import CacheKind

MakeRequest = Callable[..., LoadRequest]
PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23))
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


def quantized_folder(folder: Path, config: Mapping[str, Any]) -> ModelSource:
    """A model whose config says so; its weights aren't looked at."""
    path = write_model(folder) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "quantization_config": config}), "utf-8")
    return ModelSource("quantized", folder)


def is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@pytest.mark.parametrize(
    ("module", "config", "reason"),
    [
        ("gptqmodel", GPTQ, "transformers runs gptq with "),  # optimum too, where that is missing
        ("compressed_tensors", PACKED, "transformers runs compressed-tensors with compressed-tensors: pip install"),
        ("awq", AWQ, f"transformers {version('transformers')} can't run awq, 4 bits in groups of 128: "),
    ],
)
def test_what_is_missing_is_said_by_name(
    module: str, config: Mapping[str, Any], reason: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    if is_there(module):
        pytest.skip(f"{module} is there")
    source = quantized_folder(tmp_path, config)
    with quiet_libraries():
        check_usable(source)
    with pytest.raises(BackendUnavailable) as caught:
        load_variant(make_request("checkpoint", source))
    assert str(caught.value).startswith(reason)
    if module == "gptqmodel":
        assert str(caught.value).endswith("gptqmodel")
    if module == "awq":
        assert ("gptqmodel" if IS_TRANSFORMERS_5 else "pip install autoawq") in str(caught.value)


@pytest.mark.parametrize("variant", [one.id for one in CATALOGUE if one.backend != "checkpoint"])
def test_nothing_else_is_made_of_a_quantized_checkpoint(
    variant: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    """Nor are other reasons given first, but for what isn't installed."""
    source = quantized_folder(tmp_path, GPTQ)
    with pytest.raises(BackendUnavailable, match=r"quantized already \(gptq, 4 bits in groups of 128\)|pip install"):
        load_variant(make_request(variant, source))


def test_a_checkpoint_that_is_not_quantized_is_left_to_the_others(make_request: MakeRequest) -> None:
    with pytest.raises(BackendUnavailable, match=r"^the weights of tiny are not quantized: other variants run them$"):
        load_variant(make_request("checkpoint"))


@pytest.mark.parametrize(
    ("dtype", "label"),
    [("bfloat16", "float32 (bfloat16 requested; hqq)"), ("float32", "float32")],
)
def test_hqq_runs_in_the_dtype_that_it_multiplies_in(
    dtype: str, label: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    """Bug: a checkpoint of HQQ whose config says bfloat16 was refused: "expected m1 and m2 to have the same dtype".

    transformers 4 makes its layers in float32 whatever is asked for, and its `from_pretrained` runs it so.
    """
    source = quantized_folder(tmp_path, {"quant_method": "hqq", "quant_config": {}, "skip_modules": ["lm_head"]})
    change_config(tmp_path, dtype=dtype)
    assert checkpoint._precision(make_request("checkpoint", source)).label == label


@pytest.mark.parametrize(
    ("tensors", "is_quantized"),
    [
        ({"weight_packed": torch.zeros(64, 8, dtype=torch.int32), "weight_scale": torch.ones(64, 2)}, True),
        ({"weight_shape": torch.tensor([64, 64])}, False),
        ({"weight_shape": torch.tensor([64, 64]), "weight": torch.ones(64, 64)}, False),
        ({"weight_packed": torch.zeros(64, 8, dtype=torch.int32), "weight": torch.ones(64, 64)}, False),
    ],
)
def test_layers_that_were_unpacked_are_no_quantized_ones(
    tensors: Mapping[str, torch.Tensor], is_quantized: bool
) -> None:
    """Bug: 4 bits of compressed-tensors, unpacked to bfloat16 at the first use, were said to run packed."""
    layer = torch.nn.Linear(64, 64, bias=False)
    if "weight_packed" in tensors:
        del layer.weight
    for name, tensor in tensors.items():
        layer.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    assert checkpoint._quantized_layers(torch.nn.Sequential(layer)) == [layer] * is_quantized


def test_what_is_unpacked_computes_in_the_dtype_of_the_rest() -> None:
    """Bug: an fp8 checkpoint that transformers 5 unpacks to bfloat16 was taken to compute in integers."""
    rest = ResolvedPrecision(Precision.BFLOAT16, Precision.BFLOAT16)
    fp8 = StoredQuantization("fp8", "")
    assert checkpoint._compute(fp8, [], rest, resolve_device("cpu")) is rest


@pytest.mark.parametrize("name", ["nf4", "int8"])
def test_what_bitsandbytes_has_saved_is_what_it_makes(name: str, make_request: MakeRequest, tmp_path: Path) -> None:
    """The same tokens, bytes and share as of the weights that it was made from; here in float32, as their files are."""
    pytest.importorskip("bitsandbytes")
    from families import save_quantized

    with quiet_libraries():
        source = BY_NAME["llama"].build(tmp_path / "float32")
        shutil.copytree(tmp_path / "float32", tmp_path / name)
        how = {"nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "int8": {"load_in_8bit": True}}[name]
        save_quantized(tmp_path / name, {**how, "bnb_4bit_compute_dtype": "float32"} if name == "nf4" else how)
    made = load_variant(make_request(f"bnb-{name}", source)).model
    saved = load_variant(make_request("checkpoint", ModelSource(name, tmp_path / name))).model
    ids = torch.tensor([[11, 12, 13, 14]])
    first, second = (model.generate(ids, torch.ones_like(ids), 6, CacheKind.DYNAMIC) for model in (made, saved))
    assert torch.equal(first, second)
    layer = {"nf4": "Linear4bit", "int8": "Linear8bitLt"}[name]
    assert saved.facts.label == made.facts.label.replace(f"bitsandbytes {name}", f"bitsandbytes, {name} ({layer})")
    for fact in ("weight_bytes", "weight_bytes_read", "compute", "tolerance"):
        assert getattr(saved.facts, fact) == getattr(made.facts, fact)
    assert saved.facts.quantized_share == pytest.approx(made.facts.quantized_share, abs=1e-3)
    found = check_equivalence(saved, PROMPTS, 6)
    assert {one.verdict for one in found} <= {EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE}, found


@pytest.mark.parametrize(
    ("given", "reference"),
    [
        ({}, "checkpoint"),
        ({"reference": "fp32"}, "fp32"),
        ({"load_format": "dummy"}, "fp32"),
        ({"model": "tiny"}, "fp32"),
        ({"model": "no/such/model"}, "fp32"),
    ],
)
def test_a_quantized_folder_is_its_own_reference(given: Mapping[str, str], reference: str, tmp_path: Path) -> None:
    """Unless another is named, or random weights are made in its shape."""
    quantized_folder(tmp_path, GPTQ)
    assert with_reference(parse_settings({"model": str(tmp_path), **given})).reference == reference
