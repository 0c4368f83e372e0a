"""Location and scale that a few outliers hardly move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

NORMAL_MAD = 1.4826  # a normal distribution's standard deviation over its median absolute deviation
LEAST_CLIPPED = 5  # values; of fewer none can be told to be an outlier
CLIP_WIDTH = 4.0  # standard deviations from the median
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


def clip_outliers(values: Sequence[float], scale: float) -> tuple[list[float], float]:
    """The values, drawn in to CLIP_WIDTH standard deviations from their median, and the share that needed no drawing.

    It is one step of Huber's location (1964). The standard deviation is the robust one of the values, but at least
    `scale`. The standard error of the mean of drawn-in values is theirs divided by the share, as it is of Winsorized
    means. Of fewer than LEAST_CLIPPED values none is drawn in.
    """
    width = CLIP_WIDTH * max(robust_deviation(values), scale) if len(values) >= LEAST_CLIPPED else 0.0
    if not width:
        return list(values), 1.0
    middle = statistics.median(values)
    drawn = [min(max(value, middle - width), middle + width) for value in values]
    return drawn, sum(abs(value - middle) <= width for value in values) / len(values)


def common_scale(groups: Sequence[Sequence[float]]) -> float:
    """The robust standard deviation of values around the median of their own group; 0 if there are no values."""
    apart = [abs(value - statistics.median(values)) for values in groups if values for value in values]
    return NORMAL_MAD * statistics.median(apart) if apart else 0.0
