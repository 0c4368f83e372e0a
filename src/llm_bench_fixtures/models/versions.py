"""Versions of installed distributions."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

MEASURING = ("llm-bench-fixtures", "pytest", "pytest-benchmark")
"""What measures, and runs no model."""


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Version by distribution name, of those that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
