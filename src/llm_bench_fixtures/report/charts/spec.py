"""A chart before any format: what it shows, as plain values. `plotly` writes any chart, `pictures` has any drawn that
has no legend.

Lengths on the page are typographic points. Values are in the unit that the axis names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from llm_bench_fixtures.statistics.spread import Estimate

SOFT = "#6b7280"  # lines and names that are no variant's
NEAR_COLOUR = "#009E73"  # the band that is near-lossless
LONGEST_LABEL = 20  # characters; the pointer shows what is longer in full
LEAST_GAP = 0.068  # between two labels of lines, of the plot's height
ROW, AROUND_ROWS = 30, 84  # pixels of a row, and of what is around all rows
Place: TypeAlias = "tuple[float, float]"
Facts: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and values, as the pointer shows them."""


@dataclass(frozen=True)
class Look:
    """Look that tells a variant, or a run, from the others."""

    colour: str
    marker: str
    """Plotly's name for the marker."""
    sign: str
    """The marker as a character."""
    dash: str


@dataclass(frozen=True)
class Axis:
    title: str
    ends: Place
    """Left and right end, or bottom and top."""
    is_log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    """Where there are none, the format chooses them."""
    suffix: str = ""
    """Behind the number of each tick."""
    has_grid: bool = True


@dataclass(frozen=True)
class Point:
    x: Estimate
    y: Estimate
    facts: Facts = ()
    link: str = ""
    """Where a click leads; empty for the choice of the variant."""


@dataclass(frozen=True)
class Series:
    """Points of one variant with the same look."""

    variant: str
    points: tuple[Point, ...]
    look: Look
    label: str = ""
    """Next to the point, or to the right of a line's end."""
    detail: str = ""
    """Text that a picture, which has no pointer, adds to the label."""
    size: float = 6.0
    """Across a marker; 0 draws none."""
    is_filled: bool = True
    is_line: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class Bar:
    """A horizontal bar in a row of its variant."""

    variant: str
    row: int
    length: Estimate
    look: Look
    start: float = 0.0
    text: str = ""
    """Text at its end, in a picture."""
    facts: Facts = ()
    opacity: float = 1.0


@dataclass(frozen=True)
class Line:
    """A line without markers: a limit, a level, a step."""

    places: tuple[Place, ...]
    colour: str = SOFT
    dash: str = "solid"
    width: float = 1.2
    variant: str = ""
    """Variant that the line belongs to; empty for none."""


@dataclass(frozen=True)
class Text:
    """A name on the chart, in soft letters."""

    text: str
    x: float
    y: float
    is_right: bool = False
    """Whether its right end is at x, rather than its left one."""
    is_below: bool = False


@dataclass(frozen=True)
class Band:
    """The values between two, shaded."""

    low: float
    high: float
    is_of_x: bool = False


@dataclass(frozen=True)
class Chart:
    """One plot. Everything in it is about variants, which the page's filter goes by."""

    name: str
    title: str
    x: Axis
    y: Axis
    note: str = ""
    """How to read it, a sentence or two."""
    description: str = ""
    """Description for those who don't see it."""
    series: tuple[Series, ...] = ()
    bars: tuple[Bar, ...] = ()
    lines: tuple[Line, ...] = ()
    texts: tuple[Text, ...] = ()
    bands: tuple[Band, ...] = ()
    keys: tuple[tuple[str, Look], ...] = ()
    """The legend: what the looks stand for where they aren't the variants'."""
    scenario: str = ""
    height: int = 340
    """Pixels of the page."""
    can_zoom: bool = False


@dataclass(frozen=True)
class Picture:
    """Charts that are drawn next to each other, for a slide or a paper."""

    name: str
    title: str
    part: str
    """The scenario that it shows, or SUMMARY or MACHINE."""
    charts: tuple[Chart, ...]
    caption: str


@dataclass(frozen=True)
class Plot:
    """A picture on disk."""

    path: Path
    """The SVG; the PNG beside it differs in the suffix."""
    title: str
    scenario: str
    """The scenario that it shows, or SUMMARY or MACHINE."""


def rows_axis(names: Sequence[str]) -> Axis:
    """A y axis with a row for each name, the first at the top."""
    return Axis("", (len(names) - 0.5, -0.5), ticks=tuple(enumerate(names)), has_grid=False)


def short(text: str) -> str:
    """First characters of a text, at most LONGEST_LABEL, for a label."""
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def padded(values: Iterable[float], share: float = 0.08) -> Place:
    """The least and the largest value with some room beyond them; also where both are the same."""
    known = list(values)
    low, high = min(known), max(known)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room


def ends_of(estimates: Iterable[Estimate]) -> list[float]:
    return [end for one in estimates for end in (one.low, one.value, one.high)]


def apart(places: Sequence[float]) -> list[float]:
    """Places from 0 to 1, moved so far that none is nearer to the next than LEAST_GAP, and kept in their order.

    More labels than fit at that gap stand closer.
    """
    gap = min(LEAST_GAP, 1 / max(len(places) - 1, 1))
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    floor = 0.0
    for index in order:
        moved[index] = floor = max(moved[index], floor)
        floor += gap
    ceiling = 1.0
    for index in reversed(order):
        moved[index] = ceiling = min(moved[index], ceiling)
        ceiling -= gap
    return moved
