from __future__ import annotations

import pytest

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, LlmBenchError, WorkloadUnsupported
from llm_bench_fixtures.plugin.outcomes import as_outcomes


@pytest.mark.parametrize("error", [BackendUnavailable, WorkloadUnsupported])
def test_what_cannot_run_here_is_skipped_with_its_reason(error: type[LlmBenchError]) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^no such device$"), as_outcomes():
        raise error("no such device")


def test_another_error_of_ours_fails_the_test_in_one_line() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^llm_gate: no number$") as caught, as_outcomes("llm_gate: "):
        raise InvalidSetting("no number")
    assert not caught.value.pytrace


def test_an_error_that_nobody_raises_on_purpose_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), as_outcomes():
        _ = 1 / 0


def test_a_limit_of_processes_fails_the_test_in_one_line() -> None:
    """Bug: the traceback of Python's threads, and no word of the limit."""
    limit = r"can't start new thread \(most often a limit"
    with pytest.raises(pytest.fail.Exception, match=limit) as caught, as_outcomes():
        raise RuntimeError("can't start new thread")
    assert not caught.value.pytrace


def test_another_runtime_error_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match=r"^a fault$"), as_outcomes():
        raise RuntimeError("a fault")
