"""The names that users import: all from the package itself, each explained, none of them loaded before it is used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from enum import IntEnum, StrEnum
from pathlib import Path

import pytest

import llm_bench_fixtures

ROOT = Path(__file__).resolve().parent.parent


def names_for_type_checkers() -> dict[str, str]:
    """The names that the package imports under TYPE_CHECKING, with the modules that they come from."""
    tree = ast.parse(Path(str(llm_bench_fixtures.__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_type_checkers_see_the_same_names_from_the_same_homes() -> None:
    homes = {name: f"llm_bench_fixtures.{home}" for name, home in llm_bench_fixtures._HOME_OF.items()}
    assert names_for_type_checkers() == homes


@pytest.mark.parametrize("name", llm_bench_fixtures.__all__)
def test_each_is_there_and_explained(name: str) -> None:
    value = getattr(llm_bench_fixtures, name)
    assert name in dir(llm_bench_fixtures)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__, f"{name} has no docstring"
        assert not value.__doc__.startswith(f"{name}("), f"{name} has only what dataclass wrote"
        assert value.__doc__ not in (StrEnum.__doc__, IntEnum.__doc__)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = llm_bench_fixtures.Nonsense


def test_importing_the_package_imports_no_room() -> None:
    code = "import sys, llm_bench_fixtures; print([m for m in sys.modules if m.startswith('llm_bench_fixtures.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['llm_bench_fixtures.version']"


def imported_from_below(text: str) -> list[str]:
    """Modules within the package that a text of Python, or with Python in it, imports from."""
    found = [line.split()[1] for line in text.splitlines() if line.lstrip().startswith(("from llm_", "import llm_"))]
    return [module for module in found if module != "llm_bench_fixtures"]


@pytest.mark.parametrize(
    "path",
    sorted(ROOT.glob("benchmarks/*.py")),
    ids=lambda path: path.name,
)
def test_the_suite_imports_from_nowhere_else(path: Path) -> None:
    assert imported_from_below(path.read_text(encoding="utf-8")) == []
