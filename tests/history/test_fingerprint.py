"""What makes two runs comparable, and what doesn't."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from run_factory import make_provenance

from llm_bench_fixtures.history.together import Fingerprint, differences, fingerprint_of
from llm_bench_fixtures.results.metrics import Kind

LIBRARIES = {"torch": "2.6.0", "pytest": "9.2.0"}


def test_it_can_be_read() -> None:
    provenance = make_provenance(libraries=LIBRARIES, random_weights=True)
    assert fingerprint_of(provenance) == Fingerprint(
        machine=("a processor", "2 cores", "2 threads", "Linux"),
        process=("on CPU", "one process for all variants"),
        libraries=("python 3.11.7", "torch 2.6.0"),
        model=("tiny", "random weights"),
        corpus=("embedded corpus",),
        prompts=("plain text",),
    )
    asked = make_provenance(attention="eager", chat=True)
    assert fingerprint_of(asked).process == ("on CPU", "one process for all variants", "eager attention")
    assert fingerprint_of(asked).prompts == ("chats", "in the model's template")


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("machine", {"hardware": "another"}),
        ("process", {"device": "cuda"}),
        ("process", {"isolated": True}),
        ("process", {"attention": "eager"}),
        ("prompts", {"chat": True}),
        ("machine", {"threads": 1}),
        ("machine", {"platform": "Darwin"}),
        ("libraries", {"python": "3.12.0"}),
        ("libraries", {"libraries": {"torch": "2.7.0"}}),
        ("libraries", {"libraries": {"torch": "2.6.0", "onnxruntime": "1.20.0"}}),
        ("libraries", {"libraries": {"torch": "2.6.0", "an-engine-of-their-own": "1.0"}}),
        ("model", {"model": "gpt2"}),
        ("model", {"random_weights": True}),
        ("corpus", {"corpus": "another"}),
    ],
)
def test_what_differs_is_told_apart(field: str, changes: dict[str, Any]) -> None:
    one, other = fingerprint_of(make_provenance()), fingerprint_of(make_provenance(**changes))
    different = {name for name in vars(one) if getattr(one, name) != getattr(other, name)}
    assert different == {field}
    assert one.digest != other.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"commit": "another", "branch": "topic", "dirty": True},
        {"started": "2027-01-01T00:00:00+00:00", "command": "pytest"},
        {"libraries": LIBRARIES},
    ],
)
def test_what_does_not_touch_the_numbers_is_no_difference(changes: dict[str, Any]) -> None:
    one, other = fingerprint_of(make_provenance()), fingerprint_of(make_provenance(**changes))
    assert one == other
    assert one.digest == other.digest
    assert len(one.digest) == 8


def test_saved_runs_keep_their_digest() -> None:
    """It is of all texts, parted by commas within a field and by zeros between fields."""
    provenance = make_provenance(libraries=LIBRARIES, random_weights=True, chat=True)
    fields = (
        "a processor, 2 cores, 2 threads, Linux",
        "on CPU, one process for all variants",
        "python 3.11.7, torch 2.6.0",
        "tiny, random weights",
        "embedded corpus",
        "chats, in the model's template",
    )
    assert fingerprint_of(provenance).digest == hashlib.sha256("\0".join(fields).encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("changes", "sentence", "unjudged"),
    [
        (
            {"chat": True},
            "another kind of prompts: chats, in the model's template; the baseline's: plain text",
            {Kind.TIMING, Kind.EXACT},
        ),
        (
            {"attention": "eager"},
            (
                "another process: on CPU, one process for all variants, eager attention; the baseline's: on CPU, one "
                "process for all variants"
            ),
            {Kind.TIMING, Kind.MEMORY},
        ),
    ],
)
def test_how_a_model_is_asked_and_run_is_a_difference(
    changes: dict[str, Any], sentence: str, unjudged: set[Kind]
) -> None:
    """Of quality it is none: that is of plain text, and must not hang on the attention's implementation."""
    found = list(differences(fingerprint_of(make_provenance()), fingerprint_of(make_provenance(**changes))))
    assert [(str(one), one.unjudged) for one in found] == [(sentence, unjudged)]


def test_fields_do_not_run_into_each_other() -> None:
    rest = (("c",), ("d",), ("e",))
    assert Fingerprint(("a",), (), ("b",), *rest).digest != Fingerprint(("ab",), (), (), *rest).digest
