"""Runs of the plugin: each may import every library, so all of them are imported first."""

from __future__ import annotations

import pytest
from pytester_bench import (  # noqa: F401  # pytest finds fixtures by their names in a conftest.py
    Bench,
    bench,
    bench_cache,
    imported_libraries,
    own_suite,
    pictures,
    plot_settings,
    short_corpus,
)


@pytest.fixture(scope="session", autouse=True)
def everything_imported(imported_libraries: None) -> None:  # noqa: F811
    """For the tests that call pytester themselves, too."""
