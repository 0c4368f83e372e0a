"""How the error of a claim is spent where growing data are looked at several times."""

from __future__ import annotations

from statistics import NormalDist


def share_of_look(number: int) -> float:
    """The share of the error that a look spends; number: from 1. Each spends half of what is left: in all, 1."""
    return 0.5**number


def deviations_of_look(number: int, error: float) -> float:
    """Standard errors to either side of a look's interval. error: two-sided, of all looks together."""
    return NormalDist().inv_cdf(1 - error * share_of_look(number) / 2)
