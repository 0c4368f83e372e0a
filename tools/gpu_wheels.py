"""The wheels that a machine without network lacks: fetched where there is one, installed where they are missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBCS = ("_2_39", "_2_35", "_2_34", "_2_31", "_2_28", "_2_27", "_2_24", "_2_17", "2014", "1")  # pip matches exactly
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
OTHER_BUILD = re.compile(r"lib\w+_(cuda\d+|rocm\d+|xpu\d+)\w*\.so$")  # a library for one version of one driver


def normal(name: str) -> str:
    """PEP 503's form of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """`jinja2>=3.1; python_version < "4"` is jinja2."""
    found = NAME.match(requirement.strip())
    return normal(found.group()) if found else ""


def lacking(requirements: Iterable[str], present: Iterable[str]) -> list[str]:
    """The requirements of what isn't present, without those of an extra, each once."""
    there = {normal(name) for name in present}
    wanted = [one for one in requirements if "extra ==" not in one and name_of(one) not in there]
    return list({name_of(one): one.partition(";")[0].strip() for one in wanted}.values())


def own_requirements(root: Path = ROOT) -> list[str]:
    """Requirements of the package."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["bitsandbytes"]]


def collect(folder: Path, present: Iterable[str], python: str, cuda: str) -> list[Path]:
    """Download the wheels that the other machine lacks, and what these need and it lacks; returns them.

    present: names of the distributions that it has. python: its version. cuda: of whose libraries those are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = {normal(name) for name in present}
    waiting = lacking(own_requirements(), there)
    while waiting:
        download(folder, waiting, python)
        there |= {name_of(one) for one in waiting}
        needed = [one for wheel in folder.glob("*.whl") for one in requirements_of(wheel)]
        waiting = lacking(needed, there)
    for wheel in folder.glob("*.whl"):
        keep_build(wheel, cuda)
    return sorted(folder.glob("*.whl"))


def download(folder: Path, requirements: Iterable[str], python: str) -> None:
    platforms = [part for glibc in GLIBCS for part in ("--platform", f"manylinux{glibc}_x86_64")]
    target = ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", *platforms]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *target, "-d", str(folder), *requirements]
    subprocess.run(command, check=True)


def requirements_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
        lines = opened.read(name).decode().partition("\n\n")[0].splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def keep_build(wheel: Path, cuda: str) -> None:
    """Write the wheel anew without the libraries for other drivers, nine tenths of bitsandbytes. cuda: as in 130."""
    with zipfile.ZipFile(wheel) as opened:
        other = {
            name for name in opened.namelist() if (found := OTHER_BUILD.search(name)) and found[1] != f"cuda{cuda}"
        }
        if not other:
            return
        parts = [(item, opened.read(item)) for item in opened.infolist() if item.filename not in other]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as written:
        for item, content in parts:
            is_record = item.filename.endswith(".dist-info/RECORD")
            written.writestr(item, _without(content, other) if is_record else content)


def _without(record: bytes, names: Iterable[str]) -> bytes:
    gone = set(names)
    lines = record.decode().splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(",")[0] not in gone).encode()


def installed() -> dict[str, str]:
    """Version by name, of what this Python has."""
    return {normal(one.name): one.version for one in metadata.distributions() if one.name}


def missing(folder: Path, there: Mapping[str, str]) -> list[Path]:
    """The folder's wheels of distributions that aren't there: what a machine has stays as it is."""
    return [wheel for wheel in sorted(folder.glob("*.whl")) if normal(wheel.name.partition("-")[0]) not in there]


def install_command(wheels: Iterable[Path], target: Path) -> list[str]:
    """Installs into a folder of its own, so that the machine's own packages stay as they are. It needs no network."""
    options = ["-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade", "--target", str(target)]
    return [sys.executable, "-m", "pip", "install", *options, *map(str, wheels)]
