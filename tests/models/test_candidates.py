from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import Payload, small_config, write_model
from transformers import AutoConfig, AutoModelForCausalLM, T5Config

from llm_bench_fixtures.errors import LlmBenchError, NoCandidateLoaded
from llm_bench_fixtures.models.artifacts import ArtifactStore, file_digest
from llm_bench_fixtures.models.candidates import PRESETS, find_source
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.weights import storage_bytes
from llm_bench_fixtures.options.settings import parse_settings

Find = Callable[..., ModelSource]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with nothing wrong."""
    return write_model(tmp_path / "model")


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """The source of the named candidates, with options as one would type them; examined in this process."""

    def find_candidates(*names: object, **options: str) -> ModelSource:
        settings = parse_settings({"model": ",".join(map(str, names)), "in_process": "yes", **options})
        return find_source(settings, ArtifactStore(tmp_path / "cache"))

    return find_candidates


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and nothing in the hub's cache."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def reason(find: Find, name: object, **options: str) -> str:
    """Why this candidate, the only one, isn't used."""
    with pytest.raises(NoCandidateLoaded) as caught:
        find(name, **options)
    first, row, advice = str(caught.value).split("\n")
    assert first == "No candidate could be loaded:"
    assert advice == "Give --llm-model a folder, or --llm-model tiny for the embedded model."
    assert row.startswith(f"  {name}  ")
    return row.removeprefix(f"  {name}  ")


def test_tiny_is_the_embedded_model(find: Find) -> None:
    source = find("tiny")
    assert (source.name, source.label, source.folder) == ("tiny", "tiny", TINY_FOLDER)


def test_the_embedded_models_context_is_512_tokens(tiny_fp32: TransformersModel) -> None:
    assert tiny_fp32.facts.context_length == 512


def test_a_local_folder_is_a_candidate(find: Find, folder: Path) -> None:
    assert find(folder).folder == folder


def test_of_a_list_the_first_that_loads_is_used(find: Find, folder: Path) -> None:
    assert find(folder, "tiny").folder == folder


def test_the_list_falls_to_the_second_where_the_first_fails(find: Find, tmp_path: Path) -> None:
    source = find(tmp_path / "nowhere", "tiny")
    assert source.name == "tiny"
    assert source.passed_over == ((str(tmp_path / "nowhere"), "no such folder"),)
    assert find("tiny").passed_over == ()


def test_where_none_loads_each_is_listed_with_its_reason(find: Find, folder: Path, offline: None) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(NoCandidateLoaded) as caught:
        find("./nowhere", folder, "some/model")
    width = len(str(folder))
    assert str(caught.value).split("\n")[1:-1] == [
        f"  {'./nowhere':{width}}  no such folder",
        f"  {folder}  no weights (model*.safetensors or pytorch_model*.bin) in its folder",
        f"  {'some/model':{width}}  not in the local cache, and the hub can't be reached",
    ]


def test_a_name_that_is_no_hub_id_says_so(find: Find, offline: None) -> None:
    assert reason(find, "no//hub//id") == "neither a folder nor a hub id"


def test_a_hub_id_that_is_not_cached_says_so_offline(find: Find, offline: None) -> None:
    assert reason(find, "gpt2") == "not in the local cache, and the hub can't be reached"


def test_a_truncated_safetensors_is_refused_by_name(find: Find, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert reason(find, folder).startswith("model.safetensors is damaged: ")


def test_an_empty_safetensors_is_refused_by_name(find: Find, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")
    assert reason(find, folder).startswith("model.safetensors is damaged: ")


def test_a_missing_shard_fails_the_candidate(find: Find, folder: Path) -> None:
    """The index names two files, one is there."""
    weights = load_file(folder / "model.safetensors")
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    half = dict(list(weights.items())[: len(weights) // 2])
    save_file(half, folder / shards[0], metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {name: shards[name not in half] for name in weights}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find(folder, "tiny").name == "tiny"


def test_weights_that_lack_a_layer_are_never_loaded_as_if_whole(
    find: Find, folder: Path, make_request: Callable[..., LoadRequest]
) -> None:
    """transformers fills what is missing with random numbers, and only warns."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["transformer.h.0.mlp.c_fc.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(LlmBenchError):
        load_variant(make_request("fp32", source=find(folder)))
    source = find(folder, "tiny")
    assert source.name == "tiny"
    assert source.passed_over[0][1].startswith("it can't be loaded: ")


def test_a_last_candidate_that_can_not_be_loaded_is_listed_like_the_others(find: Find, folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["transformer.h.0.mlp.c_fc.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(NoCandidateLoaded, match=r"(?s)nowhere  +no such folder\n.*it can't be loaded"):
        find("./nowhere", folder)


def test_a_candidate_of_several_that_the_memory_can_not_hold_is_not_tried(
    find: Find, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(NoCandidateLoaded, match=r"(?s)out of memory: it takes .* GB.*out of memory"):
        find(folder, "tiny")


def test_a_model_that_does_not_continue_text_fails_the_candidate(find: Find, folder: Path) -> None:
    """T5 is an encoder and a decoder; AutoModelForCausalLM doesn't load it."""
    T5Config(vocab_size=4096).save_pretrained(folder)
    assert find(folder, "tiny").name == "tiny"


def test_dummy_weights_of_a_model_that_does_not_continue_text_fail_the_candidate(find: Find, folder: Path) -> None:
    T5Config(vocab_size=4096).save_pretrained(folder)
    reason(find, folder, load_format="dummy")


def test_a_folder_without_config_says_so(find: Find, folder: Path) -> None:
    (folder / "config.json").unlink()
    assert reason(find, folder).startswith("no usable config: ")


def test_a_config_that_is_not_json_says_so(find: Find, folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert reason(find, folder).startswith("no usable config: ")


def test_a_folder_without_tokenizer_says_so(find: Find, folder: Path) -> None:
    for path in folder.glob("*token*.json"):
        path.unlink()
    assert reason(find, folder).startswith("no usable tokenizer: ")


def test_a_tokenizer_larger_than_the_embedding_is_refused_with_both_sizes(find: Find, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "small-vocabulary", vocab_size=4000)
    assert reason(find, folder) == (
        "its tokenizer produces ids up to 4095 (vocabulary of 4096), its embedding has 4000 rows"
    )


def test_an_embedding_larger_than_the_tokenizer_is_accepted(find: Find, tmp_path: Path) -> None:
    assert find(write_model(tmp_path / "padded", vocab_size=4160)).folder == tmp_path / "padded"


def test_a_tokenizer_without_any_special_token_is_refused(find: Find, folder: Path) -> None:
    (folder / "special_tokens_map.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    assert reason(find, folder) == "its tokenizer has no special token that could serve as padding"


def test_the_end_token_pads_where_there_is_no_padding_token(tiny_source: ModelSource) -> None:
    tokenizer = tiny_source.load_tokenizer()
    assert tokenizer.pad_token_id == tokenizer.eos_token_id


@pytest.fixture
def malicious(folder: Path, tmp_path: Path) -> Path:
    """A folder whose checkpoint makes the folder `payload-ran` when it is unpickled."""
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Payload(tmp_path / "payload-ran")}, folder / "pytorch_model.bin")
    return folder


def test_a_malicious_pickle_is_refused_and_its_payload_does_not_run(
    find: Find, malicious: Path, tmp_path: Path
) -> None:
    assert reason(find, malicious).startswith("pytorch_model.bin holds more than weights, and is not loaded: ")
    assert not (tmp_path / "payload-ran").exists()
    torch.load(malicious / "pytorch_model.bin", weights_only=False)  # the payload is a working one
    assert (tmp_path / "payload-ran").exists()


def test_a_malicious_pickle_that_reaches_the_backend_does_not_run_either(
    malicious: Path, tmp_path: Path, make_request: Callable[..., LoadRequest]
) -> None:
    with pytest.raises((OSError, pickle.UnpicklingError)):
        load_variant(make_request("fp32", source=ModelSource("malicious", malicious)))
    assert not (tmp_path / "payload-ran").exists()


def test_a_malicious_pickle_of_the_old_format_is_refused_and_does_not_run(
    find: Find, malicious: Path, tmp_path: Path
) -> None:
    (malicious / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "payload-ran")))
    reason(find, malicious)
    assert not (tmp_path / "payload-ran").exists()


def test_a_weights_only_checkpoint_loads_with_the_same_weights(
    find: Find, folder: Path, make_request: Callable[..., LoadRequest]
) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    loaded = load_variant(make_request("fp32", source=find(folder))).model
    assert all(torch.equal(loaded.module.state_dict()[name], tensor) for name, tensor in weights.items())


@pytest.mark.parametrize("keep", [0, 1, 20, 2000])
def test_a_truncated_checkpoint_is_refused_by_name(keep: int, find: Find, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(weights, path)
    path.write_bytes(path.read_bytes()[:keep])
    assert reason(find, folder).startswith("pytorch_model.bin ")


@pytest.mark.parametrize("content", [b"hello", b"0", b"version https://git-lfs.github.com/spec/v1\n", b"<html>"])
def test_a_checkpoint_that_is_something_else_is_refused_by_name(content: bytes, find: Find, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    assert reason(find, folder).startswith("pytorch_model.bin ")


def test_beside_safetensors_a_pickle_is_not_looked_at(find: Find, folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"not a checkpoint")
    assert find(folder).folder == folder


@pytest.fixture
def small_preset(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(PRESETS, "small-preset", small_config().to_dict())
    return "small-preset"


def weights_digest(source: ModelSource) -> str:
    return file_digest(source.folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["preset", "folder"])
def test_dummy_weights_are_the_same_for_the_same_seed_and_others_for_another(
    kind: str, tmp_path: Path, small_preset: str, folder: Path
) -> None:
    """Each in a store of its own, so that nothing is reused; and in one store, those of one seed aren't another's."""
    name = small_preset if kind == "preset" else str(folder)
    digests = []
    for number, seed in enumerate(("0", "0", "1")):
        settings = parse_settings({"model": name, "load_format": "dummy", "seed": seed, "in_process": "yes"})
        digests.append(weights_digest(find_source(settings, ArtifactStore(tmp_path / f"cache-{number}"))))
    assert digests[0] == digests[1] != digests[2]
    again = find_source(settings, ArtifactStore(tmp_path / "cache-0"))
    assert weights_digest(again) == digests[2]


def test_dummy_weights_are_not_the_folders_own(find: Find, folder: Path) -> None:
    source = find(folder, load_format="dummy")
    assert source.folder != folder
    assert weights_digest(source) != weights_digest(ModelSource("own", folder))


def test_dummy_weights_have_the_configs_shape_and_the_embedded_tokenizer(
    find: Find, tmp_path: Path, tiny_source: ModelSource
) -> None:
    folder = write_model(tmp_path / "wide", n_embd=16, vocab_size=5000)
    source = find(folder, load_format="dummy")
    assert load_file(source.folder / "model.safetensors")["transformer.wte.weight"].shape == (5000, 16)
    assert source.load_tokenizer().get_vocab() == tiny_source.load_tokenizer().get_vocab()


@pytest.mark.parametrize(
    ("named", "dtype"), [("bfloat16", torch.bfloat16), ("float16", torch.float16), (None, torch.float32)]
)
def test_dummy_weights_have_the_configs_dtype(find: Find, folder: Path, named: str | None, dtype: torch.dtype) -> None:
    """Bug: of a model in bfloat16 the cache kept twice what its checkpoint takes."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": named}))
    weights = load_file(find(folder, load_format="dummy").folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {dtype}


def test_dummy_weights_need_no_weights_and_no_tokenizer_in_the_folder(find: Find, folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "config.json":
            path.unlink()
    assert find(folder, load_format="dummy").random_weights


def test_dummy_weights_are_marked_and_a_second_run_reuses_them(find: Find, small_preset: str) -> None:
    first, second = (find(small_preset, load_format="dummy") for _ in range(2))
    assert first.label == "small-preset (random weights)"
    assert first.notes == ("dummy-weights made in this run",)
    assert second.notes == ("dummy-weights reused from the cache",)


def test_dummy_weights_leave_the_sessions_random_numbers_alone(find: Find, small_preset: str) -> None:
    before = torch.random.get_rng_state()
    find(small_preset, load_format="dummy")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dummy_weights_load_and_run(find: Find, small_preset: str, make_request: Callable[..., LoadRequest]) -> None:
    loaded = load_variant(make_request("fp32", source=find(small_preset, load_format="dummy"))).model
    ids = torch.tensor([[1, 2, 3]])
    assert loaded.logits(ids, torch.ones_like(ids)).shape == (1, 3, 4096)


def test_dummy_weights_for_fewer_rows_than_the_embedded_tokenizer_are_refused(find: Find, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "small-vocabulary", vocab_size=4000)
    assert "its embedding has 4000 rows" in reason(find, folder, load_format="dummy")


def test_a_preset_is_a_hub_id_where_real_weights_are_asked_for(find: Find, offline: None) -> None:
    assert "hub can't be reached" in reason(find, "gpt2")


@pytest.mark.parametrize(("name", "weights"), [("gpt2", 124_439_808), ("llama-125m", 123_551_232)])
def test_a_preset_has_the_published_number_of_weights(name: str, weights: int) -> None:
    """llama-125m: 50257 x 768 + 12 x (4 x 768 x 768 + 3 x 768 x 2048 + 2 x 768) + 768."""
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(AutoConfig.for_model(**PRESETS[name]))
    assert sum(parameter.numel() for parameter in module.parameters()) == weights


def test_storage_is_counted_in_bytes() -> None:
    assert storage_bytes([torch.zeros(3, 4), torch.zeros(5, dtype=torch.int8)]) == 48 + 5


def test_tied_storage_is_counted_once() -> None:
    weight = torch.zeros(3, 4)
    assert storage_bytes([weight, weight, weight.T, weight[1:]]) == 48


def test_the_digest_of_a_source_changes_with_its_weights(folder: Path) -> None:
    before = ModelSource("model", folder).digest
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert ModelSource("model", folder).digest != before


def test_a_closed_model_holds_no_module(folder: Path, make_request: Callable[..., LoadRequest]) -> None:
    loaded = load_variant(make_request("fp32", source=ModelSource("model", folder))).model
    loaded.close()
    assert loaded.module is None
