"""A sweep as it is written in TOML, and its cells: each model on each machine with each set of options."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated

import msgspec

from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.reading import refusal
from llm_bench_fixtures.results.storage import fault_in_words
from llm_bench_fixtures.version import __version__

MEASURES = "llm-bench"  # the resource of which each node has one
# Resources that are no custom ones, and what to do instead.
NOT_CUSTOM = {
    MEASURES: "leave it out, as each cell takes the one that its node has",
    "GPU": "write gpus = 1 for the machine",
    "CPU": "leave it out, as each cell takes all CPUs of its node",
}
Amount = Annotated[float, msgspec.Meta(ge=0.0001)]  # of a resource, as finely as Ray can count it
CellName = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.+-]*$", max_length=60)]  # a part of a folder's path
UNKNOWN_KEY = re.compile(r"unknown field `(.*?)`(?: - at `\$\.(\w+))?")


class AxisEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of an axis, which adds this to a cell."""

    name: CellName
    arguments: tuple[str, ...] = ()
    """Arguments of pytest's command line."""
    environment: dict[str, str] = {}


class ModelEntry(AxisEntry, frozen=True):
    model: str = ""
    """Model as for --llm-model; empty: its name."""


class MachineEntry(AxisEntry, frozen=True):
    resources: dict[str, Amount] = {}
    """Ray's custom resources: how many a node must have."""
    labels: dict[str, str] = {}
    """Labels that a node was started with."""
    gpus: Annotated[float, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        for name, number in {**self.resources, "gpus": self.gpus}.items():
            if instead := NOT_CUSTOM.get(name):
                raise ValueError(f"Resources can't have {name}: {instead}")
            if number > 1 and not float(number).is_integer():
                raise ValueError(f"There are {number:g} {name}: expected a whole number, or a part of one")


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
    model: tuple[ModelEntry, ...] = ()
    machine: tuple[MachineEntry, ...] = ()
    options: tuple[AxisEntry, ...] = ()


ANY_MACHINE = MachineEntry("any")
HERE = MachineEntry("here")  # what a sweep without a cluster has for its machines
AXES: Mapping[str, type[AxisEntry]] = {"model": ModelEntry, "machine": MachineEntry, "options": AxisEntry}


@dataclass(frozen=True)
class SweepCell:
    """One session: a model on a machine with options."""

    name: str
    """model/machine/options, without the axes that the file doesn't have; the path of its folder, too."""
    machine: MachineEntry
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
class Sweep:
    cells: tuple[SweepCell, ...]
    folder: Path | None
    """Folder that the cells run in; None: an empty one."""


def read_plan(path: Path, *, is_local: bool) -> Sweep:
    """The sweep in the file. is_local: without a cluster, so that its machines are left out. Raises InvalidSetting."""
    if why := refusal(path):
        raise InvalidSetting(f"{path} {why}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
    matrix = parse_matrix(text, path.name)
    cells = tuple(cells_of(matrix, path.name, is_local=is_local))
    place = "." if matrix.folder is None and matrix.suite else matrix.folder
    folder = None if place is None else (path.parent / place).resolve()
    if folder is not None and not folder.is_dir():
        raise InvalidSetting(f"{path.name}: folder = {place!r}: there is no folder {folder}")
    return Sweep(cells, folder)


def parse_matrix(text: str, file: str) -> Matrix:
    """Raises InvalidSetting that names the table and the key, or the line that is no TOML."""
    try:
        return msgspec.convert(tomllib.loads(text), Matrix)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{file} is no TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"{file}: {_in_words(str(error))}") from error


def _in_words(message: str) -> str:
    """Msgspec's message, with what to write instead."""
    told, table = fault_in_words(message), message.rpartition("$.")[2].rstrip("`")
    if found := UNKNOWN_KEY.search(message):
        key, place = found.groups()
        known = (AXES[place] if place else Matrix).__struct_fields__
        told = str(UnknownName(f"key in [[{place}]]" if place else "key", key, known))
    if " matching regex" in told:
        return f"{told.partition(' matching regex')[0]} of letters, digits, . _ + and -, such as gpu-1"
    return f"{told}: write [[{table}]]" if table in AXES else told


def cells_of(matrix: Matrix, file: str, *, is_local: bool) -> list[SweepCell]:
    """Each combination that isn't left out, in the file's order. Raises InvalidSetting where there is none, and for two
    of one name."""
    machines = (HERE,) if is_local else matrix.machine
    axes: list[Sequence[AxisEntry]] = [matrix.model, machines, matrix.options]
    for title, axis in zip(AXES, axes, strict=True):
        folders = [choice.name.casefold() for choice in axis]
        if twice := next((choice.name for choice in axis if folders.count(choice.name.casefold()) > 1), None):
            raise InvalidSetting(
                f"{file}: two cells would be called {twice!r}: give each [[{title}]] a name of its own, in which not "
                "only capitals differ"
            )
    cells = [_cell(matrix, [one for one in chosen if one]) for chosen in product(*(axis or (None,) for axis in axes))]
    unused = [pattern for pattern in matrix.leave_out if not any(fnmatchcase(cell.name, pattern) for cell in cells)]
    if unused and not is_local:
        raise InvalidSetting(f"{file}: leave_out has {unused[0]!r}, which is the name of no cell")
    kept = [cell for cell in cells if not any(fnmatchcase(cell.name, pattern) for pattern in matrix.leave_out)]
    if not kept:
        raise InvalidSetting(f"{file}: leave_out leaves no cell")
    return kept


def _cell(matrix: Matrix, parts: Sequence[AxisEntry]) -> SweepCell:
    """The cell of one choice of each axis that the file has."""
    machine = next((one for one in parts if isinstance(one, MachineEntry)), ANY_MACHINE)
    model = [f"--llm-model={one.model or one.name}" for one in parts if isinstance(one, ModelEntry)]
    arguments = [*matrix.arguments, *model, *(text for one in parts for text in one.arguments)]
    environment = dict(matrix.environment)
    for one in parts:
        environment |= one.environment
    name = "/".join(one.name for one in parts) or "all"
    what = "/".join(one.name for one in parts if one is not machine)
    return SweepCell(name, machine, matrix.suite, tuple(arguments), environment, what)
