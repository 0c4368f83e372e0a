"""Names next to what they name, in a picture, where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.charts import spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import BboxBase

DIRECTIONS = 16
DISTANCES = (11, 20, 32, 46, 62, 80, 100, 125, 150, 180, 220, 260)  # points from a marker's middle to a label's edge
GAP = 3.0  # points between a marker and a label
LEADER = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5}


def label_points(figure: Figure, axis: Axes, labelled: Sequence[tuple[spec.Series, str]]) -> None:
    """Each text joined to its series' point, and as near to it as can be without covering a point, a bar or another
    text; next to the point where there is no such place. The axis must have its limits."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # so that the axis has its place
    pixels, frame = figure.dpi / 72, axis.get_window_extent()
    taken = [box for series, _ in labelled for box in _boxes(axis, series, pixels)]
    for series, text in labelled:
        point = series.points[0].x.value, series.points[0].y.value
        note = axis.annotate(
            text,
            point,
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            color=series.look.colour,
            arrowprops={**LEADER, "color": series.look.colour, "shrinkA": 0, "shrinkB": 0},
            zorder=1.5,  # so that the line ends beneath the marker
        )
        (x, y), size = axis.transData.transform(point), Text.get_window_extent(note)  # without the line
        box = Bbox.from_bounds(x - size.width / 2, y - size.height / 2, size.width, size.height)
        moves = list(_moves(box, pixels))
        free = (move for move in moves if _is_free(box.translated(*move), frame, taken))
        across, up = next(free, moves[0])
        note.set_position((across / pixels, up / pixels))
        taken.append(box.translated(across, up))


def _boxes(axis: Axes, series: spec.Series, pixels: float) -> Iterator[BboxBase]:
    """Boxes of the marker and of the error bars, whichever way the axes run. pixels: of a typographic point."""
    from matplotlib.transforms import Bbox

    x, y = series.points[0].x, series.points[0].y
    for room, start, end in (
        (series.size / 2 + GAP, (x.value, y.value), (x.value, y.value)),
        (2.0, (x.low, y.value), (x.high, y.value)),
        (2.0, (x.value, y.low), (x.value, y.high)),
    ):
        ends = axis.transData.transform([start, end])
        yield Bbox([ends.min(axis=0), ends.max(axis=0)]).padded(room * pixels)


def _moves(box: BboxBase, pixels: float) -> Iterator[spec.Place]:
    """Pixels to move a text's box from the middle of its point, from the nearest to the furthest, at each distance to
    the right first."""
    for distance in DISTANCES:
        for number in range(DIRECTIONS):
            turn = (number + 1) // 2 * (-1) ** number / DIRECTIONS * 2 * math.pi
            across, up = distance * pixels + box.width / 2, distance * pixels + box.height / 2
            yield math.cos(turn) * across, math.sin(turn) * up


def _is_free(box: BboxBase, frame: BboxBase, taken: Sequence[BboxBase]) -> bool:
    """Whether it is within the frame and covers nothing."""
    return frame.count_contains(box.corners()) == 4 and not box.count_overlaps(taken)


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
