"""A model's tokenizer in a process of its own, which its decoder may end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_models import write_model

from llm_bench_fixtures.errors import TokenizerFailed
from llm_bench_fixtures.models import quarantine
from llm_bench_fixtures.models.quarantine import TokenizerApart, tokenizer_of
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.session.recording import _decoded
from llm_bench_fixtures.text import LONGEST
from llm_bench_fixtures.workloads import Prompts, Tokenizer

OWN = ModelSource(TINY, TINY_FOLDER)


def multiplying(folder: Path, times: int) -> ModelSource:
    """A model whose decoder writes ten x for each x, so many times over."""
    write_model(folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    more = {"type": "Replace", "pattern": {"String": "x"}, "content": "x" * 10}
    tokenizer["decoder"] = {"type": "Sequence", "decoders": [tokenizer["decoder"], *[more] * times]}
    file.write_text(json.dumps(tokenizer))
    return ModelSource("stranger", folder)


def _never_ends(_: Tokenizer) -> None:
    threading.Event().wait()


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, preloaded: None) -> Iterator[TokenizerApart]:
    tokenizer = TokenizerApart(multiplying(tmp_path_factory.mktemp("model"), 7))
    yield tokenizer
    tokenizer.close()


def test_it_works_as_the_tokenizer_does(apart: TokenizerApart) -> None:
    known = OWN.load_tokenizer()
    assert apart("Once upon a time", verbose=False)["input_ids"] == known("Once upon a time")["input_ids"]
    assert apart.decode([5, 0, 6], skip_special_tokens=True) == known.decode([5, 0, 6], skip_special_tokens=True)
    assert (apart.pad_token_id, apart.bos_token_id, apart.eos_token_id) == (known.pad_token_id, 0, 0)
    assert not apart.chat_template
    with pytest.raises(TokenizerFailed, match=r"^the tokenizer of stranger failed: \w"):
        apart.decode([-1])


def test_what_a_tokenizer_has_besides_is_there(apart: TokenizerApart) -> None:
    """As a suite of one's own may use it, such as the one of the guide to metrics."""
    known = OWN.load_tokenizer()
    asked = apart("Once upon", return_tensors="pt")["input_ids"]
    assert asked.tolist() == known("Once upon", return_tensors="pt")["input_ids"].tolist()
    assert apart.decode(asked[0, -1]) == known.decode(asked[0, -1])
    assert (apart.vocab_size, apart.is_fast) == (known.vocab_size, True)
    assert apart.convert_ids_to_tokens([5, 6]) == known.convert_ids_to_tokens([5, 6])
    assert not hasattr(apart, "nothing_of_the_kind")
    with pytest.raises(TokenizerFailed, match="Cannot use chat template functions"):
        apart.apply_chat_template([{"role": "user", "content": "two"}])


def test_it_has_a_length_and_cannot_be_changed(apart: TokenizerApart) -> None:
    """What is set would only be set here, and the process would go on as before."""
    assert len(apart) == apart.vocab_size
    with pytest.raises(AttributeError, match="in another process: padding_side can't be set"):
        apart.padding_side = "left"


def test_texts_without_end_are_cut_in_lists_too(apart: TokenizerApart) -> None:
    ids = apart("x")["input_ids"]
    assert [len(text) <= LONGEST for text in apart.batch_decode([ids, ids])] == [True, True]


def test_a_text_without_end_is_cut_where_it_was_made(apart: TokenizerApart) -> None:
    assert LONGEST - 2 < len(apart.decode(apart("x")["input_ids"])) <= LONGEST


def test_what_is_cut_short_leaves_no_late_answer(apart: TokenizerApart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "LONGEST_S", 0.0)
    with pytest.raises(TokenizerFailed, match="failed: this takes more than 0 s"):
        apart._ask(_never_ends)
    monkeypatch.undo()
    assert apart("two two")["input_ids"] == OWN.load_tokenizer()("two two")["input_ids"]


def test_a_decoder_that_multiplies_costs_the_texts_only(apart: TokenizerApart, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: pytest's process decoded what a model generates, and was aborted with all that was measured."""
    apart.close()
    monkeypatch.setattr(quarantine, "MOST_TOKENIZER_BYTES", 400_000_000)
    prompts = Prompts(apart)
    ids = prompts.encode("x" * 100)
    texts, reason = _decoded(prompts, (ids,), is_remote=False)
    died = "its process, of at most 0.4 GB, was killed by SIGABRT"
    assert (texts, reason) == ((), f"no texts: the tokenizer of stranger failed: {died}")
    assert prompts.encode("x" * 100) == ids


def test_only_a_strangers_tokenizer_is_in_another_process(tmp_path: Path) -> None:
    stranger = ModelSource("stranger", write_model(tmp_path))
    assert isinstance(tokenizer_of(stranger, in_process=False), TokenizerApart)
    assert not isinstance(tokenizer_of(stranger, in_process=True), TokenizerApart)
    assert not isinstance(tokenizer_of(OWN, in_process=False), TokenizerApart)
