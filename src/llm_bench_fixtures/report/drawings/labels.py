"""Names beside what they name, where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.drawings.style import name_of
from llm_bench_fixtures.report.page.figures import apart
from llm_bench_fixtures.report.page.looks import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

DIRECTIONS = 16
DISTANCES = (
    11.0,
    20.0,
    32.0,
    46.0,
    62.0,
    80.0,
    100.0,
    125.0,
    150.0,
    180.0,
    220.0,
    260.0,
)  # points from the marker's middle to the label's edge
LEADER_FROM = 20.0  # at which distance a line joins the two
ON_LABEL, OUTSIDE = 50.0, 1e6  # how much worse than to cover as much of a marker


@dataclass(frozen=True)
class Box:
    """A rectangle, in pixels of the picture."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Square pixels that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)

    def is_within(self, other: Box) -> bool:
        low = self.left >= other.left and self.bottom >= other.bottom
        return low and self.right <= other.right and self.top <= other.top


@dataclass(frozen=True)
class PointLabel:
    """A text for a point."""

    x: float
    y: float
    text: str
    colour: str
    radius: float
    """Of the point's marker, in typographic points."""
    bar: tuple[float, float] | None = None
    """The ends of its error bar, on the y axis."""
    across: tuple[float, float] | None = None
    """The ends of its error bar on the x axis."""


def label_points(figure: Figure, axis: Axes, labels: Sequence[PointLabel]) -> list[Annotation]:
    """Each text as near to its point as can be without covering a point, a bar or another text; joined by a line where
    that is further off. The axis must have its limits."""
    figure.draw_without_rendering()  # so that the axis has its place
    scale = figure.dpi / 72
    frame = box_of(axis)
    middles = [tuple(axis.transData.transform((one.x, one.y))) for one in labels]
    taken = [_around(middle, label.radius * scale) for label, middle in zip(labels, middles, strict=True)]
    bars = [bar for label in labels for bar in _bar_boxes(axis, label, scale)]
    placed: list[Box] = []
    notes = []
    for label, middle in zip(labels, middles, strict=True):
        note = axis.annotate(
            label.text,
            (label.x, label.y),
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            color=label.colour,
        )
        size = note.get_window_extent()
        offset, box, distance = _best(middle, (size.width, size.height), scale, frame, placed, [*taken, *bars])
        note.set_position(offset)
        if distance >= LEADER_FROM:
            _join(axis, label, _nearest(offset, size.width / scale, size.height / scale))
        placed.append(box)
        notes.append(note)
    return notes


def _around(middle: Sequence[float], radius: float) -> Box:
    x, y = middle
    return Box(x - radius, y - radius, x + radius, y + radius)


def _bar_boxes(axis: Axes, label: PointLabel, scale: float) -> Iterator[Box]:
    if label.bar is not None:
        yield _segment(axis, [(label.x, end) for end in label.bar], 2 * scale)
    if label.across is not None:
        yield _segment(axis, [(end, label.y) for end in label.across], 2 * scale)


def _segment(axis: Axes, ends: Sequence[tuple[float, float]], room: float) -> Box:
    """From one point to another, with so many pixels of room; whichever way the axes run."""
    start, end = axis.transData.transform(ends)
    (left, right), (bottom, top) = (sorted(pair) for pair in zip(start, end, strict=True))
    return Box(left - room, bottom - room, right + room, top + room)


def box_of(artist: Axes | Annotation) -> Box:
    extent = artist.get_window_extent()
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def _best(
    middle: Sequence[float],
    size: tuple[float, float],
    scale: float,
    frame: Box,
    placed: Sequence[Box],
    markers: Sequence[Box],
) -> tuple[tuple[float, float], Box, float]:
    """The offset in points, the box and the distance of the place that covers the least; of several the nearest."""

    def cost(box: Box) -> float:
        on_labels = sum(ON_LABEL * box.overlap(other) for other in placed)
        on_markers = sum(box.overlap(other) for other in markers)
        return on_labels + on_markers + (0.0 if box.is_within(frame) else OUTSIDE)

    return min(_places(middle, size, scale), key=lambda place: cost(place[1]))


def _places(
    middle: Sequence[float], size: tuple[float, float], scale: float
) -> Iterator[tuple[tuple[float, float], Box, float]]:
    """From the nearest to the furthest, at each distance to the right first. size: in pixels."""
    width, height = size
    for distance in DISTANCES:
        for number in range(DIRECTIONS):
            turn = (number + 1) // 2 * (-1) ** number / DIRECTIONS * 2 * math.pi
            dx = math.cos(turn) * (distance * scale + width / 2)
            dy = math.sin(turn) * (distance * scale + height / 2)
            x, y = middle[0] + dx, middle[1] + dy
            box = Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            yield (dx / scale, dy / scale), box, distance


def _nearest(offset: tuple[float, float], width: float, height: float) -> tuple[float, float]:
    """The text's edge nearest to the point. offset: of the text's middle; all in typographic points."""
    (x, y), half = offset, (width / 2, height / 2)
    return min(max(0.0, x - half[0]), x + half[0]), min(max(0.0, y - half[1]), y + half[1])


def _join(axis: Axes, label: PointLabel, offset: tuple[float, float]) -> None:
    """A thin line from the point to the text's edge, below all else."""
    axis.annotate(
        "",
        (label.x, label.y),
        xytext=offset,
        textcoords="offset points",
        arrowprops={
            "arrowstyle": "-",
            "color": label.colour,
            "linewidth": 0.8,
            "alpha": 0.5,
            "shrinkA": 0,
            "shrinkB": 0,
        },
        zorder=0.5,
    )


def label_ends(axis: Axes, ends: Mapping[str, tuple[float, float]], looks: Mapping[str, Look]) -> list[Annotation]:
    """Each variant's name to the right of the panel, as near to its line's end as the others allow, and joined to it.

    ends: by variant, the line's last point. The axis must have its limits.
    """
    to_axes = axis.transData + axis.transAxes.inverted()
    places = apart([float(to_axes.transform(end)[1]) for end in ends.values()])
    return [
        axis.annotate(
            name_of(variant),
            end,
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            color=looks[variant].colour,
            arrowprops={
                "arrowstyle": "-",
                "color": looks[variant].colour,
                "linewidth": 0.8,
                "alpha": 0.6,
                "shrinkA": 2,
                "shrinkB": 6,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )
        for (variant, end), place in zip(ends.items(), places, strict=True)
    ]
