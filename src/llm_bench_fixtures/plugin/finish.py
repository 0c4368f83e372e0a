"""The start and the end of a pytest run: claims its folder; gathers, judges, reports and shows its results."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from llm_bench_fixtures.errors import HistoryUnavailable, UnusableHistory, reason_of
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.history.storage import UNSENT
from llm_bench_fixtures.plugin import gating
from llm_bench_fixtures.plugin.hooks import IN_WORKERS
from llm_bench_fixtures.plugin.internals import coloured, save_whole, terminal_width
from llm_bench_fixtures.plugin.resuming import is_resumed, take_up
from llm_bench_fixtures.plugin.stash import SESSION, is_worker, metrics_of, or_usage_error, selection_of, settings_of
from llm_bench_fixtures.plugin.storage import runs_folder
from llm_bench_fixtures.plugin.terminal_progress import announce, tell
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.report.files import Published, publish, publish_so_far
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.renderers.terminal import COLOURS, summary_lines
from llm_bench_fixtures.report.tables.table import Tone
from llm_bench_fixtures.results.folder import NOTHING, OWN_FILES, claim, held, put_back, release, set_aside, worth_of
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import RESULTS_FILE, text_of_run
from llm_bench_fixtures.text import harmless
from llm_bench_fixtures.writing import check_writable, reserve, save_or_keep

NOTHING_MEASURED = (
    "llm-bench: no times and no report, because pytest-xdist runs tests in parallel: run the benchmarks without -n"
)
MADE_FOLDER: pytest.StashKey[bool] = pytest.StashKey()  # whether there was none for the report
SET_ASIDE: pytest.StashKey[bool] = pytest.StashKey()  # whether all of the report in it made room for this run's
RUN: pytest.StashKey[Run] = pytest.StashKey()  # once all of it is measured and judged
PUBLISHED: pytest.StashKey[Published] = pytest.StashKey()
NOT_SAVED: pytest.StashKey[list[str]] = pytest.StashKey()  # what pytest-benchmark could not write, and why
FAILED_HOOK: pytest.StashKey[tuple[str]] = pytest.StashKey()  # what pytest_llm_bench_finish raised


def claim_report(session: pytest.Session) -> None:
    """Claim the report's folder, before anything is measured, and take up the run that --llm-resume names; not in a
    process that writes no report.

    Raises UsageError where it, or the gate's summary, can't be written, and where there is no going on with the run.
    """
    config = session.config
    if is_worker(config):
        return
    settings = settings_of(config)
    summary = settings.of(options.SUMMARY) if gating.is_gated(config) else None
    or_usage_error(partial(check_writable, summary), options.SUMMARY.flag)
    or_usage_error(partial(save_whole, config, config.stash.setdefault(NOT_SAVED, []).append), "the run can't be saved")
    or_usage_error(partial(_check_history, config), "--llm-history")
    config.stash[MADE_FOLDER] = or_usage_error(partial(claim, settings.report), "--llm-report")
    hold = ExitStack()
    config.add_cleanup(hold.close)
    or_usage_error(partial(hold.enter_context, held(settings.report)), "--llm-report")
    is_taken_up = or_usage_error(partial(take_up, session, hold), "--llm-resume")
    config.stash[SET_ASIDE] = not is_taken_up
    stays = (RESULTS_FILE,) if is_taken_up else ()  # until this session's results, which hold those, replace it
    or_usage_error(partial(set_aside, settings.report, but=stays), "--llm-report")
    if is_resumed(config):
        config.stash[SESSION].save_at_times()


def _check_history(config: pytest.Config) -> None:
    """Raise for a database that no run can be saved to. One that doesn't answer may do so when the run ends."""
    if url := settings_of(config).history:
        try:
            Database(url).check()
        except UnusableHistory:  # also a HistoryUnavailable, but trying again doesn't help
            raise
        except HistoryUnavailable as error:
            announce(config, [f"{error}. It is tried again when the run ends"], from_verbosity=-1)


def score_the_rest(session: pytest.Session, after_rounds: Callable[[], object] | None = None) -> None:
    """Score the variants that have yet to be scored. One that can't be fails the run.

    after_rounds: as `BenchSession.score_the_rest` takes it.
    """
    if bench := session.config.stash.get(SESSION, None):
        bench.score_the_rest(after_rounds)
        if bench.failures:
            session.testsfailed = max(session.testsfailed, 1)


def finish(session: pytest.Session, exitstatus: int) -> None:
    """Report and judge what was measured, however the session ended."""
    was_stopped = bool(session.shouldstop or session.shouldfail)  # stopped by -x, --maxfail or a plugin
    is_hurried = exitstatus == pytest.ExitCode.INTERRUPTED and not was_stopped  # somebody waits for its end
    write_results(session, interrupted=is_hurried or was_stopped, draws=not is_hurried)
    stash = session.config.stash
    if PUBLISHED not in stash and MADE_FOLDER in stash:
        if stash[MADE_FOLDER]:
            release(settings_of(session.config).report)
        elif stash.get(SET_ASIDE, False):  # else what is set aside there made room for another run's
            put_back(settings_of(session.config).report)
    if gating.BASELINE in session.config.stash:
        gating.finish_gate(session)
    save_to_history(session.config)


def save_to_history(config: pytest.Config) -> None:
    """Save the run to the database of --llm-history. Where that fails, it is kept in a file that can be sent later."""
    if RUN not in config.stash or not config.stash[RUN].measured() or not (url := settings_of(config).history):
        return
    run = judged_run(config.stash[RUN])
    try:
        Database(url).save(run)
    except BaseException as error:
        folder = runs_folder(config)
        reasons = [reason_of(error)]
        with suppress(OSError):  # the attempt to write says why
            (folder / UNSENT).mkdir(parents=True, exist_ok=True)
        path = reserve(folder / UNSENT, 1, run.provenance.commit or "run")
        kept = save_or_keep(path, text_of_run(run), reasons.append)
        if kept == path:
            reasons.append(f"this run was saved in {kept}")
        if kept is not None:
            send = ["push", str(folder)] if kept == path else ["import", str(kept.parent)]
            reasons[-1] += f". To send it: {shlex.join(['llm-bench', 'history', *send, '--history', url])}"
        config.stash.setdefault(NOT_SAVED, []).append("; ".join(reasons))
        if not isinstance(error, Exception):
            raise


def write_results(session: pytest.Session, *, interrupted: bool, draws: bool) -> None:
    """Write the report of what this run measured, and show it to the hooks; nothing where no model was asked for, nor
    in a worker of a paired run, which tells its coordinator.

    Whatever becomes of the report, pytest-benchmark saves the run and the terminal shows it.
    """
    config = session.config
    if SESSION not in config.stash or not config.stash[SESSION].results.has_variants or is_worker(config):
        return
    bench = config.stash[SESSION]
    if bench.deadline.is_over:
        bench.loader.kill()  # the machine is needed for the report
    run = _run_of(session, interrupted=interrupted)
    if worth_of(run) == NOTHING and not (run.records and draws):  # stopped before anything was measured
        return
    config.stash[RUN] = run
    if gating.is_gated(config):
        run = config.stash[RUN] = gating.gate_run(config, run)
    with bench.progress.activity(Phase.REPORTING, "writing the report"):
        settings = bench.settings
        changes = gating.changes_of_run(config, run)
        published = publish(run, metrics_of(config), settings.report, bench.need, changes, draws=draws)
    config.stash[PUBLISHED] = published
    if published.was_interrupted:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
    else:
        _call_hooks(config, run, published.folder or settings.report)


def _run_of(session: pytest.Session, *, interrupted: bool) -> Run:
    """The results so far, with what pytest knows of them."""
    run = session.config.stash[SESSION].run(interrupted=interrupted)
    return replace(run, selection=selection_of(session.config), failed_tests=session.testsfailed)


def write_so_far(session: pytest.Session, so_far: str) -> Findings | None:
    """Write the report of a run that goes on, and return what it says; None where nothing is measured.

    so_far: how far the run is. What can't be written is told at the end. Raises KeyboardInterrupt.
    """
    config = session.config
    bench = config.stash[SESSION]
    run = _run_of(session, interrupted=False)
    if not (bench.keeps_report and run.measured()):
        return None
    with bench.progress.activity(Phase.REPORTING, "writing the report so far"):
        return publish_so_far(run, metrics_of(config), bench.settings.report, bench.need, so_far)


def _call_hooks(config: pytest.Config, run: Run, report: Path) -> None:
    try:
        config.hook.pytest_llm_bench_finish(run=run, report=report)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a project's own code raises, an exit too
        config.stash[FAILED_HOOK] = (f"pytest_llm_bench_finish failed: {reason_of(error)}",)


def settle_status(session: pytest.Session) -> None:
    """A run that was not saved as asked, or whose own hook failed, did not end well, whatever else is said of it by the
    gate or by its tests."""
    stash = session.config.stash
    if session.exitstatus == pytest.ExitCode.OK and stash.get(NOT_SAVED, ()):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    if session.exitstatus == pytest.ExitCode.OK and FAILED_HOOK in stash:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def show_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was found, what was not written, and what the gate decided."""
    width = terminal_width(terminalreporter)
    published = config.stash.get(PUBLISHED, None)
    if published is not None and published.findings is not None:

        def paint(text: str, tone: Tone) -> str:
            return coloured(terminalreporter, text, COLOURS[tone])

        findings = published.findings
        if gating.DECISION in config.stash:
            findings = replace(findings, changes=None)  # the gate tells them below
        tell(terminalreporter, summary_lines(findings, published.folder, width, paint))
    tell(terminalreporter, (*trouble_lines(config), *([NOTHING_MEASURED] if IN_WORKERS in config.stash else [])))
    if gating.DECISION in config.stash:
        tell(terminalreporter, gating.gate_summary(config, width))


def trouble_lines(config: pytest.Config) -> Iterator[str]:
    """Lines on what of the report was not written, where an earlier one is, and what failed at the end of the run."""
    published = config.stash.get(PUBLISHED, None)
    problems = (*published.notes, *published.problems) if published is not None else _unpublished_lines(config)
    failures = config.stash[SESSION].failures if SESSION in config.stash else {}
    unscored = (f"{variant} could not be scored: {reason_of(error)}" for variant, error in failures.items())
    problems = (*unscored, *problems, *config.stash.get(NOT_SAVED, ()), *config.stash.get(FAILED_HOOK, ()))
    return harmless(f"llm-bench: {problem}" for problem in problems)


def _unpublished_lines(config: pytest.Config) -> tuple[str, ...]:
    """Names what became of a report that was to come: the earlier one that was set aside for it, or none."""
    if SET_ASIDE not in config.stash:
        return ()
    report = settings_of(config).report
    if any((report / name).is_file() for name in OWN_FILES):
        return (f"This run wrote no report; the one in {report} is of an earlier run.",)
    was_stopped = SESSION in config.stash and config.stash[SESSION].results.has_variants and RUN not in config.stash
    return ("This run wrote no report: it was stopped before a benchmark finished.",) if was_stopped else ()
