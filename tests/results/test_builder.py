"""Results as they are gathered."""

from __future__ import annotations

import pytest
from run_factory import absent_variant, make_provenance, make_record, make_variant, skipped_record

from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Status


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


def test_an_unknown_variant_is_a_key_error(builder: RunBuilder) -> None:
    with pytest.raises(KeyError):
        builder.variant("fp32")


def test_a_reason_without_end_is_cut_so_that_the_run_can_be_read(builder: RunBuilder) -> None:
    """Bug: an assertion over a text of a million characters made a run that was refused ever after."""
    builder.add_variant(absent_variant("fp32", "x" * 2_000_000, Status.ERROR))
    builder.add_unmeasured(skipped_record("bf16", "y" * 2_000_000))
    run = builder.build(make_provenance(), {})
    for reason in (run.variants[0].reason, run.records[0].reason):
        assert reason.endswith("... of 2,000,000 characters")
        assert len(reason) < 100_100
