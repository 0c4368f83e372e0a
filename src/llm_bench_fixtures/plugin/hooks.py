"""The plugin's entry, which every pytest run in the environment loads: options, markers, fixtures, and the hooks that
find out whether a run uses any of them.

The others are in `bench_hooks`, which is registered for a run that does. Nothing is imported before that but plain
data, so that a run that doesn't pays next to nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.options.table import OPTIONS, PAIR_SOCKET, flag_of, ini_of
from llm_bench_fixtures.plugin import fixtures, hookspecs
from llm_bench_fixtures.suite import suite_id

OWN_FIXTURES = frozenset(fixtures.SWEEPS).union(name for name in dir(fixtures) if name.startswith("llm_"))
BENCH_HOOKS = "llm_bench_fixtures.plugin.bench_hooks"
WORKING_STORAGE = "./.benchmarks"  # pytest-benchmark's default
HAS_BENCHMARKS_KEY = "llm_bench_has_benchmarks"  # key of what a worker of pytest-xdist tells its controller
BEGAN_S: pytest.StashKey[float] = pytest.StashKey()  # when pytest began, on time.monotonic()
IN_WORKERS: pytest.StashKey[bool] = pytest.StashKey()  # whether any worker had tests of a variant

MARKERS = (
    "llm_variants(*names): run the test on these variants only: ids, or the groups precision, quantization, reference",
    "llm_gate(METRIC=CHANGE, ...): what may change for the worse in this test, over all rules: perplexity='0.5%'",
    (
        "llm_scenario(name, *, title, columns, order): the scenario that the test belongs to in the report, by default "
        "its file's name; its section's title, the metrics that its table shows next to the latency, and its place "
        "among the scenarios, the least first"
    ),
)


def use(config: pytest.Config) -> None:
    """Register the hooks of a run that uses the plugin; `pytest_configure` among them is called at once."""
    if not is_used(config):
        from llm_bench_fixtures.plugin import bench_hooks

        config.pluginmanager.register(bench_hooks, BENCH_HOOKS)


def is_used(config: pytest.Config) -> bool:
    return config.pluginmanager.has_plugin(BENCH_HOOKS)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llm-bench", "llm-bench: benchmarks of language-model text generation (llm-bench-fixtures)")
    for name, option in OPTIONS.items():
        how: dict[str, Any] = {"metavar": option.metavar}
        if option.is_switch:
            how = {"action": "store_const", "const": "true"}
        elif option.alone:
            how |= {"nargs": "?", "const": option.alone}
        group.addoption(flag_of(name), dest=ini_of(name), help=option.full_help.replace("%", "%%"), **how)
        parser.addini(ini_of(name), f"as {flag_of(name)}", default=None)
    parser.addoption(PAIR_SOCKET, dest="llm_pair_socket", type=int, help=argparse.SUPPRESS)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)
    pluginmanager.register(fixtures)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Decide which files to run, in a worker of `llm-bench pair`."""
    if any(argument.startswith(PAIR_SOCKET) for argument in args):
        from llm_bench_fixtures.plugin import pair_worker

        pair_worker.run_benchmarks_by_default(early_config, args)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGAN_S] = time.monotonic()
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("llm_pair_socket") is not None or any_given(config):
        use(config)
    storage = str(config.getoption("benchmark_storage", "")).removeprefix("file://")
    if storage not in ("", WORKING_STORAGE) and "://" not in storage:  # a URL names a server
        refuse_unreadable_storage(storage)
    if config.getoption("benchmark_compare", None) and "://" not in storage:
        from llm_bench_fixtures.plugin.internals import refuse_unreadable_runs

        refuse_unreadable_runs(config, Path(storage))


def refuse_unreadable_storage(folder: str) -> None:
    """pytest-benchmark, which is configured next, would wait without an end for a folder on a disk that is gone."""
    from llm_bench_fixtures.reading import refusal

    if why := refusal(Path(folder)):
        raise pytest.UsageError(f"--benchmark-storage: {folder} {why}")


def any_given(config: pytest.Config) -> bool:
    """Whether this run sets any of the options; the defaults need no check."""
    return any(get(ini_of(name)) is not None for get in (config.getoption, config.getini) for name in OPTIONS)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Give the tests of the installed suite the ids that they have in the repository."""
    nodeid = suite_id(module_path)
    return pytest.Module.from_parent(parent, path=module_path, nodeid=nodeid) if nodeid else None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class) -> Generator[None, Any, Any]:
    """Leave out tests that have nothing to run on. It begins before the fixtures of the test are known."""
    found = yield
    if not is_used(collector.config):
        return found
    from llm_bench_fixtures.plugin.items import without_lacking

    return without_lacking(collector.config, found)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `llm_model` once for each variant, and one that takes a sweep's value once for each."""
    if OWN_FIXTURES.isdisjoint(metafunc.fixturenames):
        return
    use(metafunc.config)
    from llm_bench_fixtures.plugin.items import parametrize

    parametrize(metafunc)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note benchmarks in the controller of pytest-xdist, which collects no tests itself."""
    if HAS_BENCHMARKS_KEY in getattr(node, "workeroutput", ()):
        use(node.config)
        node.config.stash[IN_WORKERS] = True


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_generate_machine_info() -> Generator[None, dict[str, Any], dict[str, Any]]:
    """Keep pytest-benchmark's look at the processor, which starts a Python, from importing out of the working
    folder."""
    from llm_bench_fixtures.processes.environment import off_the_working_folder

    with off_the_working_folder():
        return (yield)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_benchmark_compare_machine_info(compared_benchmark: dict[str, Any]) -> None:
    """Make a saved run, which may be anybody's, harmless to show: its figures in the table, its machine in a
    warning."""
    from llm_bench_fixtures.text import harmless_text, well_formed

    compared_benchmark["machine_info"] = well_formed(compared_benchmark.get("machine_info"), harmless_text)
    for benchmark in compared_benchmark["benchmarks"]:
        benchmark["stats"] = well_formed(benchmark["stats"], harmless_text)
