"""The project's own checks: CI and the hooks before a commit run what is there."""

from __future__ import annotations

import ast
import configparser
import io
import os
import re
import runpy
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from llm_bench_fixtures.version import __version__

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = (".github/workflows/ci.yml", ".github/workflows/nightly.yml")


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return loaded


def commands(workflow: str = WORKFLOWS[0]) -> list[str]:
    jobs = load(workflow)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_the_workflow_runs_what_ci_runs_and_builds_the_docs() -> None:
    assert "bash .ci/run" in commands()
    assert any("tox run -e docs" in command for command in commands())
    assert os.access(ROOT / ".ci" / "run", os.R_OK)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_workflow_may_only_read_and_puts_nothing_into_a_command(name: str) -> None:
    workflow = load(name)
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    assert not any("${{" in command for command in commands(name))


def test_each_environment_of_tests_is_run_at_each_push_or_each_night() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    matrix = load(WORKFLOWS[1])["jobs"]["checks"]["strategy"]["matrix"]["include"]
    nightly = {row["command"].removeprefix("tox run -e ") for row in matrix}
    every_push = {*re.findall(r"tox \w+ -e ([\w,-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))}
    tested = {name for names in every_push for name in names.split(",")} | nightly | {"types"}  # mypy, where test ran
    assert tested == {name.strip() for name in tox["tox"]["env_list"].split(",")}


def test_every_workflow_takes_the_same_version_of_an_action() -> None:
    """Also those that users copy. Bug: theirs kept versions for a Node that is gone."""
    folders = (ROOT / ".github" / "workflows", ROOT / "docs" / "how-to" / "ci")
    files = [ROOT / "action.yml", *(file for folder in folders for file in folder.glob("*.yml"))]
    used = {
        found for file in files for found in re.findall(r"uses: ([\w./-]+)@(\S+)", file.read_text(encoding="utf-8"))
    }
    versions = {(action.removesuffix("/restore").removesuffix("/save"), version) for action, version in used}
    assert len(dict(versions)) == len(versions)


def test_no_checkout_leaves_its_token_in_the_clone() -> None:
    """Also in those that users copy. Bug: there a pull request's code could read it."""
    folders = (ROOT / ".github" / "workflows", ROOT / "docs" / "how-to" / "ci")
    files = [ROOT / "docs" / "how-to" / "run-in-ci.md", *(file for folder in folders for file in folder.glob("*.yml"))]
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert [text.count("persist-credentials: false") for text in texts] == [
        text.count("uses: actions/checkout@") for text in texts
    ]


def test_only_what_publishes_may_write_and_only_an_identity() -> None:
    release = load(".github/workflows/release.yml")
    assert release["permissions"] == {"contents": "read"}
    assert {name: job.get("permissions") for name, job in release["jobs"].items()} == {
        "build": None,
        "publish": {"id-token": "write"},
    }
    assert not any("${{" in command for command in commands(".github/workflows/release.yml"))


def test_the_workflow_tests_the_pythons_that_the_package_says_it_supports() -> None:
    tested = load(WORKFLOWS[0])["jobs"]["checks"]["strategy"]["matrix"]["python"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    named = [name.rpartition(" ")[2] for name in classifiers if name.startswith("Programming Language")]
    assert tested == named


def test_the_systems_that_the_package_names_have_a_job() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    runners = {"POSIX :: Linux": "ubuntu-", "MacOS": "macos-", "Microsoft :: Windows": "windows-"}
    named = [name.removeprefix("Operating System :: ") for name in classifiers if name.startswith("Operating System")]
    jobs = "".join((ROOT / workflow).read_text(encoding="utf-8") for workflow in WORKFLOWS)
    assert "POSIX :: Linux" in named
    assert [name for name in named if runners[name] not in jobs] == []


def test_the_newest_libraries_and_other_systems_are_tried_each_night() -> None:
    """Bug: every job took pinned or lowest versions, so that a new release of a library broke users first."""
    jobs = load(WORKFLOWS[1])["jobs"]
    rows = jobs["checks"]["strategy"]["matrix"]["include"]
    newest = [row["python"] for row in rows if row["command"] == "tox run -e test-newest"]
    assert newest == load(WORKFLOWS[0])["jobs"]["checks"]["strategy"]["matrix"]["python"][-2:]
    assert jobs["smoke"]["strategy"]["matrix"]["system"] == ["macos-latest", "windows-latest"]
    assert "PIP_CONSTRAINT" not in jobs["smoke"].get("env", {})


@pytest.mark.parametrize(("heading", "may"), [("1.2.0, 2027-01-31", True), ("1.2.0, unreleased", False)])
def test_only_a_version_with_its_day_in_the_changelog_is_released(heading: str, may: bool, tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n", encoding="utf-8")
    (check,) = (one for one in commands(".github/workflows/release.yml") if "CHANGELOG.md" in one)
    environment = {**os.environ, "GITHUB_REF_NAME": "v1.2.0"}
    done = subprocess.run(["bash", "-e", "-c", check], cwd=tmp_path, env=environment, check=False)  # noqa: S607
    assert (done.returncode == 0) is may


def test_the_changelog_begins_with_this_version_and_has_a_day_for_each_other() -> None:
    first, *others = re.findall("^## (.*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(__version__)}, (unreleased|\d{{4}}-\d\d-\d\d)", first)
    assert [one for one in others if not re.fullmatch(r"\d+\.\d+\.\d+, \d{4}-\d\d-\d\d", one)] == []


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What hatchling calls when the package is built, without hatchling."""
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = type("MetadataHookInterface", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    return runpy.run_path(str(ROOT / "hatch_build.py"))


def test_on_an_indexs_page_each_link_of_the_readme_leads_into_the_repository(building: dict[str, Any]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = building["with_absolute_links"](readme, "https://example.org/me/it", "v1")
    targets = re.findall(r"\]\(([^)\s]+)", shown)
    assert [target for target in targets if not target.startswith("https://")] == []
    own = [target for target in targets if target.startswith("https://example.org/")]
    paths = {re.sub(r"https://example.org/me/it/(blob|raw)/v1/", "", target) for target in own}
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert "](https://example.org/me/it/raw/v1/docs/images/answer.png)" in shown
    assert "](https://example.org/me/it/blob/v1/LICENSE)" in shown
    assert building["with_absolute_links"](readme, "", "v1") == readme


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("git@example.org:me/it.git", "https://example.org/me/it"),
        ("ssh://git@example.org/me/it", "https://example.org/me/it"),
        ("https://user:secret@example.org/me/it.git", "https://example.org/me/it"),
        ("/srv/git/it", ""),
        ("", ""),
    ],
)
def test_the_repositorys_address_is_that_of_its_origin(
    origin: str, address: str, building: dict[str, Any], tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)  # noqa: S607
    if origin:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)  # noqa: S607
    assert building["address_of"](tmp_path, {}) == address


def test_a_release_has_the_address_and_the_tag_of_its_workflow(
    building: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_BENCH_REPOSITORY", "https://example.org/me/it")
    monkeypatch.setenv("LLM_BENCH_TAG", "v1.2.0")
    (tmp_path / "README.md").write_text("[it](docs/it.md)", encoding="utf-8")
    hook, metadata = building["RepositoryHook"](), dict[str, Any]()
    hook.root = str(tmp_path)
    hook.update(metadata)
    assert metadata["readme"]["text"] == "[it](https://example.org/me/it/blob/v1.2.0/docs/it.md)"
    assert metadata["urls"] == {
        "Repository": "https://example.org/me/it",
        "Documentation": "https://example.org/me/it/blob/v1.2.0/docs/index.md",
        "Changelog": "https://example.org/me/it/blob/v1.2.0/CHANGELOG.md",
        "Issues": "https://example.org/me/it/issues",
    }
    steps = load(".github/workflows/release.yml")["jobs"]["build"]["steps"]
    (build,) = [step for step in steps if step.get("name") == "Build"]
    assert set(build["env"]) == {"LLM_BENCH_REPOSITORY", "LLM_BENCH_TAG"}


def test_the_source_distribution_has_what_building_it_reads() -> None:
    """Bug: without README.md no wheel could be built from it."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    read = re.findall(r"root / \"([^\"]+)\"", (ROOT / "hatch_build.py").read_text(encoding="utf-8"))
    assert {*read, *build["wheel"]["force-include"]} <= {*build["sdist"]["include"]}
    assert "README.md" in read


def test_outside_of_any_repository_there_are_no_urls(building: dict[str, Any]) -> None:
    assert building["urls_of"]("", "HEAD") == {}


def test_no_pytest_benchmark_is_admitted_that_opens_its_json_file_itself() -> None:
    """Bug: --benchmark-json of pytest-benchmark 5.1 to 5.2.3 is an open file and no path: INTERNALERROR."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (benchmark,) = (one for one in map(Requirement, needed) if one.name == "pytest-benchmark")
    assert [version for version in ("5.1.0", "5.2.3", "5.3.0") if version in benchmark.specifier] == ["5.3.0"]


def imported_modules() -> set[str]:
    """Top-level modules that the package imports, wherever it does."""
    nodes = [
        node
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = (
        [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""] for node in nodes
    )
    return {name.partition(".")[0] for found in names for name in found}


def test_what_the_package_imports_it_declares() -> None:
    """Bug: cpuinfo came with pytest-benchmark, and yaml with lm-eval's libraries, by chance."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (texts for name, texts in project["optional-dependencies"].items() if name != "dev")
    needed = [*project["dependencies"], *(one for extra in extras for one in extra)]
    declared = {canonicalize_name(Requirement(one).name) for one in needed}
    providers = packages_distributions()
    others = imported_modules() - {*sys.stdlib_module_names, "llm_bench_fixtures"}
    assert [
        name for name in sorted(others) if not {*map(canonicalize_name, providers.get(name, [name]))} & declared
    ] == []


def test_the_hooks_run_tools_of_the_dev_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    hooks = [hook for repo in load(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert (
        {hook["entry"].split()[0] for hook in hooks} == {"ruff", "mypy"} <= set(project["optional-dependencies"]["dev"])
    )


def required(texts: list[str], extras: dict[str, list[str]]) -> set[str]:
    """Names of the packages; for the package's own extras, those that they name."""
    found = [Requirement(text) for text in texts]
    own = [text for one in found for extra in one.extras if one.name == "llm-bench-fixtures" for text in extras[extra]]
    others = {canonicalize_name(one.name) for one in found if one.name != "llm-bench-fixtures"}
    return others | (required(own, extras) if own else set())


@pytest.mark.parametrize("environment", ["test", "nightly", "docs", "test-engines", "test-transformers5"])
def test_what_an_environment_names_is_pinned(environment: str) -> None:
    """Bug: transformers 5's tests ran with whichever pyarrow was newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    named = {**tox["testenv"], **tox[f"testenv:{environment}"]}
    constraints = named["set_env"].rpartition("}")[2].strip()
    pins = (ROOT / constraints).read_text(encoding="utf-8").splitlines()
    own = [f"llm-bench-fixtures[{named['extras']}]"] if named["extras"] else []
    texts = [*named.get("deps", "").split(), *project["dependencies"], *own]
    assert required(texts, project["optional-dependencies"]) <= {canonicalize_name(pin.split("==")[0]) for pin in pins}


LEANS = re.compile(r"(Of|By|That|The same)\b")


def openings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of attributes too, and of each comment's first line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
    last = -1  # line of a comment that stands alone
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            is_alone = token.line.lstrip().startswith("#")
            if not (is_alone and token.start[0] == last + 1):
                yield token.start[0], token.string.lstrip("#: ")
            last = token.start[0] if is_alone else last


def leaning(text: str) -> list[int]:
    return sorted(line for line, opening in openings(text) if LEANS.match(opening))


def test_docstrings_and_comments_open_with_their_subject() -> None:
    files = [path for folder in ("src", "tools", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [(path, line) for path in files for line in leaning(path.read_text(encoding="utf-8"))]
    assert [f"{path.relative_to(ROOT)}:{line}" for path, line in found] == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (1, '"""Of a module."""'),
        (2, 'class Some:\n    """By its members."""'),
        (2, 'def some():\n    """That of a function."""'),
        (2, 'rate: float\n"""The same of an attribute."""'),
        (1, "rate = 1  # Of a line"),
        (1, "# Of a block,\n# which may go on as it likes"),
    ],
)
def test_an_opening_that_leans_on_the_line_before_is_found(line: int, code: str) -> None:
    assert leaning(code) == [line]


@pytest.mark.parametrize("code", ['"""Offers of a module."""', "# Sizes,\n# By unit.", 'rate = "Of a string"'])
def test_a_subject_first_and_what_is_no_docstring_are_passed_over(code: str) -> None:
    assert leaning(code) == []
