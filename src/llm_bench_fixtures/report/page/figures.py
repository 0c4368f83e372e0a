"""What the page's figures have in common. The page's script adds the colours of the light or the dark theme.

Plotly takes a small markup in its texts, so what comes from elsewhere is escaped for it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from llm_bench_fixtures.report.page.looks import Look
from llm_bench_fixtures.report.page.values import Json
from llm_bench_fixtures.text import printable, readable

LABEL_ROOM = 132  # pixels to the right of a plot for its lines' labels
LEAST_GAP = 0.068  # between two labels, of the plot's height
LONGEST_LABEL = 20  # characters; what is longer stands in full beside the pointer
HEIGHT = 340  # pixels


def escaped(text: str) -> str:
    """For plotly: the text itself, whatever is in it; what stands between two $ would be a formula."""
    return html.escape(printable(text), quote=False).replace("$", "&#36;")


def short(text: str) -> str:
    """At most LONGEST_LABEL characters of it, for a label."""
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def hover(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """What stands beside the pointer: a title, and a line for each fact."""
    lines = (f"{escaped(name)}: {escaped(value)}" for name, value in facts)
    return "<br>".join([f"<b>{escaped(title)}</b>", *lines])


def layout(x: Json, y: Json, *, right: int = 24, height: int = HEIGHT, **more: object) -> Json:
    """Nothing can be dragged or zoomed, so that a page on a phone scrolls."""
    return {
        "height": height,
        "margin": {"l": 16, "r": right, "t": 16, "b": 52},
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "xaxis": {"fixedrange": True, "zeroline": False, **x},
        "yaxis": {"fixedrange": True, "zeroline": False, "automargin": True, **y},
        **more,
    }


def title(text: str) -> Json:
    return {"text": escaped(text), "standoff": 10}


def error_bars(colour: str, above: Sequence[float], below: Sequence[float]) -> Json:
    return {
        "type": "data",
        "symmetric": False,
        "array": list(above),
        "arrayminus": list(below),
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


def end_labels(ends: Mapping[str, float], looks: Mapping[str, Look], low: float, high: float) -> list[Json]:
    """A label to the right of each line, as near its last value as the others allow.

    ends: by variant. low, high: the ends of the axis.
    """
    places = apart([(value - low) / (high - low) for value in ends.values()])
    return [
        {
            "name": readable(variant),
            "text": f"{looks[variant].sign} {escaped(short(variant))}",
            "x": 1,
            "xref": "paper",
            "xanchor": "left",
            "xshift": 6,
            "y": place,
            "yref": "paper",
            "yanchor": "middle",
            "showarrow": False,
            "font": {"color": looks[variant].colour, "size": 11},
        }
        for variant, place in zip(ends, places, strict=True)
    ]


def apart(places: Sequence[float]) -> list[float]:
    """Places from 0 to 1, moved so far that none is nearer to the next than the least gap, and kept in their order.

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


def padded(values: Iterable[float], share: float = 0.08) -> tuple[float, float]:
    """The least and the largest value with some room beyond them; also where both are the same."""
    known = list(values)
    low, high = min(known), max(known)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room
