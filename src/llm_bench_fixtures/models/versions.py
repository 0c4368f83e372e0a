"""Versions of installed distributions."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable

MEASURING = ("llm-bench-fixtures", "pytest", "pytest-benchmark")
"""What measures, and runs no model."""


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Version by distribution name, of those that are installed."""
    versions = {name: _installed_version(name) for name in names}
    return {name: version for name, version in versions.items() if version is not None}


@functools.cache
def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
