"""The walls between the rooms stand: each contract holds, and an import that breaks it is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    return subprocess.run(
        [*program, "--no-cache", "--no-logo"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package with its contracts."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "assets"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_is_kept(tree: Path) -> None:
    done = lint(tree)
    assert "0 broken" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("measure/timing.py", "from llm_bench_fixtures.results.record import Record", "An import goes down or stays"),
        ("models/device.py", "def f():\n    import llm_bench_fixtures.plugin.hooks", "An import goes down or stays"),
        ("text.py", "from llm_bench_fixtures import Variant", "An import goes down or stays"),
        ("gate/rules.py", "import pytest", "Only plugin/ has heard of pytest"),
        ("history/saved.py", "def f():\n    import pytest_benchmark", "Only plugin/ has heard of pytest"),
        ("plugin/hooks.py", "import pytest_benchmark", "Only plugin/internals.py knows the insides"),
    ],
)
def test_a_contract_that_is_broken_on_purpose_fails(tree: Path, module: str, line: str, contract: str) -> None:
    path = tree / "src" / "llm_bench_fixtures" / module
    path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{line}\n", encoding="utf-8")
    done = lint(tree)
    assert done.returncode == 1
    assert any(row.startswith(contract) and "BROKEN" in row for row in done.stdout.splitlines()), done.stdout


def test_a_room_without_a_floor_is_found(tree: Path) -> None:
    (tree / "src" / "llm_bench_fixtures" / "attic.py").write_text('"""Whatever."""\n', encoding="utf-8")
    assert lint(tree).returncode == 1
