"""How all pictures look: letters that can be read on a slide, and the colours, markers and dashes of the page."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.report.page.figures import short
from llm_bench_fixtures.report.page.looks import Look
from llm_bench_fixtures.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT = "DejaVu Sans"  # which matplotlib brings along
FONT_SIZE = 14
WIDTH = 13.3  # inches, as a slide has
# Paul Tol's "muted" and "bright" palettes, told apart also by colour-blind readers.
COLOURS = (
    "#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE", "#882255",
    "#44AA99", "#AA4499", "#999933", "#EE7733", "#555555", "#0077BB",
)  # fmt: skip
SOFT = "#5b6470"
BAND = "#009E73"  # of what is near-lossless
WIDE = 0.54  # of the font's size: its letters' mean width, with some room
# As plotly names them, and as matplotlib does.
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "X", "triangle-down": "v",
    "star": "*",
}  # fmt: skip
DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.6)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
    "longdashdot": (0, (9, 2, 1, 2)),
}


@contextmanager
def drawing(style: Any) -> Iterator[None]:  # matplotlib types the keys one by one
    """Have matplotlib imported, with the settings of `style`.

    No window is opened, so $MPLBACKEND, which may name what isn't installed, doesn't count.
    """
    given = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"
    try:
        import matplotlib
    finally:
        os.environ.pop("MPLBACKEND")
        if given is not None:
            os.environ["MPLBACKEND"] = given
    with matplotlib.rc_context(style):
        yield


def plot_style(font_size: float = FONT_SIZE) -> Any:  # matplotlib types the keys one by one
    """Settings of matplotlib for all of our pictures. font_size: in points."""
    return {
        "figure.dpi": 110,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "font.family": FONT,
        "font.size": font_size,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": SOFT,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlesize": font_size * 1.1,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": font_size,
        "grid.color": "#e5e8ec",
        "legend.frameon": False,
        "legend.fontsize": font_size * 0.9,
        "svg.fonttype": "none",  # text stays text: it can be searched and edited, and takes a tenth of the bytes
        "svg.hashsalt": "llm-bench",  # so that the same run gives the same file
        "text.parse_math": False,  # a name with dollars in it is no formula
    }


def new_figure(columns: int, height: float, width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """A row of empty panels. height, width: in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def caption(figure: Figure, text: str) -> None:
    """A line below everything: what it was measured on."""
    size = FONT_SIZE * 0.75
    width = int(figure.get_figwidth() * 72 / (size * WIDE))
    lines = textwrap.fill(drawable(text), width)
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=size, color=SOFT)


def marker(look: Look) -> str:
    return MARKERS[look.marker]


def name_of(variant: str) -> str:
    """The variant's id as a picture shows it."""
    return short(drawable(variant))


def drawable(text: str) -> str:
    """The text on one line, in the characters that the font has. For any other stands its number, so that two names of
    such characters still differ."""
    known = _characters()
    shown = printable(text)
    return "".join(one if ord(one) in known else f"\\u{{{ord(one):x}}}" for one in shown)


@cache
def _characters() -> frozenset[int]:
    """Those that the font has."""
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(findfont(FontProperties(family=FONT))).get_charmap())
