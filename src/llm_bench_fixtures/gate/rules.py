"""What change for the worse a metric may show: its own tolerance, and rules `METRIC:CHANGE` that override it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from llm_bench_fixtures.errors import DamagedResults, InvalidSetting, UnknownName
from llm_bench_fixtures.results.formatting import format_share, with_unit
from llm_bench_fixtures.results.metrics import Force, Kind, Metric, Tolerance
from llm_bench_fixtures.results.metrics.tasks import PREFIX
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.text import printable


def rule_in_words(rule: Tolerance, metric: Metric) -> str:
    """The change that the rule allows: "10 % or 5.00 MB"."""
    parts = [format_share(rule.relative)] if rule.relative else []
    parts += [with_unit(rule.absolute, metric)] if rule.absolute else []
    return " or ".join(parts) or "no change"


@dataclass(frozen=True)
class NamedRule:
    """`[SCENARIO/]METRIC:CHANGE` as it was typed."""

    target: str
    """A metric, or a kind of metrics."""
    change: str
    scenario: str = ""
    """Empty for all scenarios."""


def parse_rules(text: str) -> tuple[NamedRule, ...]:
    """Rules separated by commas. Raises InvalidSetting for another form, and for a change that can't be used."""
    return tuple(_parse_rule(part.strip()) for part in text.split(",") if part.strip())


def _parse_rule(text: str) -> NamedRule:
    where, separator, change = text.rpartition(":")
    if not separator or not where:
        raise InvalidSetting(f"expected METRIC:CHANGE such as latency_s:10% or weight_bytes:0, got {text!r}")
    scenario, _, target = where.rpartition("/")
    changed(Tolerance(), change)
    return NamedRule(target, change, scenario)


def changed(rule: Tolerance, change: str | float) -> Tolerance:
    """The rule with a CHANGE: 5% relative, 0.5 absolute in the metric's unit, `blocking`, `advisory` or `off`.

    A rule with a new tolerance is blocking. It keeps its floor, or gets the new tolerance as its floor where that is
    larger. Raises InvalidSetting.
    """
    text = str(change).strip()
    if text in list(Force):
        return replace(rule, force=Force(text))
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise InvalidSetting(f"expected a change such as 5% or 0.01, or one of {', '.join(Force)}, got {text!r}")
    relative, absolute = (number / 100, 0.0) if text.endswith("%") else (0.0, number)
    return Tolerance(relative, absolute, floor=None if rule.floor is None else max(rule.floor, relative))


@dataclass(frozen=True)
class Rules:
    """The rules of a gate, which override the defaults.

    The most specific rule applies: the test's own marker, then the scenario's, then the metric's, then its kind's.
    Among equals the last applies. A kind's rule does not apply to metrics that are off by default (how far rounds
    scatter), and its tolerance does not apply to metrics that have a default of their own (`weight_bytes`).
    """

    named: tuple[NamedRule, ...] = ()

    def of(self, metric: Metric, scenario: str = "", mark: Mapping[str, str] = MappingProxyType({})) -> Tolerance:
        """The rule for a metric of a test of that scenario. mark: what the test's marker allows, by metric or kind."""
        rule = metric.default_tolerance
        levels = [[one for one in self.named if one.scenario == where] for where in dict.fromkeys(("", scenario))]
        for level in (*levels, [NamedRule(target, change) for target, change in mark.items()]):
            for target in (metric.kind.value, metric.name):
                for one in level:
                    if one.target == target:
                        rule = _overridden(rule, metric, target, one.change)
        return rule


def _overridden(rule: Tolerance, metric: Metric, target: str, change: str) -> Tolerance:
    if target == metric.name:
        return changed(rule, change)
    if metric.default_tolerance.force is Force.OFF:
        return rule
    has_own = metric.tolerance is not None
    return rule if has_own and change not in list(Force) else changed(rule, change)


def check_targets(targets: Sequence[str], metrics: Iterable[str]) -> None:
    """Raise UnknownName for one that is neither a metric nor a kind of metrics. Only a run knows those of its tasks."""
    known = [*Kind, *metrics]
    for target in targets:
        if target not in known and not target.startswith(PREFIX):
            raise UnknownName("metric or kind of metrics", target, known)


def check_saved_marks(source: str, records: Iterable[Record]) -> None:
    """Raise DamagedResults for a change in a saved record's marks that can't be used. source: the run's file."""
    for record in records:
        for change in record.gate.values():
            try:
                changed(Tolerance(), change)
            except InvalidSetting as error:
                raise DamagedResults(f"{source} is damaged: {printable(record.test)}: llm_gate: {error}") from error


def check_marks(marks: Mapping[str, str], metrics: Iterable[str]) -> None:
    """Raise InvalidSetting for a marker's metric that is none, or a change that can't be used."""
    check_targets(tuple(marks), metrics)
    for change in marks.values():
        changed(Tolerance(), change)
