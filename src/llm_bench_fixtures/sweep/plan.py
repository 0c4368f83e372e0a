"""A sweep as it is written in TOML, and its cells: each model on each machine with each set of options."""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from llm_bench_fixtures.errors import InvalidSetting, UnknownName, first_line
from llm_bench_fixtures.reading import refusal
from llm_bench_fixtures.results.storage import in_words
from llm_bench_fixtures.version import __version__

C = TypeVar("C", bound="Choice")

MEASURES = "llm-bench"  # the resource of which each node has one
# Resources that are no custom ones, and what to do instead.
NOT_CUSTOM = {
    MEASURES: "leave it out, as each cell takes the one that its node has",
    "GPU": "write gpus = 1 for the machine",
    "CPU": "leave it out, as each cell takes all CPUs of its node",
    "memory": "leave it out, and name machines by resources or labels of your own",
    "object_store_memory": "leave it out, and name machines by resources or labels of your own",
}
LEAST = 0.0001  # smallest amount of a resource that Ray can count

CellName = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.+-]*$", max_length=60)]  # a part of a folder's path
HEADER = re.compile(r"\s*\[\[?\s*([\w-]+)(?:\.([\w-]+))?\s*\]")
PLACE = re.compile(r" - at `\$\.(\w+)(?:\[(\d+)\])?(?:\.(\w+))?")
UNKNOWN_KEY = re.compile(r"unknown field `(.*?)`")
LINE = re.compile(r"at line (\d+)")


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of an axis, which adds this to a cell."""

    name: CellName
    arguments: tuple[str, ...] = ()
    """Arguments of pytest's command line."""
    environment: dict[str, str] = {}


class Model(Choice, frozen=True):
    model: str = ""
    """Model as for --llm-model; empty: its name."""


class Machine(Choice, frozen=True):
    resources: dict[str, float] = {}
    """Ray's custom resources: how many a node must have."""
    labels: dict[str, str] = {}
    """Labels that a node was started with."""
    gpus: Annotated[float, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        for name, number in self.resources.items():
            if instead := NOT_CUSTOM.get(name):
                raise ValueError(f"Resources can't have {name}: {instead}")
            if not LEAST <= number < math.inf:
                raise ValueError(f"Resources have {name} = {number:g}: expected a number from {LEAST} on")
            _check_whole(f"Resources have {name}", number)
        if not (self.gpus == 0 or LEAST <= self.gpus < math.inf):
            raise ValueError(f"Gpus = {self.gpus:g}: expected 0, or a number from {LEAST} on")
        _check_whole("Gpus", self.gpus)


def _check_whole(what: str, number: float) -> None:
    if number > 1 and number != int(number):
        raise ValueError(f"{what} = {number:g}: expected a whole number, or a part of one")


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    suite: tuple[str, ...] = ()
    """Paths for pytest; empty: the ready suite."""
    folder: str | None = None
    """Folder that cells run in and that nodes are sent, seen from the file. Default: the file's for a suite of one's
    own, else none."""
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    leave_out: tuple[str, ...] = ()
    """Patterns of cells' names, such as llama-70b/laptop/*."""
    model: tuple[Model, ...] = ()
    machine: tuple[Machine, ...] = ()
    options: tuple[Choice, ...] = ()


ANY_MACHINE = Machine("any")
HERE = Machine("here")  # what a sweep without a cluster has for its machines
AXES: Mapping[str, type[Choice]] = {"model": Model, "machine": Machine, "options": Choice}


@dataclass(frozen=True)
class Cell:
    """One session: a model on a machine with options."""

    name: str
    """model/machine/options, without the axes that the file doesn't have; the path of its folder, too."""
    machine: Machine
    suite: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    what: str = ""
    """Name of the cell without the machine; empty where that is all of it."""

    def digest(self, state: str) -> str:
        """Digest that is equal for two cells that run the same, with this version of the package. state: of the folder
        that it runs in."""
        known = msgspec.json.encode([__version__, state, asdict(self)], order="deterministic")
        return hashlib.sha256(known).hexdigest()[:16]


@dataclass(frozen=True)
class Plan:
    cells: tuple[Cell, ...]
    folder: Path | None
    """Folder that the cells run in; None: an empty one."""


def read_plan(path: Path, *, is_local: bool) -> Plan:
    """The sweep in the file. is_local: without a cluster, so that its machines are left out. Raises InvalidSetting."""
    if why := refusal(path):
        raise InvalidSetting(f"{path} {why}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
    matrix = parse_matrix(text, path.name)
    cells = tuple(cells_of(matrix, text, path.name, is_local=is_local))
    place = "." if matrix.folder is None and matrix.suite else matrix.folder
    folder = None if place is None else (path.parent / place).resolve()
    if folder is not None and not folder.is_dir():
        raise InvalidSetting(f"{path.name}: folder = {place!r}: there is no folder {folder}")
    return Plan(cells, folder)


def parse_matrix(text: str, file: str) -> Matrix:
    """Raises InvalidSetting that names the line and the key."""
    try:
        return msgspec.convert(tomllib.loads(text), Matrix)
    except tomllib.TOMLDecodeError as error:
        found = LINE.search(str(error))
        lines = text.splitlines()
        number = min(int(found[1]), len(lines)) if found else len(lines)
        quoted = f"\n  {number}: {first_line(lines[number - 1])}" if lines else ""
        raise InvalidSetting(f"{file} is no TOML: {error}{quoted}") from error
    except msgspec.ValidationError as error:
        raise InvalidSetting(_with_place(str(error), text, file)) from error


def _with_place(message: str, text: str, file: str) -> str:
    place = PLACE.search(message)
    table, index, key = (place[1] or "", int(place[2] or 0), place[3] or "") if place else ("", 0, "")
    if unknown := UNKNOWN_KEY.search(message):
        known = (AXES[table] if table else Matrix).__struct_fields__
        where = f"{file}, line {_line(text, table, index, unknown[1])}"
        return f"{where}: {UnknownName(f'key in [[{table}]]' if table else 'key', unknown[1], known)}"
    line = _line(text, table, index, key) if key or "[" in message else _line(text, "", 0, table)
    words = in_words(message).partition(" matching regex")
    more = " of letters, digits, . _ + and -, such as gpu-1" if words[1] else ""
    if place and table in AXES and not place[2]:
        more = f": write [[{table}]]"
    return f"{file}, line {line}: {words[0]}{more}"


def _line(text: str, table: str, index: int, key: str) -> int:
    """Where the key stands in that entry of the table; without a key, where the entry begins. table: empty for what
    stands above all tables."""
    now, met, begins = "", -1, 1
    wanted = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]") if key else None
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            met += header[1] == table and header[2] is None
            now = header[1]
            if (now, met, header[2] or "") == (table, index, key) or (not table and header[1] == key):
                return number
            begins = number if (now, met) == (table, index) and header[2] is None else begins
        elif wanted and wanted.match(line) and now == table and (not table or met == index):
            return number
    return begins


def cells_of(matrix: Matrix, text: str, file: str, *, is_local: bool) -> Iterator[Cell]:
    """Each combination that isn't left out, in the file's order. text: that the matrix was read from. Raises
    InvalidSetting where there is none, and for two of one name."""
    machines = (HERE,) if is_local else matrix.machine
    axes: list[Sequence[Choice]] = [matrix.model, machines, matrix.options]
    for title, axis in zip(AXES, axes, strict=True):
        met: set[str] = set()
        for index, choice in enumerate(axis):
            if (folder := choice.name.casefold()) in met:
                raise InvalidSetting(
                    f"{file}, line {_line(text, title, index, 'name')}: two cells would be called {choice.name!r}: "
                    f"give each [[{title}]] a name of its own, in which not only capitals differ"
                )
            met.add(folder)
    unused = set(matrix.leave_out)
    some = False
    for chosen in product(*(axis or (None,) for axis in axes)):
        parts = [choice for choice in chosen if choice is not None]
        name = "/".join(choice.name for choice in parts) or "all"
        left_out = {pattern for pattern in matrix.leave_out if fnmatchcase(name, pattern)}
        unused -= left_out
        if left_out:
            continue
        some = True
        machine = next((one for one in parts if isinstance(one, Machine)), ANY_MACHINE)
        model = [f"--llm-model={one.model or one.name}" for one in parts if isinstance(one, Model)]
        arguments = [*matrix.arguments, *model, *(text for one in parts for text in one.arguments)]
        environment = dict(matrix.environment)
        for one in parts:
            environment |= one.environment
        what = "/".join(one.name for one in parts if one is not machine)
        yield Cell(name, machine, matrix.suite, tuple(arguments), environment, what)
    where = f"{file}, line {_line(text, '', 0, 'leave_out')}"
    if unused and not is_local:
        raise InvalidSetting(f"{where}: leave_out has {min(unused)!r}, which is the name of no cell")
    if not some:
        raise InvalidSetting(f"{where}: leave_out leaves no cell")
