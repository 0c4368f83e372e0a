"""What can be wrong with what is asked for: a row for each fault, with what must be said before anything is built."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_models import save_model
from transformers import LlamaConfig, LlamaForCausalLM

from llm_bench_fixtures.errors import InvalidSetting, OutOfMemory
from llm_bench_fixtures.measure.choices import read_choices
from llm_bench_fixtures.measure.support import check_supported
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.workloads import Prompts, Workload, read_corpus

OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "no model": ("model", "", "--llm-model: expected at least one name"),
    "a prompt without end": ("prompt_lengths", "9" * 12, "--llm-prompt-lengths: expected at most 16777216, got 9999"),
    "a batch without end": ("batch_sizes", "10000000000", "--llm-batch-sizes: expected at most 65536, got 10000000000"),
    "rounds without end": ("rounds", "10000000000", "--llm-rounds: expected at most 100000, got 10000000000"),
    "warmup without end": ("warmup_rounds", "1000000", "--llm-warmup-rounds: expected at most 100000, got 1000000"),
    "tokens without end": ("new_tokens", "9999999999", "--llm-new-tokens: expected at most 16777216, got 9999999999"),
    "a number of 5000 digits": ("rounds", "9" * 5000, f"--llm-rounds: expected a whole number, got '{'9' * 40}…'"),
    "a seed that torch can't take": ("seed", str(2**64), f"--llm-seed: expected at most {2**63 - 1}, got {2**64}"),
    "time without end": ("time", "9999h", "--llm-time: expected at most 168h, a week, or none, got '9999h'"),
    "limits without end": ("limits_time", "1e9", "--llm-limits-time: expected at most 604800 seconds, a week, got"),
    "more memory than there is": ("memory_share", "500%", "--llm-memory-share: expected at most 100%, got 500%"),
    "a window beyond all contexts": ("window", str(2**40), "--llm-window: expected at most 16777216, got"),
    "the home of nobody for the report": ("report", "~nosuchuser/r", "--llm-report: ~nosuchuser/r: no user of that"),
    "the home of nobody for the corpus": ("corpus", "~nosuchuser/c", "--llm-corpus: ~nosuchuser/c: no user of that"),
    "the home of nobody for the cache": ("cache_dir", "~nosuchuser", "--llm-cache-dir: ~nosuchuser: no user of that"),
    "a report nowhere": ("report", "", "--llm-report: expected a path"),
    "a NUL in a path": ("report", "a\0b", "--llm-report: there is a NUL character in 'a\\x00b'; take it out"),
    "a NUL in a name": ("model", "a\0b", "--llm-model: there is a NUL character in 'a\\x00b'; take it out"),
}


@pytest.mark.parametrize(("name", "text", "message"), OPTIONS.values(), ids=OPTIONS)
def test_what_can_not_be_is_refused_before_anything_runs(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_settings({name: text})
    assert str(caught.value).startswith(message)


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.txt")
    return folder / "pipe.txt"


def a_folder_with_a_pipe(folder: Path) -> Path:
    return a_pipe(folder).parent


def two_gigabytes(folder: Path) -> Path:
    with (folder / "long.txt").open("wb") as file:
        file.truncate(2 * 10**9)
    return folder / "long.txt"


TEXTS: Mapping[str, tuple[Callable[[Path], Path], str]] = {
    "a pipe": (a_pipe, "is a pipe, a device or a socket; copy what it gives into a file"),
    "a device without end": (lambda _: Path("/dev/zero"), "/dev/zero is a pipe, a device or a socket"),
    "two gigabytes": (two_gigabytes, "holds 2.0 GB of text, and 1 GB is the most"),
    "nothing": (lambda folder: folder / "nowhere.txt", "nowhere.txt can't be read"),
}


@pytest.mark.parametrize(("plant", "message"), TEXTS.values(), ids=TEXTS)
def test_a_text_that_can_not_be_read_to_its_end_is_refused(
    plant: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    path = plant(tmp_path)
    with pytest.raises(InvalidSetting, match=f"^--llm-corpus: .*{message}"):
        read_corpus(path)
    with pytest.raises(InvalidSetting, match=f"^--llm-choices: .*{message}"):
        read_choices(str(path))


def test_a_pipe_in_a_folder_of_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"pipe\.txt is a pipe"):
        read_corpus(a_folder_with_a_pipe(tmp_path))


def test_choices_in_the_home_of_nobody_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-choices: ~nosuchuser/c: no user of that name"):
        read_choices("~nosuchuser/c")


def test_a_prompt_that_a_test_asks_for_has_an_end(prompts: Prompts) -> None:
    with pytest.raises(InvalidSetting, match=r"^a prompt of 1,000,000,000,000 tokens is asked for; the most are 16,7"):
        prompts.exact(10**12)


def test_a_context_without_end_has_one(tmp_path: Path, make_request: Callable[..., LoadRequest]) -> None:
    """The longest prompt that fits is made of it."""
    folder = tmp_path / "endless"
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    save_model(folder, LlamaForCausalLM(LlamaConfig(vocab_size=4096, max_position_embeddings=10**15, **sizes)))
    model = load_variant(make_request("fp32", source=ModelSource("endless", folder))).model
    assert model.facts.context_length == 2**24


def test_a_batch_beyond_memory_is_refused_before_it_is_made(
    tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 rows of 16 positions of width 256, twice, and of 4096 logits: 64 x (2 x 16 x 256 + 4096) x 2 bytes."""
    workload = Workload(((1,) * 16,) * 64, new_tokens=1, batch_size=64)
    needed = 64 * (2 * 16 * 256 + 4096) * 2
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=needed))
    check_supported(tiny_fp32, workload)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=needed - 1))
    with pytest.raises(OutOfMemory, match=r"^fp32: out of memory, a batch of 64 prompts of 16 tokens takes at least "):
        check_supported(tiny_fp32, workload)
