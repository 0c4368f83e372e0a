"""What the plugin assumes of the insides of pytest 9.2.0 and pytest-benchmark 5.3.1, where each was seen.

A test that fails under another version names the function of `plugin/internals.py` that has to follow.
"""

from __future__ import annotations

import json

import pytest


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
    body = f"def test(request):\n    assert internals.is_storage_given(request.config, '.benchmarks') is {given}"
    run_inside(pytester, body, *args).assert_outcomes(passed=1)


@pytest.mark.parametrize("flag", ["", "--benchmark-disable", "--benchmark-skip"])
def test_whether_benchmarks_are_switched_off(pytester: pytest.Pytester, flag: str) -> None:
    """Seen in pytest-benchmark 5.3.1: the two options' names in the config."""
    body = f"def test(request):\n    assert internals.is_switched_off(request.config) is {bool(flag)}"
    run_inside(pytester, body, *filter(None, [flag])).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("args", "name"), [((), ""), (("--benchmark-compare",), ""), (("--benchmark-compare=0003",), "0003")]
)
def test_the_run_that_is_compared_with(pytester: pytest.Pytester, args: tuple[str, ...], name: str) -> None:
    """Seen in pytest-benchmark 5.3.1: the option's value is True where it names none."""
    body = f"def test(request):\n    assert internals.compared_run(request.config) == {name!r}"
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


def test_a_round_can_be_added_to_those_that_were_timed(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: `stats` is falsy before the first round, and has `update`."""
    body = (
        "def test(benchmark):\n"
        "    assert internals.is_timed(benchmark)\n"
        "    assert not internals.has_times(benchmark)\n"
        "    benchmark.pedantic(int, rounds=2)\n"
        "    assert internals.has_times(benchmark)\n"
        "    calls = []\n"
        "    internals.time_another_round(benchmark, lambda: calls.append(1))\n"
        "    assert (len(calls), benchmark.stats.stats.rounds) == (1, 3)\n"
    )
    run_inside(pytester, body).assert_outcomes(passed=1)


def test_a_disabled_benchmark_calls_once_and_keeps_no_times(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: `enabled` is False, and `stats` stays None."""
    body = (
        "def test(benchmark):\n"
        "    calls = []\n"
        "    benchmark.pedantic(lambda: calls.append(1), rounds=2)\n"
        "    assert len(calls) == 1\n"
        "    assert not internals.is_timed(benchmark)\n"
        "    assert not internals.has_times(benchmark)\n"
    )
    run_inside(pytester, body, "--benchmark-disable").assert_outcomes(passed=1)


def test_a_benchmark_is_known_by_its_fixture(pytester: pytest.Pytester) -> None:
    """Seen in pytest-benchmark 5.3.1: --benchmark-only looks for `benchmark` among a test's fixtures, so that
    `llm_benchmark` has to ask for it by name."""
    body = "def test(request): pass\ndef test_timed(llm_benchmark): pass"
    result = run_inside(pytester, body, "--benchmark-only", "--collect-only", "-q", "--llm-variants=fp32")
    result.stdout.fnmatch_lines(["*test_timed*fp32*"])
