"""A file of a report that fails, and Ctrl-C while one is written."""

from __future__ import annotations

import signal
from pathlib import Path

from llm_bench_fixtures.report.files import Attempts


def fail() -> None:
    raise ValueError("Invalid affine transformation matrix")


def fail_at_ctrl_c() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        fail()


def test_what_a_library_makes_of_ctrl_c_is_an_interruption(tmp_path: Path) -> None:
    """Bug: "plots was not written: Invalid affine transformation matrix", and the rest of the report was written."""
    attempts, before = Attempts(tmp_path), signal.getsignal(signal.SIGINT)
    attempts.attempt("plots", fail)
    assert attempts.problems.pop() == f"{tmp_path / 'plots'} was not written: Invalid affine transformation matrix"
    assert not attempts.was_interrupted
    attempts.attempt("plots", fail_at_ctrl_c)
    assert attempts.problems.pop() == f"{tmp_path / 'plots'} was not written: interrupted"
    assert attempts.was_interrupted
    assert signal.getsignal(signal.SIGINT) is before
