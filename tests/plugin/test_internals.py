"""What the plugin assumes of the insides of pytest 9.2.0 and pytest-benchmark 5.3.1, where each was seen.

A test that fails under another version names the function of `plugin/internals.py` that has to follow.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pytest_benchmark.logger import Logger
from pytest_benchmark.storage.file import FileStorage
from pytest_benchmark.utils import get_commit_info, get_machine_id
from run_factory import make_record, make_run

from llm_bench_fixtures.history.saved import read_saved_run, to_stored
from llm_bench_fixtures.plugin.internals import DETACHED, UNKNOWN, name_in_storage


def run_inside(pytester: pytest.Pytester, body: str, *args: str, conftest: str = "") -> pytest.RunResult:
    """A pytest run in which `body` is a test; it and `conftest` see `internals`."""
    lines = "from llm_bench_fixtures.plugin import internals\n"
    pytester.makeconftest(lines + conftest)
    pytester.makepyfile(lines + body)
    return pytester.runpytest_inprocess(*args)


def test_the_terminals_width(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen in pytest 9.2.0: the reporter's writer has the width as `fullwidth`."""
    monkeypatch.setenv("COLUMNS", "93")
    result = run_inside(
        pytester,
        "def test(): pass",
        conftest="def pytest_terminal_summary(terminalreporter):\n"
        "    terminalreporter.write_line(f'width {internals.terminal_width(terminalreporter)}')",
    )
    result.stdout.fnmatch_lines(["width 93"])


@pytest.mark.parametrize(
    ("arg", "variable", "shown"),
    [
        ("--color=yes", "", "\x1b[32mfast\x1b[0m"),
        ("--color=no", "", "fast"),
        ("--color=auto", "", "fast"),  # what is written to is no terminal
        ("--color=auto", "FORCE_COLOR", "\x1b[32mfast\x1b[0m"),
        ("--color=auto", "NO_COLOR", "fast"),
    ],
)
def test_colours_are_pytests_own_affair(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arg: str, variable: str, shown: str
) -> None:
    """Seen in pytest 9.2.0: the reporter's writer has `markup`, which colours nothing where pytest wouldn't."""
    for name in ("FORCE_COLOR", "NO_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    result = run_inside(
        pytester,
        "def test(): pass",
        arg,
        conftest="def pytest_terminal_summary(terminalreporter):\n"
        "    terminalreporter.write_line('is ' + internals.coloured(terminalreporter, 'fast', 'green'))",
    )
    assert f"is {shown}" in result.outlines


@pytest.mark.parametrize("args", [(), ("-s",), ("-p", "no:capture")])
def test_what_is_written_past_the_capturing_reaches_the_terminal(pytester: pytest.Pytester, args: tuple[str]) -> None:
    """Seen in pytest 9.2.0: the plugin is called `capturemanager`, and lends its terminal to a block."""
    body = (
        "def test(request):\n    print('kept')\n    with internals.uncaptured(request.config):\n        print('shown')"
    )
    result = run_inside(pytester, body, *args)
    result.assert_outcomes(passed=1)
    assert "shown" in result.stdout.str()
    assert ("kept" in result.stdout.str()) is bool(args)


def test_the_junit_log_is_there_when_asked_for(pytester: pytest.Pytester) -> None:
    """Seen in pytest 9.2.0: it stands in the config's stash under `_pytest.junitxml.xml_key`."""
    body = "def test(request):\n    assert hasattr(internals.junit_log(request.config), 'pytest_runtest_logreport')"
    run_inside(pytester, body, "--junit-xml=out.xml").assert_outcomes(passed=1)
    body = "def test(request):\n    assert internals.junit_log(request.config) is None"
    run_inside(pytester, body).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("args", "given"), [((), False), (("--benchmark-storage=kept",), True), (("--benchmark-storage=file://x",), True)]
)
def test_whether_a_storage_was_given(pytester: pytest.Pytester, args: tuple[str, ...], *, given: bool) -> None:
    """Seen in pytest-benchmark 5.3.1: the default is `file://./.benchmarks`."""
    body = f"def test(request):\n    assert internals.is_storage_given(request.config) is {given}"
    run_inside(pytester, body, *args).assert_outcomes(passed=1)


@pytest.mark.parametrize("args", [(), ("-p", "no:benchmark")])
def test_whether_pytest_benchmark_is_there(pytester: pytest.Pytester, args: tuple[str, ...]) -> None:
    """Seen in pytest-benchmark 5.3.1: its options are there before any plugin is configured, its session is not."""
    expected = f"internals.has_pytest_benchmark(config) is {not args}"
    conftest = f"def pytest_configure(config):\n    assert {expected}"
    run_inside(pytester, "def test(): pass", *args, conftest=conftest).assert_outcomes(passed=1)


@pytest.mark.parametrize("flag", ["", "--benchmark-disable", "--benchmark-skip", "-p no:benchmark"])
def test_whether_benchmarks_are_switched_off(pytester: pytest.Pytester, flag: str) -> None:
    """Seen in pytest-benchmark 5.3.1: the two options' names in the config."""
    body = f"def test(request):\n    assert internals.is_switched_off(request.config) is {bool(flag)}"
    run_inside(pytester, body, *flag.split()).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("args", "name"), [((), ""), (("--benchmark-compare",), ""), (("--benchmark-compare=0003",), "0003")]
)
def test_the_run_that_is_compared_with(pytester: pytest.Pytester, args: tuple[str, ...], name: str) -> None:
    """Seen in pytest-benchmark 5.3.1: the option's value is True where it names none."""
    body = (
        f"def test(request):\n    assert internals.compared_run(request.config) == {name!r}\n"
        f"    assert internals.is_compared(request.config) is {bool(args)}"
    )
    run_inside(pytester, body, *args).assert_outcomes(passed=1)


ANOTHER = (
    "import pytest\n"
    "@pytest.hookimpl(tryfirst=True)\n"
    "def pytest_configure(config):\n"
    "    internals.compare_with(config, 'another')\n"
    "def pytest_sessionstart(session):\n"
    "    plugin = session.config.pluginmanager.get_plugin('pytest-benchmark')\n"
    "    print('compares with', plugin.compare)\n"
)


def test_another_run_can_be_compared_with_until_it_configures(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: it reads the option in its `pytest_configure`, which is `trylast`."""
    result = run_inside(pytester, "def test(): pass", "--benchmark-compare=0003", "-s", conftest=ANOTHER)
    result.stdout.fnmatch_lines(["*compares with another"])


def test_no_other_run_is_compared_with_unasked(pytester: pytest.Pytester) -> None:
    result = run_inside(pytester, "def test(): pass", "-s", conftest=ANOTHER)
    assert "compares with another" not in result.stdout.str()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such pipes")
@pytest.mark.parametrize(
    ("compared", "is_refused"),
    [
        ("--benchmark-compare", True),
        ("--benchmark-compare=0002", True),
        ("--benchmark-compare=0001", False),
        ("", False),
    ],
)
def test_a_saved_run_that_cannot_be_read_is_not_waited_for(
    pytester: pytest.Pytester, compared: str, is_refused: bool
) -> None:
    """Seen in pytest-benchmark 5.3.1: FileStorage's `query` names the files that it reads while it configures.

    Bug: a pipe, or a link to one of the kernel's files, in the storage kept pytest for ever.
    """
    folder = pytester.path / ".benchmarks" / get_machine_id()
    folder.mkdir(parents=True)
    (folder / "0001_run.json").write_text('{"benchmarks": [], "machine_info": {}}', encoding="utf-8")
    os.mkfifo(folder / "0002_pipe.json")
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_subprocess(*filter(None, [compared]), timeout=60)
    told = "*--benchmark-compare: *0002_pipe.json is a pipe, a device or a socket"
    assert result.ret == (pytest.ExitCode.USAGE_ERROR if is_refused else pytest.ExitCode.OK)
    assert any(fnmatch(line, told) for line in result.errlines) is is_refused


def test_a_worker_neither_saves_nor_compares(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: these options as they are called in the config."""
    conftest = (
        "import pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_configure(config):\n"
        "    internals.forget_whole_runs(config)\n"
    )
    args = ("--benchmark-autosave", "--benchmark-save=x", "--benchmark-json=x.json")
    result = run_inside(pytester, "def test(benchmark): benchmark(int)", *args, conftest=conftest)
    result.assert_outcomes(passed=1)
    assert not list(pytester.path.glob(".benchmarks/*/*"))
    assert not (pytester.path / "x.json").exists()


def test_runs_are_kept_in_a_folder_that_is_not_below_the_working_folder(
    pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Seen in pytest-benchmark 5.3.1: its session has `storage`, `autosave` and `compare`, and FileStorage a `location`
    that raises for a folder elsewhere."""
    folder = tmp_path_factory.mktemp("elsewhere")
    conftest = (
        "from contextlib import nullcontext\nfrom pathlib import Path\n"
        "def pytest_collection_modifyitems(config):\n"
        f"    internals.keep_in(config, Path({str(folder)!r}), nullcontext)\n"
    )
    result = run_inside(pytester, "def test(benchmark): benchmark(int)", "--benchmark-autosave", conftest=conftest)
    result.assert_outcomes(passed=1)
    (saved,) = folder.glob("*/0001_*.json")
    assert [one["name"] for one in json.loads(saved.read_text(encoding="utf-8"))["benchmarks"]] == ["test"]


SAVES_WHOLE = """
import pytest
from pathlib import Path
failed = []
@pytest.fixture(scope="session", autouse=True)
def whole(request):
    internals.save_whole(request.config, failed.append)
def pytest_terminal_summary(terminalreporter):
    for reason in failed:
        terminalreporter.write_line(f"told: {reason}")
"""


def test_a_file_that_can_not_be_written_after_all_leaves_nothing_half_written(pytester: pytest.Pytester) -> None:
    """Bug: a full disk left half a file in the storage, and pytest-benchmark's traceback took the summary away. Seen in
    pytest-benchmark 5.3.1: its session saves by `save_json` and by `save` of its `storage`."""
    body = (
        "from pathlib import Path\nimport shutil\n"
        "def test(benchmark):\n"
        "    benchmark(int)\n"
        "    shutil.rmtree('kept')\n"
        "    Path('kept').touch()\n"
    )
    args = ("--benchmark-save=x", "--benchmark-storage=kept", "--benchmark-json=kept/x.json")
    (pytester.path / "kept").mkdir()
    result = run_inside(pytester, body, *args, conftest=SAVES_WHOLE)
    result.assert_outcomes(passed=1)
    told = [line for line in result.outlines if line.startswith("told: ")]
    assert len(told) == 2
    result.stderr.fnmatch_lines(["Wrote benchmark data in: *x.json", "Saved benchmark data in: *0001_x.json"])
    for line, name in zip(told, ("x.json", "0001_x.json"), strict=True):
        reason, kept = line.removesuffix(" instead").split("; this run was saved in ")
        assert f"{name} can't be written: " in reason
        (saved,) = json.loads(Path(kept).read_text(encoding="utf-8"))["benchmarks"]
        assert saved["name"] == "test"


def test_rounds_that_were_timed_elsewhere_are_the_fixtures_own(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: `pedantic` reads the clock `_timer` once before and once after each round. A
    saved run keeps the name of the usual clock, and each round to its last digit."""
    body = (
        "def test(benchmark):\n"
        "    assert internals.is_timed(benchmark)\n"
        "    again = []\n"
        "    internals.report_times(benchmark, [0.1, 0.7, 1e-9], again=lambda: again.append(1))\n"
        "    assert benchmark.stats.stats.data == [0.1, 0.7, 1e-9]\n"
        "    assert not again\n"
        "    assert benchmark._timer.__name__ == 'perf_counter'\n"
        "    assert benchmark._timer() != benchmark._timer()  # its own again\n"
    )
    run_inside(pytester, body, "--benchmark-json=out.json").assert_outcomes(passed=1)
    (saved,) = json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert saved["stats"]["data"] == [0.1, 0.7, 1e-9]
    assert saved["options"]["timer"] == "perf_counter"


def test_the_times_of_a_test_that_has_ended_can_be_replaced(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: its table and its file are written from `stats.stats` once all tests are over."""
    body = (
        "ended = []\n"
        "def test(benchmark):\n"
        "    internals.report_times(benchmark, [9.0, 9.0], again=None)\n"
        "    assert benchmark.stats.stats.mean == 9.0\n"
        "    ended.append(benchmark)\n"
        "def test_last():\n"
        "    internals.replace_times(ended[0], [1.0, 2.0, 3.0])\n"
    )
    result = run_inside(pytester, body, "--benchmark-json=out.json")
    result.assert_outcomes(passed=2)
    (saved,) = json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert (saved["stats"]["data"], saved["stats"]["mean"], saved["stats"]["rounds"]) == ([1.0, 2.0, 3.0], 2.0, 3)
    result.stdout.re_match_lines([r"test .*1\.0000.*3\.0000.*2\.0000.*"])


@pytest.mark.parametrize(("within", "warns"), [("internals.as_used(benchmark)", False), ("nullcontext()", True)])
def test_what_ends_before_its_fixture_was_used_warns_of_nothing(
    pytester: pytest.Pytester, within: str, *, warns: bool
) -> None:
    """pytest-benchmark 5.3.1 warned of each benchmark that failed, or was interrupted, before its first round."""
    body = f"from contextlib import nullcontext\ndef test(benchmark):\n    with {within}:\n        raise ValueError\n"
    result = run_inside(pytester, body)
    result.assert_outcomes(failed=1, warnings=int(warns))


def test_parameters_have_names_in_what_is_saved(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: `params` of the fixture is what it saves and groups by, where it can't write a
    value as UNSERIALIZABLE[...]."""
    body = (
        "import pytest\n"
        "@pytest.mark.parametrize(('a', 'b'), [(1j, 2)])\n"
        "def test(benchmark, a, b):\n"
        "    internals.name_parameters(benchmark, complex, lambda value: f'{value.imag:g} i')\n"
        "    benchmark.pedantic(list)\n"
    )
    run_inside(pytester, body, "--benchmark-json=out.json").assert_outcomes(passed=1)
    (saved,) = json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert saved["params"] == {"a": "1 i", "b": 2}


def test_a_profiled_round_runs_once_more(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: `pedantic` calls the function again under cProfile once all rounds are done."""
    body = (
        "def test(benchmark):\n"
        "    again = []\n"
        "    internals.report_times(benchmark, [0.1, 0.2], again=lambda: again.append(1))\n"
        "    assert (len(again), benchmark.stats.stats.data) == (3, [0.1, 0.2])\n"
    )
    options = ("--benchmark-cprofile=tottime", "--benchmark-cprofile-loops=3")
    run_inside(pytester, body, *options).assert_outcomes(passed=1)


SKIPS = """
def pytest_collection_modifyitems(items):
    print("skipped:", [item.name for item in items if internals.is_skipped(item)])
"""


def test_a_skip_of_the_plugins_own_is_placed_at_the_test(pytester: pytest.Pytester) -> None:
    """Seen in pytest 9.2.0: `_use_item_location`. Bug: all had the place in the plugin that raises them."""
    conftest = "def pytest_runtest_call(item):\n    raise internals.skipped('not here')\n"
    result = run_inside(pytester, "\ndef test_it(): pass\n", "-rs", conftest=conftest)
    result.stdout.re_match_lines([r"SKIPPED \[1\] \S+_at_the_test\d*\.py:3: not here"])


ORDERS = """
def pytest_collection_modifyitems(items):
    print("ordered by:", [internals.ordering_of(item) for item in items])
"""


def test_what_pytest_orders_tests_by_are_the_parameters_that_outlive_a_test(pytester: pytest.Pytester) -> None:
    """Seen in pytest 9.2.0: `callspec.indices` and `callspec._arg2scope` have each parameter, direct ones too."""
    body = (
        "import pytest\n"
        "@pytest.fixture(scope='module', params=['a', ['b']])\ndef state(request): pass\n"
        "@pytest.mark.parametrize('size', [4])\ndef test_sized(state, size): pass\n"
        "def test_plain(): pass\n"
    )
    result = run_inside(pytester, body, "-s", conftest=ORDERS)
    told = "ordered by: [(('state', 0, <class 'str'>, 'a'),), (('state', 1, <class 'list'>, None),), ()]"
    assert told in result.stdout.str()


def test_what_a_mark_skips_is_known_before_it_runs(pytester: pytest.Pytester) -> None:
    """Seen in pytest 9.2.0: `evaluate_skip_marks` gives None for a test that no mark skips, and fails for a condition
    that can't be evaluated."""
    body = (
        "import pytest\n"
        "@pytest.mark.skip\ndef test_skip(): pass\n"
        "@pytest.mark.skipif(True, reason='so')\ndef test_skipif(): pass\n"
        "@pytest.mark.skipif('1 + 1 == 2', reason='so')\ndef test_text(): pass\n"
        "@pytest.mark.skipif(False, reason='so')\ndef test_not(): pass\n"
        "@pytest.mark.skipif('no_such_name', reason='so')\ndef test_broken(): pass\n"
        "def test_plain(): pass\n"
    )
    result = run_inside(pytester, body, "-s", conftest=SKIPS)
    assert "skipped: ['test_skip', 'test_skipif', 'test_text']" in result.stdout.str()


def test_a_disabled_benchmark_calls_once_and_keeps_no_times(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: `enabled` is False, and `stats` stays None."""
    body = (
        "def test(benchmark):\n"
        "    calls = []\n"
        "    benchmark.pedantic(lambda: calls.append(1), rounds=2)\n"
        "    assert len(calls) == 1\n"
        "    assert not internals.is_timed(benchmark)\n"
        "    assert benchmark.stats is None\n"
    )
    run_inside(pytester, body, "--benchmark-disable").assert_outcomes(passed=1)


def test_a_benchmark_is_known_by_its_fixture(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: --benchmark-only looks for `benchmark` among a test's fixtures, so that
    `llm_benchmark` has to ask for it by name."""
    body = "def test(request): pass\ndef test_timed(llm_benchmark): pass"
    result = run_inside(pytester, body, "--benchmark-only", "--collect-only", "-q", "--llm-variants=fp32")
    result.stdout.fnmatch_lines(["*test_timed*fp32*"])


EARLY = """
from llm_bench_fixtures.plugin import internals

def pytest_load_initial_conftests(early_config, args):
    paths = internals.paths_known_early(early_config)
    print("the paths are", paths)
    paths.append("other")
"""


def test_paths_are_known_before_any_conftest(pytester: pytest.Pytester) -> None:
    """Seen in pytest 9.2.0: `known_args_namespace` has them, an option's value is not among the paths, and the folders
    among the paths are searched for conftest files afterwards."""
    pytester.makepyfile(early=EARLY, test_one="def test(): pass")
    pytester.mkdir("other").joinpath("conftest.py").write_text("print('other was searched')", encoding="utf-8")
    pytester.syspathinsert()
    result = pytester.runpytest_inprocess("-p", "early", "-s", "-k", "test", "test_one.py")
    result.stdout.fnmatch_lines(["the paths are [[]'test_one.py'[]]", "other was searched"])
    result.assert_outcomes(passed=1)


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_what_it_calls_a_commit_that_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen in pytest-benchmark 5.3.1: other words outside a repository than where git fails."""
    monkeypatch.chdir(tmp_path)
    outside = get_commit_info("project")
    git("init", "-q")  # a repository without a commit
    empty = get_commit_info("project")
    named = [outside["id"], outside["branch"], empty["id"], empty["branch"]]
    assert named == ["unversioned", "(unknown)", "unknown", "(unknown)"]
    assert set(named) <= set(UNKNOWN)


def test_what_it_calls_the_branch_of_a_detached_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen in pytest-benchmark 5.3.1."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "trunk")
    git("commit", "-q", "--allow-empty", "-m", "nothing")
    assert get_commit_info("project")["branch"] == "trunk"
    git("checkout", "-q", "--detach")
    assert get_commit_info("project")["branch"] == DETACHED


@pytest.mark.parametrize(
    ("checkout", "branch"), [(("switch", "-q", "-c", "topic"), "topic"), (("checkout", "-q", "--detach"), "")]
)
def test_the_commit_that_is_measured(pytester: pytest.Pytester, checkout: tuple[str, ...], branch: str) -> None:
    """Seen in pytest-benchmark 5.3.1: the hook gives `id`, `branch` and `dirty`."""
    git("init", "-q", "-b", "trunk")
    git("commit", "-q", "--allow-empty", "-m", "nothing")
    git(*checkout)
    body = (
        "def test(request):\n"
        "    commit = internals.measured_commit(request.config)\n"
        f"    assert (len(commit.commit), commit.branch, commit.dirty) == (40, {branch!r}, False)\n"
    )
    run_inside(pytester, body).assert_outcomes(passed=1)


def test_outside_a_repository_no_commit_is_measured(pytester: pytest.Pytester) -> None:
    body = (
        "def test(request):\n"
        "    commit = internals.measured_commit(request.config)\n"
        "    assert (commit.commit, commit.branch, commit.dirty) == ('', '', False)\n"
    )
    run_inside(pytester, body).assert_outcomes(passed=1)


def test_a_run_is_named_so_that_only_it_is_found(tmp_path: Path) -> None:
    """Seen in pytest-benchmark 5.3.1: FileStorage takes a name for two globs, of the machine and of the file."""
    storage = tmp_path / "runs"
    paths = [storage / machine / f"{name}.json" for machine in ("a[1]", "a1") for name in ("0001_b[c]", "0001_bc")]
    outside = tmp_path / "kept.json"
    for path in (*paths, outside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")
    kept = FileStorage(storage, Logger())
    assert [kept.query(name_in_storage(path, storage)) for path in paths] == [[path] for path in paths]
    assert kept.query(name_in_storage(outside, storage)) == kept.query(name_in_storage(outside, None)) == [outside]


@pytest.mark.parametrize("keeps_raw", [False, True])
def test_a_run_is_put_into_the_file_that_it_writes(pytester: pytest.Pytester, *, keeps_raw: bool) -> None:
    """Seen in pytest-benchmark 5.3.1: a benchmark has the test's id as `fullname`, a mapping as `extra_info`, and its
    rounds as `data` in `stats` where raw data is kept."""
    pytester.makepyfile(test_mine="def test(benchmark):\n    benchmark.pedantic(int, rounds=3)")
    how = ["--benchmark-save-data"] if keeps_raw else []
    pytester.runpytest_inprocess("--benchmark-autosave", *how).assert_outcomes(passed=1)
    (path,) = pytester.path.glob(".benchmarks/*/*.json")
    stored = json.loads(path.read_text(encoding="utf-8"))
    (benchmark,) = stored["benchmarks"]
    assert (benchmark["fullname"], benchmark["extra_info"]) == ("test_mine.py::test", {})
    assert len(benchmark["stats"].get("data", ())) == (3 if keeps_raw else 0)
    to_stored(stored, make_run([replace(make_record(), test="test_mine.py::test")]))
    assert ("tokens_s" in benchmark["extra_info"]["llm_bench"]) is keeps_raw
    assert stored["llm_bench"]["records"] == []
    path.write_text(json.dumps(stored), encoding="utf-8")
    assert [record.test for record in read_saved_run(path).records] == ["test_mine.py::test"]


def test_the_fixtures_of_a_test_that_is_not_run_are_not_made(pytester: pytest.Pytester) -> None:
    """Seen in pytest 9.2.0: it makes those of `fixturenames` that `funcargs` lacks, once a test is set up."""
    conftest = """
        import pytest

        @pytest.fixture
        def broken():
            raise LookupError

        @pytest.fixture(autouse=True)
        def broken_everywhere():
            raise LookupError

        @pytest.fixture
        def whole():
            return 3

        def pytest_runtest_setup(item):
            internals.leave_out_fixtures(item, but="whole")
    """
    body = "def test(broken, whole):\n    assert (broken, whole) == (None, 3)"
    run_inside(pytester, body, conftest=inspect.cleandoc(conftest)).assert_outcomes(passed=1)
