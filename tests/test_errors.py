"""What is said of an error in one line."""

from __future__ import annotations

import errno
import os

import pytest

from llm_bench_fixtures.errors import (
    BackendUnavailable,
    UnknownName,
    WorkerDied,
    WorkerFailed,
    last_line,
    named,
    reason_of,
)


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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        RuntimeError(f'no pool: ThreadPoolBuildError {{ kind: IOError("{os.strerror(errno.EAGAIN)}") }}'),
    ],
)
def test_a_limit_on_processes_is_named(error: Exception) -> None:
    """Bug: where the system lets no further process start, a row had Python's own words alone."""
    hint = "(most often a limit on processes and threads: ulimit -u, or the container's)"
    assert reason_of(error).endswith(hint)
    assert last_line(error).endswith(hint)
    assert named(error) == f"{type(error).__name__}: {error} {hint}"
    for quoting in (WorkerFailed(last_line(error)), WorkerDied("it", last_line(error))):
        assert (named(quoting).count(hint), reason_of(quoting).count(hint)) == (1, 1)
    assert not reason_of(BlockingIOError(errno.EAGAIN, "write could not complete without blocking")).endswith(hint)


@pytest.mark.parametrize(
    ("given", "near", "meant"),
    [
        ("latency", (), "Did you mean latency_s? Known"),
        ("nothing", (), "'nothing'. Known"),
        ("nothing", ("a",), "Did you mean a? Known"),
        ("nothing", ("a", "b", "c"), "Did you mean a, b or c? Known"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(given: str, near: tuple[str, ...], meant: str) -> None:
    assert f"{meant}: perplexity, latency_s, latency_cv" in str(
        UnknownName("metric", given, ["perplexity", "latency_s", "latency_cv", "perplexity"], near)
    )


def test_a_long_list_stands_only_where_nothing_is_near() -> None:
    names = [f"name-{number}" for number in range(100)]
    assert str(UnknownName("name", "nam-7", names)) == "unknown name 'nam-7'. Did you mean name-7?"
    assert str(UnknownName("name", "x", names)).startswith("unknown name 'x'. Known: name-0, ")
