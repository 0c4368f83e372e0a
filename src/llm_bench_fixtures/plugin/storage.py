"""Which project a pytest run measures: the commit that its numbers are of, and the folder in which they are kept.

pytest-benchmark takes both from the working folder. If pytest is started elsewhere, that is not the project's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.history.git import changes_in
from llm_bench_fixtures.history.storage import FOLDER
from llm_bench_fixtures.plugin.internals import DETACHED, is_storage_given, keep_in, measured_commit, storage_option
from llm_bench_fixtures.results.provenance import Commit

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

    The folder may not exist yet. If the storage is a server, the path is that of no folder.
    """
    if is_storage_given(config):
        return Path(storage_option(config).removeprefix("file://")).absolute()
    return project_folder(config) / FOLDER


def runs_folder(config: pytest.Config) -> Path:
    """Where this package itself keeps runs: the same, or `.benchmarks` where the storage is a server."""
    is_server = "://" in storage_option(config).removeprefix("file://")
    return project_folder(config) / FOLDER if is_server else storage_folder(config)


@contextmanager
def in_project(config: pytest.Config) -> Iterator[None]:
    """Have the project's folder as the working folder; to stay, where a test has removed the one that was."""
    try:
        Path.cwd()
    except OSError:
        os.chdir(project_folder(config))
    with chdir(project_folder(config)):
        yield


def commit_of(config: pytest.Config) -> Commit:
    """The commit that is measured, with a digest of what was changed since, as far as git tells it."""
    commit = measured_commit(config)
    changes = changes_in(project_folder(config), dirty=commit.dirty) if commit.commit else commit.changes
    return replace(commit, changes=changes)


def with_branch(commit: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The commit, its branch as the workflow calls it where git has none."""
    names = (environment.get(name) for name in CI_BRANCHES)
    branch = commit.get("branch")
    return {**commit, "branch": next(filter(None, names), branch) if branch == DETACHED else branch}


def keep_with_project(config: pytest.Config) -> None:
    """Have pytest-benchmark save to, and compare with, the project's storage unless it was told another."""
    if not is_storage_given(config) and project_folder(config) != config.invocation_params.dir:
        keep_in(config, storage_folder(config), partial(in_project, config))
