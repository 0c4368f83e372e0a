"""Rules: how they are typed, and which one applies."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.gate.rules import NamedRule, Rules, check_marks, check_targets, parse_rules, rule_in_words
from llm_bench_fixtures.results.metrics import METRICS, Direction, Force, Kind, Metric, Tolerance, Unit, registry
from llm_bench_fixtures.results.metrics.quality import MLPERF_FLOOR

METRIC = {metric.name: metric for metric in METRICS}


def rule_of(name: str, text: str = "", scenario: str = "", mark: dict[str, str] | None = None) -> Tolerance:
    return Rules(parse_rules(text)).of(METRIC[name], scenario, mark or {})


def test_rules_are_read() -> None:
    assert parse_rules("latency_s:5%, cache/perplexity:0.01 ,exact:off") == (
        NamedRule("latency_s", "5%"),
        NamedRule("perplexity", "0.01", "cache"),
        NamedRule("exact", "off"),
    )
    assert parse_rules("") == ()


@pytest.mark.parametrize("text", ["latency_s", "latency_s:", ":5%", "latency_s:-5%", "latency_s:x", "latency_s:nan%"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected"):
        parse_rules(text)


@pytest.mark.parametrize(
    ("text", "scenario", "rule"),
    [
        ("latency_s:5%", "", Tolerance(relative=0.05)),
        ("latency_s:0.01", "", Tolerance(absolute=0.01)),
        ("latency_s:0", "", Tolerance()),
        ("latency_s:blocking", "", Tolerance(relative=0.10)),
        ("latency_s:off", "", Tolerance(relative=0.10, force=Force.OFF)),
        ("timing:5%", "", Tolerance(relative=0.05)),
        ("latency_s:3%,timing:5%", "", Tolerance(relative=0.03)),
        ("latency_s:3%,latency_s:4%", "", Tolerance(relative=0.04)),
        ("cache/timing:5%,latency_s:3%", "cache", Tolerance(relative=0.05)),
        ("cache/timing:5%,latency_s:3%", "batch", Tolerance(relative=0.03)),
        ("memory:5%", "", Tolerance(relative=0.10, force=Force.ADVISORY)),
    ],
)
def test_the_most_specific_rule_applies(text: str, scenario: str, rule: Tolerance) -> None:
    assert rule_of("latency_s", text, scenario) == rule


def test_a_tests_own_marker_comes_before_everything() -> None:
    assert rule_of("latency_s", "cache/latency_s:5%", "cache", {"latency_s": "2%"}) == Tolerance(relative=0.02)
    assert rule_of("latency_s", "", "cache", {"timing": "2%"}) == Tolerance(relative=0.02)
    assert rule_of("latency_s", "", "cache", {"memory": "2%"}) == rule_of("latency_s")


def test_a_floor_stays_unless_more_than_it_is_asked_for() -> None:
    """Bug: perplexity:0.5% was weaker than no rule, as a loss of any size could be called uncertain."""
    for change in ("0.5%", "0", "0.1"):
        assert rule_of("perplexity", f"perplexity:{change}").floor == MLPERF_FLOOR
    assert rule_of("perplexity", "perplexity:5%").floor == 0.05


@pytest.mark.parametrize("name", ["latency_cv", "latency_stddev_s", "mbu", "rounds", "probe_read_s"])
def test_a_rule_for_all_timings_says_nothing_of_those_that_nobody_judges(name: str) -> None:
    """Bug: timing:50% blocked on the number of rounds."""
    assert rule_of(name, "timing:50%").force is Force.OFF
    assert rule_of(name, "", "", {"timing": "50%"}).force is Force.OFF
    assert rule_of(name, f"{name}:50%").force is Force.BLOCKING


def test_a_rule_for_all_memory_does_not_loosen_what_may_not_change_at_all() -> None:
    assert rule_of("weight_bytes", "memory:5%") == rule_of("weight_bytes")
    assert rule_of("own_memory_bytes", "memory:5%") == Tolerance(relative=0.05)
    assert rule_of("weight_bytes", "memory:off").force is Force.OFF


@pytest.mark.parametrize(
    ("name", "force"),
    [
        ("forward_passes", Force.BLOCKING),
        ("new_tokens", Force.BLOCKING),
        ("weight_bytes", Force.BLOCKING),
        ("own_memory_bytes", Force.BLOCKING),
        ("perplexity", Force.BLOCKING),
        ("kld_mean", Force.BLOCKING),
        ("flips", Force.ADVISORY),
        ("choice_accuracy", Force.ADVISORY),
        ("flips_gained", Force.OFF),
        ("latency_s", Force.ADVISORY),
        ("load_s", Force.ADVISORY),
        ("latency_cv", Force.OFF),
        ("rounds", Force.OFF),
        ("kld_error", Force.OFF),
        ("roofline_tpot_s", Force.OFF),
    ],
)
def test_what_blocks_without_any_rule(name: str, force: Force) -> None:
    assert rule_of(name).force is force


def test_exact_metrics_and_weights_may_not_change_at_all() -> None:
    exact = [metric for metric in METRICS if metric.kind is Kind.EXACT or metric.name == "weight_bytes"]
    assert {(Rules().of(metric).relative, Rules().of(metric).absolute) for metric in exact} == {(0.0, 0.0)}


def test_a_projects_own_metric_goes_by_its_kind() -> None:
    mine = Metric("mine", "Mine", "mine", METRIC["latency_s"].unit, METRIC["latency_s"].direction, Kind.TIMING, "own")
    assert Rules().of(mine) == rule_of("latency_s")


def test_a_metrics_own_tolerance_comes_before_its_kinds() -> None:
    """And a rule for all of the kind doesn't loosen it."""
    fine = Tolerance(relative=0.02, force=Force.BLOCKING)
    mine = Metric("mine", "Mine", "mine", Unit.NONE, Direction.LOWER_IS_BETTER, Kind.TIMING, "own", tolerance=fine)
    assert Rules().of(mine) == Tolerance(relative=0.02)
    assert Rules(parse_rules("timing:50%")).of(mine) == Tolerance(relative=0.02)
    assert Rules(parse_rules("mine:50%")).of(mine) == Tolerance(relative=0.5)


def test_what_is_neither_better_nor_worse_is_not_judged_whatever_its_row_says() -> None:
    mine = Metric("mine", "M", "m", Unit.NONE, Direction.NEITHER, Kind.TIMING, "own", tolerance=Tolerance())
    assert Rules().of(mine).force is Force.OFF


def test_unknown_metrics_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnknownName, match=r"metrics 'speed'\. Did you mean speedup\?$"):
        check_targets(["latency_s", "speed"], registry())
    with pytest.raises(UnknownName, match="'speed'"):
        check_marks({"speed": "1%"}, registry())
    with pytest.raises(InvalidSetting, match="'much'"):
        check_marks({"latency_s": "much"}, registry())


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("latency_s", Tolerance(relative=0.05), "5 %"),
        ("latency_s", Tolerance(absolute=0.01), "10.0 ms"),
        ("own_memory_bytes", Tolerance(relative=0.1, absolute=5e6), "10 % or 5.00 MB"),
        ("new_tokens", Tolerance(), "no change"),
    ],
)
def test_a_tolerance_in_words(name: str, rule: Tolerance, words: str) -> None:
    assert rule_in_words(rule, METRIC[name]) == words
