"""When a machine is noisy, and what is not claimed then."""

from __future__ import annotations

import pytest
from run_factory import make_block_record, make_record, make_run, make_variant

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.noise import MachineNoise, cores_apart, drift_by_variant
from llm_bench_fixtures.results.pooled import pooled_run
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate

WAITED_S = (0.5,) * 6 + (0.0,) * 4  # of ten rounds


def run_of(*records: Record) -> Run:
    """fp16 ran what fp32 ran."""
    names = dict.fromkeys(record.variant for record in records)
    same = {"fp16": "configuration of fp32"}
    variants = [make_variant(name, configuration=same.get(name, f"configuration of {name}")) for name in names]
    return make_run(records, variants)


def noise_of(*records: Record) -> MachineNoise:
    return evidence_of(run_of(*records)).machine


def test_identical_work_that_differs_by_more_than_a_tenth_makes_a_machine_noisy() -> None:
    reference = make_block_record(spread=0.0)
    noisy = noise_of(reference, make_block_record("fp16", 1.17), make_block_record("fp16", 0.84, case="b"))
    assert (noisy.is_noisy, noisy.comparisons) == (True, 2)
    assert (round(noisy.least, 4), round(noisy.most, 4)) == (0.84, 1.17)
    calm = noise_of(reference, make_block_record("fp16", 1.09), make_block_record("fp16", 0.95, case="b"))
    assert not calm.is_noisy


def test_one_odd_case_of_many_makes_no_machine_noisy() -> None:
    """Of ten, the nine that are nearest to 1 count."""
    cases = [make_block_record("fp16", 1.5 if case == 7 else 1.02, 0.0, case=str(case)) for case in range(10)]
    noise = noise_of(make_block_record(spread=0.0), *cases)
    assert (noise.is_noisy, round(noise.most, 4)) == (False, 1.02)


def test_disturbed_rounds_alone_count_where_no_work_is_identical() -> None:
    """Six of ten pairs. Where identical work agrees all the same, taking turns has left the disturbance out."""
    other = make_block_record("v0", 2.0, waited_s=WAITED_S)
    assert noise_of(make_block_record(spread=0.0), other).is_noisy
    assert not noise_of(make_block_record(spread=0.0), make_block_record("v0", 2.0)).is_noisy
    assert not noise_of(make_block_record(spread=0.0), other, make_block_record("fp16", 1.01)).is_noisy


def test_without_turns_identical_work_of_different_times_counts() -> None:
    """Five records make ten pairs, four of them 20 % apart."""
    records = [make_record("fp32", seconds, case=str(seconds)) for seconds in (1.0, 1.01, 1.02, 1.03, 1.25)]
    assert noise_of(*records, make_record("v0", 0.5)).is_noisy
    assert not noise_of(*records[:4], make_record("v0", 0.5)).is_noisy


def test_no_difference_is_claimed_that_identical_work_shows_as_well() -> None:
    """1.15 times as fast with an interval of 3 % to either side: but fp16 came out 1.17 times as fast as itself."""
    records = [make_block_record(spread=0.0), make_block_record("v0", 1.15), make_block_record("v1", 1.3)]
    calm = evidence_of(run_of(*records))
    noisy = evidence_of(run_of(*records, make_block_record("fp16", 1.17)))
    assert [calm.gain(one, records[0]).is_faster for one in records[1:]] == [True, True]
    assert [noisy.gain(one, records[0]).is_faster for one in records[1:]] == [False, True]
    assert noisy.gain(records[1], records[0]).is_unclear


def test_like_cases_that_drift_apart_make_a_machine_noisy_though_identical_work_does_not() -> None:
    """A standard deviation of ln 1.1, or of a little more, of the variant that drifts the most."""
    reference, same = make_block_record(spread=0.0), make_block_record("fp16", 1.01)
    drifts = [
        [make_block_record(name, 2.0, drift=VarianceEstimate(deviation**2, 9)) for name in ("int8", "int4")[:number]]
        for number, deviation in ((1, 0.095), (2, 0.096))
    ]
    calm, noisy = (noise_of(reference, same, *records) for records in drifts)
    assert (calm.is_noisy, calm.drifting) == (False, "int8")
    assert (noisy.is_noisy, noisy.drifting, round(noisy.drift, 3)) == (True, "int8", 0.096)
    assert not noisy.hides(1.005)  # identical work is known to be that near


def test_of_pooled_runs_the_largest_drift_counts() -> None:
    """Bug: the first run's was shown for all."""
    reference = make_block_record(spread=0.0)
    runs = [run_of(reference, make_block_record("int8", drift=VarianceEstimate(one, 9))) for one in (0.01, 0.04)]
    assert drift_by_variant(pooled_run(runs)) == {"int8": 0.2}


def test_pairs_in_which_data_took_long_from_core_to_core() -> None:
    """Two and three times as long as at best in two of ten; 1.4 times is no other state. Single short ones, as in one
    pair of forty, are none to judge by. The reference's own record has no pairs."""
    looks = [(2.0,) * 7 + (2.8, 4.0, 6.0), (2.0,) * 10, (2.0,) * 10, (2.0,) * 9 + (1.0,)]
    others = [make_block_record(f"v{number}", 2.0, core_to_core=one) for number, one in enumerate(looks)]
    found = cores_apart(make_run([make_block_record(spread=0.0, core_to_core=(99.0,) * 10), *others]))
    assert (found.pairs, found.looked_at, found.times) == (2, 40, pytest.approx(2.5))
    assert not found.is_often


def test_each_of_several_pooled_runs_is_judged_by_itself() -> None:
    """One whose cores were apart all the time has nothing to be judged by, nor one that nobody looked at."""
    runs = [
        make_run([make_block_record(spread=0.0), make_block_record("bf16", 2.0, core_to_core=looks)])
        for looks in ((2.0,) * 8 + (4.0,) * 2, (4.0,) * 10, ())
    ]
    assert [cores_apart(pooled_run(runs[:many])).pairs for many in (1, 2, 3)] == [2, 2, 2]
    found = cores_apart(pooled_run(runs))
    assert (found.looked_at, found.times, found.is_often) == (20, 2.0, False)


def test_where_nobody_looked_no_pairs_had_cores_apart() -> None:
    found = cores_apart(make_run([make_block_record(spread=0.0), make_block_record("bf16", 2.0), make_record("nf4")]))
    assert (found.pairs, found.looked_at, found.times, found.is_often) == (0, 0, 0.0, False)
