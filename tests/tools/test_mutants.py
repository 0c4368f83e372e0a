"""The script that plants faults: its rows fit the code and the tests of today, and it tells which faults are caught."""

from __future__ import annotations

import ast
from pathlib import Path

import mutants
import pytest
from mutant_rows import MUTANTS, Mutant

HALF = "def half(number: float) -> float:\n    return number / 2\n"
TEST = """
from toy.sums import half

def test_half():
    assert half(4) == {}

def test_other():
    pass
"""
CHILD = """
import subprocess, sys
import toy

def test_child():
    child = "import sys; sys.path.insert(0, 'elsewhere'); import toy"
    assert subprocess.run([sys.executable, "-c", child]).returncode == 97
"""
CODE = mutants.ROOT / "src" / mutants.PACKAGE


def test_the_code_of_each_row_is_there_once() -> None:
    """Where this fails, plant the same fault in the code as it is now."""
    found = {one.name: (CODE / one.file).read_text(encoding="utf-8").count(one.code) for one in MUTANTS}
    assert {name: times for name, times in found.items() if times != 1} == {}


def test_the_tests_of_each_row_are_there() -> None:
    """Where this fails, name the tests that guard the same now."""
    assert {one.tests for one in MUTANTS if not (mutants.ROOT / one.tests).exists()} == set()
    narrowed = [one for one in MUTANTS if one.only]
    ids = {one.tests: ids_in((mutants.ROOT / one.tests).read_text(encoding="utf-8")) for one in narrowed}
    assert [one.name for one in narrowed if not any(one.only in name for name in ids[one.tests])] == []


def ids_in(code: str) -> set[str]:
    """The names of a file's tests, and the texts outside of them, which may be ids of their parameters."""
    module = ast.parse(code)
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    others = [node for node in module.body if not isinstance(node, ast.FunctionDef)]
    parts = [part for node in functions for part in node.decorator_list] + others
    texts = (leaf.value for part in parts for leaf in ast.walk(part) if isinstance(leaf, ast.Constant))
    names = {node.name for node in functions if node.name.startswith("test_")}
    return names | {text for text in texts if isinstance(text, str)}


def test_each_fault_has_a_name_of_its_own_and_changes_something() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 30
    assert [one.name for one in MUTANTS if one.code == one.fault] == []


def test_every_room_has_a_fault() -> None:
    """version.py has nothing that could be wrong."""
    rooms = {path.name for path in CODE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {one.file.split("/")[0] for one in MUTANTS} == {"__init__.py", "version.py"}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mutants.Copy:
    """A package of one function, with one test of it that passes and one file of tests that fails."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = {
        "src/toy/__init__.py": "",
        "src/toy/sums.py": HALF,
        "test_good.py": TEST.format(2),
        "test_bad.py": TEST.format(3),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return mutants.Copy(tmp_path, "toy")


def test_what_becomes_of_a_fault(toy: mutants.Copy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def row(name: str, code: str = "/ 2", fault: str = "* 2", tests: str = "test_good.py", only: str = "") -> Mutant:
        return Mutant(name, "sums.py", code, fault, tests, only)

    rows = [
        row("caught"),
        row("equal", fault="* 0.5", only="half"),
        row("gone", code="/ 3"),
        row("twice", code="number"),
        row("syntax", fault="/"),
        row("unchosen", only="no_such_test"),
        row("broken", tests="test_bad.py"),
    ]
    assert mutants.judge_all(rows, toy) == 6
    said = {
        line.split()[1]: line.partition("... ")[2] for line in capsys.readouterr().out.splitlines() if "/7 " in line
    }
    beginnings = {
        "caught": "caught by test_good.py::test_half ",
        "equal": "SURVIVED: test_good.py -k half pass",
        "gone": "ANCHOR GONE: sums.py ",
        "twice": "ANCHOR GONE: sums.py ",
        "syntax": "NOT JUDGED: no test failed, pytest did: ",
        "unchosen": "NOT JUDGED: no test was chosen: ",
        "broken": "NOT JUDGED: the tests fail without the fault, too: test_bad.py::test_half",
    }
    assert {name: text[: len(beginnings[name])] for name, text in said.items()} == beginnings
    assert (tmp_path / "src/toy/sums.py").read_text(encoding="utf-8") == HALF


def test_a_process_that_imports_another_package_than_the_copy_ends_the_run(toy: mutants.Copy, tmp_path: Path) -> None:
    """In whichever process it does: what it says is said of the code without the fault."""
    (tmp_path / "elsewhere" / "toy").mkdir(parents=True)
    (tmp_path / "elsewhere" / "toy" / "__init__.py").touch()
    (tmp_path / "test_child.py").write_text(CHILD, encoding="utf-8")
    with pytest.raises(mutants.NotTheCopy, match="elsewhere"):
        toy.run("test_child.py")


def test_names_and_patterns_choose() -> None:
    rows = [Mutant(name, "", "", "", "") for name in ("gate-one", "gate-two", "docs-one")]
    assert [one.name for one in mutants.chosen(["gate-*"], rows)] == ["gate-one", "gate-two"]
    assert mutants.chosen([], rows) == rows
    with pytest.raises(SystemExit, match="no mutant is named nothing"):
        mutants.chosen(["docs-one", "nothing"], rows)
