"""Whether the tests still catch known faults: plants each in a copy of the code, and expects that its tests fail.

python tools/mutants.py                     all: nightly, and before and after tests are moved
python tools/mutants.py gate-status 'doc*'  some, by name or by pattern
python tools/mutants.py --list              what there is, and which tests have to catch it

The faults are rows in mutant_rows.py: a piece of code that occurs exactly once in its file, what takes its place, and
the tests that have to fail. Code that is rewritten takes its row along: the same fault, planted in the new code. Tests
that move take theirs along, too: the row names where they are now.

Each line says one of:
  caught by TEST     as it should be
  SURVIVED           the tests pass with the fault: write the missing test
  ANCHOR GONE        the piece of code is not there, or there twice: plant the fault in the code as it is now
  NOT JUDGED         the tests fail without the fault too, or couldn't run, or none was chosen, or they took too long
The exit status is 0 if all were caught, else 1. The working tree is only read.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import psutil
from mutant_rows import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llm_bench_fixtures"
PASSED, FAILED, NONE_CHOSEN = 0, 1, 5  # exit statuses of pytest
GUARD = """
import os
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_the_copy(_, name, path=None, target=None):
    spec = find(name, path, target)
    if name == {package!r}:
        found = str(spec and spec.origin)
        with open({log!r}, "a") as log:
            log.write(found + "\\n")
        if not found.startswith({source!r}):
            os._exit(97)
    return spec

PathFinder.find_spec = classmethod(find_the_copy)  # which pytest's rewriting of asserts calls, too
"""
"""A sitecustomize, which each Python process runs first: it ends one that would import the package from elsewhere than
the copy, and writes down where each found it."""


class NotTheCopy(Exception):
    """A process imported the package from elsewhere, so that nothing follows from what it did."""


@dataclass(frozen=True)
class Outcome:
    """How pytest ended."""

    status: int | None
    """None: it took too long."""
    failed: str
    """The first test that failed; empty where none did. A fixture that fails is none."""
    said: str
    """The first line about an error, or else the last one."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a fault."""

    words: str
    is_caught: bool = False


class Copy:
    """A copy of the tree, in which faults are planted and tests are run."""

    def __init__(self, folder: Path, package: str = PACKAGE, limit_s: float = 1200.0) -> None:
        """folder: of the copy, with src/PACKAGE and the tests. limit_s: for the tests of one fault."""
        self._folder, self._limit_s = folder, limit_s
        self._package = folder / "src" / package
        self._log = folder / "imported.log"
        guard = folder / "guard" / "sitecustomize.py"
        guard.parent.mkdir()
        source = f"{self._package.resolve()}{os.sep}"
        guard.write_text(GUARD.format(package=package, log=str(self._log), source=source), encoding="utf-8")
        paths = (str(guard.parent), str(self._package.parent))
        drop = ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
        self._environment = {name: value for name, value in os.environ.items() if name not in drop}
        self._environment["PYTHONPATH"] = os.pathsep.join(paths)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[bool]:
        """Plant the fault in the copy's code inside the block; yields whether it could be planted."""
        path = self._package / mutant.file
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        can_be = before.count(mutant.code) == 1
        if can_be:
            _write(path, before.replace(mutant.code, mutant.fault))
        try:
            yield can_be
        finally:
            if can_be:
                _write(path, before)

    def run(self, tests: str, only: str = "") -> Outcome:
        """Pytest on the tests, until one fails. only: as in pytest's -k. Raises NotTheCopy."""
        self._log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
        status, output = self._output([*command, *(["-k", only] if only else []), tests])
        imported = set(self._log.read_text(encoding="utf-8").split("\n")) - {""} if self._log.exists() else set()
        if imported != {str(self._package.resolve() / "__init__.py")}:
            raise NotTheCopy(f"not the copy but {', '.join(imported) or 'nothing'} was imported:\n{output}")
        failed = re.search(r"^FAILED (.*?)(?: - .*)?$", output, re.MULTILINE)
        lines = [line for line in output.splitlines() if line.strip()] or ["nothing"]
        errors = [line for line in lines if line.startswith(("ERROR ", "E  "))]
        return Outcome(status, failed[1] if failed else "", next(iter(errors), lines[-1]))

    def _output(self, command: Sequence[str]) -> tuple[int | None, str]:
        """Pytest's exit status, None where it took too long, and what it wrote. Nothing that it started outlives it."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status = None
            try:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(self._limit_s)
            finally:
                _end_session(process)
            output.seek(0)
            return status, output.read()


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill all that it started, in whichever process group, but for what has a session of its own."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _write(path: Path, text: str) -> None:
    """Write a file and remove its bytecode: Python takes it for that of the new text where size and second are the
    same."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def judge(mutant: Mutant, copy: Copy) -> Verdict:
    """Verdict on the fault."""
    with copy.planted(mutant) as could_be:
        if not could_be:
            return Verdict(f"ANCHOR GONE: {mutant.file} hasn't got exactly one {mutant.code!r}")
        found = copy.run(mutant.tests, mutant.only)
    if found.status == PASSED:
        return Verdict(f"SURVIVED: {_words(mutant)} pass with the fault")
    if found.status == FAILED and found.failed:
        return Verdict(f"caught by {found.failed}", is_caught=True)
    if found.status is None:
        return Verdict("NOT JUDGED: the tests took too long")
    why = "no test was chosen" if found.status == NONE_CHOSEN else "no test failed, pytest did"
    return Verdict(f"NOT JUDGED: {why}: {found.said}")


def fail_anyway(mutants: Iterable[Mutant], copy: Copy) -> dict[str, Verdict]:
    """Files of tests of these faults that fail without any, and why."""
    chosen: dict[str, list[str]] = {}
    for mutant in mutants:
        chosen.setdefault(mutant.tests, []).append(mutant.only)
    found = {}
    for number, (tests, names) in enumerate(chosen.items(), 1):
        print(f"without faults {number}/{len(chosen)}: {tests} ... ", end="", flush=True)
        outcome = copy.run(tests, " or ".join(dict.fromkeys(names)) if all(names) else "")
        print("pass" if outcome.status == PASSED else f"FAIL: {outcome.failed or outcome.said}", flush=True)
        if outcome.status != PASSED:
            why = outcome.failed or outcome.said
            found[tests] = Verdict(f"NOT JUDGED: the tests fail without the fault, too: {why}")
    return found


def judge_all(mutants: Sequence[Mutant], copy: Copy, *, trust_tests: bool = False) -> int:
    """Print what becomes of each. Returns how many were not caught. trust_tests: don't run them without a fault."""
    broken = {} if trust_tests else fail_anyway(mutants, copy)
    verdicts = {}
    for number, mutant in enumerate(mutants, 1):
        print(f"{number}/{len(mutants)} {mutant.name} ... ", end="", flush=True)
        began_s = time.monotonic()
        verdicts[mutant.name] = broken.get(mutant.tests) or judge(mutant, copy)
        print(f"{verdicts[mutant.name].words} ({time.monotonic() - began_s:.0f} s)", flush=True)
    missed = [name for name, verdict in verdicts.items() if not verdict.is_caught]
    print(f"{len(mutants) - len(missed)} of {len(mutants)} caught" + "".join(f"\n  not: {name}" for name in missed))
    return len(missed)


def _words(mutant: Mutant) -> str:
    return f"{mutant.tests} -k {mutant.only}" if mutant.only else mutant.tests


def copy_tree(root: Path, folder: Path) -> None:
    """Copy what git tracks, as it is now, and what it would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def chosen(patterns: Sequence[str], mutants: Sequence[Mutant] = MUTANTS) -> list[Mutant]:
    """Mutants of the names or patterns; without any, all. Raises SystemExit for one that fits none."""
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in mutants):
            raise SystemExit(f"no mutant is named {pattern}: see --list")
    return [one for one in mutants if not patterns or any(fnmatchcase(one.name, pattern) for pattern in patterns)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; a shell's pattern too. Default: all")
    parser.add_argument("--list", action="store_true", help="print the names, what is planted and the tests; run none")
    parser.add_argument(
        "--trust-tests", action="store_true", help="don't run the tests without a fault first; they are known to pass"
    )
    parser.add_argument(
        "--limit", type=float, default=1200.0, metavar="S", help="seconds for one run of tests. Default: 1200"
    )
    arguments = parser.parse_args()
    mutants = chosen(arguments.names)
    if arguments.list:
        for one in mutants:
            print(f"{one.name:28} {one.file:36} {_words(one)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy_tree(ROOT, Path(folder))
        copy = Copy(Path(folder), limit_s=arguments.limit)
        return int(judge_all(mutants, copy, trust_tests=arguments.trust_tests) > 0)


if __name__ == "__main__":
    sys.exit(main())
