"""The gate in a pytest run. It chooses the baseline before the tests, and judges the run before it is saved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llm_bench_fixtures.errors import InvalidSetting, LlmBenchError, UnwritableFile, reason_of
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.comparison import Comparison, compare_runs
from llm_bench_fixtures.gate.decision import Decision, decide_run, nothing_measured
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.rules import Rules, check_targets
from llm_bench_fixtures.history.baseline import Baseline, Likeness, find_baseline
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import judged_run, saved_at
from llm_bench_fixtures.history.storage import RunFolder, Storage
from llm_bench_fixtures.options.parsers import LoadFormat
from llm_bench_fixtures.plugin import internals, stash
from llm_bench_fixtures.plugin.outcomes import warn
from llm_bench_fixtures.plugin.storage import project_folder, storage_folder
from llm_bench_fixtures.reading import refusal
from llm_bench_fixtures.report.judged.changes import Changes, changes_against, failures, gate_report, github_annotations
from llm_bench_fixtures.report.renderers.markdown import judged_markdown
from llm_bench_fixtures.report.renderers.terminal import judged_lines
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.text import first_few, harmless
from llm_bench_fixtures.writing import append_text

NO_BENCHMARK = "no benchmark ran"
NOTHING_TIMED = (
    "nothing is timed in pytest-xdist's workers, under --benchmark-disable and --benchmark-skip, or without "
    "pytest-benchmark"
)
BASELINE: pytest.StashKey[Baseline] = pytest.StashKey()
HAS_BENCHMARKS: pytest.StashKey[bool] = pytest.StashKey()  # whether any was collected
DECISION: pytest.StashKey[Decision] = pytest.StashKey()


def set_baseline(config: pytest.Config) -> None:
    """Choose the run to judge by, and have pytest-benchmark compare with that one too.

    pytest-benchmark by itself would read every file in the storage. Raises UsageError for a run that was named and
    can't be read, and for a rule on an unknown metric.
    """
    rules_of(config)
    baseline = config.stash[BASELINE] = stash.or_usage_error(lambda: _find_baseline(config), "--llm-gate")
    if baseline.run is not None and isinstance(place := saved_at(baseline.run.source), Path):
        internals.compare_with(config, internals.name_in_storage(place, _folder(config)))


def check_is_gated(config: pytest.Config) -> None:
    """Raise UsageError where the command line says how to judge, but not --llm-gate."""
    given = [setting.flag for setting in options.HOW if config.getoption(setting.ini)]
    if given and not stash.settings_of(config).of(options.GATE):
        raise pytest.UsageError(f"{', '.join(given)}: add --llm-gate, or nothing is judged")


def is_gated(config: pytest.Config) -> bool:
    """Whether this process is to judge the run.

    A process that only collects does not, nor does a worker of pytest-xdist's or of a paired run.
    """
    idle = config.getoption("collectonly") or stash.is_worker(config)
    return stash.settings_of(config).of(options.GATE) and not idle


def rules_of(config: pytest.Config) -> Rules:
    """The rules that the options name. Raises UsageError for an unknown metric."""
    named = stash.settings_of(config).of(options.RULES)
    stash.or_usage_error(lambda: check_targets([rule.target for rule in named], stash.metrics_of(config)))
    return Rules(named)


def _find_baseline(config: pytest.Config) -> Baseline:
    settings = stash.settings_of(config)
    wanted = settings.of(options.BASELINE) or internals.compared_run(config)
    likeness = Likeness(settings.model, settings.load_format is LoadFormat.DUMMY, stash.selection_of(config))
    return find_baseline(_storage(config), wanted, likeness, project_folder(config))


def _storage(config: pytest.Config) -> Storage | None:
    """Where the baseline is: the database, unless --benchmark-compare names a run in the folder; None where no
    run was ever saved. Raises InvalidSetting where it can't be read."""
    url = stash.settings_of(config).history
    if url and not internals.compared_run(config):
        return Database(url)
    folder = _folder(config)
    return None if folder is None else RunFolder(folder)


def _folder(config: pytest.Config) -> Path | None:
    """The folder of the saved runs; None where none was ever saved. Raises InvalidSetting where it can't be read."""
    if "://" in internals.storage_option(config).removeprefix("file://"):
        raise InvalidSetting("--benchmark-storage: the gate reads runs that are kept in a folder")
    folder = storage_folder(config)
    if why := refusal(folder):
        raise InvalidSetting(f"--benchmark-storage: {folder} {why}")
    return folder if folder.is_dir() else None


def gate_run(config: pytest.Config, run: Run) -> Run:
    """Keep the decision on the run. Returns the run, marked where it did not pass, so that it is no baseline."""
    try:
        rules, allowed = rules_of(config), stash.settings_of(config).of(options.MISSING)
        decision = decide_run(judged_run(run), config.stash[BASELINE], rules, stash.metrics_of(config), allowed)
    except Exception as error:  # a bug of ours, which costs the run its verdict and nothing else
        decision = nothing_measured(f"the gate failed: {reason_of(error)}")
    config.stash[DECISION] = decision
    if decision.status in (ExitStatus.PASSED, ExitStatus.NO_BASELINE):
        return run
    return replace(run, regressed=decision.status is ExitStatus.REGRESSED, refused=decision.status.words)


def changes_of_run(config: pytest.Config, run: Run) -> Changes | None:
    """Changes of the run against the gate's baseline or the run of --benchmark-compare; None without either. If that
    fails, the report lacks only these."""
    is_gated_run = DECISION in config.stash
    try:
        comparison = config.stash[DECISION].comparison if is_gated_run else _asked_comparison(config, run)
        return None if comparison is None else changes_against(comparison, stash.need_of(config))
    except Exception as error:  # a bug of ours
        warn(f"the report shows no changes from another run: {reason_of(error)}")
        return None


def _asked_comparison(config: pytest.Config, run: Run) -> Comparison | None:
    """Comparison with the run of --benchmark-compare. A warning names one that can't be read; this run is reported all
    the same."""
    if not internals.is_compared(config):
        return None
    try:
        baseline = _find_baseline(config)
    except LlmBenchError as error:
        warn(f"--benchmark-compare: not in the report: {error}")
        return None
    if baseline.run is None:
        return None
    return compare_runs(baseline.run, judged_run(run), rules_of(config), stash.metrics_of(config), baseline.notes)


def finish_gate(session: pytest.Session) -> None:
    """Give the session its exit status, unless it failed already, and write the summary that was asked for.

    Where an ini file asks for the gate, a run without benchmarks is not judged.
    """
    config = session.config
    decision = config.stash.get(DECISION, None)
    if decision is None:
        if not config.getoption("llm_gate") and not config.stash.get(HAS_BENCHMARKS, False):
            return
        decision = config.stash[DECISION] = nothing_measured(NO_BENCHMARK if stash.is_timing(config) else NOTHING_TIMED)
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = decision.status
    _add_to_junit(config, decision)
    summary = stash.settings_of(config).of(options.SUMMARY)
    if summary is not None:
        try:
            append_text(summary, judged_markdown(gate_report(decision)))
        except UnwritableFile as error:  # the run is saved all the same
            warn(f"--llm-gate-summary: {error}")


def _add_to_junit(config: pytest.Config, decision: Decision) -> None:
    """Add a failed test case to --junit-xml for each test and variant that regressed, or one for another failure."""
    xml = internals.junit_log(config)
    if xml is None:
        return
    for subject, message in failures(decision):
        for when, result, text in (("call", "failed", message), ("teardown", "passed", None)):
            file, _, rest = subject.rpartition("::")
            nodeid = "::".join(filter(None, (file, "llm-gate", rest)))
            report = pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, result, text, when)  # type: ignore[arg-type]
            xml.pytest_runtest_logreport(report)


def gate_summary(config: pytest.Config, width: int) -> Iterator[str]:
    """The lines of the gate in the terminal summary. On GitHub's runners, annotations follow."""
    decision = config.stash[DECISION]
    yield from judged_lines(gate_report(decision), width, verbose=config.get_verbosity() > 1)
    yield from harmless(first_few([f"Not a baseline: {reason}" for reason in config.stash[BASELINE].passed_over]))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        yield from github_annotations(decision)
