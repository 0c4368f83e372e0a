"""Has torch take the CPU for a CUDA device, so that code for CUDA runs where there is none.

`PYTHONPATH=tests/cuda/pretend` begins every Python process with this file. It shows that the calls fit together. It
shows nothing of a GPU's times, memory, kernels or rounding.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import time
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

FREE_BYTES = 4 << 30
BYTES = 1 << 20  # whatever is asked for


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at_s = 0.0

    def record(self, stream: object = None) -> None:
        self.at_s = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.at_s - self.at_s) * 1e3


def install(torch: Any) -> None:
    fakes = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: "a pretended CUDA device",
        "get_device_properties": lambda *_: SimpleNamespace(uuid="0", total_memory=FREE_BYTES, multi_processor_count=1),
        "get_device_capability": lambda *_: (9, 0),
        "mem_get_info": lambda *_: (FREE_BYTES, FREE_BYTES),
        "current_stream": lambda *_: None,
        "Event": Event,
        "_sleep": lambda cycles: time.sleep(cycles / 1.5e9),
        **dict.fromkeys(("synchronize", "empty_cache", "reset_peak_memory_stats"), lambda *_: None),
        **dict.fromkeys(("memory_allocated", "max_memory_allocated", "max_memory_reserved"), lambda *_: BYTES),
    }
    for name, fake in fakes.items():
        setattr(torch.cuda, name, fake)

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            moved = {name: _moved(torch, value) for name, value in (kwargs or {}).items()}
            return function(*(_moved(torch, value) for value in args), **moved)

    OnCpu().__enter__()


def _moved(torch: Any, value: Any) -> Any:
    is_cuda = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"
    return "cpu" if is_cuda else value


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Installs the fakes once torch has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == "torch" else None
        if spec is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            install(module)

        loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _AfterTorch())
