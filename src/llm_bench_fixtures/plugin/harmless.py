"""Warnings and saved runs that can be shown: what they quote may come from a model, anybody's run or a test's name."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from llm_bench_fixtures.text import harmless_text, well_formed


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


def make_harmless_to_show(compared_benchmark: dict[str, Any]) -> None:
    """Take commands to a terminal or a CI runner out of what pytest-benchmark shows of a saved run."""
    compared_benchmark["machine_info"] = well_formed(compared_benchmark.get("machine_info"), harmless_text)
    for benchmark in compared_benchmark["benchmarks"]:
        benchmark["stats"] = well_formed(benchmark["stats"], harmless_text)
