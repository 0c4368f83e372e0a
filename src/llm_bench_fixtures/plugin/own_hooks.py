"""Asks a project's own hooks, one implementation at a time: what one raises, or returns wrongly, is told with its file
and costs nothing but what it was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from llm_bench_fixtures.errors import HookFailed, InvalidSetting, reason_of
from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.plugin.outcomes import warn
from llm_bench_fixtures.reading import LARGEST
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, METRICS, Kind, Metric, registry
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.table import OWN_COLUMNS
from llm_bench_fixtures.text import LONGEST
from llm_bench_fixtures.workloads import Corpus

T = TypeVar("T")

PLUGIN = "llm_bench_fixtures.plugin.bench_hooks"  # implementations there fail as this package's code does
ENDS_TESTS = "pytest_llm_bench_measure"  # the one hook that may skip or fail the test that it is called in
OUTCOMES = (pytest.fail.Exception, pytest.skip.Exception)  # no Exceptions
EXPECTED = {
    "pytest_llm_bench_variants": "a sequence of Variant",
    "pytest_llm_bench_metrics": "a sequence of Metric",
    "pytest_llm_bench_measure": "numbers by metric name",
    "pytest_llm_bench_score": "numbers by metric name, or a CorpusScore",
}


@dataclass(frozen=True)
class Implementation:
    """One plugin's implementation of a hook."""

    hook: str
    where: str
    """The plugin's file."""
    call: Callable[..., list[Any]]
    """Gives what it returns, if anything."""
    is_own: bool
    """Whether it is this package's."""

    def answers(self, check: Callable[[Any], T], **given: object) -> list[T]:
        """Answers of the hook, as `check` gives them. Raises HookFailed for what either raises."""
        try:
            return [check(answer) for answer in self.call(**given)]
        except (Exception, SystemExit, *OUTCOMES) as error:
            if isinstance(error, OUTCOMES) and self.hook == ENDS_TESTS:
                raise
            raise self.failure(error) from error

    def failure(self, error: BaseException) -> HookFailed:
        """The error, with the hook, its file and what it is expected to return."""
        return HookFailed(f"{self.hook} in {self.where}: {reason_of(error)} (expected {EXPECTED[self.hook]})")


def implementations(config: pytest.Config, hook: str) -> list[Implementation]:
    """Implementations of all plugins in the order in which pytest calls them, this package's own last."""
    found = getattr(config.hook, hook).get_hookimpls()
    plugins = [one.plugin for one in reversed(found) if not (one.wrapper or one.hookwrapper)]
    made: list[Implementation] = []
    for plugin in plugins:
        others = [other for other in plugins if other is not plugin]
        call = config.pluginmanager.subset_hook_caller(hook, others)  # within the wrappers that there are
        made.append(Implementation(hook, _file_of(config, plugin), call, getattr(plugin, "__name__", "") == PLUGIN))
    return sorted(made, key=lambda one: one.is_own)


def _file_of(config: pytest.Config, plugin: object) -> str:
    """The plugin's file as seen from the project's root; its name where it is no module."""
    file = getattr(plugin, "__file__", None)
    if file is None:
        return config.pluginmanager.get_canonical_name(plugin)
    path = Path(file)
    return path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else str(path)


def own_variants(config: pytest.Config, known: Iterable[Variant]) -> Iterator[Variant]:
    """The variants that hooks add. Raises HookFailed for what is none, and for an id that another variant has."""
    by_id = {variant.id: variant for variant in known}
    for one in implementations(config, "pytest_llm_bench_variants"):
        for group in one.answers(lambda added: [_checked_variant(variant, by_id) for variant in added], config=config):
            yield from group


def _checked_variant(variant: Any, by_id: dict[str, Variant]) -> Variant:
    if not isinstance(variant, Variant):
        raise InvalidSetting(f"{variant!r} is no Variant")
    if not isinstance(variant.precision, Precision):
        raise InvalidSetting(f"the precision of {variant.id} is {variant.precision!r}, which is no Precision")
    if by_id.setdefault(variant.id, variant) != variant:
        raise InvalidSetting(f"a variant named {variant.id!r} is there already")
    return variant


def own_metrics(config: pytest.Config) -> Mapping[str, Metric]:
    """The registry with the metrics that hooks add. Raises HookFailed for what is none, and for a taken name."""
    added: list[Metric] = []
    for one in implementations(config, "pytest_llm_bench_metrics"):
        one.answers(partial(_add_metrics, added, one.where), config=config)
    return registry(added)


def _add_metrics(added: list[Metric], where: str, metrics: Iterable[Any]) -> None:
    added += [_guarded(_checked_metric(metric), where) for metric in metrics]
    registry(added)  # refuses a taken name


def _checked_metric(metric: Any) -> Metric:
    if not isinstance(metric, Metric):
        raise InvalidSetting(f"{metric!r} is no Metric")
    if not isinstance(metric.name, str) or not metric.name or metric.name in OWN_COLUMNS:
        raise InvalidSetting(f"a metric can't be named {metric.name!r}")
    return metric


def _guarded(metric: Metric, where: str) -> Metric:
    """The metric; where its function raises, the record has no such value, and a warning says why."""
    compute = metric.value
    if compute is None:
        return metric

    def value(record: Record, variant: Any) -> float | None:
        try:
            found = compute(record, variant)
            return None if found is None or not math.isfinite(found) else float(found)
        except Exception as error:
            what = f"the value of {metric.name} of {record.test}"
            warn(f"pytest_llm_bench_metrics in {where}: {what}: {reason_of(error)}")
            return None

    return replace(metric, value=value)


def measured_by_hooks(config: pytest.Config, model: ModelHandle, record: Record) -> tuple[dict[str, float], list[str]]:
    """Further values of a benchmark by metric name, and why others are missing. A value that isn't finite is none."""
    values: dict[str, float] = {}
    missing: list[str] = []
    for one in implementations(config, "pytest_llm_bench_measure"):
        try:
            for numbers in one.answers(partial(_numbers, one, missing), config=config, model=model, record=record):
                values |= {name: value for name, value in numbers.items() if math.isfinite(value)}
        except HookFailed as error:
            missing.append(str(error))
    return values, missing


def computed_values(values: Mapping[str, float], metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Values of a record that a project's own formulas give: to be kept, as nobody else can compute them.

    metrics: the registry.
    """
    own = [name for name, metric in metrics.items() if metric.value is not None and metric not in METRICS]
    return {name: float(values[name]) for name in own if name in values and math.isfinite(values[name])}


def scores_by_hooks(config: pytest.Config, model: ModelHandle, corpus: Corpus) -> list[CorpusScore]:
    """The quality of a loaded variant by each hook. What one that isn't ours fails at is a note."""
    found: list[CorpusScore] = []
    for one in implementations(config, "pytest_llm_bench_score"):
        if one.is_own:
            found += one.call(config=config, model=model, corpus=corpus)
            continue
        try:
            found += one.answers(partial(_score, one), config=config, model=model, corpus=corpus)
        except HookFailed as error:
            found.append(CorpusScore({}, (), (str(error),)))
    return found


def _score(one: Implementation, given: Any) -> CorpusScore:
    score = given if isinstance(given, CorpusScore) else CorpusScore(given, ())
    missing: list[str] = []
    metrics = _numbers(one, missing, score.metrics, gives_quality=True)
    return CorpusScore(metrics, tuple(map(float, score.loss_blocks)), (*map(str, score.notes), *missing))


def _numbers(one: Implementation, missing: list[str], given: Any, *, gives_quality: bool = False) -> dict[str, float]:
    """The values that can be used; `missing` gets why others can't.

    gives_quality: whether the hook may give metrics of quality that are ours, too: of a model that we can't score, say.
    """
    if not isinstance(given, Mapping):
        raise InvalidSetting(f"it returned {given!r:.100}")
    found: dict[str, float] = {}
    for name, value in given.items():
        try:
            found[_checked_name(name, gives_quality=gives_quality)] = _checked_number(name, value)
        except Exception as error:  # what a value's own conversion raises, too
            missing.append(str(one.failure(error)))
    return found


def _checked_name(name: Any, *, gives_quality: bool) -> str:
    if not isinstance(name, str) or not name or len(name) > LONGEST:
        raise InvalidSetting(f"{name!r:.100} is no name of a metric")
    ours = METRIC_BY_NAME.get(name)
    may_be_given = gives_quality and ours is not None and ours.kind is Kind.QUALITY and ours.value is None
    if name in OWN_COLUMNS or (ours is not None and not may_be_given):
        raise InvalidSetting(f"{name} is this package's own and can't be given")
    return name


def _checked_number(name: str, value: Any) -> float:
    number = float(value) if not isinstance(value, (str, bytes)) else math.nan
    if isinstance(value, (str, bytes)) or (math.isfinite(number) and abs(number) > LARGEST):
        raise InvalidSetting(f"{name} is {value!r:.100}, and no number up to {LARGEST:g}")
    return number
