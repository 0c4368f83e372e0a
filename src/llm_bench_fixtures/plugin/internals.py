"""What the plugin needs of pytest and pytest-benchmark that no public hook gives, in one place.

Each function relies on something that its library doesn't promise. tests/plugin/test_internals.py checks each against
the installed version, and names the version in which it was seen.
"""

from __future__ import annotations

import glob
import inspect
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import pytest

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.text import harmless_text, in_encoding
from llm_bench_fixtures.workloads import MOST_TEXT_BYTES
from llm_bench_fixtures.writing import check_folder, check_writable, reserve, save_or_keep

if TYPE_CHECKING:
    from _pytest.junitxml import LogXML
    from _pytest.outcomes import Skipped

    from llm_bench_fixtures.results.provenance import Commit

T = TypeVar("T")

# What a project's own options ask of pytest-benchmark and the worker of a paired run must not do.
FOR_WHOLE_RUNS = ("autosave", "save", "json", "compare", "compare_fail", "histogram", "cprofile")

NEEDS_PYTEST_BENCHMARK = (
    "llm_benchmark needs pytest-benchmark, which this run is without: install it, and leave `-p no:benchmark` and "
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD away, or load it with `-p pytest_benchmark.plugin`"
)

DEFAULT_STORAGE = "file://./.benchmarks"  # --benchmark-storage where nobody gave one
DETACHED = "(detached head)"  # what pytest-benchmark calls the branch of a commit that was checked out by its id
# What it calls a commit and a branch that it doesn't know: outside a repository, or where git fails.
UNKNOWN = (None, "unknown", "(unknown)", "unversioned")
NUMBERED = "[0-9][0-9][0-9][0-9]_"  # the runs that --benchmark-compare reads where it names none


def paths_known_early(config: pytest.Config) -> list[str]:
    """The paths on the command line before the conftest files are loaded. What is added is looked at for them too."""
    paths: list[str] = config.known_args_namespace.file_or_dir
    return paths


def setup_of_paths(config: pytest.Config) -> tuple[Path, Path | None]:
    """The root folder and the ini file that pytest would have taken by the paths of tests alone."""
    from _pytest.config.findpaths import determine_setup

    given = config.known_args_namespace
    known: dict[str, Any] = {
        "inifile": given.inifilename,
        "override_ini": given.override_ini,
        "args": given.file_or_dir,
        "rootdir_cmd_arg": given.rootdir,
        "invocation_dir": config.invocation_params.dir,
    }
    takes = inspect.signature(determine_setup).parameters  # parameters differ from version to version
    root, ini, *_ = determine_setup(**{name: value for name, value in known.items() if name in takes})
    return root, ini


def has_pytest_benchmark(config: pytest.Config) -> bool:
    """Whether pytest-benchmark takes part in this run: by its options, which are there before it is configured."""
    return hasattr(config.option, "benchmark_storage")


def measured_commit(config: pytest.Config) -> Commit:
    """The commit that pytest-benchmark finds, without its words for what it doesn't find; an unknown one without it."""
    from llm_bench_fixtures.results.provenance import Commit

    if not has_pytest_benchmark(config):
        return Commit()
    found = config.hook.pytest_benchmark_generate_commit_info(config=config)
    known = {name: str(text) for name, text in found.items() if text not in (*UNKNOWN, DETACHED)}
    return Commit(known.get("id", ""), known.get("branch", ""), bool(found.get("dirty")))


def terminal_width(reporter: pytest.TerminalReporter) -> int:
    """Columns of the terminal that pytest writes to."""
    return reporter._tw.fullwidth


def terminal_file(reporter: pytest.TerminalReporter) -> TextIO:
    """File that pytest writes to."""
    return reporter._tw._file


def as_shown(reporter: pytest.TerminalReporter, text: str) -> str:
    """The text as the stream that pytest writes to can show it, which may have no encoding and take any."""
    return in_encoding(text, getattr(terminal_file(reporter), "encoding", None))


def cursor_column(reporter: pytest.TerminalReporter) -> int:
    """Characters to the left of the cursor, in its row, as far as pytest knows."""
    return reporter._tw.width_of_current_line % reporter._tw.fullwidth


def make_harmless(report: pytest.TestReport) -> None:
    """Take commands to a terminal or a CI runner out of what pytest shows of a test: its failure and its output."""
    shown: Any = report.longrepr
    if isinstance(shown, str):
        report.longrepr = harmless_text(shown)
    elif isinstance(shown, tuple):  # a skip: file, line, reason
        report.longrepr = (*shown[:2], harmless_text(shown[2]))
    for traceback, crash, _ in getattr(shown, "chain", ()):
        if crash is not None:
            crash.message = harmless_text(crash.message)
        for entry in traceback.reprentries:
            entry.lines = [harmless_text(line) for line in entry.lines]
    report.sections = [(name, harmless_text(content)) for name, content in report.sections]


def coloured(reporter: pytest.TerminalReporter, text: str, colour: str) -> str:
    """The text in a colour, as far as pytest colours its own: by --color, NO_COLOR and what it writes to."""
    return reporter._tw.markup(text, **{colour: True})


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Write to the terminal within, although pytest captures output."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    return nullcontext() if capture is None else capture.global_and_fixture_disabled()


def standard_input(config: pytest.Config) -> bytes:
    """Bytes that are piped into pytest, which captures that, too. Raises InvalidSetting where it is a terminal, or
    closed."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise InvalidSetting("standard input is a terminal, or closed; pipe a file into pytest")
        return sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
    finally:
        if capture is not None:
            capture.resume_global_capture()


def junit_log(config: pytest.Config) -> LogXML | None:
    """Log that --junit-xml is written from; None where nobody asked for it."""
    from _pytest.junitxml import xml_key

    return config.stash.get(xml_key, None)


def storage_option(config: pytest.Config) -> str:
    """--benchmark-storage, as given or by default; "" without pytest-benchmark."""
    return str(config.getoption("benchmark_storage", ""))


def is_storage_given(config: pytest.Config) -> bool:
    return storage_option(config) not in ("", DEFAULT_STORAGE)


def is_switched_off(config: pytest.Config) -> bool:
    """Whether --benchmark-disable or --benchmark-skip was given, or pytest-benchmark isn't there."""
    is_given = any(config.getoption(name, False) for name in ("benchmark_disable", "benchmark_skip"))
    return is_given or not has_pytest_benchmark(config)


def compared_run(config: pytest.Config) -> str:
    """The run that --benchmark-compare names; "" where it names none, or wasn't given."""
    named = config.getoption("benchmark_compare", None)
    return named if isinstance(named, str) else ""


def is_compared(config: pytest.Config) -> bool:
    """Whether --benchmark-compare was given."""
    return bool(config.getoption("benchmark_compare", None))


def compare_with(config: pytest.Config, name: str) -> None:
    """Have --benchmark-compare compare with this run, where it was given at all. Before pytest-benchmark configures."""
    if config.getoption("benchmark_compare", None):
        config.option.benchmark_compare = name


def refuse_unreadable_runs(config: pytest.Config, folder: Path) -> None:
    """Raise UsageError where pytest-benchmark would wait without an end for a run that --benchmark-compare reads."""
    from pytest_benchmark.storage.file import FileStorage
    from pytest_benchmark.utils import get_machine_id

    from llm_bench_fixtures.reading import refusals

    if is_compared(config) and folder.is_dir():
        storage = FileStorage(folder, None, get_machine_id())
        for path, why in refusals(storage.query(compared_run(config) or NUMBERED)):
            raise pytest.UsageError(f"--benchmark-compare: {path} {why}")


def name_in_storage(path: Path, storage: Path | None) -> str:
    """A saved run's name for compare_with: machine and file name, or the path of a file outside the storage."""
    if storage is None or path.parent.parent.resolve() != storage.resolve():
        return str(path)
    return f"{glob.escape(path.parent.name)}/{glob.escape(path.stem)}"


def forget_whole_runs(config: pytest.Config) -> None:
    """Have pytest-benchmark neither save nor compare. Before it configures."""
    for name in FOR_WHOLE_RUNS:
        setattr(config.option, f"benchmark_{name}", None)


def keep_in(config: pytest.Config, folder: Path, in_project: Callable[[], AbstractContextManager[None]]) -> None:
    """Have pytest-benchmark save to, and compare with, the folder, where it does either.

    in_project: makes the project's folder the working folder, by which pytest-benchmark names an autosaved run.
    """
    from pytest_benchmark.utils import get_tag

    session: Any = config.pluginmanager.get_plugin("pytest-benchmark")
    if session is None or not (session.save or session.autosave or session.compare):
        return
    session.storage = _storage_in(folder, session)
    if session.autosave:
        with in_project():
            session.autosave = get_tag()
    if session.compare:
        refuse_unreadable_runs(config, folder)
        session.handle_loading()


def _storage_in(folder: Path, session: Any) -> Any:
    from pytest_benchmark.storage.file import FileStorage

    class FolderStorage(FileStorage):  # type: ignore[misc]  # pytest-benchmark has no types
        @property
        def location(self) -> str:
            """pytest-benchmark's own raises where the storage isn't below the working folder."""
            return str(self.path)

    return FolderStorage(folder, session.logger, session.machine_id)


def save_whole(config: pytest.Config, failed: Callable[[str], object]) -> None:
    """Have pytest-benchmark write its files whole or not at all: by itself it leaves half a file on a full disk, and
    raises, which takes the summary away.

    failed: called with what was not written where it should be, and where it is instead. Raises UnwritableFile for what
    can't be written, as far as that is known beforehand.
    """
    from pytest_benchmark.utils import safe_dumps

    session: Any = config.pluginmanager.get_plugin("pytest-benchmark")
    if session is None:
        return

    def written(path: Path, run: object) -> Path | None:
        return save_or_keep(path, safe_dumps(run, ensure_ascii=True, indent=4), failed)

    def save_json(run: object) -> None:
        if kept := written(session.json, run):
            session.logger.info(f"Wrote benchmark data in: {kept}", purple=True)

    def save_to_storage(run: object, name: str) -> None:
        if kept := written(reserve(storage.get(""), int(storage._next_num), name), run):
            session.logger.info(f"Saved benchmark data in: {kept}")

    if session.json:
        check_writable(session.json)
        session.save_json = save_json
    storage = session.storage
    if hasattr(storage, "path") and (session.save or session.autosave):  # a server has none
        check_folder(storage.path / session.machine_id)
        storage.save = save_to_storage


def leave_out_fixtures(item: pytest.Item, but: str = "") -> None:
    """Have the fixtures of a test that isn't run not made, apart from one. Before its setup."""
    names: Sequence[str] = getattr(item, "fixturenames", ())
    getattr(item, "funcargs", {}).update({name: None for name in names if name != but})


def is_timed(benchmark: Any) -> bool:
    """Whether the `benchmark` fixture times: not under --benchmark-disable, where it calls once."""
    return bool(benchmark.enabled)


def name_parameters(benchmark: Any, kind: type[T] | tuple[type[T], ...], name: Callable[[T], str]) -> None:
    """Have the test's parameters of this kind, or of one of these, stand in saved runs, and in the names of groups, by
    a name of theirs."""
    given = (benchmark.params or {}).items()
    benchmark.params = {key: name(value) if isinstance(value, kind) else value for key, value in given}


def report_times(benchmark: Any, rounds_s: Sequence[float], again: Callable[[], object]) -> None:
    """Have the fixture take rounds that were timed elsewhere for its own: its clock passes as they did.

    again: runs one more round, for those that --benchmark-cprofile profiles.
    """
    passed_s = 0.0
    left = list(rounds_s)

    def perf_counter() -> float:  # saved runs name the clock by this function's name
        """Seconds from 0 at each round's start, since a difference of sums would not be the round's own number."""
        nonlocal passed_s
        read_s, passed_s = passed_s, 0.0
        return read_s

    def pass_by() -> None:
        nonlocal passed_s
        if not left:
            again()
            return
        passed_s = left.pop(0)

    own, benchmark._timer = benchmark._timer, perf_counter
    try:
        benchmark.pedantic(pass_by, rounds=len(rounds_s))
    finally:
        benchmark._timer = own


def replace_times(benchmark: Any, rounds_s: Sequence[float]) -> None:
    """Have pytest-benchmark show and save these rounds of a test that has ended, in place of those it was told."""
    stats = type(benchmark.stats.stats)()
    for seconds in rounds_s:
        stats.update(seconds)
    benchmark.stats.stats = stats


@contextmanager
def as_used(benchmark: Any) -> Iterator[None]:
    """Keep pytest-benchmark from warning of an unused fixture where the block raises."""
    try:
        yield
    except BaseException:
        benchmark._mode = benchmark._mode or "llm_benchmark(...)"
        raise


def is_skipped(item: pytest.Item) -> bool:
    """Whether one of the item's marks `skip` and `skipif` skips it; a mark that can't be evaluated doesn't."""
    from _pytest.skipping import evaluate_skip_marks

    try:
        return evaluate_skip_marks(item) is not None
    except (pytest.fail.Exception, Exception):
        return False  # the test itself will say so


def skipped(reason: str) -> Skipped:
    """Exception that `pytest.skip` raises, which -rs places at the test in place of where it is raised."""
    return pytest.skip.Exception(reason, _use_item_location=True)


def ordering_of(item: pytest.Item) -> tuple[tuple[str, int, type, Hashable], ...]:
    """Key of the tests that pytest itself keeps in order: parameters that more than one test shares, by their number,
    as pytest went by before 9.2, and by their value."""
    callspec: Any = getattr(item, "callspec", None)
    shared = [name for name in (callspec.indices if callspec else ()) if callspec._arg2scope[name].value != "function"]
    values = ((name, callspec.params[name]) for name in sorted(shared))
    return tuple((name, callspec.indices[name], type(value), _hashable(value)) for name, value in values)


def _hashable(value: object) -> Hashable:
    """The value; None where it has no hash."""
    try:
        hash(value)
    except TypeError:
        return None
    return value
