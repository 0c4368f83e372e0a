"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum, member
from functools import partial

from llm_bench_fixtures.results.metrics import Kind, Metric, Unit

MISSING = "–"
MINUS = "−"  # U+2212, as wide as the plus
MOST_DIGITS = 4  # after the point of a percentage
BYTE_SIZES = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
SECOND_SIZES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
FLOP_SIZES = {"TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6}


def count(number: int, one: str, many: str = "") -> str:
    """1 run, 2 runs. many: the plural, if it isn't `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_seconds(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    unit, size = common_unit([seconds], SECOND_SIZES)
    return f"{three_digits(seconds / size)} {unit}"


def format_bytes(count: float) -> str:
    """Bytes in powers of 1000."""
    return _scaled(count, BYTE_SIZES, "B")


def format_share(share: float) -> str:
    """0.3812 is "38.1 %"."""
    percent = share * 100
    if 0 < abs(percent) < 0.01:
        return "<0.01 %"
    return f"{percent:.0f} %" if abs(percent) >= 99.95 or percent == 0 else f"{percent:.3g} %"


def common_unit(values: Iterable[float], sizes: Mapping[str, float]) -> tuple[str, float]:
    """The name and size of the unit in which a column of values is read best: the largest that none of them is below.

    If the smallest value is below every unit, the smallest unit. sizes: by name, the largest first.
    """
    least = min(values, default=0.0)
    return next((unit for unit in sizes.items() if 0.9995 * unit[1] <= least), list(sizes.items())[-1])


def spread_like(value: float, spread: float) -> str:
    """The spread of a value, with as many digits after the point as the value has: of 33.8 ± 0.4 the 0.4."""
    return f"{spread:,.{_decimals(value)}f}"


def _scaled(count: float, sizes: Mapping[str, float], smallest: str) -> str:
    for name, size in sizes.items():
        if count >= 0.9995 * size:  # rounded to 1
            return f"{three_digits(count / size)} {name}"
    return f"{count:.0f} {smallest}"


def three_digits(value: float) -> str:
    """Number with at least three significant digits, and all of those before the point."""
    return f"{value:,.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    limits = ((3, 1), (2, 10), (1, 100))
    return next((decimals for decimals, limit in limits if round(abs(value), decimals) < limit), 0)


def five_digits(value: float) -> str:
    """Five significant digits, and all of those before the point; 0 is nothing but that."""
    if value == 0:
        return "0"
    if 0 < abs(value) < 1e-3:
        return f"{value:.2g}"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    return f"{value:,.{max(5 - whole, 0)}f}"


def format_change(ratio: float, digits: int = 1) -> str:
    """A ratio as a signed percentage: 1.013 is "+1.3 %"."""
    percent = round((ratio - 1) * 100, digits) + 0.0  # no "-0.0"
    return f"{percent:+.{digits}f} %".replace("-", MINUS)


def change_and_error(ratio: float, error: float) -> tuple[str, str]:
    """A ratio and its standard error as percentages, rounded at the error's first digit: of 1.0004 and 0.0002 they
    are "+0.04 %" and "0.02 %". If the error is below 0.0001 %, it is empty.
    """
    if error * 100 < 10**-MOST_DIGITS:
        return format_change(ratio), ""
    digits = min(max(-math.floor(math.log10(error * 100)), 1), MOST_DIGITS)
    return format_change(ratio, digits), f"{error * 100:.{digits}f} %"


class Notation(Enum):
    """How a number is written: by which function."""

    SECONDS = member(format_seconds)  # with a fitting unit of time
    BYTES = member(format_bytes)  # with a fitting unit
    FLOPS = member(partial(_scaled, sizes=FLOP_SIZES, smallest="FLOP"))  # with a fitting unit of work
    SHARE = member(format_share)  # as a percentage
    COUNT = member("{:,.0f}".format)  # whole
    NUMBER = member(three_digits)
    FINE = member(five_digits)
    TIMES = member(lambda value: f"{three_digits(value)}×")  # how many times as much: 1.50×
    CHANGE = member(format_change)  # a ratio as a signed percentage: 1.02 is +2.0 %
    TEXT = member(str)  # text, set as numbers are


BY_UNIT = {  # the notations that write the unit, or that need none
    Unit.SECONDS: Notation.SECONDS,
    Unit.BYTES: Notation.BYTES,
    Unit.FLOPS: Notation.FLOPS,
    Unit.SHARE: Notation.SHARE,
    Unit.COUNT: Notation.COUNT,
    Unit.TOKENS: Notation.COUNT,
}


def notation_of(metric: Metric) -> Notation:
    """Quality has five digits, because a thousandth matters there; shares and counts have as many as elsewhere."""
    is_fine = metric.kind is Kind.QUALITY and metric.unit not in (Unit.SHARE, Unit.COUNT)
    return Notation.FINE if is_fine else BY_UNIT.get(metric.unit, Notation.NUMBER)


def written(value: float | None, notation: Notation) -> str:
    """The value with a unit of fitting size and three digits: 0.0123 s is "12.3 ms"."""
    return MISSING if value is None else str(notation.value(value))


def with_unit(value: float | None, metric: Metric) -> str:
    """The value outside of any table."""
    text = written(value, notation_of(metric))
    return text if value is None or metric.unit in (*BY_UNIT, Unit.NONE) else f"{text} {metric.unit}"
