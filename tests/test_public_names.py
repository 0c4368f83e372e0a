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
PACKAGE = Path(str(llm_bench_fixtures.__file__)).parent
# Of llm_session, which other fixtures share; of functions that fill tensors; of what narrows a speed-up's interval; of
# weights on disk; of a handle's turns.
INTERNAL = {"BenchSession", "Batch", "VarianceEstimate", "ScratchFolder", "Preemptions"}
# Texts and numbers with limits.
PLAIN = {"Name", "Text", "Figure", "Count", "Duration", "Offset", "Ratio", "SinceStart"}


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


def own_names_in_annotations(path: str, classes: tuple[str, ...]) -> set[str]:
    """Names of ours in annotations of a module: of its public functions, and of those classes' public parts."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    ours = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("llm_bench_fixtures"):
            ours |= {alias.name for alias in node.names}
    tops = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    chosen = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in classes]
    parts = [part for node in chosen for part in node.body]
    annotations = [annotation for node in [*tops, *parts] for annotation in annotations_of(node)]
    used = {node.id for annotation in annotations for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return used & ours


def annotations_of(node: ast.stmt) -> list[ast.expr]:
    """Of a field, or of a public function's arguments and result."""
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__call__"):
        return []
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [found for found in (*(one.annotation for one in arguments), node.returns) if found is not None]


@pytest.mark.parametrize(
    ("path", "classes"),
    [
        ("plugin/hookspecs.py", ()),
        ("plugin/fixtures.py", ()),
        ("plugin/benchmark.py", ("LlmBenchmark",)),
        ("plugin/checks.py", ("LlmEquivalence", "LlmOverhead")),
        ("models/model.py", ("Model", "ModelFacts", "ShowsLogits")),
        ("models/handle.py", ("ModelHandle",)),
        ("models/backend.py", ("Backend",)),
        ("models/variants.py", ("Variant",)),
        ("workloads.py", ("Corpus", "Prompts", "Tokenizer", "Workload")),
        ("results/record.py", ("RecordHead", "Record")),
    ],
)
def test_what_users_meet_in_annotations_is_public(path: str, classes: tuple[str, ...]) -> None:
    names = own_names_in_annotations(path, classes)
    assert names - INTERNAL - PLAIN <= set(llm_bench_fixtures.__all__)


def test_what_a_backend_gets_with_its_request_is_public() -> None:
    """Its module has a function for the plugin's use too, so only the class is looked at."""
    hints = inspect.get_annotations(llm_bench_fixtures.LoadRequest)
    assert set(hints.values()) <= {*llm_bench_fixtures.__all__, "Path | None"}
    assert "Device" in hints.values()


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
