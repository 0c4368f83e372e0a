"""The hooks that pytest-benchmark calls: what it stores of a run, and what is kept away from it.

Each is optional, as pytest-benchmark may not be there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from llm_bench_fixtures.plugin.harmless_warnings import warn
from llm_bench_fixtures.plugin.stash import RUN, SESSION
from llm_bench_fixtures.text import harmless_text


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_generate_commit_info(config: pytest.Config) -> Generator[None, dict[str, Any], dict[str, Any]]:
    """The commit of the project that is measured; pytest-benchmark would look in the working folder."""
    if SESSION not in config.stash:
        return (yield)
    from llm_bench_fixtures.plugin.storage import in_project, with_branch

    with in_project(config):
        return with_branch((yield))


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Put the run's results into the files that pytest-benchmark writes, so that its storage is the run history."""
    if RUN in config.stash:
        from llm_bench_fixtures.history.saved import fault_of_stored, to_stored

        to_stored(output_json, config.stash[RUN])
        fault = fault_of_stored(output_json)
        if fault:
            warn(
                f"what pytest-benchmark saves of this run {fault}: it is whole, but llm-bench will refuse it. Without "
                "--benchmark-save-data a run is kept without the times of its tokens; --benchmark-json has them always"
            )


def make_harmless_to_show(compared_benchmark: dict[str, Any]) -> None:
    """Take commands to a terminal or a CI runner out of what pytest-benchmark shows of a saved run."""
    compared_benchmark["machine_info"] = _harmless(compared_benchmark.get("machine_info"))
    for benchmark in compared_benchmark["benchmarks"]:
        benchmark["stats"] = _harmless(benchmark["stats"])


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return harmless_text(value)
    if isinstance(value, dict):
        return {harmless_text(str(name)): _harmless(one) for name, one in value.items()}
    return [_harmless(one) for one in value] if isinstance(value, list) else value
