"""What libraries read of a candidate is read in another process, where it has to be."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from llm_bench_fixtures.errors import CandidateFailed, NotCausal
from llm_bench_fixtures.models.architecture import Footprint
from llm_bench_fixtures.models.checks import Tell
from llm_bench_fixtures.models.quarantine import examine
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

TAKES_BYTES = 3_000_000_000


def whereabouts(source: ModelSource, tell: Tell) -> Footprint:
    """Takes as many "weights" as its process has for a number."""
    tell("config")
    return Footprint(os.getpid(), 0)


def takes_memory(source: ModelSource, tell: Tell) -> Footprint:
    return Footprint(len(bytearray(TAKES_BYTES)), 0)


def kills_itself(source: ModelSource, tell: Tell) -> Footprint:
    tell("tokenizer")
    os.kill(os.getpid(), signal.SIGKILL)
    return Footprint(0, 0)


def refuses(source: ModelSource, tell: Tell) -> Footprint:
    raise NotCausal("it looks ahead")


OWN = ModelSource(TINY, TINY_FOLDER)


@pytest.fixture
def source(tmp_path: Path, preloaded: None) -> ModelSource:
    return ModelSource("model", tmp_path)


def test_a_strangers_model_is_examined_in_another_process(source: ModelSource) -> None:
    assert examine(source, whereabouts, in_process=False).weights != os.getpid()


@pytest.mark.parametrize(
    ("changes", "in_process"),
    [
        ({}, True),
        ({"folder": TINY_FOLDER}, False),
        ({"random_weights": True}, False),
        ({"trust_remote_code": True}, False),
    ],
    ids=["to debug it", "embedded", "made here", "trusted"],
)
def test_others_are_examined_in_this_process(changes: dict[str, object], in_process: bool, source: ModelSource) -> None:
    assert examine(replace(source, **changes), whereabouts, in_process=in_process).weights == os.getpid()  # type: ignore[arg-type]


def test_memory_is_bounded_there(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_bench_fixtures.models.quarantine.MOST_BYTES", TAKES_BYTES // 2)
    with pytest.raises(CandidateFailed, match=r"^MemoryError$"):
        examine(source, takes_memory, in_process=False)


def test_its_death_is_the_candidates_reason(source: ModelSource) -> None:
    with pytest.raises(CandidateFailed, match=r"^the process that read its tokenizer, in at most .* was killed by SIG"):
        examine(source, kills_itself, in_process=False)


def test_its_reason_comes_back_as_it_is(source: ModelSource) -> None:
    with pytest.raises(NotCausal, match=r"^it looks ahead$"):
        examine(source, refuses, in_process=False)
