"""Saved runs: where they are kept, and the commit that they are of, from whatever folder pytest is started."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.plugin.storage import with_branch

OWN_SUITE = """
def test_mine(llm_benchmark):
    llm_benchmark("Hello")
"""
FOREIGN_SUITE = """
def test_mine(benchmark):
    benchmark(sum, [1])
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Project:
    """A project of one benchmark in `project/benchmarks`, and a folder `elsewhere` beside it."""

    def __init__(self, bench: Any, suite: str = OWN_SUITE, *, ini: bool = True) -> None:
        self.bench = bench
        self.folder: Path = bench.pytester.mkdir("project")
        self.elsewhere: Path = bench.pytester.mkdir("elsewhere")
        self.tests = self.folder / "benchmarks"
        self.tests.mkdir()
        (self.tests / "test_own.py").write_text(suite, encoding="utf-8")
        if ini:
            (self.folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")

    def commit(self) -> str:
        git(self.folder, "init", "-q", "-b", "trunk")
        git(self.folder, "add", ".")
        git(self.folder, "commit", "-q", "-m", "all of it")
        return git(self.folder, "rev-parse", "HEAD")

    def run_from(self, folder: Path, *arguments: str) -> pytest.RunResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            result: pytest.RunResult = self.bench.run(*arguments)
        result.assert_outcomes(passed=1)
        return result

    def saved(self) -> dict[str, Any]:
        (path,) = self.bench.pytester.path.rglob(".benchmarks/*/*.json")
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {**data, "path": path}


@pytest.fixture
def project(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("GITHUB_REF_NAME", "CI_COMMIT_BRANCH"):
        monkeypatch.delenv(name, raising=False)
    return Project(bench)


@pytest.mark.parametrize("start", ["project", "project/benchmarks", "elsewhere"])
def test_a_run_is_kept_with_its_project_and_its_commit(project: Project, start: str) -> None:
    """As it is in the file's name, in pytest-benchmark's own section and in ours."""
    commit = project.commit()
    folder = project.bench.pytester.path / start
    project.run_from(folder, str(project.tests), "--benchmark-autosave")
    saved = project.saved()
    assert saved["path"].parent.parent == project.folder / ".benchmarks"
    assert saved["path"].name.startswith(f"0001_{commit}_2")
    provenance = saved["llm_bench"]["provenance"]
    for section, identifier in ((provenance, "commit"), (saved["commit_info"], "id")):
        assert (section[identifier], section["branch"], section["dirty"]) == (commit, "trunk", False)


def test_what_was_changed_since_the_commit_is_dirty(project: Project) -> None:
    project.commit()
    (project.folder / "pytest.ini").write_text("[pytest]\n# changed\n", encoding="utf-8")
    project.run_from(project.elsewhere, str(project.tests), "--benchmark-autosave")
    saved = project.saved()
    assert saved["llm_bench"]["provenance"]["dirty"] is True
    assert saved["path"].stem.endswith("_uncommitted-changes")


def test_the_same_changes_have_the_same_digest(project: Project) -> None:
    project.commit()
    digests = []
    for text in ("", "# a", "# b", "# a"):
        (project.folder / "pytest.ini").write_text(f"[pytest]\n{text}", encoding="utf-8")
        project.run_from(project.elsewhere, str(project.tests), "--llm-report=report")
        results = json.loads((project.elsewhere / "report" / "results.json").read_text(encoding="utf-8"))
        digests.append(results["provenance"]["changes"])
    assert digests[0] == ""
    assert digests[1] == digests[3] != digests[2]
    assert len(digests[1]) == len(digests[2]) == 16


def test_a_suite_that_git_does_not_track_has_a_digest_and_leaves_the_commit_clean(project: Project) -> None:
    """Bug: a run went on with one of a suite that was edited since. What git ignores, and notes, don't count, nor does
    what tools leave. Bug: an environment or a build in a workflow's checkout did."""
    (project.folder / ".gitignore").write_text("ignored.py\n", encoding="utf-8")
    git(project.folder, "init", "-q")
    git(project.folder, "add", "pytest.ini", ".gitignore")
    git(project.folder, "commit", "-q", "-m", "all but the suite")
    found = []
    files = (
        "notes",
        "ignored.py",
        "env/lib/site-packages/one.py",
        "build/lib/one.py",
        ".cache/x/one.py",
        "benchmarks/one.py",
    )
    for text, name in enumerate(files):
        (project.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (project.folder / name).write_text(f"x = {text}", encoding="utf-8")
        project.run_from(project.tests, "--llm-report=report")
        results = json.loads((project.tests / "report" / "results.json").read_text(encoding="utf-8"))
        found.append((results["provenance"]["changes"], results["provenance"]["dirty"]))
    digests = [digest for digest, _ in found]
    assert len({*digests[:-1]}) == 1
    assert digests[-1] != digests[0]
    assert (len(digests[0]), {dirty for _, dirty in found}) == (16, {False})


@pytest.mark.parametrize(("environment", "branch"), [({}, ""), ({"CI_COMMIT_BRANCH": "main"}, "main")])
def test_a_detached_head_has_the_branch_of_the_workflow_if_any(
    project: Project, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], branch: str
) -> None:
    commit = project.commit()
    git(project.folder, "checkout", "-q", "--detach")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    project.run_from(project.tests, "--benchmark-autosave")
    provenance = project.saved()["llm_bench"]["provenance"]
    assert (provenance["commit"], provenance["branch"]) == (commit, branch)


def test_a_branch_that_git_knows_is_not_overruled() -> None:
    assert with_branch({"branch": "topic"}, {"GITHUB_REF_NAME": "main"})["branch"] == "topic"


def test_outside_a_repository_there_is_no_commit(project: Project) -> None:
    project.run_from(project.tests, "--benchmark-autosave")
    provenance = project.saved()["llm_bench"]["provenance"]
    assert (provenance["commit"], provenance["branch"], provenance["dirty"]) == ("", "", False)


def test_without_an_ini_file_the_repository_is_the_project(bench: Any) -> None:
    project = Project(bench, ini=False)
    commit = project.commit()
    project.run_from(project.elsewhere, str(project.tests / "test_own.py::test_mine"), "--benchmark-autosave")
    saved = project.saved()
    assert saved["path"].parent.parent == project.folder / ".benchmarks"
    assert saved["llm_bench"]["provenance"]["commit"] == commit


def test_with_neither_it_is_kept_where_pytest_was_started(bench: Any) -> None:
    project = Project(bench, ini=False)
    project.run_from(project.elsewhere, str(project.tests), "--benchmark-save=mine")
    assert project.saved()["path"].parent.parent == project.elsewhere / ".benchmarks"


def test_a_storage_that_was_given_is_used(project: Project) -> None:
    project.run_from(project.tests, "--benchmark-autosave", "--benchmark-storage=here/.benchmarks")
    assert project.saved()["path"].parent.parent == project.tests / "here" / ".benchmarks"


def test_a_suite_that_measures_nothing_of_ours_is_left_as_it_was(bench: Any) -> None:
    project = Project(bench, FOREIGN_SUITE)
    commit = project.commit()
    project.run_from(project.tests, "--benchmark-autosave")
    saved = project.saved()
    assert saved["path"].parent.parent == project.tests / ".benchmarks"
    assert saved["commit_info"]["id"] == commit


def test_a_run_is_compared_with_the_projects_last(project: Project) -> None:
    """Also where the machine's description differs, as it does from boot to boot: pytest-benchmark then asks for the
    storage's place below the working folder, and raised ValueError for one that isn't."""
    project.run_from(project.folder, "--benchmark-save=first")
    path = project.saved()["path"]
    path.write_text(path.read_text(encoding="utf-8").replace('"machine_info": {', '"machine_info": {"other": 1,'))
    result = project.run_from(project.tests, "--benchmark-compare")
    result.stdout.fnmatch_lines(["*test_mine*(0001_first)*"])
