"""How far values may differ by chance, and what two runs' probes say of the machine's speed."""

from __future__ import annotations

import statistics
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_factory import make_record, make_run
from scipy import stats

from llm_bench_fixtures.gate.margins import machine_slowdown, paired_margin
from llm_bench_fixtures.history.saved import judged_run

Probes: TypeAlias = "tuple[tuple[float, float], ...]"

PROBES: Probes = ((0.001, 0.040), (0.003, 0.009), (0.002, 0.008))
seconds = st.floats(1e-6, 10)
probes = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=9).map(tuple)


@pytest.mark.parametrize(
    ("head", "slowdown"),
    [
        (((0.004, 0.018),), 2.0),
        (((0.004, 0.009),), 2**0.5),  # twice the time for the product, the same for the read
        (((0.001, 0.018),), 1.0),  # half and twice
    ],
)
def test_a_slower_machine_shows_by_as_much(head: Probes, slowdown: float) -> None:
    assert machine_slowdown(head, PROBES) == pytest.approx(slowdown)


@pytest.mark.parametrize("damaged", [(), ((0.0, 0.001),), ((0.001, -0.001),)])
def test_without_a_probe_on_both_sides_nothing_is_known(damaged: Probes) -> None:
    """A time of nothing, as a damaged file may hold, is no probe."""
    assert machine_slowdown(damaged, PROBES) is None
    assert machine_slowdown(PROBES, damaged) is None


@given(head=probes, base=probes, factor=st.floats(0.01, 100))
def test_all_times_scaled_are_a_machine_slower_by_that(head: Probes, base: Probes, factor: float) -> None:
    scaled = tuple((product_s * factor, read_s * factor) for product_s, read_s in head)
    before, after = machine_slowdown(head, base), machine_slowdown(scaled, base)
    assert before is not None
    assert after == pytest.approx(before * factor)


@given(head=probes, base=probes)
def test_swapping_the_runs_turns_it_around(head: Probes, base: Probes) -> None:
    there, back = machine_slowdown(head, base), machine_slowdown(base, head)
    assert there is not None
    assert back == pytest.approx(1 / there)


def test_a_saved_record_serves_as_well() -> None:
    record = make_record(probe_s=PROBES)
    (saved,) = judged_run(make_run([record])).records
    assert machine_slowdown(record.probe_s, saved.probe_s) == 1.0


def test_the_paired_margin_is_students() -> None:
    base, head = [2.0, 3.0, 4.0, 5.0], [2.1, 3.0, 4.3, 5.2]
    differences = [0.1, 0.0, 0.3, 0.2]
    interval = stats.t.interval(0.99, 3, loc=0.15, scale=statistics.stdev(differences) / 2)
    assert paired_margin(base, head) == pytest.approx((interval[1] - interval[0]) / 2)


def test_what_makes_a_stretch_of_text_hard_falls_out_of_the_margin() -> None:
    """Blocks between 1 and 9 nats that all grew by the same have no uncertainty at all."""
    assert paired_margin([1.0, 9.0, 4.0], [1.5, 9.5, 4.5]) == 0


@pytest.mark.parametrize(("base", "head"), [((), ()), ((1.0,), (2.0,)), ((1.0, 2.0), (1.0,))])
def test_without_pairs_there_is_no_margin(base: tuple[float, ...], head: tuple[float, ...]) -> None:
    assert paired_margin(base, head) == 0
