"""What is said of an error in one line."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.errors import BackendUnavailable, reason_of


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
