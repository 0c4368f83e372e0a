"""Our errors and warnings as pytest's: only here does an exception become a skip.

What warnings quote may come from a model, anybody's run or a test's name: it is made harmless."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from llm_bench_fixtures import errors
from llm_bench_fixtures.plugin.internals import skipped
from llm_bench_fixtures.text import harmless_text

NO_TIME = "not reached within --llm-time"  # what a test does of its own was cut


def is_unreached(call: pytest.CallInfo[None]) -> bool:
    """Whether it ended in a skip because the run had no time for the test."""
    return call.excinfo is not None and isinstance(call.excinfo.value.__cause__, (errors.NotReached, errors.TimeUp))


@contextmanager
def as_skips() -> Iterator[None]:
    """Skip the test where its variant or workload can't run here, or the run has no time for it."""
    try:
        yield
    except (errors.NotReached, errors.TimeUp) as error:
        raise skipped(str(error) or NO_TIME) from error
    except (errors.BackendUnavailable, errors.WorkloadUnsupported) as error:
        raise skipped(str(error)) from None


@contextmanager
def as_outcomes(prefix: str = "") -> Iterator[None]:
    """Skip the test where its variant or workload can't run here; fail it, without a traceback, for our other errors
    and where the system allows no further process or thread.

    prefix: what the message of a failure begins with.
    """
    try:
        with as_skips():
            yield
    except errors.LlmBenchError as error:
        raise pytest.fail.Exception(f"{prefix}{error}", pytrace=False) from None
    except (OSError, RuntimeError) as error:
        if not errors.is_process_limit(error):
            raise
        raise pytest.fail.Exception(f"{prefix}{errors.reason_of(error)}", pytrace=False) from None


def warn(text: str) -> None:
    """Have pytest show the text among its warnings, as one of the caller's."""
    warnings.warn(pytest.PytestWarning(harmless_text(text)), stacklevel=3)


class HarmlessWarnings:
    """A plugin for runs that load models: the libraries' warnings hold no commands to a terminal or a CI runner."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        text = str(warning_message.message)
        shown = harmless_text(text)
        if shown != text:
            warning_message.message = Warning(shown)  # the warning's category stands next to it
