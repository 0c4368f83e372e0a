"""Location and scale that a few outliers hardly move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

NORMAL_MAD = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
FAR = 3.0  # robust standard deviations: what lies farther off counts as if at this distance


def robust_deviation(values: Sequence[float]) -> float:
    """The standard deviation by the median absolute deviation from the median. Needs one value."""
    middle = statistics.median(values)
    return NORMAL_MAD * statistics.median(abs(value - middle) for value in values)


def bounded(deviations: Sequence[float]) -> list[float]:
    """Absolute deviations, none of them beyond FAR standard deviations as their median tells these. Needs one value."""
    sizes = [abs(one) for one in deviations]
    most = FAR * NORMAL_MAD * statistics.median(sizes)
    return [min(size, most) for size in sizes]


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values, including each value with itself (Hodges and Lehmann 1963).

    It is almost as efficient as the mean for normal values, and a few outliers hardly move it. For values with two
    modes, as times to the first token have, it doesn't jump from one mode to the other as the median does.
    """
    import numpy as np

    first, second = np.triu_indices(len(values))
    known = np.asarray(values, dtype=float)
    return float(np.median((known[first] + known[second]) / 2))
