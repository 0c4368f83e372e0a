"""What follows from the requests of one rate, in numbers that can be checked by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_run

from llm_bench_fixtures.errors import DamagedResults
from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.storage import read_run, write_run


def request(ttft_s: float, tpot_s: float = 0.01, *, planned_s: float = 0.0, lag_s: float = 0.0, **more: Any) -> Request:
    """Of eleven tokens."""
    first_s = planned_s + ttft_s
    return Request(planned_s, planned_s + lag_s, first_s, first_s + 10 * tpot_s, 11, **more)


def point(*requests: Request, window_s: float = 10.0) -> LoadPoint:
    return LoadPoint("t", "endpoint", 1.0, window_s, 8, 11, 1.0, 0.1, requests)


def test_goodput_counts_what_is_within_both_limits_and_no_failure() -> None:
    found = point(request(0.5), request(1.5), request(0.5, 0.2), Request(0.0, 0.0, failure="429"), window_s=2.0)
    assert found.good == 1
    assert found.goodput_per_s == 0.5
    assert found.good_share == 0.25
    assert found.failures == {"429": 1}


def test_a_single_token_has_no_tpot_to_keep_within_a_limit() -> None:
    assert point(Request(0.0, 0.0, 0.5, 0.5, 1)).good == 1


def test_percentiles_stand_only_where_there_are_enough() -> None:
    found = point(*(request(index / 100) for index in range(1, 11)))
    assert found.percentile(lambda one: one.ttft_s, 0.5) == pytest.approx(0.055)
    assert found.percentile(lambda one: one.ttft_s, 0.9) == pytest.approx(0.091)
    assert found.percentile(lambda one: one.ttft_s, 0.99) is None


def test_failures_are_in_no_percentile() -> None:
    failed = Request(0.0, 0.0, failure="gone")
    assert point(request(0.2), request(0.2), failed).percentile(lambda one: one.ttft_s, 0.5) == pytest.approx(0.2)
    assert point(failed).percentile(lambda one: one.ttft_s, 0.5) is None


def test_throughput_is_over_the_time_to_the_last_answer() -> None:
    found = point(request(0.5), request(3.0, planned_s=9.0))  # the last token comes at 12.1 s
    assert found.output_tokens_per_s == pytest.approx(22 / 12.1)
    assert found.drain_s == pytest.approx(2.1)


def test_the_cached_share_is_of_those_that_tell() -> None:
    told = [request(0.1, prompt_tokens=10, cached_tokens=cached) for cached in (0, 5)]
    assert point(*told, request(0.1, prompt_tokens=10)).cached_share == 0.25
    assert point(request(0.1)).cached_share is None


@pytest.mark.parametrize(
    ("lags_s", "is_valid"),
    [
        pytest.param([0.001] * 10, True, id="an event loop's own millisecond"),
        pytest.param([0.001] * 9 + [0.03], False, id="one of ten is late by more than a tenth of the TTFT"),
        pytest.param([0.001] * 199 + [0.03], True, id="one of two hundred"),
        pytest.param([0.03] * 200, False, id="all are late"),
    ],
)
def test_a_client_that_is_late_makes_the_load_invalid(lags_s: list[float], is_valid: bool) -> None:
    assert point(*(request(0.2, lag_s=lag) for lag in lags_s)).is_valid is is_valid


def test_a_client_that_is_short_of_file_descriptors_makes_the_load_invalid() -> None:
    failed = Request(0.0, 0.0, failure="too many open files", is_clients=True)
    assert not point(*[request(0.2)] * 9, failed).is_valid
    assert point(*[request(0.2)] * 9, Request(0.0, 0.0, failure="refused")).is_valid


def test_an_answer_that_ends_early_counts_with_what_it_has() -> None:
    """Five tokens 0.1 s apart, and a single one, which has no time per token."""
    found = point(Request(0.0, 0.0, 0.5, 0.9, 5), Request(0.0, 0.0, 0.5, 0.5, 1), request(0.5), request(0.5))
    assert (found.early_share, found.good_share, sum(found.failures.values())) == (0.5, 1.0, 0)
    assert found.percentile(lambda one: one.tpot_s, 0.5) == pytest.approx(0.01)  # of 0.1, 0.01 and 0.01
    assert found.output_tokens_per_s == pytest.approx(28 / 10)


def test_a_load_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    run = replace(
        make_run(), loads=(point(request(0.2, prompt_tokens=8, cached_tokens=0), Request(1.0, 1.1, failure="gone")),)
    )
    write_run(run, tmp_path / "results.json")
    assert read_run(tmp_path / "results.json").loads == run.loads


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (replace(point(), window_s=0.0), "window_s: expected a number >= 1e-09"),
        (replace(point(), rate_per_s=-1.0), "rate_per_s: expected a number > 0.0"),
        (point(Request(0.0, 0.0, 1e12, 1e12, 5)), "requests[0].first_token_s: expected a number <= 1000000000.0"),
    ],
)
def test_a_load_that_can_not_be_is_refused(damaged: LoadPoint, said: str, tmp_path: Path) -> None:
    write_run(replace(make_run(), loads=(damaged,)), tmp_path / "results.json")
    with pytest.raises(DamagedResults, match=re.escape(f"loads[0].{said}")):
        read_run(tmp_path / "results.json")
