"""The engines that run models, one file each, with all that is particular to an engine.

What engines have in common stands in `models`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.models.backend import Backend, Chosen, first_missing
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.parsers import Setting
from llm_bench_fixtures.options.settings import Settings

ROWS = (
    "torch",
    "onnxruntime",
    "bitsandbytes",
    "compiled",
    "torchao",
    "checkpoint",
    "openvino",
    "ctranslate2",
    "onnxruntime_genai",
    "llamacpp",
    "endpoint",
)
"""The files of this folder that are backends, in the order of the catalogue."""


def _backend_in(module: str) -> Backend:
    """Raises InvalidSetting where the module has none."""
    found = getattr(importlib.import_module(module), "BACKEND", None)
    if not isinstance(found, Backend):
        raise InvalidSetting(f"{module} is no backend: it has no BACKEND = Backend(...)")
    return found


BACKENDS: Mapping[str, Backend] = {name: _backend_in(f"{__name__}.{name}") for name in ROWS}
CATALOGUE: tuple[Variant, ...] = tuple(variant for backend in BACKENDS.values() for variant in backend.variants)
SETTINGS: tuple[Setting[Any], ...] = tuple(option for backend in BACKENDS.values() for option in backend.options)
LIBRARIES: tuple[str, ...] = tuple(name for backend in BACKENDS.values() for name in backend.libraries)

_OWN: dict[str, Backend] = {}  # projects' own, once they were asked for


def find_backend(name: str) -> Backend:
    """The backend of that short name, or of the module of that dotted path.

    Raises InvalidSetting where the module has none, or one with `options`: they were read before it is imported.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    if name not in _OWN:
        backend = _backend_in(name)
        if backend.options:
            raise InvalidSetting(
                f"{name}: a project's own backend can't have options, as they are read before it is imported; give it "
                "its settings by its variants or by environment variables"
            )
        _OWN[name] = backend
    return _OWN[name]


def catalogue_of(settings: Settings) -> tuple[Variant, ...]:
    """The package's variants, with those that options name."""
    return (*CATALOGUE, *(variant for backend in BACKENDS.values() for variant in backend.variants_of(settings)))


def chosen_by_default(catalogue: Iterable[Variant]) -> tuple[Variant, ...]:
    """Variants that run without being named: all of a project's own, the package's as their backends say."""
    unasked = {name for name, backend in BACKENDS.items() if _runs_unasked(backend)}
    return tuple(variant for variant in catalogue if variant.backend in unasked or variant not in CATALOGUE)


def _runs_unasked(backend: Backend) -> bool:
    if backend.chosen is Chosen.INSTALLED:
        return first_missing(backend.modules) is None
    return backend.chosen is Chosen.ALWAYS


def known_backends() -> Iterator[Backend]:
    """The package's, then those of projects that this process has asked for."""
    yield from BACKENDS.values()
    yield from _OWN.values()


def set_environment() -> None:
    """Set the variables that engines read when they are first imported, unless the user has."""
    for backend in known_backends():
        for name, value in backend.environment.items():
            os.environ.setdefault(name, value)


def known_libraries() -> tuple[str, ...]:
    """Distributions that the known backends run models with."""
    return tuple(dict.fromkeys(name for backend in known_backends() for name in backend.libraries))
