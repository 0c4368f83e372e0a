"""What somebody asks of a variant: the limits that it must keep, and what it is wanted for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import partial

from llm_bench_fixtures.answer.peaks import PEAKS
from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.options.parsers import UNIT_BYTES, Setting, shortened
from llm_bench_fixtures.results.formatting import MINUS, with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Direction, Kind, Metric, Unit
from llm_bench_fixtures.statistics.spread import Interval

EXAMPLES = "METRIC<=BOUND or METRIC>=BOUND, such as tpot_s<=50ms or top1_agreement>=99%"
ANY = "any"  # in place of a bound: no limit, as on quality, which has one by default
SIGNS = {Direction.LOWER_IS_BETTER: "<=", Direction.HIGHER_IS_BETTER: ">="}
SHORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "latency": ("per_sample_latency_s",),  # time per prompt of a batch
    "ttft": ("ttft_s",),
    "tpot": ("tpot_s",),
    "throughput": ("output_tokens_per_s",),
    "memory": PEAKS,
    "ppl": ("ppl_ratio",),
    "kld": ("kld_mean",),
    "top1": ("top1_agreement",),
}
NEAREST = 3  # names that an unknown one may have meant
# A bound's example and units by what the metric is stored in, whatever the units' case; "" stands for none.
BOUNDS: Mapping[Unit, tuple[str, Mapping[str, float]]] = {
    Unit.SECONDS: ("a time such as 50ms, 0.5s or 0.5", {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}),
    Unit.BYTES: ("a size with its unit, such as 500MB, 4GB or 4GiB", UNIT_BYTES),
    Unit.SHARE: ("a share such as 99% or 0.99", {"": 1.0, "%": 0.01}),
}
_LIMIT = re.compile(r"([^\s<>=≤≥:]+)\s*([<>=≤≥:]+)\s*(.*)")
_BOUND = re.compile(r"([0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?|\.[0-9]+)\s*([^0-9]*)", re.IGNORECASE)
_ZEROS = re.compile(r"\.0+(?![0-9])")


class Reader(StrEnum):
    """Who asks what to use."""

    LATENCY = "lowest latency"
    THROUGHPUT = "most throughput"
    MEMORY = "least memory"

    @property
    def quantity(self) -> str:
        """What the reader looks at, in a word."""
        return self.value.split()[1]


class QualityMeasure(StrEnum):
    """The metrics of quality whose limit a page can move, by their names in the registry."""

    PPL_RATIO = "ppl_ratio"
    TOP1_AGREEMENT = "top1_agreement"


class Standing(StrEnum):
    """Where a figure stands to a limit, or a variant to all limits."""

    WITHIN = "within"
    BEYOND = "beyond"
    UNCLEAR = "unclear"  # the limit is inside the 95 % interval
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Limit:
    """A bound that a metric may not pass on its worse side."""

    name: str
    """Name as it was typed: the metric's, or one of SHORT_NAMES; of quality always the metric's."""
    metrics: tuple[Metric, ...]
    """Metrics that the limit may be of: the first of which the run has values."""
    bound: float
    """Bound in the base unit."""

    @property
    def metric(self) -> Metric:
        """The one that says what the limit is like."""
        return self.metrics[-1]

    @property
    def is_of_quality(self) -> bool:
        return self.metric.kind is Kind.QUALITY

    @property
    def is_ceiling(self) -> bool:
        """Whether less is better."""
        return self.metric.direction is Direction.LOWER_IS_BETTER

    @property
    def bound_in_words(self) -> str:
        """The bound with its unit: "50 ms", "99 %", "1.01"."""
        if self.metric.unit is Unit.SHARE:
            return f"{self.bound * 100:g} %"
        return f"{self.bound:g}" if self.is_of_quality else _ZEROS.sub("", with_unit(self.bound, self.metric))

    @property
    def change_in_words(self) -> str:
        """The change from the reference that a ratio's bound is: "+1 %"."""
        return f"{(self.bound - 1) * 100:+g} %".replace("-", MINUS) if self.bound != 1 else "0 %"

    def __str__(self) -> str:
        return f"{self.name} {'≤' if self.is_ceiling else '≥'} {self.bound_in_words}"

    def words(self, reference: str) -> str:
        """What it asks of a variant, to stand after "with". reference: the id of what the variant is compared with."""
        if self.name == QualityMeasure.TOP1_AGREEMENT:
            return f"top-1 agreement of at least {self.bound_in_words} with {reference}"
        if self.name != QualityMeasure.PPL_RATIO:
            end = "most" if self.is_ceiling else "least"
            return f"{self.metric.title_in_sentence} of at {end} {self.bound_in_words}"
        if self.bound == 1:
            return f"perplexity not above {reference}'s"
        return f"perplexity at most {(self.bound - 1) * 100:g} % above {reference}'s"

    def standing_of(self, found: Interval) -> Standing:
        """Where an interval of the metric stands to the bound."""
        low, high, bound = found.low, found.high, self.bound
        if not self.is_ceiling:
            low, high, bound = -high, -low, -bound
        return Standing.WITHIN if high <= bound else Standing.BEYOND if low > bound else Standing.UNCLEAR

    def miss_of(self, value: float) -> float:
        """Share of the bound by which the value is worse; below 0 where it is better."""
        worse, better = (value, self.bound) if self.is_ceiling else (self.bound, value)
        return worse / better - 1 if better else math.inf


def quality_limit(measure: QualityMeasure, bound: float) -> Limit:
    return Limit(measure.value, (METRIC_BY_NAME[measure],), bound)


DEFAULT_LIMIT = quality_limit(QualityMeasure.PPL_RATIO, 1.01)


@dataclass(frozen=True)
class Need:
    """Limits that a variant must keep to be recommended, and what it is wanted for."""

    limits: tuple[Limit, ...] = (DEFAULT_LIMIT,)
    want: Reader = Reader.LATENCY
    """Whom the answer serves first, and on whose workload the limits are judged for all variants."""

    @property
    def quality(self) -> Limit | None:
        """The limit that a page can move: the first of a QualityMeasure."""
        return next((one for one in self.limits if one.name in list(QualityMeasure)), None)

    @property
    def title(self) -> str:
        """What to call the limits."""
        return "the quality limit" if self.is_of_quality else "the need"

    @property
    def verb(self) -> str:
        """What a variant does that is within all of them, without its ending."""
        return "keep" if self.is_of_quality else "meet"

    @property
    def is_of_quality(self) -> bool:
        """Whether nothing but quality is limited, as by default."""
        return all(one.is_of_quality for one in self.limits)

    def __str__(self) -> str:
        return ", ".join(map(str, self.limits))

    def with_quality(self, limit: Limit) -> Need:
        """The need with this limit in place of those of a QualityMeasure."""
        others = (one for one in self.limits if one.name not in list(QualityMeasure))
        return replace(self, limits=(*others, limit))

    def bound_of(self, metric: str, default: float) -> float:
        """The bound on the metric of that name; the default without any."""
        return next((one.bound for one in self.limits if one.metric.name == metric), default)


DEFAULT_NEED = Need()


def parse_limits(text: str, metrics: Mapping[str, Metric] = METRIC_BY_NAME) -> tuple[Limit, ...]:
    """`METRIC<=BOUND` or `METRIC>=BOUND`, separated by commas; without any on quality, DEFAULT_LIMIT is added.

    metrics: the registry, with what a project added to it. Raises InvalidSetting for another form, a metric that isn't
    there or can't be limited, a sign that isn't the metric's, and a bound or a unit that isn't.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = [_parse_limit(part, metrics) for part in parts or [text]]
    for limit in found:
        if sum(one.metrics == limit.metrics for one in found) > 1:
            raise InvalidSetting(f"{limit.name} is limited twice: leave one of the two out")
    asked = tuple(limit for limit in found if math.isfinite(limit.bound))
    return asked if any(limit.is_of_quality for limit in found) else (*asked, DEFAULT_LIMIT)


def _parse_limit(text: str, metrics: Mapping[str, Metric]) -> Limit:
    """Limit of the text, with an infinite bound for ANY."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise InvalidSetting(f"expected {EXAMPLES}, got {shortened(text)}")
    name, sign, bound = found.groups()
    named = tuple(_limitable(one, metrics) for one in SHORT_NAMES.get(name, (name,)))
    direction, typed = named[0].direction, sign.replace("≤", "<=").replace("≥", ">=")
    if typed not in SIGNS.values():
        raise UnknownName("sign", sign, SIGNS.values())
    if typed != SIGNS[direction]:
        raise InvalidSetting(f"{name}: {direction}, so write {name}{SIGNS[direction]}BOUND; got {shortened(text)}")
    shown = named[0].name if named[0].kind is Kind.QUALITY else name
    return Limit(shown, named, math.inf if bound == ANY else _parse_bound(name, bound, named[0]))


def _limitable(name: str, metrics: Mapping[str, Metric]) -> Metric:
    """The metric of that name. Raises InvalidSetting where there is none, or neither way of it is better."""
    if name not in metrics:
        can_be_limited = [one.name for one in metrics.values() if one.direction is not Direction.NEITHER]
        known = {one.lower(): one for one in (*SHORT_NAMES, *can_be_limited)}
        typed = name.lower()
        begun = [one for one in known if one.startswith(typed)]
        near = [known[one] for one in dict.fromkeys([*begun, *get_close_matches(typed, known, NEAREST)])][:NEAREST]
        raise UnknownName("metric", name, known.values(), near)
    if metrics[name].direction is Direction.NEITHER:
        raise InvalidSetting(f"{name} can't be limited: neither more nor less of it is better")
    return metrics[name]


def _parse_bound(name: str, text: str, metric: Metric) -> float:
    """Bound in the metric's base unit."""
    plain = "a number without a unit, such as 1.01", {"": 1.0, metric.unit.value: 1.0}
    example, sizes = BOUNDS.get(metric.unit, plain)
    if name in SHORT_NAMES and metric.unit is Unit.SECONDS:  # the name doesn't say that a number is in seconds
        sizes, example = {one: size for one, size in sizes.items() if one}, "a time with its unit, such as 50ms or 0.5s"
    expected = f"{name}: expected {example}, got {shortened(text)}"
    found = _BOUND.fullmatch(text)
    if found is None or not math.isfinite(float(found[1])):
        raise InvalidSetting(expected)
    unit = found[2].strip().replace("\N{GREEK SMALL LETTER MU}", "µ")
    size = next((size for known, size in sizes.items() if known.lower() == unit.lower()), None)
    if size is None:
        known = list(filter(None, sizes))
        raise UnknownName(f"unit of {name}", unit, known) if unit and known else InvalidSetting(expected)
    bound = float(found[1]) * size
    if metric.unit is Unit.SHARE and bound > 100 * size:
        raise InvalidSetting(f"{name}: expected at most 100%, got {text}")
    if metric.unit is Unit.SHARE and bound > 1:
        raise InvalidSetting(f"{name}: {text} would be {bound:.0%}: type {text}%, or a share of at most 1")
    if metric.name == QualityMeasure.PPL_RATIO and bound < 1:
        raise InvalidSetting(f"{name}: expected at least 1, got {text}: 1.01 allows 1 % more than the reference's")
    return bound


def _parse_want(text: str) -> Reader:
    known = {reader.quantity: reader for reader in Reader}
    if text not in known:
        raise UnknownName("thing to want", text, known)
    return known[text]


NEED = Setting("need", parse_limits)
WANT = Setting("want", _parse_want)


def need_from(given: Mapping[str, str], metrics: Mapping[str, Metric] = METRIC_BY_NAME) -> Need:
    """Need from texts by option name. Raises InvalidSetting that names the flag."""
    return Need(replace(NEED, parse=partial(parse_limits, metrics=metrics)).read(given), WANT.read(given))
