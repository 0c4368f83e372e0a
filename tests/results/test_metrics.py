"""Each metric's value, by numbers that can be checked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from run_factory import make_record, make_variant, make_workload, skipped_record

from llm_bench_fixtures.results.metrics import METRICS, Direction, Kind, Metric, Unit, registry

BY_NAME = {metric.name: metric for metric in METRICS}

# Four prompts in two batches of three and one; four rounds.
RECORD = make_record(
    workload=make_workload(prompts=4, batch_size=3, prompt_tokens=30, padded_tokens=10, new_tokens=12),
    rounds_s=(9.0, 1.0, 4.0, 2.0),
    batches_s=((8.0, 1.0), (0.4, 0.6), (3.0, 1.0), (1.5, 0.5)),
    batch_rows=(3, 1),
)
VARIANT = make_variant(
    load_s=2.5, weight_bytes=4096, quality={"loss": math.log(20), "perplexity": 20.0, "scored_tokens": 900}
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latency_s", 3.0),  # (2 + 4) / 2
        ("latency_mean_s", 4.0),  # 16 / 4
        ("latency_stddev_s", math.sqrt(38 / 3)),  # (9 + 4 + 0 + 25) over n - 1
        ("latency_iqr_s", 3.5),  # 5.25 - 1.75, a quarter of the way from 1 to 2 and from 9 to 4
        ("per_sample_latency_s", 1.875),  # of (3 x first + 1 x second) / 4: 0.45, 1.25, 2.5, 6.25
        ("output_tokens_per_s", 4.0),  # 12 / 3
        ("ms_per_token", 250.0),  # 3 s / 12
        ("new_tokens", 12),
        ("prompt_tokens", 30),
        ("padded_tokens", 10),
        ("padding_share", 0.25),  # 10 / 40
        ("load_s", 2.5),
        ("weight_bytes", 4096),
        ("loss", math.log(20)),
        ("perplexity", 20.0),
        ("scored_tokens", 900),
    ],
)
def test_value(name: str, expected: float) -> None:
    assert BY_NAME[name].of(RECORD, VARIANT) == pytest.approx(expected)


def test_every_metric_is_tested_above() -> None:
    (parametrize,) = test_value.pytestmark  # type: ignore[attr-defined]
    assert [name for name, _ in parametrize.args[1]] == list(BY_NAME)


def test_throughput_uses_the_median_not_the_mean() -> None:
    record = make_record(workload=make_workload(new_tokens=10), rounds_s=(1.0, 1.0, 100.0))
    assert BY_NAME["output_tokens_per_s"].of(record, VARIANT) == 10.0


def test_per_sample_latency_of_one_batch_is_the_latency() -> None:
    record = make_record(workload=make_workload(prompts=4, batch_size=4), rounds_s=(2.0, 2.0, 2.0))
    assert BY_NAME["per_sample_latency_s"].of(record, VARIANT) == 2.0


def test_per_sample_latency_weighs_batches_by_their_rows() -> None:
    """Three prompts waited 1 s and one 5 s: 2 s on average, not 3 s."""
    record = make_record(rounds_s=(6.0,), batches_s=((1.0, 5.0),), batch_rows=(3, 1))
    assert BY_NAME["per_sample_latency_s"].of(record, VARIANT) == 2.0


@pytest.mark.parametrize("name", ["latency_stddev_s", "latency_iqr_s"])
def test_one_round_has_no_spread(name: str) -> None:
    assert BY_NAME[name].of(make_record(rounds_s=(1.0,)), VARIANT) is None


def test_equal_rounds_have_a_spread_of_zero() -> None:
    record = make_record(rounds_s=(2.0, 2.0, 2.0))
    assert BY_NAME["latency_iqr_s"].of(record, VARIANT) == 0.0
    assert BY_NAME["latency_stddev_s"].of(record, VARIANT) == 0.0


def test_without_rounds_nothing_that_is_timed_has_a_value() -> None:
    record = skipped_record("fp32", "why")
    timed = [metric for metric in METRICS if metric.kind is Kind.TIMING and metric.name != "load_s"]
    assert [metric.of(record, VARIANT) for metric in timed] == [None] * 7


def test_without_a_workload_nothing_is_counted() -> None:
    bare = replace(RECORD, workload=None)
    counts = ("new_tokens", "prompt_tokens", "padded_tokens", "padding_share", "output_tokens_per_s", "ms_per_token")
    assert [BY_NAME[name].of(bare, VARIANT) for name in counts] == [None] * 6


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_row_says_what_it_means(metric: Metric) -> None:
    assert metric.title
    assert metric.column
    assert metric.formula
    assert isinstance(metric.direction, Direction)
    assert isinstance(metric.unit, Unit)


def test_directions_that_readers_rely_on() -> None:
    assert BY_NAME["output_tokens_per_s"].direction is Direction.HIGHER_IS_BETTER
    for name in ("latency_s", "ms_per_token", "perplexity", "weight_bytes", "load_s"):
        assert BY_NAME[name].direction is Direction.LOWER_IS_BETTER


def own_metric(name: str) -> Metric:
    return Metric(name, "Own", "own", Unit.NONE, Direction.NEITHER, Kind.QUALITY, "mine")


def test_a_projects_metrics_come_after_ours() -> None:
    assert list(registry([own_metric("mine")])) == [*BY_NAME, "mine"]


def test_a_metrics_name_can_be_given_once() -> None:
    with pytest.raises(ValueError, match="'latency_s' is there already"):
        registry([own_metric("latency_s")])


def test_an_own_metric_is_looked_up_in_the_record_then_in_the_variant() -> None:
    variant = make_variant(quality={"mine": 2.0})
    assert own_metric("mine").of(make_record(extra={"mine": 1.0}), variant) == 1.0
    assert own_metric("mine").of(make_record(), variant) == 2.0
    assert own_metric("mine").of(make_record(), make_variant()) is None
