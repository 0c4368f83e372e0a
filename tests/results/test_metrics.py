"""Each metric's value, by numbers that can be checked by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from run_factory import make_record, make_variant, make_workload, skipped_record

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.metrics import (
    METRICS,
    Direction,
    Force,
    Kind,
    Metric,
    ReportTable,
    Tolerance,
    Unit,
    registry,
    shown_in,
)
from llm_bench_fixtures.results.record import MemoryFacts

BY_NAME = {metric.name: metric for metric in METRICS}

# Four prompts in two batches of three and one, three new tokens each; four rounds. The three tokens of a batch come
# after 4, 7 and 10 tenths of its seconds (see make_record).
RECORD = make_record(
    workload=make_workload(prompts=4, batch_size=3, prompt_tokens=30, padded_tokens=10, new_tokens=12),
    rounds_s=(9.0, 1.0, 4.0, 2.0),
    reference_s=(9.0, 1.0, 16.0, 8.0),
    waited_s=(1.0, 0.0, 0.0, 0.0),
    reference_waited_s=(0.0, 0.0, 0.0, 0.0),
    batches_s=((8.0, 1.0), (0.4, 0.6), (3.0, 1.0), (1.5, 0.5)),
    batch_rows=(3, 1),
    energy_j=(12.0, 4.0, 8.0, 6.0),
    probe_s=((0.001, 0.004), (0.003, 0.008), (0.002, 0.006), (0.002, 0.010)),
    work=Work(
        prompt_tokens=30,
        new_tokens=12,
        batches=2,
        forward_passes=6,
        prefill_flops=2400,
        decode_flops=1200,
        flops_reason="",
        weight_bytes_read=4000,
        cache_bytes=500,
        cache_bytes_read=8000,
        output_digest="",
    ),
    memory=MemoryFacts(peak_resident_bytes=700, cuda_allocated_bytes=50, cuda_reserved_bytes=60, library_bytes=400),
    extra={"first_divergent_token": 2.5, "divergent_share": 0.125},
)
QUALITY = {
    "loss": math.log(20),
    "perplexity": 20.0,
    "bits_per_byte": 1.5,
    "word_perplexity": 300.0,
    "byte_perplexity": 2.8,
    "ppl_ratio": 1.01,
    "ppl_ratio_error": 0.002,
    "kld_mean": 0.03,
    "kld_error": 0.001,
    "kld_p50": 0.02,
    "kld_p99": 0.3,
    "kld_p999": 0.5,
    "kld_max": 0.7,
    "kld_p50_error": 0.004,
    "kld_p99_error": 0.06,
    "kld_p999_error": 0.08,
    "kld_max_error": 0.09,
    "top1_agreement": 0.95,
    "mean_dp": -0.01,
    "rms_dp": 0.04,
    "scored_share": 0.25,
    "scored_tokens": 900,
}
CHOICES = {
    "choice_accuracy": 0.6,
    "flips": 0.04,
    "flips_low": 0.02,
    "flips_high": 0.08,
    "flips_lost": 5,
    "flips_gained": 3,
    "answers_changed": 0.06,
    "choice_items": 200,
}
VARIANT = make_variant(
    load_s=2.5,
    compile_s=40.0,
    conversion_s=20.0,
    first_generate_s=1.5,
    weight_bytes=4096,
    quantized_share=0.75,
    resident_before_load_bytes=300,
    read_bytes_per_s=20_000.0,
    matmul_flops_per_s=4000.0,
    quality={**QUALITY, **CHOICES},
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
        ("latency_cv", math.sqrt(38 / 3) / 4),
        ("latency_low_s", 0.65149),  # logarithms' mean 1.06917, standard error 0.47060, Student's t 3.18245
        ("latency_high_s", 13.0247),
        ("rounds", 4),
        # Of 1, 1, 4 and 4: logarithms' mean 0.69315, standard error 0.40019, Student's t 3.18245; 1 % a process
        ("speedup", 2.0),
        ("speedup_low", 0.559488),
        ("speedup_high", 7.14940),
        ("disturbed_rounds", 1),
        ("ttft_s", 0.75),  # 0.4 of 0.45, 1.25, 2.5, 6.25
        ("tpot_s", 0.5625),  # 0.3 of the same
        ("itl_p50_s", 0.3),  # 0.3 of each batch's seconds, twice: 0.4, 0.5, 0.6, 1, 1, 1.5, 3, 8
        ("itl_p90_s", 1.65),  # between 0.3 x 3 and 0.3 x 8
        ("itl_p99_s", None),  # of 16 gaps
        ("prefill_tokens_per_s", 25.0),  # 30 / the median of 0.4 x 9, 1, 4, 2
        ("prefill_positions_per_s", 40 / 1.2),
        ("decode_tokens_per_s", 5.0),  # 8 / (0.6 x 9, 1, 4, 2): 1.48, 13.3, 3.33, 6.67
        ("mbu", 2 / 3),  # (4 decode passes x 4000 + 8000) / 1.8 s / 20 kB/s
        ("mfu", 0.5),  # 2400 / 1.2 s / 4000
        ("roofline_ttft_s", 0.3),  # two batches: max(2400 / 4000, 2 x 4000 / 20 000) / 2
        ("roofline_tpot_s", 0.3),  # two steps of each: max(1200 / 4000, 24 000 / 20 000) / 4
        ("energy_j", 7.5),
        ("tokens_per_joule", 12 / 7.5),
        ("probe_matmul_s", 0.002),
        ("probe_read_s", 0.007),  # (0.006 + 0.008) / 2
        ("new_tokens", 12),
        ("prompt_tokens", 30),
        ("padded_tokens", 10),
        ("padding_share", 0.25),  # 10 / 40
        ("forward_passes", 6),
        ("prefill_flops", 2400),
        ("decode_flops", 1200),
        ("weight_bytes_read", 4000),
        ("cache_bytes_read", 8000),
        ("cache_bytes", 500),
        ("state_bytes", None),
        ("libraries_bytes", 300),
        ("own_memory_bytes", 300),
        ("peak_rss_bytes", 700),
        ("cuda_max_allocated_bytes", 50),
        ("cuda_max_reserved_bytes", 60),
        ("first_generate_s", 1.5),
        ("load_s", 2.5),
        ("compile_s", 40.0),
        ("conversion_s", 20.0),
        ("weight_bytes", 4096),
        ("quantized_share", 0.75),
        *((name, value) for name, value in QUALITY.items() if not name.startswith("scored_")),
        ("first_divergent_token", 2.5),
        ("divergent_share", 0.125),
        ("scored_share", 0.25),
        ("scored_tokens", 900),
        *CHOICES.items(),
    ],
)
def test_value(name: str, expected: float | None) -> None:
    assert BY_NAME[name].of(RECORD, VARIANT) == pytest.approx(expected, rel=None if expected is None else 1e-4)


def test_states_are_read_whole_by_each_decode_step() -> None:
    """Of a model without keys and values: 4 steps that read 4000 bytes of weights and 100 of states."""
    work = replace(RECORD.work, cache_bytes=None, cache_bytes_read=None, state_bytes=100)
    recurrent = replace(RECORD, work=work)
    assert BY_NAME["state_bytes"].of(recurrent, VARIANT) == 100
    assert BY_NAME["cache_bytes"].of(recurrent, VARIANT) is None
    only_weights = replace(RECORD, work=replace(work, state_bytes=None, cache_bytes_read=1))
    ratio = BY_NAME["mbu"].of(recurrent, VARIANT) / BY_NAME["mbu"].of(only_weights, VARIANT)
    assert ratio == pytest.approx(4 * 4100 / (4 * 4000 + 1))


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
    of_the_variant = ("load_s", "compile_s", "conversion_s", "first_generate_s")
    timed = [metric for metric in METRICS if metric.kind is Kind.TIMING and metric.name not in of_the_variant]
    assert {metric.name: metric.of(record, VARIANT) for metric in timed} == dict.fromkeys(
        metric.name for metric in timed
    )


def test_answers_of_one_token_have_no_time_per_token_after_it() -> None:
    """Of three prompts whose batch has one token each, and one with three: 0.2 s for each of its later two."""
    workload = make_workload(prompts=4, batch_size=3, new_tokens=6)
    record = make_record(workload=workload, batch_rows=(3, 1), tokens_s=(((0.4,), (0.1, 0.3, 0.5)),))
    assert BY_NAME["tpot_s"].of(record, VARIANT) == pytest.approx(0.2)
    assert BY_NAME["ttft_s"].of(record, VARIANT) == pytest.approx((3 * 0.4 + 0.1) / 4)
    assert BY_NAME["decode_tokens_per_s"].of(record, VARIANT) == pytest.approx(2 / 0.4)


@pytest.mark.parametrize("name", ["tpot_s", "itl_p50_s", "decode_tokens_per_s", "mbu", "roofline_tpot_s"])
def test_a_single_token_has_no_decode(name: str) -> None:
    assert RECORD.work is not None
    work = replace(RECORD.work, new_tokens=4, forward_passes=2)
    record = make_record(workload=make_workload(new_tokens=1), work=work)
    assert BY_NAME[name].of(record, VARIANT) is None


@pytest.mark.parametrize("name", ["mbu", "mfu", "roofline_ttft_s", "roofline_tpot_s"])
def test_without_the_machines_limits_nothing_is_compared_with_them(name: str) -> None:
    assert BY_NAME[name].of(RECORD, make_variant()) is None


def test_without_a_cache_there_is_no_bandwidth_utilization() -> None:
    """The decode then multiplies whole prompts, and doesn't stream its weights."""
    assert RECORD.work is not None
    assert BY_NAME["mbu"].of(replace(RECORD, work=replace(RECORD.work, cache_bytes_read=0)), VARIANT) is None


@pytest.mark.parametrize(("work", "variant"), [({"decode_flops": None}, {}), ({}, {"matmul_flops_per_s": None})])
def test_without_flops_or_their_rate_only_reading_bounds_the_decode(
    work: dict[str, None], variant: dict[str, None]
) -> None:
    """Four passes that read 4000 bytes of weights and 2000 of the cache each, at 20 000 a second."""
    assert RECORD.work is not None
    record = replace(RECORD, work=replace(RECORD.work, **work))
    assert BY_NAME["roofline_tpot_s"].of(record, replace(VARIANT, **variant)) == 0.3


@pytest.mark.parametrize("unknown", [{"weight_bytes_read": None}, {"forward_passes": 0}])
@pytest.mark.parametrize("name", ["mbu", "roofline_tpot_s"])
def test_a_backend_that_tells_too_little_has_no_limits(name: str, unknown: dict[str, int | None]) -> None:
    assert RECORD.work is not None
    record = replace(RECORD, work=replace(RECORD.work, **unknown))
    assert BY_NAME[name].of(record, VARIANT) is None


def test_a_slower_decode_step_shows_in_tpot_and_not_in_ttft() -> None:
    """Two milliseconds more for each token after the first."""
    slower = tuple(
        tuple(tuple(at + 0.002 * index for index, at in enumerate(tokens)) for tokens in batches)
        for batches in RECORD.tokens_s
    )
    record = replace(RECORD, tokens_s=slower)
    before, after = ([BY_NAME[name].of(of, VARIANT) or 0 for name in ("ttft_s", "tpot_s")] for of in (RECORD, record))
    assert [b - a for a, b in zip(before, after, strict=True)] == pytest.approx([0.0, 0.002])


@pytest.mark.parametrize("name", ["probe_matmul_s", "probe_read_s"])
def test_without_a_probe_it_has_no_times(name: str) -> None:
    assert BY_NAME[name].of(replace(RECORD, probe_s=()), VARIANT) is None


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


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (
            ReportTable.PREFILL_DECODE,
            (
                "ttft_s tpot_s ms_per_token itl_p50_s itl_p90_s itl_p99_s prefill_tokens_per_s decode_tokens_per_s "
                "roofline_ttft_s roofline_tpot_s mfu mbu energy_j tokens_per_joule"
            ),
        ),
        (
            ReportTable.VARIATION,
            (
                "latency_s latency_mean_s latency_low_s latency_high_s rounds disturbed_rounds latency_cv load_s "
                "compile_s conversion_s first_generate_s"
            ),
        ),
        (
            ReportTable.MEMORY,
            (
                "libraries_bytes weight_bytes quantized_share weight_bytes_read cache_bytes state_bytes "
                "cache_bytes_read own_memory_bytes peak_rss_bytes cuda_max_allocated_bytes cuda_max_reserved_bytes "
                "forward_passes prefill_flops decode_flops"
            ),
        ),
        (ReportTable.SCENARIO, "ttft_s tpot_s output_tokens_per_s prompt_tokens new_tokens"),
        (ReportTable.TEXTS, "first_divergent_token divergent_share"),
    ],
)
def test_each_table_has_its_metrics_in_the_order_of_its_columns(table: ReportTable, names: str) -> None:
    assert [metric.name for metric in shown_in(table, registry())] == names.split()


def test_a_projects_own_metric_may_stand_among_ours() -> None:
    """Between the output throughput, at 30, and the prompt tokens, at 40."""
    mine = own_metric("mine", tables={ReportTable.SCENARIO: 35})
    names = [metric.name for metric in shown_in(ReportTable.SCENARIO, registry([mine]))]
    place = names.index("mine")
    assert names[place - 1 : place + 2] == ["output_tokens_per_s", "mine", "prompt_tokens"]


def own_metric(name: str, tables: Mapping[ReportTable, float] | None = None) -> Metric:
    return Metric(name, "Own", "own", Unit.NONE, Direction.NEITHER, Kind.QUALITY, "mine", tables=tables or {})


def test_a_projects_metrics_come_after_ours() -> None:
    assert list(registry([own_metric("mine")])) == [*BY_NAME, "mine"]


def test_a_metrics_name_can_be_given_once() -> None:
    with pytest.raises(ValueError, match="'latency_s' is there already"):
        registry([own_metric("latency_s")])


def test_what_is_no_metric_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'letters' is no Metric"):
        registry(cast(list[Metric], ["letters"]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"unit": "furlong"}, "unknown unit of metric mine: 'furlong'. Known: Unit.SECONDS, Unit.MILLI"),
        (
            {"unit": "s"},
            "unknown unit of metric mine: 's'. Known: Unit.SECONDS, ",
        ),  # the members count, not their values
        (
            {"direction": "up"},
            "unknown direction of metric mine: 'up'. Known: Direction.HIGHER_IS_BETTER, Direction.LOWER_IS_BETTER, ",
        ),
        (
            {"kind": "exakt"},
            "unknown kind of metric mine: 'exakt'. Known: Kind.TIMING, Kind.MEMORY, Kind.QUALITY, Kind.EXACT",
        ),
        ({"tables": {"summray": 3}}, "unknown table of metric mine: 'summray'. Known: ReportTable.SCENARIO, "),
        (
            {"tolerance": Tolerance(force=cast(Force, "hard"))},
            "unknown force of the tolerance of metric mine: 'hard'. Known: Force.BLOCKING, Force.ADVISORY, Force.OFF",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_metric_of_unknown_choices_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        replace(own_metric("mine"), **wrong)
    assert str(refused.value).startswith(message)


def test_an_own_metric_is_looked_up_in_the_record_then_in_the_variant() -> None:
    variant = make_variant(quality={"mine": 2.0})
    assert own_metric("mine").of(make_record(extra={"mine": 1.0}), variant) == 1.0
    assert own_metric("mine").of(make_record(), variant) == 2.0
    assert own_metric("mine").of(make_record(), make_variant()) is None


@pytest.mark.parametrize(
    ("name", "column"), [("roofline_ttft_s", "roofline TTFT"), ("roofline_tpot_s", "roofline TPOT")]
)
def test_a_bound_from_the_machines_limits_is_called_its_roofline(name: str, column: str) -> None:
    assert BY_NAME[name].column == column
    assert BY_NAME[name].title.startswith("Roofline time ")
