"""Which project a pytest run measures: the commit that its numbers are of, and the folder in which they are kept.

pytest-benchmark goes by the working folder for both, which is another project's, or none's, where pytest is started
elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.storage.file import FileStorage
from pytest_benchmark.utils import get_tag

from llm_bench_fixtures.history.storage import FOLDER

DEFAULT_STORAGE = f"file://./{FOLDER}"  # of --benchmark-storage
DETACHED = "(detached head)"  # what pytest-benchmark calls the branch of a commit that was checked out by its id
# What tells a workflow's branch where it has checked out a commit. Not the name of a pull request's own branch: a
# fork may call that `main`.
CI_BRANCHES = ("GITHUB_REF_NAME", "CI_COMMIT_BRANCH")


def project_folder(config: pytest.Config) -> Path:
    """Where the ini file is; without one, the repository of the tests; without that, where pytest was started."""
    if config.inipath is not None:
        return config.rootpath
    started = config.invocation_params.dir
    tests = (started / str(config.args[0]).partition("::")[0]).resolve() if config.args else started
    return next((folder for folder in (tests, *tests.parents) if (folder / ".git").exists()), started)


def storage_folder(config: pytest.Config) -> Path:
    """Where this run is kept: what --benchmark-storage says, else `.benchmarks` in the project's folder.

    The folder may not be there yet, and is none where the storage is a server's.
    """
    if _is_given(config):
        return Path(str(config.getoption("benchmark_storage")).removeprefix("file://")).absolute()
    return project_folder(config) / FOLDER


def _is_given(config: pytest.Config) -> bool:
    return bool(config.getoption("benchmark_storage") != DEFAULT_STORAGE)


@contextmanager
def in_project(config: pytest.Config) -> Iterator[None]:
    """Have the project's folder as the working folder."""
    with chdir(project_folder(config)):
        yield


def with_branch(commit: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The commit, its branch as the workflow calls it where git has none."""
    names = (environment.get(name) for name in CI_BRANCHES)
    branch = commit.get("branch")
    return {**commit, "branch": next(filter(None, names), branch) if branch == DETACHED else branch}


def keep_with_project(config: pytest.Config) -> None:
    """Have pytest-benchmark save to, and compare with, the project's storage unless it was told another."""
    session: Any = config.pluginmanager.get_plugin("pytest-benchmark")
    if session is None or _is_given(config) or not (session.save or session.autosave or session.compare):
        return
    if project_folder(config) == config.invocation_params.dir:
        return
    session.storage = ProjectStorage(storage_folder(config), session.logger, session.machine_id)
    if session.autosave:
        with in_project(config):
            session.autosave = get_tag()
    if session.compare:
        session.handle_loading()


class ProjectStorage(FileStorage):  # type: ignore[misc]  # pytest-benchmark has no types
    @property
    def location(self) -> str:
        """pytest-benchmark's own raises where the storage isn't below the working folder."""
        return str(self.path)
