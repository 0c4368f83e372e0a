"""What a backend is given, and what it asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable

if TYPE_CHECKING:
    from llm_bench_fixtures.models.artifacts import ArtifactStore
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.options.settings import Settings
    from llm_bench_fixtures.progress import Progress


@dataclass(frozen=True)
class LoadRequest:
    """Everything that a backend needs to load one variant."""

    variant: Variant
    source: ModelSource
    """The model of --llm-model: its folder holds weights, config and tokenizer."""

    device: Device
    """Where it is to run."""

    settings: Settings
    """All options; `settings.of(option)` for a backend's own."""

    store: ArtifactStore
    """Where what takes long to make is kept from run to run."""

    progress: Progress
    """Shows what takes long, and tells its time from the load's."""


def require(modules: Sequence[str], extra: str) -> None:
    """Raise BackendUnavailable, with what to install, unless all modules are there; a parent before its submodules."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise BackendUnavailable(f"{name} is not installed: pip install 'llm-bench-fixtures[{extra}]'")
