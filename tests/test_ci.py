"""The workflows in docs/how-to/ci: their commands are run as written, in a project that has a suite of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / "docs" / "how-to" / "ci"
NOT_RUN = ("Install", "Comment")  # what needs the network, or GitHub itself
SUITE = """
def test_mine(llm_benchmark):
    llm_benchmark("Hello")
"""
INI = """[pytest]
llm_variants = fp32
llm_new_tokens = 2
llm_rounds = 2
llm_max_noise = 0
llm_limits_time = 0
llm_choices = none
llm_corpus = corpus.txt
"""


def load(name: str) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return workflow


def github_commands(name: str) -> dict[str, str]:
    """By the steps' names."""
    steps = (step for job in load(name)["jobs"].values() for step in job["steps"])
    return {step["name"]: step["run"] for step in steps if "run" in step and step["name"] not in NOT_RUN}


def gitlab_commands() -> dict[str, str]:
    """By the jobs' names."""
    jobs = load("gitlab-ci.yml")
    return {name: "\n".join(job["script"]) for name, job in jobs.items() if "script" in job}


GITHUB_FILES = ("github-benchmarks.yml", "github-paired.yml", "github-comment.yml")
GITHUB = {name: command for file in GITHUB_FILES for name, command in github_commands(file).items()}
GITLAB = gitlab_commands()
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]


class Project:
    """A clone with a branch of its own, and what a runner sets in the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        origin = folder / "origin"
        origin.mkdir()
        (origin / "benchmarks").mkdir()
        (origin / "benchmarks" / "test_own.py").write_text(SUITE, encoding="utf-8")
        (origin / "pytest.ini").write_text(INI, encoding="utf-8")
        (origin / "corpus.txt").write_text("The keeper climbed the stairs and lit the lamp. " * 20, encoding="utf-8")
        (origin / ".gitignore").write_text(".benchmarks/\nllm-bench-report/\n__pycache__/\n", encoding="utf-8")
        git(origin, "init", "-q", "-b", "main")
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", "A suite")
        git(folder, "clone", "-q", str(origin), str(self.folder))

    def branch(self) -> None:
        git(self.folder, "switch", "-q", "-c", "topic")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "A change")

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_BASE_REF": "main",
            "GITHUB_STEP_SUMMARY": str(self.folder / "step.md"),
            "REASON": "it is meant",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            **variables,
        }
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],  # noqa: S607
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)  # noqa: S607


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    return Project(tmp_path)


@pytest.mark.nightly("runs all commands of a workflow, benchmarks included")
def test_githubs_commands_save_judge_and_comment(project: Project) -> None:
    project.run(GITHUB["Measure, judge and save"])
    project.branch()
    judged = project.run(GITHUB["Measure and judge"])
    assert "llm-gate: passed" in judged.stdout
    assert "Judged 1 of 1 tests" in (project.folder / "step.md").read_text(encoding="utf-8")
    assert (project.folder / "junit.xml").is_file()
    (project.folder / "untrusted").mkdir()
    (project.folder / "llm-bench-report" / "results.json").rename(project.folder / "untrusted" / "results.json")
    project.run(GITHUB["Compare it with main's newest run"])
    comment = (project.folder / "comment.md").read_text(encoding="utf-8")
    assert comment.startswith("<!-- llm-bench -->\n## ")
    assert "Judged 1 of 1 tests" in comment
    (project.folder / "untrusted" / "results.json").write_text("{", encoding="utf-8")
    unreadable = project.run(GITHUB["Compare it with main's newest run"])
    assert (unreadable.stdout, unreadable.stderr) == ("", "")
    comment = (project.folder / "comment.md").read_text(encoding="utf-8")
    assert comment == "<!-- llm-bench -->\nThe benchmarks of this commit could not be read.\n"
    assert "meant" in project.run(GITHUB["Bless the newest run"]).stdout


def test_the_action_does_what_the_workflows_do() -> None:
    """So that the commands which are run above are its own, too: it writes the summary of a push as well."""
    given = {"$TESTS $OPTIONS": "benchmarks/", '"branch:$BRANCH"': "branch:main"}
    summary = ' --llm-gate-summary "$GITHUB_STEP_SUMMARY"'
    commands = {step["name"]: step["run"] for step in STEPS if "run" in step}
    for text, value in given.items():
        commands = {name: command.replace(text, value) for name, command in commands.items()}
    comment = load("github-comment.yml")["jobs"]["comment"]["steps"]
    copied = {**GITHUB, **{step["name"]: step["run"] for step in comment if "run" in step}}
    names = ("Measure, judge and save", "Measure and judge", "Compare it with main's newest run", "Comment")
    assert {name: commands[name].replace(summary, "") for name in names} == {
        name: copied[name].replace(summary, "") for name in names
    }
    assert summary in commands["Measure, judge and save"]


def test_the_action_measures_or_comments_and_never_both() -> None:
    """What comments has a token that may write, so it runs no code of a pull request's."""
    measuring = [step for step in STEPS if "pytest" in step.get("run", "")]
    commenting = [step for step in STEPS if "GH_TOKEN" in step.get("env", {})]
    assert [len(measuring), len(commenting)] == [2, 1]
    assert all("inputs.comment != 'true'" in step["if"] for step in measuring)
    assert all(step["if"] == "inputs.comment == 'true'" for step in commenting)


def test_at_another_event_the_action_is_red(tmp_path: Path) -> None:
    """Bug: at workflow_dispatch or merge_group it measured nothing, and was green."""
    first, *others = STEPS
    events = re.findall(r"github.event_name ([!=]=) '(\w+)'", first["if"])
    measured = re.findall(r"github.event_name == '(\w+)'", " ".join(step["if"] for step in others if "if" in step))
    assert {*events} == {("!=", event) for event in measured}
    done = subprocess.run(["bash", "-e", "-c", first["run"]], check=False, capture_output=True)  # noqa: S607
    assert done.returncode == 1


def test_the_action_installs_what_the_users_tests_import() -> None:
    (install,) = (step for step in STEPS if step.get("name") == "Install")
    assert install["run"].endswith(" $PACKAGES")
    assert install["env"]["PACKAGES"] == "${{ inputs.packages }}"
    assert ACTION["inputs"]["packages"]["default"] == ""


def test_the_example_of_the_action_writes_the_history_as_the_workflow_does() -> None:
    """Bug: two pushes at once wrote it, and one run was lost."""
    page = (WORKFLOWS.parent / "run-in-ci.md").read_text(encoding="utf-8")
    example, _ = (yaml.safe_load(code) for code in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    whole = load("github-benchmarks.yml")["jobs"]["stored-gate"]
    assert example["jobs"]["stored-gate"]["concurrency"] == whole["concurrency"]


def test_every_job_keeps_what_pip_fetches() -> None:
    steps = [step for name in GITHUB_FILES for job in load(name)["jobs"].values() for step in job["steps"]]
    pythons = [step["with"] for step in steps if step.get("uses", "").startswith("actions/setup-python@")]
    assert [one["cache"] for one in pythons] == ["pip"] * 4
    job = load("gitlab-ci.yml")[".benchmarks"]
    assert job["variables"]["XDG_CACHE_HOME"] == "$CI_PROJECT_DIR/.cache"
    assert "llm-bench-fixtures" in {Path(path).name for path in job["cache"]["paths"]}


@pytest.mark.nightly("runs all commands of a workflow, benchmarks included")
def test_gitlabs_commands_save_and_judge(project: Project) -> None:
    project.run(GITLAB["save"])
    project.branch()
    assert "llm-gate: passed" in project.run(GITLAB["stored-gate"]).stdout
    assert "Judged 1 of 1 tests" in (project.folder / "gate.md").read_text(encoding="utf-8")
    assert "it is meant" in project.run(GITLAB["save"], BLESS_REASON="it is meant").stdout


@pytest.mark.nightly("runs all commands of a workflow, benchmarks included")
def test_the_paired_gates_command(project: Project) -> None:
    """Equal versions are never found to differ; on a busy machine they may not be found equal either, which passes."""
    project.branch()
    done = project.run(GITHUB["Measure both versions in turn"])
    assert "1 test in" in done.stdout
    assert f"Exit status {done.returncode}" in (project.folder / "step.md").read_text(encoding="utf-8")


def test_both_forges_run_the_same_paired_gate() -> None:
    commands = (GITHUB["Measure both versions in turn"], GITLAB["paired-gate"])
    plain = {re.sub(r'\$\w+|"\$\w+"|pair\.md', "...", command).replace('"..."', "...") for command in commands}
    assert len(plain) == 1


def test_each_workflow_installs_the_package_and_not_the_readers_project() -> None:
    """Bug: `-e '.[suite]'` installed nothing of this package in a project that isn't its clone."""
    for path in WORKFLOWS.glob("*.yml"):
        installs = re.findall(r"pip install (.*?)(?:  #|$)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(installs) == {"'llm-bench-fixtures[suite]'"}


def test_every_command_is_run_above() -> None:
    assert set(GITHUB) == {
        "Measure, judge and save",
        "Bless the newest run",
        "Measure and judge",
        "Compare it with main's newest run",
        "Measure both versions in turn",
    }
    assert set(GITLAB) == {"save", "stored-gate", "paired-gate"}


def test_what_comes_from_a_pull_request_is_never_part_of_a_command() -> None:
    """A branch's name or a title that stood in a command would be run."""
    jobs = (job["steps"] for name in GITHUB_FILES for job in load(name)["jobs"].values())
    for steps in (*jobs, STEPS):
        assert not any("${{" in step.get("run", "") for step in steps)
