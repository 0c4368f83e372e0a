from __future__ import annotations

import importlib.metadata

import pytest

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backend import installed_versions
from llm_bench_fixtures.models.backends import BACKENDS
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.variants import Variant


def test_only_what_is_installed_is_listed() -> None:
    versions = installed_versions(("pytest", "no-such-distribution"))
    assert versions == {"pytest": importlib.metadata.version("pytest")}


@pytest.mark.parametrize(
    ("backend", "device", "why"),
    [
        ("endpoint", "cpu", "endpoint has no threads to set: the server sets them"),
        ("torch", "cuda", "torch has no threads to set: the accelerator, not threads, does the work"),
    ],
)
def test_where_nobody_sets_threads_the_variant_is_skipped(backend: str, device: str, why: str) -> None:
    for variant in (Variant("own-1t", backend, "", threads=1), Variant("own-passive", backend, "", is_passive=True)):
        with pytest.raises(BackendUnavailable, match=why):
            BACKENDS[backend].check_variant(variant, Device(DeviceKind(device), device, ""))
