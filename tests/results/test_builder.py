"""Results as they are gathered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_factory import (
    absent_variant,
    full_run,
    make_block_record,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    skipped_record,
)

from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, ExecutionMode
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run, with_texts_cut, write_run
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR
from llm_bench_fixtures.text import LONGEST


@pytest.fixture
def builder() -> RunBuilder:
    return RunBuilder("fp32")


def test_nothing_has_happened_at_first(builder: RunBuilder) -> None:
    assert not builder.has_variants
    run = builder.build(make_provenance(), {})
    assert (run.variants, run.records, run.reference, run.interrupted) == ((), (), "fp32", False)


def test_things_are_kept_in_their_order(builder: RunBuilder) -> None:
    for name in ("fp32", "bf16"):
        builder.add_variant(make_variant(name))
        builder.add_record(make_record(name))
    run = builder.build(make_provenance(), {Phase.LOADING: 1.5}, interrupted=True)
    assert [variant.id for variant in run.variants] == ["fp32", "bf16"]
    assert [record.variant for record in run.records] == ["fp32", "bf16"]
    assert run.phase_s == {"loading": 1.5}
    assert run.interrupted
    assert run.session_s > 0


def test_each_record_in_blocks_gets_what_the_others_lead_to_expect(builder: RunBuilder) -> None:
    for index, name in enumerate(("bf16", "int8", "nf4")):
        builder.add_record(make_block_record(name, 2.0, spread=0.01 * (index + 1)))
    builder.add_record(make_record())
    *in_blocks, apart = builder.build(make_provenance(), {}).records
    expected = [record.expected_variance for record in in_blocks]
    assert [one.variance for one in expected] == sorted((one.variance for one in expected), reverse=True)
    assert all(one.freedom > 0 for one in expected)
    assert apart.expected_variance == NO_PRIOR


def test_a_variant_takes_the_place_of_its_beginning(builder: RunBuilder) -> None:
    builder.add_variant(absent_variant("fp32", "the load was interrupted", Status.ERROR))
    builder.add_variant(make_variant("bf16"))
    builder.add_variant(make_variant("fp32"))
    run = builder.build(make_provenance(), {})
    assert [(variant.id, variant.status) for variant in run.variants] == [
        ("fp32", Status.MEASURED),
        ("bf16", Status.MEASURED),
    ]


def test_a_test_that_runs_again_replaces_its_record(builder: RunBuilder) -> None:
    builder.add_record(make_record(median_s=1.0))
    builder.add_record(make_record(median_s=2.0))
    (record,) = builder.build(make_provenance(), {}).records
    assert record.median_s == 2.0


def test_a_failure_after_the_measurement_keeps_it(builder: RunBuilder) -> None:
    builder.add_record(make_record(median_s=1.0))
    builder.add_unmeasured(skipped_record("fp32", "AssertionError: too slow", status=Status.ERROR))
    (record,) = builder.build(make_provenance(), {}).records
    assert (record.status, record.reason) == (Status.ERROR, "AssertionError: too slow")
    assert record.median_s == 1.0


def test_a_skip_is_a_record(builder: RunBuilder) -> None:
    builder.add_unmeasured(skipped_record("fp16", "not here"))
    (record,) = builder.build(make_provenance(), {}).records
    assert (record.status, record.rounds_s) == (Status.SKIPPED, ())


def test_what_is_measured_stays_so_where_there_was_no_time_for_more(builder: RunBuilder) -> None:
    """Bug: a test that read a quality for which there was no time lost its rounds."""
    builder.add_record(make_record("fp32"))
    builder.add_unmeasured(replace(make_record("fp32"), status=Status.NOT_REACHED, reason="not reached in 20 min"))
    (record,) = builder.build(make_provenance(), {}).records
    assert (record.status, record.reason) == (Status.MEASURED, "not reached in 20 min")


def test_a_session_goes_on_with_what_another_has_and_says_what_is_whose() -> None:
    """Twice: the first session measured a and b, the second b anew and c, the third d."""
    builders = [RunBuilder("fp32") for _ in range(3)]
    builders[0].add_variant(make_variant())
    builders[0].add_variant(absent_variant("bf16", "the load was interrupted", Status.ERROR))
    for cases, builder, start in zip(("ab", "bc", "d"), builders, ("1st", "2nd", "3rd"), strict=True):
        for case in cases:
            builder.add_record(make_record(case=case, extra={"mine": float(start[0])}))
        run = builder.build(make_provenance(started=start), {Phase.LOADING: 1.5})
        for later in builders[builders.index(builder) + 1 :][:1]:
            later.go_on_with(replace(run, session_s=100.0))
    assert [variant.id for variant in run.variants] == ["fp32"]
    assert {one.case: one.extra["mine"] for one in run.records} == {"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.0}
    cases = {one.test: one.case for one in run.records}
    assert [(one.started, [cases[test] for test in one.tests]) for one in run.earlier] == [
        ("1st", ["a"]),
        ("2nd", ["b", "c"]),
    ]
    assert run.phase_s == {"loading": 4.5}
    assert run.session_s > 100


def test_what_is_run_again_of_an_earlier_session_takes_its_place() -> None:
    """Modes that are not compared again stay, and so does a record for whose new rounds there is no time."""
    found = [Equivalence(mode, verdict) for mode, verdict in zip(ExecutionMode, EquivalenceVerdict, strict=False)]
    failed = make_record("bf16", status=Status.ERROR)
    builder = RunBuilder("fp32")
    builder.go_on_with(
        make_run([make_record(), failed], [make_variant(equivalence=tuple(found)), make_variant("bf16")])
    )
    again = Equivalence(found[0].mode, EquivalenceVerdict.TIE)
    builder.add_equivalence("fp32", again)
    builder.add_unmeasured(replace(make_record(), status=Status.NOT_REACHED))
    run = builder.build(make_provenance(), {})
    assert sorted(run.variants[0].equivalence, key=lambda one: list(ExecutionMode).index(one.mode)) == [
        again,
        *found[1:],
    ]
    assert [(one.variant, one.status) for one in run.records] == [("fp32", Status.MEASURED)]


def test_an_unknown_variant_is_a_key_error(builder: RunBuilder) -> None:
    with pytest.raises(KeyError):
        builder.variant("fp32")


TEXTS = st.builds(
    lambda part, times: part * times, st.text(min_size=1, max_size=2), st.sampled_from((1, 99_999, 600_000))
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=9, max_size=9))
def test_whatever_texts_come_in_the_run_that_is_written_can_be_read(texts: list[str], tmp_path: Path) -> None:
    """Bugs: an assertion over a million characters, a reason that listed 60,000 shards, and a server's name for itself
    made runs that were refused ever after."""
    reason, label, note, passed_over, output, case, quality, gate, name = texts
    builder = RunBuilder("fp32")
    builder.add_variant(make_variant(label=label, notes=(note, reason), quality_note=note, quality={quality: 1.0}))
    builder.add_variant(absent_variant("bf16", reason, Status.ERROR))
    measured = make_record(case=case, outputs=(output,), extra={name: 1.0}, gate={gate: note})
    builder.add_record(replace(measured, test=name))
    builder.add_unmeasured(skipped_record("bf16", reason))
    run = builder.build(make_provenance(passed_over=(passed_over,), command=reason, model=label), {})
    assert write_run(run, tmp_path / RESULTS_FILE) == ""
    read = read_run(tmp_path / RESULTS_FILE)
    assert [record.status for record in read.records] == [Status.MEASURED, Status.SKIPPED]
    assert max(map(len, (read.variants[0].label, read.variants[1].reason, *read.provenance.passed_over))) <= LONGEST


def test_texts_of_usual_length_and_all_numbers_stay_as_they_are() -> None:
    run = full_run(provenance=make_provenance(passed_over=("a: no such folder",)))
    assert with_texts_cut(run) == run
