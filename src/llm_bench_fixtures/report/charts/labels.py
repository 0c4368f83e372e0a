"""Names next to what they name, in a picture, where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.charts import spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

DIRECTIONS = 16
DISTANCES = (11, 20, 32, 46, 62, 80, 100, 125, 150, 180, 220, 260)  # points from a marker's middle to a label's edge
LEADER_FROM = 20  # at which distance a line joins the two
GAP = 3.0  # points between a marker and a label
ON_LABEL, OUTSIDE = 50.0, 1e6  # how much worse than to cover as much of a marker
LEADER = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5}


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


def box_of(artist: Axes | Annotation) -> Box:
    extent = artist.get_window_extent()
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def label_points(figure: Figure, axis: Axes, labelled: Sequence[tuple[spec.Series, str]]) -> list[Annotation]:
    """Each text as near to its series' point as can be without covering a point, a bar or another text; joined by a
    line where that is further off. The axis must have its limits."""
    figure.draw_without_rendering()  # so that the axis has its place
    scale = figure.dpi / 72
    frame = box_of(axis)
    taken = [box for series, _ in labelled for box in _boxes(axis, series, scale)]
    placed: list[Box] = []
    notes = []

    def cost(box: Box) -> float:
        on_labels = sum(ON_LABEL * box.overlap(other) for other in placed)
        on_markers = sum(box.overlap(other) for other in taken)
        return on_labels + on_markers + (0.0 if box.is_within(frame) else OUTSIDE)

    for series, text in labelled:
        point, look = (series.points[0].x.value, series.points[0].y.value), series.look
        note = axis.annotate(
            text, point, xytext=(0, 0), textcoords="offset points", ha="center", va="center", color=look.colour
        )
        size = note.get_window_extent()
        x, y = axis.transData.transform(point)
        places = _places((x, y), (size.width, size.height), scale)
        offset, box, distance = min(places, key=lambda place: cost(place[1]))  # the nearest of several
        note.set_position(offset)
        if distance >= LEADER_FROM:
            end = _nearest(offset, size.width / scale, size.height / scale)
            line = {**LEADER, "color": look.colour, "shrinkA": 0, "shrinkB": 0}
            axis.annotate("", point, xytext=end, textcoords="offset points", arrowprops=line, zorder=0.5)
        placed.append(box)
        notes.append(note)
    return notes


def _boxes(axis: Axes, series: spec.Series, scale: float) -> Iterator[Box]:
    """Boxes of the marker and of the error bars, whichever way the axes run."""
    x, y = series.points[0].x, series.points[0].y
    for room, start, end in (
        (series.size / 2 + GAP, (x.value, y.value), (x.value, y.value)),
        (2.0, (x.low, y.value), (x.high, y.value)),
        (2.0, (x.value, y.low), (x.value, y.high)),
    ):
        (left, right), (bottom, top) = map(sorted, zip(*axis.transData.transform([start, end]), strict=True))
        yield Box(left - room * scale, bottom - room * scale, right + room * scale, top + room * scale)


def _places(
    middle: tuple[float, float], size: tuple[float, float], scale: float
) -> Iterator[tuple[tuple[float, float], Box, float]]:
    """The offset in points, the box and the distance: from the nearest to the furthest, at each distance to the right
    first. size: in pixels."""
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


def label_ends(axis: Axes, labelled: Sequence[tuple[spec.Series, str]]) -> None:
    """Each text to the right of the plot, as near to its line's end as the others allow, and joined to it.

    The axis must have its limits.
    """
    to_axes = axis.transData + axis.transAxes.inverted()
    ends = [(series.points[-1].x.value, series.points[-1].y.value) for series, _ in labelled]
    places = spec.apart([float(to_axes.transform(end)[1]) for end in ends])
    for (series, text), end, place in zip(labelled, ends, places, strict=True):
        axis.annotate(
            text,
            end,
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            color=series.look.colour,
            arrowprops={**LEADER, "color": series.look.colour, "shrinkA": 2, "shrinkB": 6, "relpos": (0, 0.5)},
            annotation_clip=False,
        )
