"""A pytest plugin for runs next to other tests: no round waits for a core to itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Options for pytest in a process that has `environment`. Importing Hypothesis takes a second.
OPTIONS = ("-p", "unhurried", "-p", "no:hypothesispytest")


def environment() -> Mapping[str, str]:
    """This process' variables, with the plugin where Python looks for modules."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def pytest_configure() -> None:
    from llm_bench_fixtures.session.setup import Setup

    Setup.busy_cores = 0  # type: ignore[assignment,method-assign]
