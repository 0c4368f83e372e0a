"""Count what a newcomer meets: rooms, floors, circles, lines of code by room, and how long the longest pieces are.

python tools/count_layout.py [FOLDER ...]

A room is a folder or a module directly in the package, the package's own `__init__` aside. An arrow is an import, at
the top, within a function or for types only. A circle is a set of rooms that can reach each other; floors are counted
with each circle as one. Lines of code are those without comments and docstrings. A lone module has fewer than LONE of
them and one user.
FOLDER: the package's, or several to compare. Default: that of this tree.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "llm_bench_fixtures"
LONG_FUNCTION = 40
LONG_MODULE = 300
LONE = 40
NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)

Graph = Mapping[str, set[str]]


def modules(package: Path) -> dict[str, Path]:
    """Each module's file by its dotted name below the package."""
    found = {".".join(path.relative_to(package).with_suffix("").parts): path for path in package.rglob("*.py")}
    return {name.removesuffix("__init__").rstrip("."): path for name, path in sorted(found.items())}


def imported(path: Path, package: str) -> Iterator[str]:
    """Dotted names below the package that the file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
            start = (node.module or "").removeprefix(package).lstrip(".")
            yield from (f"{start}.{alias.name}".lstrip(".") for alias in node.names)


def rooms(package: Path) -> Graph:
    """The rooms that each room imports from."""
    names = modules(package)
    tops = {name.split(".")[0] for name in names if name}
    graph: dict[str, set[str]] = {room: set() for room in sorted(tops)}
    for name, path in names.items():
        room = name.split(".")[0]
        targets = {target.split(".")[0] for target in imported(path, package.name)}
        if room:
            graph[room] |= (targets & tops) - {room}
    return graph


def reachable(graph: Graph) -> dict[str, set[str]]:
    """All rooms that each can reach."""
    found = {room: set(targets) for room, targets in graph.items()}
    while any(any(found[target] - found[room] for target in found[room]) for room in found):
        for room in found:
            found[room] |= set().union(*(found[target] for target in found[room]))
    return found


def circles(graph: Graph) -> list[set[str]]:
    reach = reachable(graph)
    groups = {frozenset({room, *(other for other in reach[room] if room in reach[other])}) for room in graph}
    return [set(group) for group in sorted(groups, key=sorted) if len(group) > 1]


def floors(graph: Graph) -> dict[str, int]:
    """Floor of each room: 0 for those that need no other, else one above the highest that it needs."""
    reach = reachable(graph)
    height: dict[str, int] = {}
    for room in sorted(graph, key=lambda name: len(reach[name] | {name})):
        below = [height[other] for other in reach[room] if room not in reach[other]]
        height[room] = max(below, default=-1) + 1
    return height


def functions(package: Path) -> list[tuple[int, str]]:
    """Lines and place of each function."""
    return [
        (node.end_lineno - node.lineno + 1, f"{name}:{node.name}")
        for name, path in modules(package).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]


def code_lines(path: Path) -> int:
    """How many lines of the file are neither blank nor within a comment or a docstring."""
    source = path.read_text(encoding="utf-8")
    tokens = (token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in NO_CODE)
    lines = {number for token in tokens for number in range(token.start[0], token.end[0] + 1)}
    return len(lines - set(_docstring_lines(ast.parse(source))))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Numbers of the lines of docstrings: those of attributes, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or 0) + 1)


def lone_modules(package: Path) -> list[str]:
    """Small modules that one other imports: candidates to join it."""
    names = modules(package)
    users: Counter[str] = Counter()
    for name, path in names.items():
        targets = {_module_of(target, names) for target in imported(path, package.name)}
        users.update(targets - {name})
    return [name for name, path in names.items() if name and users[name] == 1 and code_lines(path) < LONE]


def _module_of(target: str, names: Mapping[str, Path]) -> str:
    """The module that an imported name is, or is in."""
    return target if target in names else target.rpartition(".")[0]


def code_by_room(package: Path) -> Iterator[str]:
    """A line for each room, the largest first: its lines of code, its modules, its name."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for name, path in modules(package).items():
        lines[name.split(".")[0]] += code_lines(path)
        files[name.split(".")[0]] += 1
    for room, count in lines.most_common():
        yield f"  {count:6}  {files[room]:3}  {room or '__init__'}"
    yield f"  {lines.total():6}  {files.total():3}  in all"


def report(package: Path) -> Iterator[str]:
    graph = rooms(package)
    heights = floors(graph)
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules(package).items()}
    long_functions = [place for length, place in functions(package) if length > LONG_FUNCTION]
    long_modules = [name for name, count in lines.items() if count > LONG_MODULE]
    found = circles(graph)
    yield f"rooms                    {len(graph)}"
    yield f"floors                   {max(heights.values()) + 1}"
    yield "  ".join([f"circles                  {len(found)}", *(f"({', '.join(sorted(one))})" for one in found)])
    yield f"lines                    {sum(lines.values())} in {len(lines)} modules"
    yield f"functions over {LONG_FUNCTION} lines  {len(long_functions)}  {' '.join(long_functions)}".rstrip()
    yield f"modules over {LONG_MODULE} lines   {len(long_modules)}  {' '.join(long_modules)}".rstrip()
    lone = lone_modules(package)
    yield f"lone modules             {len(lone)}  {' '.join(lone)}".rstrip()
    for floor in range(max(heights.values()), -1, -1):
        yield f"  {floor:2}  {', '.join(room for room in graph if heights[room] == floor)}"
    yield "lines of code, modules, room"
    yield from code_by_room(package)


if __name__ == "__main__":
    for folder in [Path(argument) for argument in sys.argv[1:]] or [PACKAGE]:
        print(f"{folder}:", *report(folder.resolve()), sep="\n")
