"""Warnings that can be shown: what they quote may come from a model, anybody's run or a test's name."""

from __future__ import annotations

import warnings

import pytest

from llm_bench_fixtures.text import harmless_text


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
