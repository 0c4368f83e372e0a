"""What the plugin keeps on pytest's config: the settings, and the session once a benchmark asks for it."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from llm_bench_fixtures.answer.need import NEED, WANT, Need, need_from
from llm_bench_fixtures.errors import InvalidSetting, LlmBenchError
from llm_bench_fixtures.gate import options as gate_options
from llm_bench_fixtures.measure.own_prompts import OwnPrompts, read_own_prompts
from llm_bench_fixtures.models import backends
from llm_bench_fixtures.models.backends.checkpoint import with_reference
from llm_bench_fixtures.models.backends.torch import with_fitting_reference
from llm_bench_fixtures.models.variants import Variant, narrow, select_variants, with_threads
from llm_bench_fixtures.options import parsers
from llm_bench_fixtures.options.parsers import Setting
from llm_bench_fixtures.options.settings import FIELDS, Settings, parse_settings
from llm_bench_fixtures.options.table import paths_that_stand_alone
from llm_bench_fixtures.plugin import hooks
from llm_bench_fixtures.plugin.internals import is_switched_off, setup_of_paths, standard_input
from llm_bench_fixtures.plugin.outcomes import HarmlessWarnings, warn
from llm_bench_fixtures.plugin.own_hooks import own_metrics, own_variants, scores_by_hooks
from llm_bench_fixtures.plugin.storage import commit_of
from llm_bench_fixtures.plugin.terminal_progress import TerminalProgress
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.results.record import Scenario
from llm_bench_fixtures.session.deadline import Deadline
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.session.setup import Setup

if TYPE_CHECKING:
    from llm_bench_fixtures.plugin.pair_worker import Turns
T = TypeVar("T")
Groups = Sequence[Collection[str]]  # ids of the variants that are loaded together

LIMITS_SHARE = 0.05  # share of the run's time, at most, for measuring the machine's limits
WITH_NAMES = ("model", "choices", "prompts", "tasks")  # options whose values are names or paths

ALL_SETTINGS = (*FIELDS, NEED, WANT, *backends.SETTINGS, *gate_options.SETTINGS)

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
OWN_PROMPTS: pytest.StashKey[OwnPrompts] = pytest.StashKey()
SESSION: pytest.StashKey[BenchSession] = pytest.StashKey()
METRICS: pytest.StashKey[Mapping[str, Metric]] = pytest.StashKey()  # the registry with the project's own
SCENARIOS: pytest.StashKey[tuple[Scenario, ...]] = pytest.StashKey()  # scenarios of the benchmarks that were collected
BENCHMARKS: pytest.StashKey[Sequence[str]] = pytest.StashKey()  # the scenario of each that was collected
KEPT: pytest.StashKey[frozenset[str]] = pytest.StashKey()  # the tests that an earlier session has run, by --llm-resume
TURNS: pytest.StashKey[Turns] = pytest.StashKey()  # in a worker of `llm-bench pair`, which runs a round when told to


@contextmanager
def usage_errors(flag: str = "") -> Iterator[None]:
    """Errors of ours in the block, such as a setting that can't be used, become pytest's UsageError.

    flag: of the option that it is about, where the message doesn't say."""
    try:
        yield
    except LlmBenchError as error:
        raise pytest.UsageError(f"{flag}: {error}" if flag else str(error)) from error


def or_usage_error(compute: Callable[[], T], flag: str = "") -> T:
    """Result of `compute`, whose errors are as in `usage_errors`."""
    with usage_errors(flag):
        return compute()


@usage_errors()
def settings_of(config: pytest.Config) -> Settings:
    """The options and ini values, parsed when they are first asked for. UsageError for what can't be used."""
    if SETTINGS not in config.stash:
        given = {setting.name: _text(config, setting) for setting in ALL_SETTINGS}
        config.stash[SETTINGS] = settings = with_fitting_reference(with_reference(parse_settings(given)))
        for setting in (*backends.SETTINGS, *gate_options.SETTINGS):
            settings.of(setting)
    return config.stash[SETTINGS]


@usage_errors()
def own_prompts_of(config: pytest.Config) -> OwnPrompts | None:
    """Prompts of --llm-prompts, read when they are first asked for: standard input can be read but once. UsageError for
    what can't be used."""
    settings = settings_of(config)
    if OWN_PROMPTS not in config.stash and settings.prompts:
        found = read_own_prompts(settings.prompts, lambda: _standard_input(config))
        if any(prompt.answer for prompt in found.prompts) and settings.corpus is not None:
            raise InvalidSetting(
                f"--llm-corpus: quality is measured on the answers in {found.name}; give an empty --llm-corpus= for "
                "that, or prompts without answers"
            )
        config.stash[OWN_PROMPTS] = found
    return config.stash.get(OWN_PROMPTS, None)


def _standard_input(config: pytest.Config) -> bytes:
    if is_xdist_worker(config) or config.getoption("numprocesses", None) or config.getoption("llm_pair_socket"):
        raise InvalidSetting("standard input can't be read by several processes; save it to a file, and give that")
    return standard_input(config)


@usage_errors()
def need_of(config: pytest.Config) -> Need:
    """Need that was asked of a variant. UsageError for what can't be used; a project's own metrics can."""
    given = settings_of(config).given
    return need_from(given, metrics_of(config) if NEED.name in given else METRIC_BY_NAME)


def check_settings(config: pytest.Config) -> None:
    """UsageError for an option or ini value that can't be used, before anything runs.

    Likewise where an option's value has made pytest take another ini file or root folder than the project's: it looks
    for them beside each argument that stands alone, before any plugin can tell it what is an option's value.
    """
    need_of(config)
    own_prompts_of(config)
    typed = (*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *config.invocation_params.args)
    taken = paths_that_stand_alone(typed, config.invocation_params.dir)
    if taken and (config.rootpath, config.inipath) != setup_of_paths(config):
        flag, value = taken[0]
        ini = config.inipath
        found = f"{ini} as this project's own ini file" if ini else f"{config.rootpath} as its root"
        raise pytest.UsageError(
            f"pytest has taken {value} for a folder of tests, and {found}: write {flag}={value}, with an equals sign"
        )


def _text(config: pytest.Config, setting: Setting[Any]) -> str | None:
    """Text that was typed, else that of the ini file, whose paths begin in its folder; None for what was not given. An
    empty text was."""
    typed: str | None = config.getoption(setting.ini)
    written: str | None = config.getini(setting.ini)
    if typed is not None or not written or config.inipath is None:
        return written if typed is None else typed
    folder = config.inipath.parent
    if folder == config.invocation_params.dir:
        return written
    if setting.parse in (parsers.parse_path, parsers.parse_optional_path):
        return parsers.path_seen_from(folder, written)
    if setting.parse is parsers.parse_history and written.startswith(f"{parsers.SQLITE}:///"):
        return f"{parsers.SQLITE}:///{parsers.path_seen_from(folder, written.removeprefix(f'{parsers.SQLITE}:///'))}"
    return parsers.names_seen_from(folder, written) if setting.name in WITH_NAMES else written


def bench_session(config: pytest.Config) -> BenchSession:
    """The session of this run, made when it is first asked for."""
    if SESSION not in config.stash:
        metrics_of(config)  # where it can't be, nothing is worth measuring
        hooks.use(config)  # a test may ask for the fixtures by `getfixturevalue` alone
        session = config.stash[SESSION] = _new_session(config)
        config.pluginmanager.register(HarmlessWarnings())
        session.results.scenarios = config.stash.get(SCENARIOS, ())
        session.measuring.expect(config.stash.get(BENCHMARKS, ()))
    return config.stash[SESSION]


def _new_session(config: pytest.Config) -> BenchSession:
    settings, turns = settings_of(config), config.stash.get(TURNS, None)
    is_whole = is_timing(config) and turns is None  # a paired run's coordinator gives its worker the time
    scores = turns is None or turns.observes  # else only times are wanted
    settings = replace(
        settings,
        limits_time=min(settings.limits_time, LIMITS_SHARE * settings.time) if is_timing(config) else 0.0,
        in_process=settings.in_process or not runs_in_turns(config),
        tasks=() if is_worker(config) else settings.tasks,  # nobody sees what they would give there
    )
    (reference,) = or_usage_error(lambda: select_variants(settings.reference, catalogue(config), settings.reference))
    deadline = Deadline(settings.time if is_whole else math.inf, config.stash[hooks.BEGAN_S])
    progress = Progress(TerminalProgress(config))
    return BenchSession(
        Setup(settings, progress, need=need_of(config), given=own_prompts_of(config), deadline=deadline),
        reference.id,
        score=lambda model, corpus: scores_by_hooks(config, model, corpus) if scores else (),
        commit=lambda: commit_of(config),
        keeps_report=not is_worker(config),
        scores_late=is_whole,
    )


def is_kept(item: pytest.Item) -> bool:
    """Whether an earlier session has run the test, so that this one doesn't."""
    return item.nodeid in item.config.stash.get(KEPT, ())


def is_timing(config: pytest.Config) -> bool:
    """Whether this run times anything: not under --benchmark-disable or --benchmark-skip, nor in pytest-xdist."""
    distributed = is_xdist_worker(config) or bool(config.getoption("numprocesses", None))
    return not distributed and not is_switched_off(config)


def runs_in_turns(config: pytest.Config) -> bool:
    """Whether this run's variants take turns, each in a process of its own."""
    return is_timing(config) and TURNS not in config.stash and not settings_of(config).in_process


def is_xdist_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of pytest-xdist, which measures nothing, because other tests run at the same time."""
    return hasattr(config, "workerinput")


def is_worker(config: pytest.Config) -> bool:
    """Whether another process reports what this one does: of pytest-xdist's, or `llm-bench pair`."""
    return is_xdist_worker(config) or TURNS in config.stash


@usage_errors()
def metrics_of(config: pytest.Config) -> Mapping[str, Metric]:
    """The registry with the project's own. UsageError where two have the same name, or a hook makes a wrong one."""
    if METRICS not in config.stash:
        config.stash[METRICS] = own_metrics(config)
    return config.stash[METRICS]


def catalogue(config: pytest.Config) -> tuple[Variant, ...]:
    """Every variant that this project knows: the package's, then those that its hooks add. Raises HookFailed."""
    known = backends.catalogue_of(settings_of(config))
    return (*known, *own_variants(config, known))


@usage_errors()
def selected_variants(config: pytest.Config, names: Sequence[str] = ()) -> tuple[Variant, ...]:
    """The variants that this run is to measure, the reference first; `names` narrows them to a test's marker."""
    settings, known = settings_of(config), catalogue(config)
    default = backends.chosen_by_default(known)
    return narrow(names, select_variants(settings.variants, known, settings.reference, default), known)


def swept_variants(config: pytest.Config, variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Each of the variants by default and in the other numbers of --llm-threads; none where none are given."""
    numbers = settings_of(config).threads
    if not numbers:
        return ()
    import torch

    others = [number for number in numbers if number != torch.get_num_threads()]
    if not others:
        warn(f"llm-bench: --llm-threads names no number but the default, {torch.get_num_threads()}")
    free = [variant for variant in variants if variant.threads is None and not variant.is_passive]
    return tuple(one for variant in free for one in (variant, *(with_threads(variant, number) for number in others)))


def takes_requests(variant: Variant) -> bool:
    """Whether a load of requests can be measured on it, as on a server."""
    return backends.find_backend(variant.backend).takes_requests


def selection_of(config: pytest.Config) -> tuple[str, ...]:
    """Parts of the command line that decide which tests run, and on which variants; the same for the same selection."""
    paths = (_from_root(config, argument) for argument in config.args)
    narrowing = {
        "-k": config.getoption("keyword", ""),
        "-m": config.getoption("markexpr", ""),
        "--deselect": ",".join(config.getoption("deselect", None) or ()),
        "--last-failed": config.getoption("lf", False),
        "--llm-variants": config.getoption("llm_variants"),
    }
    return (*sorted(paths), *(f"{flag} {value}" for flag, value in narrowing.items() if value))


def _from_root(config: pytest.Config, argument: str) -> str:
    """A path or node id of the command line as seen from the project's root."""
    path, separator, rest = argument.partition("::")
    absolute = (config.invocation_params.dir / path).resolve()
    if absolute.is_relative_to(config.rootpath):
        path = absolute.relative_to(config.rootpath).as_posix()
    return path + separator + rest
