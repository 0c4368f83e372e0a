"""The hooks of a run that uses the plugin. Each delegates; torch and the like are imported only once a test asks for a
model.

hooks.py registers this module, which may be while tests are collected.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from llm_bench_fixtures.errors import NotReached, named
from llm_bench_fixtures.history.saved import fault_of_stored, to_stored
from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.plugin import finish, gating, resuming, stash
from llm_bench_fixtures.plugin import items as tests
from llm_bench_fixtures.plugin.foreseeing import foresee
from llm_bench_fixtures.plugin.hooks import HAS_BENCHMARKS_KEY, any_given
from llm_bench_fixtures.plugin.internals import NEEDS_PYTEST_BENCHMARK, has_pytest_benchmark, make_harmless
from llm_bench_fixtures.plugin.outcomes import as_skips, is_unreached, warn
from llm_bench_fixtures.plugin.signals import end_at_signals
from llm_bench_fixtures.plugin.stages import after_test, renew_report
from llm_bench_fixtures.plugin.storage import in_project, keep_with_project, with_branch
from llm_bench_fixtures.results.record import Status


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("llm_pair_socket") is not None:
        from llm_bench_fixtures.plugin import pair_worker

        config.pluginmanager.register(pair_worker)  # registering configures it at once
    if any_given(config):
        stash.check_settings(config)
        gating.check_is_gated(config)
        resuming.use_resuming(config)
        if gating.is_gated(config):
            gating.set_baseline(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Refuse an unknown variant before any file is collected."""
    if any_given(session.config):
        stash.selected_variants(session.config)


pytest_itemcollected = tests.note_collected
pytest_report_collectionfinish = tests.left_out_lines


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the most telling tests first, and those together that are measured side by side or share a loaded model.

    pytest's own ordering by session parameter goes by their position in each test's list, which differs from test to
    test.
    """
    tests.leave_out_overhead(config, items)
    if any(tests.variant_of(item) for item in items):
        config.stash[gating.HAS_BENCHMARKS] = True
        keep_with_project(config)
        with stash.usage_errors():
            config.stash[stash.SCENARIOS] = tests.scenarios_of(items, stash.metrics_of(config))
        everyone = [variant.id for variant in tests.variants_of(config, items)]
        tests.arrange(config, items, [everyone] if stash.runs_in_turns(config) else None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Claim the report's folder; decide which variants are loaded together, and say so, before the first test. After
    the last, score what has yet to be."""
    config = session.config
    benchmarks = [*filter(tests.is_benchmark, session.items)]
    config.stash[stash.BENCHMARKS] = tuple(tests.identify(item).scenario for item in benchmarks)
    runs_tests = not any(config.getoption(name, False) for name in ("collectonly", "setuponly", "setupplan"))
    if runs_tests and any(map(tests.variant_of, session.items)):
        end_at_signals(session)
        finish.claim_report(session)
    if runs_tests and benchmarks and stash.runs_in_turns(config):
        tests.plan_and_arrange(session, resuming.keep_whole if resuming.is_resumed(config) else None)
        foresee(session)
        resuming.score_reference_first(session)
    try:
        result = yield
    except (session.Failed, session.Interrupted):  # raised by -x, --maxfail or a plugin, not by Ctrl-C
        finish.score_the_rest(session)
        raise
    finish.score_the_rest(session, partial(renew_report, session))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Tell the session when a stage of its plan is over."""
    result = yield
    after_test(item, nextitem)
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say what a benchmark needs where pytest would only say that a fixture isn't found."""
    if tests.is_benchmark(item) and not has_pytest_benchmark(item.config):
        pytest.fail(NEEDS_PYTEST_BENCHMARK, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a benchmark whose prompts the model can't be given, as one whose workload it can't run."""
    if not tests.variant_of(pyfuncitem):
        return (yield)
    with as_skips():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A benchmark that was skipped or failed is a row of the report too, with its reason."""
    report = yield
    if not tests.variant_of(item):
        return report
    make_harmless(report)  # what failed may quote the model's files
    if report.when == "call" and not tests.is_benchmark(item) and not is_unreached(call):
        resuming.note_checked(item, report, "" if report.passed else _reason(call))
    if not report.passed and report.when != "teardown":
        ended = Status.SKIPPED if report.skipped else Status.ERROR
        status = Status.NOT_REACHED if is_unreached(call) else ended
        record = replace(tests.identify(item), status=status, reason=_reason(call))
        stash.bench_session(item.config).results.add_unmeasured(record)
    return report


def _reason(call: pytest.CallInfo[None]) -> str:
    if call.excinfo is None:
        return ""
    error = call.excinfo.value
    if isinstance(error.__cause__, NotReached):
        return error.__cause__.why
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
        if not stash.is_xdist_worker(session.config):
            finish.finish(session, exitstatus)
        elif gating.HAS_BENCHMARKS in session.config.stash:
            session.config.workeroutput[HAS_BENCHMARKS_KEY] = True  # type: ignore[attr-defined]  # for the controller
    except KeyboardInterrupt:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    except BaseException as error:  # a bug of ours
        failure = error
    yield
    finish.settle_status(session)
    if failure is not None:
        raise failure


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[None]:
    """Write the summary below pytest-benchmark's table, also where pytest-benchmark raises for its comparison."""
    try:
        yield
    finally:
        finish.show_summary(terminalreporter, config)


def pytest_llm_bench_score(config: pytest.Config, model: ModelHandle) -> CorpusScore:
    """The plugin's own quality metrics: of the model by itself, and against the reference."""
    return stash.bench_session(config).own_score(model)


def pytest_unconfigure(config: pytest.Config) -> None:
    if stash.SESSION in config.stash:
        config.stash[stash.SESSION].close()
        gc.collect()
        gc.freeze()  # pytest collects five times after this, and would go through the libraries' objects each time


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_generate_commit_info(config: pytest.Config) -> Generator[None, dict[str, Any], dict[str, Any]]:
    """The commit of the project that is measured; pytest-benchmark would look in the working folder."""
    if stash.SESSION not in config.stash:
        return (yield)
    with in_project(config):
        return with_branch((yield))


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Put the run's results into the files that pytest-benchmark writes, so that its storage is the run history."""
    if finish.RUN in config.stash:
        to_stored(output_json, config.stash[finish.RUN])
        if fault := fault_of_stored(output_json):
            warn(
                f"what pytest-benchmark saves of this run {fault}: it is whole, but llm-bench will refuse it. Without "
                "--benchmark-save-data a run is kept without the times of its tokens; --benchmark-json has them always"
            )
