from __future__ import annotations

import importlib.metadata

from llm_bench_fixtures.models.backend import installed_versions


def test_only_what_is_installed_is_listed() -> None:
    versions = installed_versions(("pytest", "no-such-distribution"))
    assert versions == {"pytest": importlib.metadata.version("pytest")}
