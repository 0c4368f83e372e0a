"""The standard error of an estimate for which there is no formula: from leaving out a part of the items at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

MOST_GROUPS = 100


def jackknife_error(items: int, estimate: Callable[[Sequence[int]], float]) -> float | None:
    """The delete-a-group jackknife's; None for fewer than two items.

    estimate: gives the estimate over the items of these numbers. Of a mean over at most MOST_GROUPS items the error is
    exactly the usual one, their standard deviation over the root of their number. Source: Tukey, Annals of Mathematical
    Statistics 29 (1958); for groups, Kott, Journal of Official Statistics 17 (2001).
    """
    groups = min(items, MOST_GROUPS)
    if groups < 2:
        return None
    group_of = [item * groups // items for item in range(items)]
    values = [estimate([item for item in range(items) if group_of[item] != left_out]) for left_out in range(groups)]
    middle = fmean(values)
    return math.sqrt((groups - 1) / groups * sum((value - middle) ** 2 for value in values))
