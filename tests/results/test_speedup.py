"""The speed-up of records by rounds of the same blocks, and what disturbed them: values derived by hand."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from itertools import product
from typing import Any

import pytest
from run_factory import around, make_record, make_workload

from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.results.speedup import (
    disturbed_pairs,
    disturbed_rounds,
    drifts_apart,
    is_calm,
    mean_speedup_between,
    record_log_ratio,
    record_speedup,
    rounds_together,
    share_blocks,
    waiting_share,
    with_expected_variance,
)
from llm_bench_fixtures.statistics.ratio import PROCESS_DEVIATION, Speedup
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate, estimate_prior


def speedup_between(of: Record, over: Record) -> Speedup | None:
    return mean_speedup_between([(of, over)])


@pytest.mark.parametrize(
    ("round_s", "waited_s", "expected"),
    [(1.0, 0.02, True), (1.0, 0.021, False), (0.001, 0.0003, True), (0.001, 0.00031, False), (1.0, 0.0, True)],
)
def test_a_round_is_calm_up_to_a_share_or_a_moment_of_waiting(round_s: float, waited_s: float, expected: bool) -> None:
    """2 % of its latency, or 0.3 ms."""
    assert is_calm(round_s, waited_s) is expected


@pytest.mark.parametrize(
    ("waited_s", "reference_waited_s", "expected"),
    [((), (), 0), ((0.0, 0.0, 1.0), (), 1), ((0.0, 0.0, 1.0), (1.0, 0.0, 1.0), 2), ((9.0,) * 3, (9.0,) * 3, 3)],
)
def test_a_pair_is_disturbed_if_one_of_its_rounds_is(
    waited_s: tuple[float, ...], reference_waited_s: tuple[float, ...], expected: int
) -> None:
    record = make_record(
        rounds_s=(1.0,) * 3, reference_s=(1.0,) * 3, waited_s=waited_s, reference_waited_s=reference_waited_s
    )
    assert disturbed_pairs(record) == expected


@pytest.mark.parametrize("is_reference", [False, True])
def test_what_threads_make_each_other_wait_is_no_disturbance(is_reference: bool) -> None:
    """Bug: two pools of threads made each speed-up of ONNX Runtime doubtful. Its threads wait for longer than the other
    side's by 0.15 to 0.2 of a round in three of four pairs, and by 0.5 in one, which is more than 0.02 and 1.5 times
    0.16."""
    waited_s, calm_s = (0.15, 0.5, 0.2, 0.16), (0.0,) * 4
    both = (calm_s, waited_s) if is_reference else (waited_s, calm_s)
    record = make_record(rounds_s=(1.0,) * 4, reference_s=(1.0,) * 4, waited_s=both[0], reference_waited_s=both[1])
    assert disturbed_rounds(record) == [False, not is_reference, False, False]
    assert disturbed_pairs(record) == 1


@pytest.mark.parametrize(("rounds", "disturbed"), [(2, 2), (3, 0)])
def test_two_rounds_do_not_tell_what_threads_make_each_other_wait(rounds: int, disturbed: int) -> None:
    record = make_record(
        rounds_s=(1.0,) * rounds,
        reference_s=(1.0,) * rounds,
        waited_s=(0.2,) * rounds,
        reference_waited_s=(0.0,) * rounds,
    )
    assert disturbed_pairs(record) == disturbed


def test_what_holds_up_the_reference_too_disturbs() -> None:
    record = make_record(
        rounds_s=(1.0,) * 3, reference_s=(2.0,) * 3, waited_s=(0.15,) * 3, reference_waited_s=(0.3,) * 3
    )
    assert disturbed_pairs(record) == 3


def test_of_two_rounds_it_is_not_told_how_long_their_threads_waited() -> None:
    """Bug: from a single round it was told that threads hold each other up."""
    assert waiting_share((1.0, 1.0), (0.3, 0.3)) is None
    assert waiting_share((1.0, 1.0, 1.0), (0.3, 0.3, 0.1)) == 0.3


def test_a_record_that_was_not_measured_in_blocks_has_no_disturbed_ones() -> None:
    assert disturbed_pairs(make_record(rounds_s=(1.0,) * 3, waited_s=(1.0,) * 3)) == 0


def test_a_record_has_the_speedup_of_its_rounds() -> None:
    found = record_speedup(make_record(rounds_s=(0.5, 1.0, 2.0), reference_s=(1.0, 2.0, 4.0)))
    assert found is not None
    assert found.ratio == pytest.approx(2.0)


def test_a_record_that_was_not_measured_in_blocks_has_none() -> None:
    assert record_speedup(make_record()) is None


def test_two_records_of_the_same_blocks_are_compared_round_by_round() -> None:
    """Both took twice as long in every other round: their ratio is 2 in each, with no scatter."""
    reference_s = (1.0, 1.0, 1.0, 1.0)
    fast = make_record("bf16", rounds_s=(0.5, 1.0, 0.5, 1.0), reference_s=reference_s)
    slow = make_record("nf4", rounds_s=(1.0, 2.0, 1.0, 2.0), reference_s=reference_s)
    found = speedup_between(fast, slow)
    assert found is not None
    assert (found.ratio, found.rounds) == (pytest.approx(2.0), 4)
    assert math.log(found.high / found.ratio) == pytest.approx(math.sqrt(2) * 1.959964 * PROCESS_DEVIATION)


def test_a_record_that_was_settled_earlier_is_compared_by_the_rounds_of_both() -> None:
    """The first three of the other's four. What the reference's process differs by is in none of them: the interval is
    what two processes make, 1.96 x 1.41 hundredths."""
    fast = make_record("bf16", rounds_s=(0.5, 1.0, 0.5, 9.0), reference_s=(1.0,) * 4)
    slow = make_record("nf4", rounds_s=(1.0, 2.0, 1.0), reference_s=(1.0,) * 3)
    found = speedup_between(fast, slow)
    assert found is not None
    assert (found.ratio, found.rounds) == (pytest.approx(2.0), 3)
    assert math.log(found.high / found.ratio) == pytest.approx(math.sqrt(2) * 1.959964 * PROCESS_DEVIATION)


def test_two_records_of_different_blocks_are_compared_by_the_reference() -> None:
    """4 times and twice as fast as the reference. Their errors add as squares."""
    fast = make_record("bf16", rounds_s=(0.25, 0.26, 0.24), reference_s=(1.0,) * 3)
    slow = make_record("nf4", rounds_s=(1.0, 1.06, 0.94), reference_s=(2.0,) * 3)
    found, one, other = speedup_between(fast, slow), record_speedup(fast), record_speedup(slow)
    assert found is not None
    assert one is not None
    assert other is not None
    assert found.ratio == pytest.approx(one.ratio / other.ratio)
    assert found.low * found.high == pytest.approx(found.ratio**2)
    margin, *margins = (math.log(each.high / each.ratio) for each in (found, one, other))
    assert max(margins) / 2 < margin < math.hypot(*margins)  # Student's t of up to four degrees of freedom, not two


def test_a_record_without_blocks_has_no_speedup_over_another() -> None:
    assert speedup_between(make_record("bf16"), make_record(reference_s=around(1.0))) is None


def test_records_share_blocks_where_they_stand_beside_the_same_rounds() -> None:
    one, shorter, other = (make_record(reference_s=seconds) for seconds in ((1.0, 2.0, 3.0), (1.0, 2.0), (3.0, 4.0)))
    assert share_blocks(one, shorter)
    assert not share_blocks(one, other)  # a single round that is the same by chance
    assert not share_blocks(make_record(), make_record())


def test_records_that_were_left_out_of_unlike_blocks_are_compared_by_those_of_both() -> None:
    """The first and the third of the other's three, and the first two of its own."""
    fast = make_record("bf16", rounds_s=(1.0, 9.0, 3.0), reference_s=(1.0, 2.0, 3.0))
    slow = make_record("nf4", rounds_s=(2.0, 6.0, 9.0), reference_s=(1.0, 3.0, 4.0))
    assert rounds_together(fast, slow) == [(0, 0), (2, 1)]
    assert rounds_together(slow, fast) == [(0, 0), (1, 2)]
    expected = VarianceEstimate(1.0, 1.0)  # without it two pairs are too few
    found = speedup_between(replace(fast, expected_variance=expected), replace(slow, expected_variance=expected))
    assert found is not None
    assert found.ratio == pytest.approx(2.0)


def scattering(*logs: float, **changes: Any) -> Record:
    """Rounds whose log ratios are these."""
    variant = changes.pop("variant", f"v{len(logs)}")
    own_s = tuple(math.exp(-log) for log in logs)
    return make_record(variant, reference_s=(1.0,) * len(logs), rounds_s=own_s, **changes)


def test_a_case_leads_to_expect_the_variance_of_its_other_comparisons() -> None:
    """Those of a and b are 1 and 4. Each has two degrees of freedom; two together count as 4 over 1.25, as they share
    the reference's rounds. Neither the reference's own record tells anything nor one that was measured apart."""
    own = make_record(reference_s=(1.0, 2.0, 3.0), rounds_s=(1.0, 2.0, 3.0))
    first = scattering(1.0, 2.0, 3.0, variant="a"), scattering(2.0, 4.0, 6.0, variant="b")
    third, apart = scattering(0.0, 5.0, variant="c"), make_record("nf4")
    records = with_expected_variance([own, *first, third, apart])
    assert astuple(records[3].expected_variance) == pytest.approx((2.5, 4 / 1.25))
    assert records[4].expected_variance == NO_PRIOR
    assert [replace(one, expected_variance=NO_PRIOR) for one in records[1:4]] == [*first, third]


def test_cases_that_scatter_alike_make_each_others_intervals_sure() -> None:
    """Three of them have a variance of 1 for certain, so that a fourth, of one comparison, is expected to have it."""
    cases = [scattering(1.0, 2.0, 3.0, case=str(number)) for number in range(4)]
    expected = estimate_prior([VarianceEstimate(1.0, 2)] * 4)
    assert {one.expected_variance for one in with_expected_variance(cases)} == {expected}


def test_one_odd_pair_of_few_is_left_out() -> None:
    """Bug: a round of the reference that took 20 % longer made every variant of the case look 5 % faster."""
    usual = [
        scattering(*(level + shift for shift in (-0.01, 0.01, 0.0, 0.02)), case=str(case), variant=f"v{level}")
        for case, level in product(range(4), (0.1, 0.2, 0.3))
    ]
    odd = scattering(0.49, 0.71, 0.5, 0.51, case="odd", variant="v0.5")
    found = record_log_ratio(with_expected_variance([*usual, odd])[-1])
    assert found is not None
    assert found.centre == pytest.approx(0.5)


def test_a_variant_that_scatters_more_than_others_keeps_its_pairs() -> None:
    """Two others scatter by a hundredth of it in each case, so that their variance explains none of its pairs."""
    logs = (0.0, 0.1, 0.3)
    steady = [scattering(0.0, 0.001, 0.003, case=str(case), variant=name) for case in range(3) for name in "ab"]
    wild = [scattering(*logs, case=str(case), variant="wild") for case in range(3)]
    found = record_log_ratio(with_expected_variance([*steady, *wild])[-1])
    assert found is not None
    assert found.centre == pytest.approx(sum(logs) / 3)


def test_only_comparisons_with_the_same_rounds_of_the_reference_make_a_case() -> None:
    """Two lineups of one case, minutes apart: what disturbed the one says nothing of the other."""
    calm = [scattering(0.0, 0.01, 0.03, variant=name) for name in "abc"]
    disturbed = [
        replace(one, reference_s=(2.0,) * 3, rounds_s=tuple(2 * seconds for seconds in one.rounds_s))
        for one in (scattering(0.0, 1.0, 3.0, variant=name) for name in "def")
    ]
    variances = [one.expected_variance.variance for one in with_expected_variance([*calm, *disturbed])]
    assert variances[:3] == pytest.approx([0.01**2 * 7 / 3] * 3)
    assert variances[3:] == pytest.approx([7 / 3] * 3)


def test_two_variants_are_compared_alike_in_both_orders() -> None:
    """What is expected of the one and of the other differs by a factor of 10,000."""
    steady = scattering(0.0, 0.001, 0.002, 0.2, variant="a", expected_variance=VarianceEstimate(1e-6, 8))
    wild = scattering(0.0, 0.0, 0.0, 0.0, variant="b", expected_variance=VarianceEstimate(1e-2, 8))
    one, other = speedup_between(steady, wild), speedup_between(wild, steady)
    assert one is not None
    assert other is not None
    assert (one.ratio * other.ratio, one.low * other.high) == pytest.approx((1.0, 1.0))


def drifting(variant: str, *logs: float) -> list[Record]:
    """Cases of one prompt, three rounds each, all of one log ratio."""
    return [make_record(variant, reference_s=(math.exp(log),) * 3, rounds_s=(1.0,) * 3) for log in logs]


def test_a_run_tells_how_far_a_variants_cases_drift_apart() -> None:
    """Nine cases, 1 to either side of their mean: each lies 2 off its neighbours, whose square has 1.5 times the
    variance of one case. A batch, another number of new tokens and a record that failed are no like cases."""
    others = [
        make_record("bf16", reference_s=(9.0,) * 3, rounds_s=(1.0,) * 3, **changes)
        for changes in (
            {"workload": make_workload(prompts=8)},
            {"workload": make_workload(new_tokens=1)},
            {"status": Status.ERROR},
        )
    ]
    records = with_expected_variance([*drifting("bf16", *(1.0, 3.0) * 4, 1.0), *drifting("nf4", *(1.0,) * 9), *others])
    expected = (4 / 1.5 - 2 * PROCESS_DEVIATION**2, 7 * 18 / 35)
    assert {one.variant: astuple(one.drift) for one in records} == {"bf16": pytest.approx(expected), "nf4": (0, 0)}
    assert len({one.drift for one in records}) == 2
    ratio = record_log_ratio(records[-1])
    assert ratio is not None
    assert ratio.drift == records[0].drift
    assert with_expected_variance(records) == records


def test_two_variants_drift_apart_by_what_their_like_cases_do() -> None:
    """Both gain and lose against the reference together, so the ratio of the two stays what it is. Where it isn't known
    what they do together, both drifts add up."""
    drift = VarianceEstimate(0.5, 9)
    cases = [(math.exp(log), math.exp(log) / 2) for log in (*(0.0, 1.0) * 4, 0.0)]
    alike = [
        tuple(
            make_record(name, case=str(case), reference_s=(1.0,) * 3, rounds_s=(seconds,) * 3, drift=drift)
            for name, seconds in zip(("slow", "fast"), both, strict=True)
        )
        for case, both in enumerate(cases)
    ]
    pairs = [(slow, fast) for slow, fast in alike]
    known, unknown = (mean_speedup_between(pairs[:1], apart=drifts_apart(one)) for one in (pairs, pairs[:8]))
    assert known is not None
    assert unknown is not None
    by_processes = math.sqrt(2) * 1.959964 * PROCESS_DEVIATION
    assert (known.ratio, math.log(known.high / known.ratio)) == pytest.approx((0.5, by_processes))
    assert math.log(unknown.high / unknown.ratio) == pytest.approx(math.hypot(2.100922, by_processes))


def test_the_speedup_of_a_record_of_a_run_has_the_runs_degrees_of_freedom() -> None:
    alone = scattering(1.0, 2.0, 3.0)
    record = with_expected_variance([replace(alone, test=str(number), case=str(number)) for number in range(9)])[0]
    ratio, wide, found = record_log_ratio(record), record_speedup(alone), record_speedup(record)
    assert ratio is not None
    assert wide is not None
    assert found is not None
    assert ratio.freedom > 10
    assert found.ratio == wide.ratio
    assert wide.low < found.low < found.high < wide.high
