"""What can be wrong with a model, and with what is asked of it: a row for each fault, with what must come of it.

A new fault is a new row. The rows that plant code prove with `run` that it would run if anything ran it.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import pytest
import torch
from families import IS_TRANSFORMERS_5
from safetensors.torch import load_file, save_file
from small_models import Payload, save_model, write_model
from transformers import (
    BertConfig,
    BertLMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    RobertaConfig,
    RobertaForCausalLM,
    T5Config,
)

from llm_bench_fixtures.errors import NoCandidateLoaded, NotCausal, OutOfMemory, UntrustedCode
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.candidates import find_source
from llm_bench_fixtures.models.checks import check_causal, check_counts
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import CacheKind

Plant = Callable[[Path], object]
MakeRequest = Callable[..., LoadRequest]
GIVE_THE_OPTION = ": give --llm-trust-remote-code to allow that, for a model whose code you trust"
HANGS_AFTER_S = 600  # a row takes seconds, on a machine ten times slower a minute


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A fault that makes something wait without end fails its row."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"nothing came of it in {HANGS_AFTER_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANGS_AFTER_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with nothing wrong."""
    return write_model(tmp_path / "model")


def find(folder: object, *others: str, **options: str) -> ModelSource:
    settings = parse_settings({"model": ",".join([str(folder), *others]), **options})
    return find_source(settings, ArtifactStore(Path(str(folder)).parent / "cache"))


def trace_of(folder: Path) -> Path:
    """The folder that planted code makes, once it runs."""
    return folder.parent / "planted code ran"


def planted(folder: Path, file: str, rest: str = "") -> None:
    """A Python file that leaves a trace when it is run or imported."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"import pathlib\n\npathlib.Path({str(trace_of(folder))!r}).mkdir(exist_ok=True)\n{rest}")


def change(folder: Path, file: str, **values: object) -> None:
    """Set values of a JSON file in the folder."""
    path = folder / file
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **values}))


def trusted(folder: Path) -> ModelSource:
    return ModelSource("trusted", folder, trust_remote_code=True)


# Code of a model's author


def own_generate(folder: Path) -> None:
    planted(folder, "custom_generate/generate.py", "\ndef generate(model, *args, **how):\n    return None\n")


def own_config(folder: Path) -> None:
    rest = "from transformers import PretrainedConfig\n\nclass Mine(PretrainedConfig):\n    model_type = 'mine'\n"
    planted(folder, "configuration_mine.py", rest)
    change(folder, "config.json", model_type="mine", auto_map={"AutoConfig": "configuration_mine.Mine"})


def own_code_for_a_known_model(folder: Path) -> None:
    rest = (
        "from transformers import GPT2Config, GPT2LMHeadModel\n\nclass Config(GPT2Config):\n    pass\n\n"
        "class Model(GPT2LMHeadModel):\n    config_class = Config\n"
    )
    planted(folder, "modeling_mine.py", rest)
    map_ = {"AutoConfig": "modeling_mine.Config", "AutoModelForCausalLM": "modeling_mine.Model"}
    change(folder, "config.json", auto_map=map_)


def own_tokenizer(folder: Path, base: str = "Mine") -> None:
    rest = "from transformers import PreTrainedTokenizerFast\n\nclass Mine(PreTrainedTokenizerFast):\n    pass\n"
    planted(folder, "tokenization_mine.py", rest)
    map_ = {"AutoTokenizer": ["tokenization_mine.Mine", "tokenization_mine.Mine"]}
    change(folder, "tokenizer_config.json", tokenizer_class=base, auto_map=map_)


def own_code_for_a_known_tokenizer(folder: Path) -> None:
    own_tokenizer(folder, "PreTrainedTokenizerFast")


def adapter(folder: Path) -> None:
    change(folder, "adapter_config.json", base_model_name_or_path=str(folder.parent / "another"), peft_type="LORA")


def kernel(folder: Path) -> None:
    change(folder, "config.json", _attn_implementation="somebody/attention@v1:forward")


def nested_kernel(folder: Path) -> None:
    change(folder, "config.json", text_config={"attn_implementation": {"": "somebody/attention"}})


def only_a_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Payload(trace_of(folder))}, folder / "pytorch_model.bin")


def an_old_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(trace_of(folder))))


def pickles_beside(folder: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "vocab.pkl", "scheduler.pt"):
        torch.save({"weight": Payload(trace_of(folder))}, folder / name)


def unpickle(folder: Path) -> None:
    torch.load(folder / "pytorch_model.bin", weights_only=False)


TEMPLATE = "{{{{ cycler.__init__.__globals__.os.mkdir({path!r}) }}}}"


def chat_template(folder: Path) -> None:
    text = TEMPLATE.format(path=str(trace_of(folder)))
    (folder / "chat_template.jinja").write_text(text)
    change(folder, "tokenizer_config.json", chat_template=text)


def render(folder: Path) -> None:
    jinja2.Environment(autoescape=True).from_string((folder / "chat_template.jinja").read_text()).render()


def generation_config(folder: Path) -> None:
    planted(folder, "elsewhere/custom_generate/generate.py", "\ndef generate(model, *args, **how):\n    return None\n")
    change(folder, "generation_config.json", custom_generate=str(folder / "elsewhere"), penalty_alpha=0.5, top_k=4)


def generate_as_it_says(folder: Path) -> None:
    said = json.loads((folder / "generation_config.json").read_text())["custom_generate"]
    ids = torch.tensor([[1, 2]])
    ModelSource("x", folder).load_model(dtype="auto").generate(ids, custom_generate=said, trust_remote_code=True)


@dataclass(frozen=True)
class Code:
    """Something in a model's folder that could run."""

    plant: Plant
    refused: str = ""
    """How the reason begins. Empty: the model is used, and what was planted is not."""
    run: Plant | None = None
    """Runs it, as its author hopes; None where nothing here could."""


CODE: Mapping[str, Code] = {
    "generate of its own": Code(
        own_generate,
        f"custom_generate/generate.py in its folder would take the place of generate{GIVE_THE_OPTION}",
        lambda folder: trusted(folder).load_model(dtype="auto"),
    ),
    "a config class of its own": Code(
        own_config, f"its config needs code of its own{GIVE_THE_OPTION}", lambda folder: trusted(folder).load_config()
    ),
    "classes of its own for a known model": Code(
        own_code_for_a_known_model, run=lambda folder: trusted(folder).load_config()
    ),
    "a tokenizer of its own": Code(
        own_tokenizer,
        # transformers 5 takes its own class for a model that it knows
        "" if IS_TRANSFORMERS_5 else f"its tokenizer needs code of its own{GIVE_THE_OPTION}",
        lambda folder: trusted(folder).load_tokenizer(),
    ),
    "a tokenizer of its own for a known class": Code(
        own_code_for_a_known_tokenizer, run=lambda folder: trusted(folder).load_tokenizer()
    ),
    "an adapter to another model": Code(adapter, "adapter_config.json in its folder names another model to load"),
    "an attention kernel from the hub": Code(kernel, "its config names somebody/attention@v1:forward, compiled code"),
    "a kernel for a part of the model": Code(nested_kernel, "its config names somebody/attention, compiled code"),
    "a pickle for weights": Code(only_a_pickle, "pytorch_model.bin holds more than weights, and is not", unpickle),
    "a pickle of the old format": Code(
        an_old_pickle,
        "pytorch_model.bin ",
        lambda folder: pickle.loads((folder / "pytorch_model.bin").read_bytes()),
    ),
    "pickles beside the weights": Code(pickles_beside, run=unpickle),
    "a chat template": Code(chat_template, run=render),
    "generation settings that name code": Code(generation_config, run=generate_as_it_says),
}


def use(source: ModelSource, make_request: MakeRequest) -> None:
    """Everything that a run does with a model: load, tokenize, render its chat template, score, generate."""
    model = load_variant(make_request("fp32", source=source)).model
    ids = torch.tensor([source.load_tokenizer()("Once upon a time")["input_ids"]])
    model.logits(ids, torch.ones_like(ids))
    model.generate(ids, torch.ones_like(ids), 2, CacheKind.DYNAMIC)
    with suppress(Exception):
        source.load_tokenizer().apply_chat_template([{"role": "user", "content": "Hello"}], tokenize=False)


@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_code_of_a_model_never_runs_unasked(
    code: Code, folder: Path, make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    code.plant(folder)
    source = find(folder, "tiny")
    reasons = [reason for _, reason in source.passed_over]
    if not code.refused:
        assert (source.folder, reasons) == (folder, [])
        use(source, make_request)
    else:
        assert [reason[: len(code.refused)] for reason in reasons] == [code.refused]
    assert not trace_of(folder).exists()
    if code.run is not None:
        code.run(folder)
        assert trace_of(folder).exists()


@pytest.mark.parametrize("plant", [own_generate, adapter, kernel])
@pytest.mark.parametrize("variant", ["fp32", "ort-fp32"])
def test_a_source_that_nobody_checked_runs_no_code_either(
    plant: Plant, variant: str, folder: Path, make_request: MakeRequest
) -> None:
    """A project's own backend may make one."""
    plant(folder)
    with pytest.raises(UntrustedCode, match="--llm-trust-remote-code"):
        load_variant(make_request(variant, source=ModelSource("unchecked", folder)))
    assert not trace_of(folder).exists()


STARTS = """
from llm_bench_fixtures.models.device import processor_flags
from llm_bench_fixtures.processes.launch import start_function, start_importing

def answer(channel):
    try:
        import wanted_by_a_library
    except ImportError:
        channel.send("answered")

if __name__ == "__main__":
    processor_flags()
    start_importing(["json"], on_cpu=True)
    for on_cpu in (True, False):
        process = start_function("", answer, (), on_cpu=on_cpu)
        print(process.receive())
        process.close()
"""


@pytest.mark.parametrize(
    "name", ["struct.py", "socket.py", "multiprocessing.py", "cpuinfo.py", "wanted_by_a_library.py"]
)
def test_modules_of_the_folder_are_not_taken_for_others_from_within_it(name: str, folder: Path, tmp_path: Path) -> None:
    """Bug: what Python starts with -c and -m imports from the working folder first."""
    planted(folder, name)
    (tmp_path / "starts.py").write_text(STARTS)
    command = [sys.executable, tmp_path / "starts.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["answered", "answered"]
    assert not trace_of(folder).exists()
    subprocess.run([sys.executable, "-c", f"import {Path(name).stem}"], cwd=folder, capture_output=True, check=True)
    assert trace_of(folder).exists()


OTHER_LIBRARIES = {
    "sentence_transformers": ("sentence_bert_config.json", {}),
    "diffusers": ("model_index.json", {"_class_name": "Pipeline"}),
}


@pytest.mark.parametrize(("library", "file", "values"), [(one, *plant) for one, plant in OTHER_LIBRARIES.items()])
def test_no_file_of_a_folder_chooses_the_library_that_exports_it(
    library: str, file: str, values: Mapping[str, object], folder: Path, make_request: MakeRequest
) -> None:
    """Of some libraries it could name modules to import."""
    change(folder, file, **values)
    tasks = pytest.importorskip("optimum.exporters.tasks")
    assert tasks.TasksManager.infer_library_from_model(str(folder)) == library
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        configs = tasks.TasksManager.get_exporter_config_constructor
        patch.setattr(tasks.TasksManager, "get_exporter_config_constructor", noting(configs, asked))
        load_variant(make_request("ort-fp32", source=find(folder)))
    assert set(asked) == {"transformers"}


def noting(function: Callable[..., object], asked: list[str]) -> Callable[..., object]:
    """The function, which notes the library that it is asked for."""

    def noted(*args: object, **how: object) -> object:
        asked.append(str(how["library_name"]))
        return function(*args, **how)

    return noted


def test_a_shape_for_dummy_weights_runs_no_code_either(folder: Path) -> None:
    kernel(folder)
    with pytest.raises(NoCandidateLoaded, match="--llm-trust-remote-code"):
        find(folder, load_format="dummy")


def test_what_is_trusted_is_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    own_code_for_a_known_model(folder)
    assert find(folder, trust_remote_code="yes").folder == folder
    assert trace_of(folder).exists()


# Folders that hold no model, or none that can be measured


def no_such_head(folder: Path) -> None:
    change(folder, "config.json", n_head=0)


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def header_without_end(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")


def half_of_its_shards(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(dict(list(weights.items())[:3]), folder / "model-00001-of-00002.safetensors", metadata={"format": "pt"})
    shards = {name: f"model-0000{1 + (number > 2)}-of-00002.safetensors" for number, name in enumerate(weights)}
    change(folder, "model.safetensors.index.json", weight_map=shards)


def without_a_layer(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["transformer.h.0.mlp.c_fc.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def larger_than_memory(folder: Path) -> None:
    """One file of a terabyte, all of it holes."""
    size = 10**12
    tensor = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    header = json.dumps({"transformer.wte.weight": tensor}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)


def fifo(name: str) -> Plant:
    def plant(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return plant


def write(name: str, text: str) -> Plant:
    return lambda folder: (folder / name).write_text(text)


def shape(**values: object) -> Plant:
    return lambda folder: change(folder, "config.json", **values)


def bert(folder: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    save_model(folder, BertLMHeadModel(BertConfig(vocab_size=4096, max_position_embeddings=64, **sizes)))


def roberta(folder: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    save_model(folder, RobertaForCausalLM(RobertaConfig(vocab_size=4096, max_position_embeddings=64, **sizes)))


@dataclass(frozen=True)
class Broken:
    """A folder that can't be used."""

    plant: Plant
    reason: str
    """What the reason begins with."""
    options: Mapping[str, str] = field(default_factory=dict)


ENDLESS: Mapping[str, tuple[Mapping[str, object], str]] = {  # built part by part, or filled number by number
    "layers of a decoder without end": (
        {"model_type": "bart", "is_encoder_decoder": False, "decoder_layers": 10**9},
        "its config asks for decoder_layers of 1,000,000,000, and",
    ),
    "layers and experts whose product has no end": (
        {"model_type": "mixtral", "num_hidden_layers": 3000, "num_local_experts": 3000},
        "its config asks for experts in all layers of 9,000,000, and",
    ),
    "layers for pictures without end": (
        {"model_type": "gemma3", "vision_config": {"num_hidden_layers": 10**9}},
        "its config asks for num_hidden_layers of 1,000,000,000, and",
    ),
    "layers of a part without end": (
        {"model_type": "gemma3", "text_config": {"num_hidden_layers": 10**9}},
        "its config asks for num_hidden_layers of 1,000,000,000, and",
    ),
    "depths without end": ({"depths": [2, 10**9]}, "its config asks for depths of 1,000,000,000, and"),
    "experts without end": ({"zero_expert_num": 10**9}, "its config asks for zero_expert_num of 1,000,000,000, and"),
    "layers without end, as a fraction": ({"n_layer": 1e9}, "its config asks for n_layer of 1,000,000,000, and"),
    "positions without end": (
        {"model_type": "roformer", "max_position_embeddings": 10**8},
        "its config asks for max_position_embeddings of 100,000,000, and",
    ),
}
DUMMY = {"load_format": "dummy"}
LARGE_MASK = {"model_type": "gpt_bigcode", "n_positions": 3_000_000}  # GPT-2 itself has none under transformers 5
BROKEN: Mapping[str, Broken] = {
    "no heads": Broken(no_such_head, "its config makes no model: ZeroDivisionError"),
    "an unknown activation": Broken(shape(activation_function="swoosh"), "its config makes no model: KeyError"),
    "heads that don't divide the width": Broken(shape(n_head=3), "its config makes no model: `embed_dim` must be"),
    "a width beyond all numbers": Broken(shape(n_embd=2**62, n_head=1), "its config makes no model: "),
    "layers without end": Broken(shape(n_layer=10**9), "its config asks for n_layer of 1,000,000,000, and"),
    **{what: Broken(shape(**config), reason) for what, (config, reason) in ENDLESS.items()},
    "an unknown architecture": Broken(shape(model_type="nothing", architectures=[]), "no usable config: "),
    "a config that is a list": Broken(write("config.json", "[]"), "no usable config: "),
    "a config that is no JSON": Broken(write("config.json", "{"), "no usable config: "),
    "a config that is nested without end": Broken(write("config.json", "[" * 100_000), "RecursionError"),
    "a config that is a pipe": Broken(fifo("config.json"), "config.json in its folder is a pipe, a device or a socket"),
    "weights that are a pipe": Broken(
        fifo("model.safetensors"), "model.safetensors in its folder is a pipe, a device or a socket"
    ),
    "a tokenizer that is no JSON": Broken(write("tokenizer.json", "{"), "no usable tokenizer: "),
    "weights that are cut": Broken(truncated, "model.safetensors is damaged: "),
    "a header without end": Broken(header_without_end, "model.safetensors is damaged: "),
    "shards that aren't there": Broken(half_of_its_shards, "model.safetensors.index.json names model-00002-of-00002"),
    "weights without a layer": Broken(without_a_layer, "it can't be loaded: the model's files lack transformer.h.0."),
    "a terabyte of weights, all of it holes": Broken(
        larger_than_memory, "model.safetensors in its folder has 1,000 GB, of which 0.0 GB are on the disk"
    ),
    "rows of the embedding that are no number": Broken(
        shape(vocab_size="4096"),
        "no usable config: StrictDataclassFieldValidationError: Validation error for field 'vocab_size'"
        if IS_TRANSFORMERS_5
        else "its config's vocab_size is '4096', and has to be a number above 0",
    ),
    "a config of its text that is none": Broken(
        shape(text_config="x"), "its config's vocab_size is None, and has to be"
    ),
    "weights of transformers' own choice": Broken(
        shape(transformers_weights="other.safetensors"), "its config.json has transformers_weights (other.safetensors)"
    ),
    "a length of the tokenizer that is no number": Broken(
        lambda folder: change(folder, "tokenizer_config.json", model_max_length="x"),
        "its tokenizer's model_max_length is",
    ),
    "masks larger than memory": Broken(shape(**LARGE_MASK), "out of memory: it takes 18000.0 GB, and"),
    "dummy weights larger than memory": Broken(
        shape(n_layer=4, n_embd=262_144, n_head=1), "out of memory: it takes 13", DUMMY
    ),
    "dummy masks larger than memory": Broken(shape(**LARGE_MASK), "out of memory: it takes 18000.1 GB, and", DUMMY),
    "an encoder-decoder": Broken(
        lambda folder: T5Config(vocab_size=4096).save_pretrained(folder),
        "t5 is an encoder-decoder model, which makes one text of another; measured here are decoder-only models",
    ),
    "BERT": Broken(bert, "its last token changes what it says after the first: "),
    "RoBERTa": Broken(roberta, "its last token changes what it says after the first: "),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_candidate_that_fails_is_a_reason_and_the_next_is_tried(broken: Broken, folder: Path) -> None:
    broken.plant(folder)
    if broken.options:  # for which tiny is a shape too
        with pytest.raises(NoCandidateLoaded) as caught:
            find(folder, **broken.options)
        reason = str(caught.value).split("\n")[1].removeprefix(f"  {folder}  ")
    else:
        source = find(folder, "tiny")
        ((name, reason),) = source.passed_over
        assert (source.name, name) == ("tiny", str(folder))
    assert reason.startswith(broken.reason)
    assert "\n" not in reason


# What libraries take memory or time of without end, and nobody could tell from its names.


def tokenizer(**parts: object) -> Plant:
    return lambda folder: change(folder, "tokenizer.json", **parts)


def longer(times: int) -> Mapping[str, object]:
    """A normalizer that puts ten letters for each e, so many times over."""
    more = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 10}
    return {"type": "Sequence", "normalizers": [more] * times}


OUT_OF_BOUNDS: Mapping[str, tuple[Plant, str]] = {
    "labels without end": (shape(num_labels=10**9), "no usable config: MemoryError"),
    "attention of each layer without end": (
        shape(model_type="gpt_neo", attention_types=[[["global"], 10**9]]),
        "no usable config: MemoryError",
    ),
    "a tokenizer that makes a text a million times as long": (
        tokenizer(normalizer=longer(6)),
        "no usable tokenizer: it makes ",
    ),
    "a tokenizer that makes a text longer without end": (
        tokenizer(normalizer=longer(12)),
        "the process that read its tokenizer, in at most 0.4 GB, was killed by SIGABRT",
    ),
}


@pytest.mark.parametrize(("plant", "reason"), OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_what_a_library_would_die_of_costs_its_candidate_only(
    plant: Plant, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bugs: the run was killed by the system, aborted by a library, or had no end."""
    monkeypatch.setattr("llm_bench_fixtures.models.quarantine.MOST_BYTES", 400_000_000)
    plant(folder)
    ((name, found),) = find(folder, "tiny").passed_over
    assert (name, found[: len(reason)]) == (str(folder), reason)


@pytest.mark.parametrize("options", [{}, {"load_format": "dummy"}], ids=["its own weights", "dummy weights"])
def test_what_takes_too_long_to_build_costs_its_candidate_only(
    options: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part for each language in each layer: neither number is large, their product is."""
    monkeypatch.setattr("llm_bench_fixtures.models.quarantine.LONGEST_S", 1.0)
    names = [f"language {number}" for number in range(10_000)]
    change(folder, "config.json", model_type="xmod", is_decoder=True, num_hidden_layers=10_000, languages=names)
    with pytest.raises(NoCandidateLoaded, match="  to read its config takes more than 1 s\n"):
        find(folder, **options)


def test_a_config_larger_than_any_is_not_read(folder: Path) -> None:
    os.truncate(folder / "config.json", 10**9)  # without taking room on the disk
    ((_, reason),) = find(folder, "tiny").passed_over
    assert reason == "its config.json has 1,000,000,000 bytes; 20,000,000 are the most"


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 61, "num_experts": 384, "num_experts_per_tok": 8},
        {"text_config": {"max_position_embeddings": 10_485_760}, "vision_config": {"depth": 32}},
        {"block_size": 10**6, "vocab_size_per_layer_input": 262_144, "expert_ffn_hidden_size": 30_000},
        {"layers_block_type": ["attention", "mamba"], "eos_token_id": [151_643], "vision_feature_layer": -1},
    ],
    ids=["a trillion weights", "ten million positions", "sizes of a part", "lists"],
)
def test_what_published_models_ask_for_is_not_too_much(config: Mapping[str, object]) -> None:
    check_counts(config)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("~nosuchuser/model", "~nosuchuser/model: no user of that name has a home folder here; give the whole path"),
        ("./nowhere", "no such folder"),
        ("no//hub//id", "neither a folder nor a hub id"),
    ],
)
def test_a_name_that_leads_nowhere_is_a_reason(name: str, reason: str) -> None:
    assert find(name, "tiny").passed_over == ((name, reason),)


class PanicException(BaseException):
    """Called as what a library in Rust raises."""


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("too deep"), PanicException("index out of bounds")])
def test_whatever_a_library_raises_is_a_reason(
    error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("llm_bench_fixtures.models.candidates.model_folder", fail)
    with pytest.raises(NoCandidateLoaded, match=rf"  {type(error).__name__}(: {error})?\n"):
        find(folder)


def test_an_interruption_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llm_bench_fixtures.models.candidates.model_folder", interrupt)
    with pytest.raises(KeyboardInterrupt):
        find(folder)


@pytest.mark.parametrize("plant", [bert, roberta])
@pytest.mark.parametrize("variant", ["fp32", "bf16"])
def test_a_model_that_looks_ahead_is_refused_once_it_is_loaded(
    plant: Plant, variant: str, folder: Path, make_request: MakeRequest
) -> None:
    """A single candidate isn't loaded to see whether it can be."""
    plant(folder)
    model = load_variant(make_request(variant, source=find(folder))).model
    with pytest.raises(NotCausal, match=r"^its last token changes what it says after the first: "):
        check_causal(model)


def mixture(folder: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = MixtralConfig(vocab_size=4096, num_key_value_heads=2, num_local_experts=4, **sizes)
    save_model(folder, MixtralForCausalLM(config))


@pytest.mark.parametrize("variant", ["fp32", "bf16"])
def test_a_mixture_of_experts_does_not_look_ahead(variant: str, folder: Path, make_request: MakeRequest) -> None:
    """What it multiplies together depends on all tokens."""
    mixture(folder)
    check_causal(load_variant(make_request(variant, source=find(folder))).model)


def test_a_model_that_looks_ahead_is_loaded_once_and_refused_in_every_variant(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert(folder)
    options = {"model": str(folder), "device": "cpu", "in_process": "yes", "limits_time": "0"}
    results = RunBuilder("fp32")
    loader = VariantLoader(Setup(parse_settings(options), Progress()), results)
    loads = []
    monkeypatch.setattr(
        "llm_bench_fixtures.session.loader.load_variant", lambda one: loads.append(one.variant.id) or load_variant(one)
    )
    for variant in CATALOGUE:
        with pytest.raises(NotCausal):
            loader.load(variant)
    assert loads == ["fp32"]


@pytest.mark.parametrize("variant", ["fp32", "bf16", "autocast-bf16", "bnb-int8", "bnb-nf4"])
def test_a_model_that_continues_text_is_not_refused(variant: str, make_request: MakeRequest) -> None:
    check_causal(load_variant(make_request(variant)).model)


def test_masks_count_where_a_variant_is_loaded(folder: Path, make_request: MakeRequest) -> None:
    """A single candidate isn't loaded before its variants are."""
    change(folder, "config.json", **LARGE_MASK)
    with pytest.raises(OutOfMemory, match=r"^fp32: out of memory, 18000\.\d GB asked for and "):
        load_variant(make_request("fp32", source=find(folder)))
