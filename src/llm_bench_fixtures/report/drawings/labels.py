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
    bar: tuple[float, float] | None = None
    """The ends of its error bar, on the y axis."""


def label_points(figure: Figure, axis: Axes, labels: Sequence[PointLabel], radius: float) -> list[Annotation]:
    """Each text as near to its point as can be without covering a point or another text; joined by a line where that is
    further off. The axis must have its limits. radius: of the markers, in typographic points."""
    figure.draw_without_rendering()  # so that the axis has its place
    scale = figure.dpi / 72
    frame = box_of(axis)
    middles = [tuple(axis.transData.transform((one.x, one.y))) for one in labels]
    taken = [Box(x - radius * scale, y - radius * scale, x + radius * scale, y + radius * scale) for x, y in middles]
    bars = [bar for label in labels if (bar := _bar_box(axis, label, scale))]
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
            _join(axis, label, offset)
        placed.append(box)
        notes.append(note)
    return notes


def _bar_box(axis: Axes, label: PointLabel, scale: float) -> Box | None:
    if label.bar is None:
        return None
    (x, low), (_, high) = (axis.transData.transform((label.x, end)) for end in label.bar)
    return Box(x - 2 * scale, low, x + 2 * scale, high)


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


def _join(axis: Axes, label: PointLabel, offset: tuple[float, float]) -> None:
    """A thin line from the point to the text's middle, below all else."""
    axis.annotate(
        "",
        (label.x, label.y),
        xytext=offset,
        textcoords="offset points",
        arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.8, "alpha": 0.5, "shrinkB": 6},
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
