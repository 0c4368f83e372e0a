"""How fast the machine was while a record was measured, by the fixed probe that ran before each of its rounds.

Each probe is the seconds of a matrix product and of a read of memory (see measure/probe.py), as records hold them,
saved or not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def medians_s(probe_s: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Of the rounds' matrix products, and of their reads. None where there are none."""
    if not probe_s:
        return None
    products_s, reads_s = zip(*probe_s, strict=True)
    return statistics.median(products_s), statistics.median(reads_s)


def probe_level_s(probe_s: Sequence[tuple[float, float]]) -> float | None:
    """Geometric mean of the two medians: a machine k times as slow at both has k times that level.

    None where there is no probe, or one that takes no time, as only a damaged file holds.
    """
    medians = medians_s(probe_s)
    return statistics.geometric_mean(medians) if medians and min(medians) > 0 else None
