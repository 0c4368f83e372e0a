from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pytest
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers.utils import logging as transformers_logging

from llm_bench_fixtures.models.quiet import quiet_libraries


@pytest.fixture
def bars_off() -> Iterator[None]:
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    yield
    transformers_logging.enable_progress_bar()
    enable_progress_bars()


def test_the_libraries_log_errors_only_and_then_as_before() -> None:
    logger = logging.getLogger("transformers")
    before = logger.level
    with quiet_libraries():
        assert logger.level == logging.ERROR
    assert logger.level == before


def test_warnings_are_silent_inside_and_shown_again_after() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet_libraries():
            warnings.warn("inside", stacklevel=1)
        warnings.warn("after", stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["after"]


def test_an_error_passes_and_the_levels_come_back() -> None:
    before = logging.getLogger("transformers").level
    with pytest.raises(KeyError), quiet_libraries():
        raise KeyError
    assert logging.getLogger("transformers").level == before


def test_progress_bars_come_back() -> None:
    with quiet_libraries():
        assert are_progress_bars_disabled()
    assert not are_progress_bars_disabled()
    assert transformers_logging.is_progress_bar_enabled()


def test_progress_bars_that_the_user_turned_off_stay_off(bars_off: None) -> None:
    with quiet_libraries():
        pass
    assert are_progress_bars_disabled()
    assert not transformers_logging.is_progress_bar_enabled()
