"""Versions of the libraries that a run's numbers depend on."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

LIBRARIES = (
    "llm-bench-fixtures",
    "torch",
    "transformers",
    "optimum",
    "optimum-onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "bitsandbytes",
    "pytest",
    "pytest-benchmark",
)


def installed_versions(names: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Version by distribution name, of those that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
