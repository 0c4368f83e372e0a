"""What is said of an error in one line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llm_bench_fixtures.errors import BackendUnavailable, NoCandidateLoaded, reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BackendUnavailable("no accelerator\nat all"), "no accelerator"),
        (ValueError("expected 3 rows"), "expected 3 rows"),
        (ValueError(), "ValueError"),
        (KeyError("width"), "KeyError: 'width'"),
        (RuntimeError("out of paper\nTry again"), "RuntimeError: out of paper"),
    ],
)
def test_a_reason_is_one_line_with_the_type_where_the_text_alone_says_too_little(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize(("level", "advice"), [(0, "Give --llm-model"), (1, "Give --llm-model"), (2, "Python runs")])
def test_missing_docstrings_are_named_as_the_cause(level: int, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: with PYTHONOPTIMIZE=2 a config "makes no model" for lack of a section in a docstring."""
    monkeypatch.setattr("llm_bench_fixtures.errors.sys", SimpleNamespace(flags=SimpleNamespace(optimize=level)))
    assert str(NoCandidateLoaded([("tiny", "why")])).splitlines()[-1].startswith(advice)
