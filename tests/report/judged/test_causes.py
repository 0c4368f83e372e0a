"""Which rows are one cause, by hand: of a variant, of a backend, of a single test; never of both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.report.judged.causes import MOVED, STILL, Cause, JudgedRow, causes_of, led
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME

PEAK, LATENCY, PER_TOKEN = "own_memory_bytes", "latency_s", "ms_per_token"
BACKENDS = {"ort": "onnxruntime", "bnb": "bitsandbytes"}
DIRECTIONS = {Verdict.REGRESSED: 1, Verdict.IMPROVED: -1}
MB = 10**6


def row(
    variant: str,
    benchmark: str,
    verdict: Verdict = Verdict.REGRESSED,
    by: float = 36.0 * MB,
    metric: str = PEAK,
    base: float = 100.0 * MB,
    **more: Any,
) -> JudgedRow:
    """by: how far a value that moved lies from the baseline's."""
    head = base + by * DIRECTIONS.get(verdict, 0)
    backend = BACKENDS.get(variant.partition("-")[0], "torch")
    return JudgedRow(variant, METRIC_BY_NAME[metric], verdict, backend, benchmark, "", base, head, head / base, **more)


def found(rows: Sequence[JudgedRow]) -> list[Cause]:
    return led(causes_of([one for one in rows if one.verdict in MOVED], rows))


def texts(*rows: JudgedRow) -> list[str]:
    return [cause.text for cause in found(rows)]


TESTS = ("Batch: 1", "Batch: 4", "Cache: off")


def test_all_tests_of_one_variant_are_one_cause() -> None:
    moved = [row("bf16", test) for test in TESTS]
    assert texts(*moved, row("fp32", "Batch: 1", Verdict.UNCHANGED)) == ["bf16: peak memory +36.0 MB in 3 tests"]


def test_all_variants_of_a_backend_are_one_cause() -> None:
    moved = [row(variant, test) for variant in ("ort-fp32", "ort-int8") for test in TESTS]
    still = row("fp32", "Batch: 1", Verdict.UNCHANGED)
    assert texts(*moved, still) == ["ort-*: peak memory +36.0 MB in 6 tests"]
    assert texts(*moved) == ["all variants: peak memory +36.0 MB in 6 tests"]


def test_a_backend_of_which_one_variant_stayed_is_told_by_variant() -> None:
    moved = [row("ort-fp32", test) for test in TESTS]
    assert texts(*moved, *(row("ort-int8", test, Verdict.UNCHANGED) for test in TESTS)) == [
        "ort-fp32: peak memory +36.0 MB in 3 tests"
    ]


def test_variants_without_a_common_prefix_are_named() -> None:
    moved = [row(variant, "Batch: 1") for variant in ("fp32", "bf16")]
    still = row("ort-int8", "Batch: 1", Verdict.UNCHANGED)
    assert texts(*moved, still) == ["bf16, fp32: peak memory +36.0 MB in 2 tests"]


def test_a_single_test_is_named_with_both_values() -> None:
    still = [row("bf16", test, Verdict.UNCHANGED) for test in TESTS[1:]]
    assert texts(row("bf16", "Batch: 1"), *still) == ["bf16: peak memory 100 MB → 136 MB, +36.0 % in Batch: 1"]


def test_some_tests_of_a_variant_are_counted_and_their_changes_are_a_range() -> None:
    moved = [row("bf16", "Batch: 1"), row("bf16", "Batch: 4", by=50.0 * MB)]
    assert texts(*moved, row("bf16", "Cache: off", Verdict.UNCHANGED)) == [
        "bf16: peak memory +36.0 MB to +50.0 MB in 2 of 3 tests"
    ]
    slower = [row("bf16", test, by=by, metric=LATENCY, base=1.0) for test, by in (("Batch: 1", 0.2), ("Batch: 4", 0.4))]
    assert texts(*slower, row("fp32", "Batch: 1", Verdict.UNCHANGED, metric=LATENCY)) == [
        "bf16: latency +20.0 % to +40.0 % in 2 tests"
    ]


def test_mixed_directions_are_not_merged() -> None:
    """Neither within a variant nor within a backend."""
    one = [row("bf16", "Batch: 1"), row("bf16", "Batch: 4", Verdict.IMPROVED)]
    assert [cause.verdict for cause in found(one)] == [Verdict.REGRESSED, Verdict.IMPROVED]
    rows = [row("ort-fp32", test) for test in TESTS[:2]] + [row("ort-int8", test) for test in TESTS[:2]]
    rows += [row("ort-int8", TESTS[2], Verdict.IMPROVED), row("fp32", TESTS[0], Verdict.UNCHANGED)]
    assert [cause.name for cause in found(rows)] == ["ort-fp32", "ort-int8", "ort-int8"]


def test_what_all_tests_of_a_variant_share_has_no_place() -> None:
    assert texts(row("bf16", "", metric="weight_bytes"), row("fp32", "", Verdict.UNCHANGED, metric="weight_bytes")) == [
        "bf16: weights 100 MB → 136 MB, +36.0 %"
    ]


def test_the_mean_of_one_variant_does_not_stand_for_its_whole_backend() -> None:
    """Bug: that bnb-int8's mean changed by 8 % was said of bnb-nf4 and bnb-fp4, too."""
    rows = [row(name, TESTS[0], by=by, metric="speedup", base=2.0) for name, by in (("ort-a", 1.0), ("ort-b", 0.2))]
    mean = row("ort-a", "", by=0.5, metric="speedup", base=2.0)
    still = row("fp32", TESTS[0], Verdict.UNCHANGED, metric="speedup", base=2.0)
    assert texts(mean, *rows, still) == [
        "ort-*: speed-up +10.0 % to +50.0 % across 2 tests, 2 of them in the same direction"
    ]


def test_what_stays_open_did_not_move() -> None:
    """Bug: inconclusive tests were said to have moved in the same direction."""
    rows = [row("bf16", test, Verdict.INCONCLUSIVE, metric="speedup", base=2.0) for test in ("", *TESTS[:2])]
    (cause,) = causes_of(rows, rows)
    assert cause.where == "across 2 tests, 2 of them inconclusive"


def test_the_change_over_all_tests_stands_for_those_of_its_tests() -> None:
    tests = [row("bf16", test, by=1.0, metric="speedup", base=2.0) for test in TESTS[:2]]
    mean = row("bf16", "", by=0.5, metric="speedup", base=2.0)
    still = row("bf16", TESTS[2], Verdict.UNCHANGED, metric="speedup", base=2.0)
    assert texts(mean, *tests, still) == [
        "bf16: speed-up 2.00 → 2.50, +25.0 % across 3 tests, 2 of them in the same direction"
    ]


def test_timings_that_moved_together_are_one_cause_and_others_are_not() -> None:
    rows = [row("bf16", test, by=0.2, metric=name, base=1.0) for name in (LATENCY, PER_TOKEN) for test in TESTS]
    assert texts(*rows, row("bf16", "", metric="weight_bytes")) == [
        "bf16: weights 100 MB → 136 MB, +36.0 %",
        "bf16: latency and 1 other timing +20.0 % in 3 tests",
    ]


def test_what_fails_a_gate_comes_first_then_the_largest_change() -> None:
    rows = [
        row("a", "x", by=99.0 * MB, is_advisory=True),
        row("b", "x", Verdict.IMPROVED),
        row("c", "x", by=20.0 * MB),
        row("d", "x", by=80.0 * MB),
    ]
    causes = found([*rows, row("e", "x", Verdict.UNCHANGED)])
    assert [cause.name for cause in causes] == ["d", "c", "b", "a"]


@pytest.mark.parametrize("verdict", STILL)
def test_metrics_that_did_not_move_are_one_cause(verdict: Verdict) -> None:
    rows = [row(variant, "x", verdict, metric=name) for variant in ("fp32", "bf16") for name in (PEAK, "new_tokens")]
    (cause,) = led(causes_of(rows, rows))
    assert (cause.name, cause.title, cause.where) == ("all variants", "new tokens and 1 other metric", "in 2 tests")
