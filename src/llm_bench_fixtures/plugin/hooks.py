"""pytest's hooks. Each delegates; torch and the like are imported only once a test asks for a model."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from llm_bench_fixtures.errors import named
from llm_bench_fixtures.options.table import GONE, OPTIONS, PAIR_SOCKET, RENAMED, flag_of, ini_of
from llm_bench_fixtures.plugin import hookspecs
from llm_bench_fixtures.plugin.beside_benchmark import (  # noqa: F401  # pytest finds hooks by their names, too
    pytest_benchmark_compare_machine_info,
    pytest_benchmark_generate_commit_info,
    pytest_benchmark_generate_machine_info,
    pytest_benchmark_update_json,
)
from llm_bench_fixtures.plugin.distributed import hear_worker, tell_controller
from llm_bench_fixtures.plugin.finish import claim_report, finish, settle_status
from llm_bench_fixtures.plugin.fixtures import (  # noqa: F401  # pytest finds fixtures by their names in a plugin module
    llm_batch_sizes,
    llm_benchmark,
    llm_corpus,
    llm_device,
    llm_equivalence,
    llm_load,
    llm_model,
    llm_overhead,
    llm_prompts,
    llm_session,
)
from llm_bench_fixtures.plugin.gating import HAS_BENCHMARKS, check_is_gated, is_gated, set_baseline
from llm_bench_fixtures.plugin.internals import (
    NEEDS_PYTEST_BENCHMARK,
    has_pytest_benchmark,
    make_harmless,
    option_known_early,
)
from llm_bench_fixtures.plugin.items import (
    OF_VARIANT,
    SWEEPS,
    arrange,
    identify,
    is_benchmark,
    leave_out_overhead,
    left_out_lines,
    saying_what_loads_need,
    scenarios_of,
    shortest,
    variant_of,
    without_loads,
)
from llm_bench_fixtures.plugin.outcomes import as_skips
from llm_bench_fixtures.plugin.signals import end_at_signals
from llm_bench_fixtures.plugin.stash import (
    BENCHMARKS,
    SCENARIOS,
    SESSION,
    any_given,
    bench_session,
    check_settings,
    is_xdist_worker,
    metrics_of,
    or_usage_error,
    runs_in_turns,
    selected_variants,
    settings_of,
    takes_requests,
)
from llm_bench_fixtures.plugin.summary import show_summary

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from llm_bench_fixtures.measure.quality import CorpusScore
    from llm_bench_fixtures.models.handle import ModelHandle
    from llm_bench_fixtures.workloads import Corpus

MARKERS = (
    "llm_variants(*names): run the test on these variants only: ids, or the groups precision, quantization, reference",
    "llm_gate(METRIC=CHANGE, ...): what may change for the worse in this test, over all rules: perplexity='0.5%'",
    (
        "llm_scenario(name, *, title, columns, order): the scenario that the test belongs to in the report, by default "
        "its file's name; its section's title, the metrics that its table shows beside the latency, and its place "
        "among the scenarios, the least first"
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("llm-bench", "llm-bench: benchmarks of language-model text generation (llm-bench-fixtures)")
    for option in OPTIONS:
        how: dict[str, Any] = {"metavar": option.metavar}
        if option.is_switch:
            how = {"action": "store_const", "const": "true"}
        group.addoption(option.flag, dest=option.ini, default=None, help=option.full_help.replace("%", "%%"), **how)
        parser.addini(option.ini, f"as {option.flag}", default=None)
    for old, new in RENAMED.items():
        group.addoption(flag_of(old), dest=ini_of(old), default=None, help=argparse.SUPPRESS)
        parser.addini(ini_of(old), f"is called {ini_of(new)}", default=None)
    for old in GONE:
        group.addoption(flag_of(old), dest=ini_of(old), action="store_const", const="true", help=argparse.SUPPRESS)
        parser.addini(ini_of(old), "is gone", default=None)
    parser.addoption(PAIR_SOCKET, dest="llm_pair_socket", type=int, help=argparse.SUPPRESS)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """In a worker of `llm-bench pair`: decide which files to run."""
    if option_known_early(early_config, "llm_pair_socket") is not None:
        from llm_bench_fixtures.plugin import pair_worker

        pair_worker.run_benchmarks_by_default(early_config, args)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("llm_pair_socket") is not None:
        from llm_bench_fixtures.plugin import pair_worker

        config.pluginmanager.register(pair_worker)  # which configures it at once
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    check_settings(config)
    if any_given(config):
        check_is_gated(config)
        if is_gated(config):
            set_baseline(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Refuse an unknown variant before any file is collected; say what a test that isn't found needs."""
    if any_given(session.config):
        selected_variants(session.config)
    with saying_what_loads_need(session.config):
        return (yield)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `llm_model` once for each variant, and one that takes a sweep's value once for each."""
    for name, setting in SWEEPS.items():
        if name in metafunc.fixturenames:
            values = getattr(settings_of(metafunc.config), setting)
            metafunc.parametrize(name, values, ids=[shortest(value) for value in values])
    if "llm_model" in metafunc.fixturenames:
        names = [name for marker in metafunc.definition.iter_markers("llm_variants") for name in marker.args]
        try:
            variants = selected_variants(metafunc.config, names)
        except pytest.UsageError as error:  # which pytest would show with a traceback here
            what = "llm_variants: " if names else ""
            raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {what}{error}") from error
        if "llm_load" in metafunc.fixturenames:
            variants = tuple(filter(takes_requests, variants))
        names = [name for name in OF_VARIANT if name in metafunc.fixturenames]
        values = [[variant] * len(names) for variant in variants]
        ids = [variant.id for variant in variants]
        metafunc.parametrize(names, values, ids=ids, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class) -> Generator[None, Any, Any]:
    return without_loads(collector.config, (yield))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests together that share a loaded model, or that are measured side by side; the reference's come first.

    pytest's own ordering by session parameter goes by their position in each test's list, which differs from test to
    test.
    """
    leave_out_overhead(config, items)
    if any(variant_of(item) for item in items):
        config.stash[HAS_BENCHMARKS] = True
        from llm_bench_fixtures.plugin.storage import keep_with_project

        keep_with_project(config)
        config.stash[SCENARIOS] = or_usage_error(lambda: scenarios_of(items, metrics_of(config)))
        order = [variant.id for variant in selected_variants(config)]
        arrange(items, order, (lambda _: 0) if runs_in_turns(config) else None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the benchmarks, which share the time, once all have been taken away that --lf or another plugin takes."""
    session.config.stash[BENCHMARKS] = sum(map(is_benchmark, session.items))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Claim the report's folder; decide which variants are loaded together, and say so, before the first test."""
    config = session.config
    runs_tests = not any(config.getoption(name, False) for name in ("collectonly", "setuponly", "setupplan"))
    if runs_tests and any(map(variant_of, session.items)):
        end_at_signals(session)
        claim_report(session.config)
    if runs_tests and any(map(is_benchmark, session.items)) and runs_in_turns(session.config):
        from llm_bench_fixtures.plugin.lineup import plan_and_arrange

        plan_and_arrange(session)
    return (yield)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    return left_out_lines(config, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say what a benchmark needs where pytest would only say that a fixture isn't found."""
    if is_benchmark(item) and not has_pytest_benchmark(item.config):
        pytest.fail(NEEDS_PYTEST_BENCHMARK, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a benchmark whose prompts the model can't be given, as one whose workload it can't run."""
    if not variant_of(pyfuncitem):
        return (yield)
    with as_skips():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if variant_of(item):
        make_harmless(report)  # what failed may quote the model's files
    if report.outcome != "passed" and report.when != "teardown" and variant_of(item):
        _add_unmeasured(item, call, report)
    return report


def _add_unmeasured(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """A benchmark that was skipped or failed is a row of the report too, with its reason."""
    from llm_bench_fixtures.results.record import Status

    status = Status.SKIPPED if report.skipped else Status.ERROR
    bench_session(item.config).results.add_unmeasured(identify(item).record(status, _reason(call)))


def _reason(call: pytest.CallInfo[None]) -> str:
    if call.excinfo is None:
        return ""
    error = call.excinfo.value
    if isinstance(error, (pytest.skip.Exception, pytest.fail.Exception)):
        return str(error.msg)
    return named(error)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None]:
    """Write the report of what was measured, however the session ended; before pytest-benchmark saves the run.

    What fails here fails after that, and after the summary.
    """
    failure = None
    try:
        tell_controller(session.config)
        if not is_xdist_worker(session.config):
            finish(session, exitstatus)
    except KeyboardInterrupt:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    except BaseException as error:  # a bug of ours
        failure = error
    yield
    settle_status(session)
    if failure is not None:
        raise failure


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    hear_worker(node)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> Generator[None]:
    """Write the summary below pytest-benchmark's table, also where pytest-benchmark raises for its comparison."""
    try:
        yield
    finally:
        show_summary(terminalreporter, config)


def pytest_llm_bench_score(config: pytest.Config, model: ModelHandle, corpus: Corpus) -> CorpusScore:
    """The plugin's own quality metrics: of the model by itself, and against the reference."""
    from llm_bench_fixtures.session.scoring import score_variant

    return score_variant(bench_session(config), model, corpus)


def pytest_unconfigure(config: pytest.Config) -> None:
    if SESSION in config.stash:
        config.stash[SESSION].close()
        gc.collect()
        gc.freeze()  # pytest collects five times after this, and would go through the libraries' objects each time
