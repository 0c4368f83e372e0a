"""How fast the machine was, by the rounds' probes."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.results.noise import probe_level_s, probe_medians_s

PROBES = ((0.001, 0.040), (0.003, 0.009), (0.002, 0.008))


def test_the_two_parts_have_their_own_medians() -> None:
    """One round in which both are slowest would have another median than each by itself."""
    assert probe_medians_s(PROBES) == (0.002, 0.009)


def test_the_level_is_the_geometric_mean_of_the_medians() -> None:
    assert probe_level_s(((0.002, 0.008),)) == pytest.approx(0.004)
