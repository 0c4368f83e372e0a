"""Goes on with a run that was interrupted: the tests that it has run end at once as they did, with their figures.

`finish` takes the run up before the first test, and `bench_hooks` registers this module where --llm-resume is given.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from llm_bench_fixtures.errors import InvalidSetting, LlmBenchError
from llm_bench_fixtures.history.together import why_runs_apart
from llm_bench_fixtures.plugin import stash
from llm_bench_fixtures.plugin.benchmark import name_in_table
from llm_bench_fixtures.plugin.internals import leave_out_fixtures, report_times, skipped
from llm_bench_fixtures.plugin.items import PLAN, benchmarks_to_come, case_of, identify, is_benchmark, variant_of
from llm_bench_fixtures.plugin.terminal_progress import announce
from llm_bench_fixtures.results.builder import DONE
from llm_bench_fixtures.results.folder import EARLIER, MARKER, WHOLE, held, worth_in
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.record import Run, Status
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run
from llm_bench_fixtures.session.plan import Stage
from llm_bench_fixtures.session.provenance import completed_by
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.text import harmless_text

RESUMED: pytest.StashKey[Run] = pytest.StashKey()  # the run that this one goes on with
PATHS_FIRST = "Put paths of tests before --llm-resume"
REACHED = (*DONE, Status.ERROR)


def use_resuming(config: pytest.Config) -> None:
    """Register this module's hooks where --llm-resume is given. UsageError for a run that can't go on with another."""
    if stash.settings_of(config).resume is False:
        return
    if stash.TURNS in config.stash:
        raise pytest.UsageError("--llm-resume: `llm-bench pair` measures both versions anew: leave it out")
    if not stash.is_timing(config):
        raise pytest.UsageError(
            "--llm-resume: nothing is timed in this run: leave out -n, --benchmark-disable and --benchmark-skip"
        )
    config.pluginmanager.register(sys.modules[__name__])


def is_resumed(config: pytest.Config) -> bool:
    return RESUMED in config.stash


def take_up(session: pytest.Session, hold: ExitStack) -> bool:
    """Begin with what the run has that --llm-resume names, if it is given. Returns whether that is the one in this
    run's own report.

    hold: keeps others out of that run's folder as long as this session lasts. Raises LlmBenchError where the run can't
    be read or is going on, UsageError where it may not be put together with this one.
    """
    config, settings = session.config, stash.settings_of(session.config)
    if settings.resume is False:
        return False
    own = settings.report / RESULTS_FILE
    bench = stash.bench_session(config)
    path = _most_measured(bench) if settings.resume is True else settings.resume
    file = path / RESULTS_FILE if path.is_dir() else path
    before = _read(file, own, hold)
    _check_like(file, before, bench.foreseen(before))  # downloads nothing
    bench.setup.check()
    run = bench.run()
    tasks = tuple(task.facts for task in bench.setup.tasks)
    _check_like(file, before, replace(run, provenance=replace(run.provenance, tasks=tasks)))
    items = [(item, variant) for item in session.items if (variant := variant_of(item))]
    tested = {variant.id: variant.threads_of for _, variant in items}
    bench.go_on_with(before, {name for name, threads_of in tested.items() if threads_of not in tested})  # to be scored
    config.stash[RESUMED] = before
    if not (stash.runs_in_turns(config) and any(is_benchmark(item) for item, _ in items)):
        # Nobody loads a variant for its quality alone here, so what has yet to be scored is measured again.
        scored = filter(bench.scoring.is_scored, (one.id for one in bench.results.variants))
        keep_whole(session, [[name] for name in scored if name not in bench.due])
    return file.resolve() == own.resolve()


def _most_measured(bench: BenchSession) -> Path:
    """The report's folder, or that of the report that was set aside in it, where its run is unfinished, too, measured
    more, and this one can go on with it."""
    folder = bench.settings.report
    if worth_in(folder) < worth_in(folder / EARLIER) < WHOLE:
        with suppress(LlmBenchError, pytest.UsageError):
            file = folder / EARLIER / RESULTS_FILE
            before = read_run(file)
            _check_like(file, before, bench.foreseen(before))
            return folder / EARLIER
    return folder


def _read(file: Path, own: Path, hold: ExitStack) -> Run:
    """Raises LlmBenchError."""
    if not file.exists():
        aside = file.parent / EARLIER
        hint = f"--llm-resume={aside} goes on with the one before" if (aside / RESULTS_FILE).exists() else PATHS_FIRST
        raise InvalidSetting(f"there is no {file}, so there is no run to go on with. {hint}")
    if file.parent.resolve() != own.parent.resolve() and (file.parent / MARKER).exists():
        hold.enter_context(held(file.parent))
    return read_run(file)


def _check_like(file: Path, before: Run, run: Run) -> None:
    """Raise UsageError, with what differs, where the two may not be put together."""
    run = replace(run, provenance=completed_by(run.provenance, before.provenance))
    if reasons := [f"  {reason}" for reason in why_runs_apart(before, run)]:
        told = "\n".join([f"--llm-resume: this run can't go on with the one in {file}:", *reasons])
        raise pytest.UsageError(f"{harmless_text(told)}\nNothing was run. Without --llm-resume, all is measured anew.")


def keep_whole(session: pytest.Session, groups: stash.Groups) -> None:
    """Note which tests the earlier run has, and say how many. groups: ids of the variants that are loaded together; no
    test of another variant is kept."""
    config, bench = session.config, session.config.stash[stash.SESSION]
    before, known = config.stash[RESUMED], {one.id for one in bench.results.variants}
    tested = [(item, variant.id) for item in session.items if (variant := variant_of(item))]
    cases: dict[str, dict[str, str]] = defaultdict(dict)
    for item, name in tested:
        if is_benchmark(item):
            cases[case_of(item)][name] = item.nodeid
    statuses = {one.test: one.status for one in before.records if one.variant in known or one.status is Status.ERROR}
    benchmarks = whole_tests(cases.values(), statuses, groups, bench.results.reference)
    members = known.intersection(chain.from_iterable(groups))
    checks = {item.nodeid for item, name in tested if name in members and not is_benchmark(item)}
    config.stash[stash.KEPT] = benchmarks | (checks & before.checked.keys())
    scenarios = [identify(item).scenario for item, _ in tested if item.nodeid in benchmarks]
    bench.measuring.forgo(scenarios)
    kept = f"{len(scenarios)} of {count(sum(map(len, cases.values())), 'benchmark')} kept"
    announce(config, [f"{kept} of the run that began {before.provenance.started}"], from_verbosity=-1)


def whole_tests(
    cases: Iterable[Mapping[str, str]], statuses: Mapping[str, Status], groups: stash.Groups, reference: str
) -> frozenset[str]:
    """The benchmarks that are not run again: of each case those of variants that took turns, where none of them is
    missing. What failed is run again by itself.

    cases: of each the tests by variant. statuses: by test, how it ended. groups: the ids of the variants that take
    turns. The reference's is run again where any of the case is missing, since it takes turns with that, too, and texts
    are compared with its own.
    """

    def are_reached(tests: Iterable[str]) -> bool:
        return all(statuses.get(test) in REACHED for test in tests)

    kept: set[str] = set()
    for tests in cases:
        for group in groups:
            others = {test for variant, test in tests.items() if variant in group and variant != reference}
            kept |= others if are_reached(others) else set()
        if reference in chain.from_iterable(groups) and are_reached(tests.values()):
            kept.add(tests.get(reference, ""))
    return frozenset(test for test in kept if statuses.get(test) in DONE)


def score_reference_first(session: pytest.Session) -> None:
    """Have the reference scored before any test, where it is scored again for variants that may be scored before it is
    loaded. Not where its headline's case is to come, whose memory holds nothing of scoring yet."""
    config = session.config
    bench = config.stash[stash.SESSION]
    if RESUMED not in config.stash or bench.results.reference not in bench.due:
        return
    if any(config.stash[PLAN].stage(case_of(item)) is Stage.LATENCY for item in benchmarks_to_come(session)):
        return
    for variant in bench.loader.known:
        if variant.id == bench.results.reference:
            with suppress(Exception):  # the variant's row says why
                bench.score(bench.loader.load(variant))


def note_checked(item: pytest.Item, report: pytest.TestReport, reason: str) -> None:
    """Keep how a test on a variant ended that is no benchmark, for a session that goes on with this one. What failed,
    or was not reached, is run again."""
    session = item.config.stash.get(stash.SESSION, None)
    if session is not None and not report.failed:
        session.results.add_checked(item.nodeid, reason)
        session.save_at_times()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Load nothing for a test that is kept."""
    if stash.is_kept(item):
        leave_out_fixtures(item, but="benchmark" if is_benchmark(item) else "")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """End a test that is kept as it ended, and show pytest-benchmark its rounds."""
    if not stash.is_kept(pyfuncitem):
        return None
    config, test = pyfuncitem.config, pyfuncitem.nodeid
    if not is_benchmark(pyfuncitem):
        if reason := config.stash[RESUMED].checked[test]:
            raise skipped(reason)
        return True
    record, benchmark = config.stash[stash.SESSION].results.record(test), pyfuncitem.funcargs["benchmark"]
    if record.status is Status.SKIPPED:
        raise skipped(record.reason)
    name_in_table(pyfuncitem, benchmark)
    report_times(benchmark, record.rounds_s, again=lambda: None)
    return True
