"""How variants are told apart: a colour for each backend, a marker and a dash for each variant of the same colour.

The colours are Okabe and Ito's ("Color universal design", 2008), which colour-blind readers tell apart. Those that
stand first have a contrast of three to one both on white and on the page's dark ground.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from llm_bench_fixtures.results.record import Run

COLOURS = {"torch": "#0072B2", "onnxruntime": "#D55E00", "bitsandbytes": "#009E73"}
OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")  # of further backends, in their order
MARKERS = (
    ("circle", "●"), ("square", "■"), ("diamond", "◆"), ("triangle-up", "▲"), ("cross", "✚"), ("x", "✖"),
    ("triangle-down", "▼"), ("star", "★"),
)  # fmt: skip
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str
    """As plotly names it."""
    sign: str
    """The marker as a character."""
    dash: str


def looks_of(run: Run) -> dict[str, Look]:
    """By variant."""
    colours = _colours(run)
    met: Counter[str] = Counter()
    looks = {}
    for variant in run.variants:
        colour = colours[variant.backend]
        place = met[colour]
        met[colour] += 1
        marker, sign = MARKERS[place % len(MARKERS)]
        looks[variant.id] = Look(colour, marker, sign, DASHES[place % len(DASHES)])
    return looks


def numbered_looks(count: int) -> list[Look]:
    """For what has no backend, such as several runs, or the lines of a history."""
    colours = (*COLOURS.values(), *OTHER_COLOURS)
    return [
        Look(colours[place % len(colours)], *MARKERS[place % len(MARKERS)], DASHES[place // len(colours) % len(DASHES)])
        for place in range(count)
    ]


def _colours(run: Run) -> dict[str, str]:
    """By backend."""
    others = dict.fromkeys(variant.backend for variant in run.variants if variant.backend not in COLOURS)
    own = {backend: OTHER_COLOURS[place % len(OTHER_COLOURS)] for place, backend in enumerate(others)}
    return COLOURS | own
