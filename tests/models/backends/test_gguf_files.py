"""GGUF files as they are made here, and as the user names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cyllama")
pytest.importorskip("gguf")

from families import BY_NAME
from transformers import AutoConfig, AutoModelForCausalLM

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import gguf_files
from llm_bench_fixtures.models.backends.gguf_files import check_convertible, check_given, write_gguf
from llm_bench_fixtures.models.backends.llamacpp import FILE, make
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.variants import Precision

MakeRequest = Callable[..., LoadRequest]
NORM = "blk.1.attn_norm.weight"
written = gguf_files._tensors


@pytest.mark.parametrize(
    ("variant", "family", "text"),
    [
        ("gguf-q8_0", "gpt2", "holds .*Q8_0.*; give F32, F16 or BF16"),
        ("gguf-f32", "llama", "its table of tokens isn't one of 4096 x 64"),
    ],
    ids=["quantized already", "another model's"],
)
def test_a_named_file_that_does_not_fit_is_refused(
    variant: str, family: str, text: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    file = make(make_request(variant))[-1].folder / FILE
    with quiet_libraries():
        source = None if family == "gpt2" else BY_NAME[family].build(tmp_path)
    with pytest.raises(BackendUnavailable, match=text):
        load_variant(make_request("gguf-q4_k_m", source, gguf=str(file)))


def test_a_named_file_that_is_no_gguf_is_refused(make_request: MakeRequest, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"something else" * 99)
    with pytest.raises(BackendUnavailable, match=r"model\.gguf: GGUF magic invalid"):
        load_variant(make_request("gguf-f32", gguf=str(file)))


def test_a_named_file_that_cannot_be_read_is_refused(make_request: MakeRequest, tmp_path: Path) -> None:
    """Bug: a pipe was waited for without an end."""
    os.mkfifo(tmp_path / "pipe.gguf")
    for name, why in (("none.gguf", "isn't there"), ("pipe.gguf", "is a pipe, a device or a socket")):
        with pytest.raises(BackendUnavailable, match=f"^--llm-gguf: .*{name} {why}$"):
            load_variant(make_request("gguf-f32", gguf=str(tmp_path / name)))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_type": "bloom"}, "models of type bloom aren't converted to GGUF here .*--llm-gguf"),
        ({"model_type": "gpt2", "activation_function": "relu"}, "activation_function=relu"),
        ({"model_type": "llama", "hidden_act": "gelu"}, "hidden_act=gelu"),
        ({"model_type": "mistral", "sliding_window": 24}, "without their sliding window"),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_what_llama_cpp_would_compute_in_another_way_is_not_converted(config: dict[str, Any], text: str) -> None:
    with pytest.raises(BackendUnavailable, match=text):
        check_convertible(AutoConfig.for_model(**config))


def test_rotary_embeddings_that_depend_on_the_length_are_not_converted(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    config = AutoConfig.for_model(**{**BY_NAME["llama"].config, "rope_scaling": scaling})
    module = AutoModelForCausalLM.from_config(config)
    with pytest.raises(BackendUnavailable, match="rotary embeddings of type yarn"):
        write_gguf(module, tmp_path / "model.gguf")


def test_a_converted_file_that_does_not_run_is_not_kept(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one that lacks the second layer's norm."""
    monkeypatch.setattr(gguf_files, "_tensors", lambda *args: (one for one in written(*args) if one[0] != NORM))
    request = replace(make_request("gguf-f32"), store=ArtifactStore(tmp_path))
    with pytest.raises(BackendUnavailable, match=r"^llama\.cpp doesn't run gpt2 models as converted: "):
        load_variant(request)
    assert not list(tmp_path.rglob("*.gguf"))


def test_rows_that_do_not_fill_the_blocks_of_q8_0_are_named(make_request: MakeRequest, tmp_path: Path) -> None:
    """Bug: "failed with code 1"."""
    llama = BY_NAME["llama"]
    source = replace(llama, config={**llama.config, "intermediate_size": 72}).build(tmp_path / "model")
    request = replace(make_request("gguf-q8_0", source), store=ArtifactStore(tmp_path / "cache"))
    with pytest.raises(BackendUnavailable, match=r"q8_0 takes 32 .*: a row of blk\.0\.ffn_down\.weight has 72$"):
        load_variant(request)


def test_a_family_that_the_file_can_not_hold_is_unavailable(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here for a config that lacks what every one of its type has."""
    monkeypatch.setattr(gguf_files, "_add_sizes", lambda writer, config: config.hidden_seize)
    request = replace(make_request("gguf-f32"), store=ArtifactStore(tmp_path))
    with pytest.raises(BackendUnavailable, match=r"^gpt2 models can't be converted to GGUF: AttributeError"):
        load_variant(request)


def test_a_named_files_sizes_are_compared_with_the_language_models(make_request: MakeRequest) -> None:
    """Of a model that sees, too, whose config has them in a part."""
    request = make_request("gguf-f32")
    (made,) = make(request)
    sees = SimpleNamespace(get_text_config=request.source.load_config)
    assert check_given(made.folder / FILE, sees) is Precision.FLOAT32
