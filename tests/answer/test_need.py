"""A need, as it is typed."""

from __future__ import annotations

import pytest
from run_factory import asking

from llm_bench_fixtures.answer.need import (
    DEFAULT_LIMIT,
    DEFAULT_NEED,
    Need,
    QualityMeasure,
    Reader,
    Standing,
    need_from,
    parse_limits,
    quality_limit,
)
from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Direction, Kind, Metric, Unit, registry
from llm_bench_fixtures.statistics.spread import Interval

OWN = Metric("score", "Score", "score", Unit.NONE, Direction.HIGHER_IS_BETTER, Kind.QUALITY, "by hand")


@pytest.mark.parametrize(
    ("text", "bound", "shown", "words"),
    [
        ("ppl_ratio<=1.01", 1.01, "ppl_ratio ≤ 1.01", "perplexity at most 1 % above fp32's"),
        (" ppl_ratio <= 1 ", 1.0, "ppl_ratio ≤ 1", "perplexity not above fp32's"),
        ("ppl_ratio≤1.5", 1.5, "ppl_ratio ≤ 1.5", "perplexity at most 50 % above fp32's"),
        ("top1_agreement>=0.99", 0.99, "top1_agreement ≥ 99 %", "top-1 agreement of at least 99 % with fp32"),
        ("top1_agreement>=99.5%", 0.995, "top1_agreement ≥ 99.5 %", "top-1 agreement of at least 99.5 % with fp32"),
        ("flips<=5%", 0.05, "flips ≤ 5 %", "flips of at most 5 %"),
        ("kld_mean<=0.02", 0.02, "kld_mean ≤ 0.02", "mean divergence from the reference of at most 0.02"),
        ("tpot_s<=50ms", 0.05, "tpot_s ≤ 50 ms", "time per output token of at most 50 ms"),
        ("tpot<=50000us", 0.05, "tpot ≤ 50 ms", "time per output token of at most 50 ms"),
        ("ttft_s<=0.5", 0.5, "ttft_s ≤ 500 ms", "time to first token of at most 500 ms"),
        ("latency<=1.25s", 1.25, "latency ≤ 1.25 s", "latency per sample of at most 1.25 s"),
        ("memory<=4GB", 4e9, "memory ≤ 4 GB", "peak memory of at most 4 GB"),
        ("memory<=4 GiB", 2.0**32, "memory ≤ 4.29 GB", "peak memory of at most 4.29 GB"),
        ("weight_bytes<=500mb", 5e8, "weight_bytes ≤ 500 MB", "weights of at most 500 MB"),
        ("throughput>=100", 100.0, "throughput ≥ 100 tokens/s", "output throughput of at least 100 tokens/s"),
        ("mbu>=50%", 0.5, "mbu ≥ 50 %", "model bandwidth utilization of at least 50 %"),
        ("ppl<=1.01", 1.01, "ppl_ratio ≤ 1.01", "perplexity at most 1 % above fp32's"),
        ("kld<=0.1", 0.1, "kld_mean ≤ 0.1", "mean divergence from the reference of at most 0.1"),
        ("top1>=99%", 0.99, "top1_agreement ≥ 99 %", "top-1 agreement of at least 99 % with fp32"),
        ("speedup>=1.2", 1.2, "speedup ≥ 1.20", "speed-up of at least 1.20"),
    ],
)
def test_a_limit(text: str, bound: float, shown: str, words: str) -> None:
    limit = parse_limits(text)[0]
    assert (limit.bound, str(limit), limit.words("fp32")) == (pytest.approx(bound), shown, words)


@pytest.mark.parametrize(
    "name", [one.name for one in METRIC_BY_NAME.values() if one.direction is not Direction.NEITHER]
)
def test_every_metric_with_a_better_direction_can_be_limited(name: str) -> None:
    metric = METRIC_BY_NAME[name]
    sign = "<=" if metric.direction is Direction.LOWER_IS_BETTER else ">="
    text = f"{name}{sign}1{'MB' if metric.unit is Unit.BYTES else ''}"
    assert parse_limits(text)[0].metrics == (metric,)


def test_without_a_limit_on_quality_the_default_is_one() -> None:
    """Whoever asks for 50 ms a token doesn't ask for any text that comes so fast."""
    assert [str(one) for one in parse_limits("tpot_s<=50ms, memory<=4GB")] == [
        "tpot_s ≤ 50 ms",
        "memory ≤ 4 GB",
        "ppl_ratio ≤ 1.01",
    ]
    assert [str(one) for one in parse_limits("tpot_s<=50ms, flips<=5%")] == ["tpot_s ≤ 50 ms", "flips ≤ 5 %"]


def test_the_default_is_lifted_by_any() -> None:
    assert [str(one) for one in parse_limits("ppl_ratio<=any, tpot_s<=50ms")] == ["tpot_s ≤ 50 ms"]
    assert parse_limits("ppl_ratio<=any") == ()


def test_the_default_of_the_options() -> None:
    assert need_from({}) == DEFAULT_NEED == Need((DEFAULT_LIMIT,), Reader.LATENCY)


@pytest.mark.parametrize(("text", "want"), [("throughput", Reader.THROUGHPUT), ("memory", Reader.MEMORY)])
def test_what_is_wanted(text: str, want: Reader) -> None:
    assert need_from({"want": text}).want is want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected METRIC<=BOUND or METRIC>=BOUND, such as tpot_s<=50ms or top1_agreement>=99%, got ''"),
        (" , ", "expected METRIC<=BOUND"),
        (
            "tpot_s",
            "expected METRIC<=BOUND or METRIC>=BOUND, such as tpot_s<=50ms or top1_agreement>=99%, got 'tpot_s'",
        ),
        ("<=50ms", "expected METRIC<=BOUND"),
        (
            "tpot_s<=1,5ms",
            "expected METRIC<=BOUND or METRIC>=BOUND, such as tpot_s<=50ms or top1_agreement>=99%, got '5ms'",
        ),
        ("tpot_s<=", "tpot_s: expected a time such as 50ms, 0.5s or 0.5, got ''"),
        ("tpot_s<=fast", "tpot_s: expected a time such as 50ms, 0.5s or 0.5, got 'fast'"),
        ("tpot_s<=-1ms", "tpot_s: expected a time such as 50ms, 0.5s or 0.5, got '-1ms'"),
        ("tpot_s<=inf", "tpot_s: expected a time"),
        ("tpot_s<=nan", "tpot_s: expected a time"),
        ("tpot_s<=1e999", "tpot_s: expected a time"),
        ("tpot_s<50ms", "unknown sign '<'. Known: <=, >="),
        ("ppl_ratio:1.01", "unknown sign ':'. Known: <=, >="),
        ("tpot_s=50ms", "unknown sign '='. Known: <=, >="),
        ("tpot_s>=50ms", "tpot_s: lower is better, so write tpot_s<=BOUND; got 'tpot_s>=50ms'"),
        ("top1_agreement<=99%", "top1_agreement: higher is better, so write top1_agreement>=BOUND; got "),
        ("tpot<=50sec", "unknown unit of tpot 'sec'. Known: s, ms, us, µs"),
        ("memory<=4", "memory: expected a size with its unit, such as 500MB, 4GB or 4GiB, got '4'"),
        ("memory<=4G", "unknown unit of memory 'G'. Known: kb, kib, mb, mib, gb, gib, tb, tib"),
        ("tpot<=50", "tpot: expected a time with its unit, such as 50ms or 0.5s, got '50'"),
        ("ttft<=0.5", "ttft: expected a time with its unit"),
        ("latency<=1", "latency: expected a time with its unit"),
        ("ppl_ratio<=101%", "ppl_ratio: expected a number without a unit, such as 1.01, got '101%'"),
        ("speedup>=2x", "speedup: expected a number without a unit, such as 1.01, got '2x'"),
        ("ppl_ratio<=0.99", "ppl_ratio: expected at least 1, got 0.99: 1.01 allows 1 % more than the reference's"),
        ("top1_agreement>=99", "top1_agreement: 99 would be 9900%: type 99%, or a share of at most 1"),
        ("top1>=101%", "top1: expected at most 100%, got 101%"),
        ("top1>=150", "top1: expected at most 100%, got 150"),
        ("rounds>=3", "rounds can't be limited: neither more nor less of it is better"),
        ("tpot_s<=50ms, tpot<=40ms", "tpot_s is limited twice: leave one of the two out"),
        ("speed<=2", "unknown metric 'speed'. Did you mean speedup"),
        ("ttf_s<=2", "unknown metric 'ttf_s'. Did you mean ttft_s"),
        ("TPOT_S<=50ms", "unknown metric 'TPOT_S'. Did you mean tpot_s"),
        ("itl<=5ms", "unknown metric 'itl'. Did you mean itl_p50_s, itl_p90_s or itl_p99_s?"),
        ("top1_a>=99%", "unknown metric 'top1_a'. Did you mean top1_agreement"),
        ("ppl<=1.01, ppl_ratio<=1.02", "ppl_ratio is limited twice"),
    ],
)
def test_anything_else_is_refused_with_what_is_taken(text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        need_from({"need": text})
    assert str(caught.value).startswith(f"--llm-need: {message}")


def test_an_unknown_metric_is_answered_with_the_nearest_names_or_else_all_of_them() -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_limits("tpot_ms<=50")
    assert "Did you mean tpot_s" in str(caught.value)
    assert "Known" not in str(caught.value)
    with pytest.raises(InvalidSetting) as caught:
        parse_limits("zzz<=50")
    assert "Known: latency, ttft, tpot, throughput, memory, ppl, kld, top1, latency_s, " in str(caught.value)
    assert "rounds" not in str(caught.value)  # it has no better direction


def test_an_unknown_want_is_refused() -> None:
    with pytest.raises(InvalidSetting) as caught:
        need_from({"want": "speed"})
    assert str(caught.value) == "--llm-want: unknown thing to want 'speed'. Known: latency, throughput, memory"


def test_a_projects_own_metric_can_be_limited() -> None:
    found = need_from({"need": "score>=3"}, registry([OWN]))
    assert [str(one) for one in found.limits] == ["score ≥ 3"]


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("tpot_s<=50ms", 0.04, 0.05, Standing.WITHIN),  # the limit itself
        ("tpot_s<=50ms", 0.04, 0.051, Standing.UNCLEAR),
        ("tpot_s<=50ms", 0.05, 0.06, Standing.UNCLEAR),
        ("tpot_s<=50ms", 0.051, 0.06, Standing.BEYOND),
        ("throughput>=100", 100.0, 120.0, Standing.WITHIN),
        ("throughput>=100", 99.0, 120.0, Standing.UNCLEAR),
        ("throughput>=100", 90.0, 99.0, Standing.BEYOND),
    ],
)
def test_where_an_interval_stands(text: str, low: float, high: float, expected: Standing) -> None:
    assert parse_limits(text)[0].standing_of(Interval(low, high)) is expected


def test_a_miss_is_a_share_of_the_bound() -> None:
    assert parse_limits("tpot_s<=50ms")[0].miss_of(0.055) == pytest.approx(0.1)
    assert parse_limits("throughput>=110")[0].miss_of(100.0) == pytest.approx(0.1)


def test_a_page_moves_the_limit_on_quality_alone() -> None:
    need = asking("tpot_s<=50ms, ppl_ratio<=1.02, flips<=5%, top1_agreement>=90%", Reader.MEMORY)
    assert str(need.quality) == "ppl_ratio ≤ 1.02"
    moved = need.with_quality(quality_limit(QualityMeasure.TOP1_AGREEMENT, 0.98))
    assert str(moved) == "tpot_s ≤ 50 ms, flips ≤ 5 %, top1_agreement ≥ 98 %"
    assert moved.want is Reader.MEMORY


def test_what_the_limits_are_called() -> None:
    assert DEFAULT_NEED.title == asking("flips<=5%").title == "the quality limit"
    assert asking("tpot_s<=50ms").title == "the need"


def test_a_load_takes_the_bounds_that_concern_it() -> None:
    need = asking("tpot<=50ms")
    assert (need.bound_of("tpot_s", 0.1), need.bound_of("ttft_s", 1.0)) == (0.05, 1.0)
