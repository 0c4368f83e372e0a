from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import repeatability
from repeatability import SuiteRun, suite_run
from run_factory import make_block_record, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.results.record import Record, Run

VARIANTS = (
    make_variant("fp32"),
    make_variant("fp16", configuration="configuration of fp32"),
    make_variant("bf16"),
    make_variant("bnb-nf4"),
)


def block_record(variant: str, speedup: float, low: float, high: float, **where: Any) -> Record:
    """Five blocks, whose ratios scatter by a quarter of what the interval does."""
    stored = {"speedup": speedup, "speedup_low": low, "speedup_high": high}
    step = math.log(high / low) / 8
    reference_s = tuple(math.exp(step * number) for number in (-2, -1, 0, 1, 2))
    return make_record(variant, rounds_s=(1 / speedup,) * 5, reference_s=reference_s, extra=stored, **where)


def in_blocks(*records: Record, name: str = "quiet-1", **changes: Any) -> SuiteRun:
    """A run that stores its speed-ups."""
    reference = make_record("fp32", rounds_s=(1.0,) * 5, reference_s=(1.0,) * 5)
    run = make_run([reference, *records], VARIANTS, **changes)
    return suite_run(name, judged_run(run), wall_s=10.0)


def bf16_runs(*speedups: float, width: float = 0.05) -> list[SuiteRun]:
    """A run for each speed-up of bf16, with an interval of so much to either side."""
    return [in_blocks(block_record("bf16", one, one * (1 - width), one * (1 + width))) for one in speedups]


def apart(*records: Record) -> SuiteRun:
    """A run of the time before speed-ups were stored."""
    return suite_run("quiet-1", judged_run(make_run(records, VARIANTS)), wall_s=10.0)


def test_two_runs_differ_by_the_logarithm_of_the_ratio_of_their_speedups() -> None:
    ((speed, difference),) = repeatability.log_differences(bf16_runs(2.0, 2.2))
    assert speed.variant == "bf16"
    assert difference == pytest.approx(math.log(1.1))


def test_three_runs_are_three_pairs() -> None:
    differences = [difference for _, difference in repeatability.log_differences(bf16_runs(1.0, 2.0, 4.0))]
    assert sorted(differences) == pytest.approx([math.log(2), math.log(2), math.log(4)])


def test_what_a_run_shifts_is_the_mean_over_a_variants_tests() -> None:
    """Logarithms 1 and 3 against 2 and 6: means 1.5 and 4.5, so 0.5 and 1.5 below, on average 1."""
    low, high = (
        in_blocks(
            *(block_record("bf16", math.exp(one), 0.1, 1e9, scenario=f"s{index}") for index, one in enumerate(logs))
        )
        for logs in ((1.0, 3.0), (2.0, 6.0))
    )
    assert repeatability.mean_shifts([low, high]) == [{"bf16": pytest.approx(-1.0)}, {"bf16": pytest.approx(1.0)}]


def test_a_test_that_one_run_lacks_is_in_no_pair() -> None:
    other = in_blocks(block_record("bnb-nf4", 0.5, 0.4, 0.6))
    assert list(repeatability.log_differences([*bf16_runs(2.0), other])) == []


def test_the_reference_has_no_speedup() -> None:
    run = in_blocks(block_record("bf16", 2.0, 1.9, 2.1))
    assert [speed.variant for speed in run.speeds.values()] == ["bf16"]
    assert run.is_recorded


def test_a_record_that_was_taken_apart_has_none_where_others_have() -> None:
    run = in_blocks(block_record("bf16", 2.0, 1.9, 2.1), make_record("bnb-nf4", 2.0))
    assert [speed.variant for speed in run.speeds.values()] == ["bf16"]


def test_a_run_without_speedups_is_judged_by_the_quotients_of_medians_of_the_same_case() -> None:
    run = apart(
        make_record("fp32", 1.0),
        make_record("bf16", 0.5),
        make_record("fp32", 3.0, scenario="batch", case="2"),
        make_record("bf16", 1.0, scenario="batch", case="2"),
        make_record("bf16", 1.0, scenario="batch", case="4"),
    )
    assert not run.is_recorded
    assert [math.exp(speed.log_ratio) for speed in run.speeds.values()] == pytest.approx([2.0, 3.0])


def test_the_interval_of_a_quotient_lies_around_it() -> None:
    """Both sides scatter alike around their medians."""
    (speed,) = apart(make_record("fp32", 1.0), make_record("bf16", 0.5)).speeds.values()
    assert speed.interval is not None
    assert (speed.interval.low + speed.interval.high) / 2 == pytest.approx(math.log(2))
    assert 0 < speed.interval.high - speed.interval.low < 0.1


@pytest.mark.parametrize("rounds_s", [(1.0, 1.1), (1.0, 1.0, 1.0)])
def test_rounds_that_give_no_interval(rounds_s: Sequence[float]) -> None:
    assert repeatability.welch_interval(rounds_s, rounds_s) is None


def test_identical_work_is_that_of_the_references_configuration() -> None:
    run = in_blocks(block_record("fp16", 0.98, 0.9, 1.1), block_record("bf16", 2.0, 1.9, 2.1))
    ((speed, difference),) = repeatability.identical_work([run])
    assert speed.variant == "fp16"
    assert difference == pytest.approx(-math.log(0.98))


def test_work_repeated_within_a_run_is_compared_by_variant() -> None:
    run = in_blocks(
        block_record("bf16", 2.0, 1.9, 2.1),
        block_record("bf16", 2.2, 2.1, 2.3, scenario="cache"),
        block_record("bnb-nf4", 0.5, 0.4, 0.6, scenario="cache"),
        block_record("bf16", 9.0, 8.0, 10.0, scenario="batch", workload=make_workload("another")),
    )
    assert list(repeatability.repeated_work([run])) == pytest.approx([math.log(1.1)])


def test_an_interval_is_judged_by_the_mean_logarithm_of_the_other_runs_alone() -> None:
    """The others of the run with 4 have 1 and 1; those of the other two have 1 and 4, which is 2 in the middle."""
    runs = bf16_runs(1.0, 1.0, 4.0)
    (test,) = runs[0].speeds
    assert repeatability.pooled(runs[1:], test) == pytest.approx(math.log(2))
    assert [holds for _, holds in repeatability.held(runs)] == [False, False, False]
    assert [holds for _, holds in repeatability.held(bf16_runs(1.0, 1.01, 1.02))] == [True, True, True]
    assert list(repeatability.held(bf16_runs(1.0))) == []


def test_the_mean_of_few_runs_lies_outside_of_more_intervals_than_the_truth() -> None:
    """Beside one other run the difference has twice the variance, and 83.4 % lie within 1.96 / √2 deviations."""
    assert repeatability.expected_held(1) == pytest.approx(0.834, abs=5e-4)
    assert repeatability.expected_held(6) == pytest.approx(0.930, abs=5e-4)
    assert repeatability.expected_held(10**9) == pytest.approx(0.95)


def test_a_variant_is_claimed_where_its_interval_excludes_one() -> None:
    assert [claim.variant for claim in bf16_runs(2.0)[0].claims] == ["bf16"]
    assert [claim.variant for claim in bf16_runs(0.5)[0].claims] == ["bf16"]
    assert bf16_runs(1.01)[0].claims == ()


def test_identical_work_is_never_claimed() -> None:
    assert in_blocks(block_record("fp16", 2.0, 1.9, 2.1)).claims == ()


def test_a_run_without_speedups_claims_what_exceeds_its_noise_floor() -> None:
    """The floor is 15 % where a run repeats nothing."""
    assert [claim.variant for claim in apart(make_record("fp32", 1.0), make_record("bf16", 0.5)).claims] == ["bf16"]
    assert apart(make_record("fp32", 1.0), make_record("bf16", 0.9)).claims == ()


def test_a_claim_is_contradicted_by_a_pooled_value_on_the_other_side_of_one() -> None:
    """The first run says 1.5 times as fast, the others half as fast; pooled with the first, half x 1.5 is 0.87."""
    judged = repeatability.judged_claims(bf16_runs(1.5, 0.5, 0.5))
    assert [claim.is_contradicted_by(value) for _, claim, value in judged] == [True, False, False]


def test_the_fastest_of_a_run_is_compared_with_the_fastest_of_the_others() -> None:
    def run(bf16: float, nf4: float) -> SuiteRun:
        return in_blocks(*(block_record(name, x, x * 0.99, x * 1.01) for name, x in (("bf16", bf16), ("bnb-nf4", nf4))))

    assert list(repeatability.fastest_agrees([run(2.2, 2.0), run(2.0, 3.0), run(2.0, 3.0)])) == [False, True, True]


def test_the_share_of_work_is_of_the_wall_seconds() -> None:
    """6 and 2 of 10 seconds; importing is no work."""
    phases = {"generating": 6.0, "loading": 2.0, "importing": 1.5}
    runs = [in_blocks(phase_s=phases), in_blocks(phase_s={**phases, "importing": 0.5})]
    assert repeatability.work_share(runs) == pytest.approx(0.8)
    assert repeatability.mean_phases_s(runs) == {"generating": 6.0, "loading": 2.0, "importing": 1.0}


def test_quantiles_of_too_few_values_are_unknown() -> None:
    assert repeatability.quantiles([]) == (None, None)
    assert repeatability.quantiles([1.0, 3.0]) == (2.0, None)
    assert repeatability.quantiles(range(11)) == (5, 9)


def weighing(weight_bytes: int) -> Run:
    return make_run([make_record("fp32")], [make_variant("fp32", weight_bytes=weight_bytes)])


def test_equal_runs_are_green_in_every_order() -> None:
    found = repeatability.gate_trials([judged_run(weighing(100))] * 3, Rules(()))
    assert found.statuses == {ExitStatus.PASSED: 6}
    assert found.red == 0


def test_a_run_that_got_worse_is_red_against_each_of_the_others() -> None:
    runs = [judged_run(weighing(size)) for size in (100, 100, 101)]
    found = repeatability.gate_trials(runs, Rules(()))
    assert found.statuses == {ExitStatus.PASSED: 4, ExitStatus.REGRESSED: 2}
    assert found.regressed == {"weight_bytes": 2}
    assert found.red == 2


def test_a_slowdown_that_is_put_into_a_run_is_found_if_it_is_large() -> None:
    """Six tests of one variant, twice as fast in blocks that scatter by 1 %."""
    records = [make_block_record("bf16", 2.0, scenario=f"s{index}") for index in range(6)]
    run = judged_run(make_run([make_block_record(spread=0.0), *records], VARIANTS))
    assert repeatability.found_slowdowns([run, run], Rules(()), 1.3) == ([True, True], [True, True])
    assert repeatability.found_slowdowns([run, run], Rules(()), 1.04) == ([False, False], [False, False])


def test_a_slowdown_leaves_the_other_tests_and_the_reference_as_they_were() -> None:
    fast, slow = (make_block_record("bf16", 2.0, scenario=name) for name in ("a", "b"))
    run = judged_run(make_run([make_block_record(spread=0.0), fast, slow], VARIANTS))
    reference, other, slowed = repeatability.slowed(run, [slow.test], 2.0).records
    assert (reference, other) == run.records[:2]
    assert slowed.rounds_s == pytest.approx([2 * seconds for seconds in slow.rounds_s])
    assert slowed.metrics["speedup"] == pytest.approx(1.0, rel=1e-3)
