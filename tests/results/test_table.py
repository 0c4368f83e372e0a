"""The results as one DataFrame, and the workload that the variants are compared on."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from run_factory import (
    BLOCKS_S,
    full_run,
    make_block_record,
    make_record,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
)

from llm_bench_fixtures.results.metrics import METRICS
from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.results.table import (
    OWN_COLUMNS,
    WORKLOAD_NUMBERS,
    best_batch,
    common_workload,
    compared_records,
    metric_values,
    run_table,
)

NAMES = [metric.name for metric in METRICS]


def test_one_row_a_record_and_a_column_for_each_metric() -> None:
    run = full_run()
    table = run_table(run)
    assert list(table["test"]) == [record.test for record in run.records]
    assert list(table.columns) == [*OWN_COLUMNS, *NAMES]
    assert set(table[[*WORKLOAD_NUMBERS, *NAMES]].dtypes.astype(str)) == {"float64"}


def test_values_are_in_base_units() -> None:
    row = run_table(make_run([make_record(median_s=0.5)])).iloc[0]
    assert row["latency_s"] == 0.5
    assert row["weight_bytes"] == 4_000_000
    assert row["output_tokens_per_s"] == 32  # 16 / 0.5


def test_what_was_run_has_columns_of_its_own() -> None:
    """A metric of a project's that an earlier version let be called so doesn't take their place."""
    workload = make_workload(prompts=4, batch_size=2, prompt_tokens=30, cache="static", padding_side="right")
    record = make_record(workload=workload, extra={"cache": 1.0, "prompts": 2.0})
    table = run_table(make_run([record, replace(skipped_record("fp16", "not here"), workload=None)]))
    run = make_run().provenance
    ran, skipped = table[["run", "model", "cache", "padding_side", *WORKLOAD_NUMBERS]].itertuples(index=False)
    assert tuple(ran) == (run.started, run.model, "static", "right", 4, 2, 7.5)
    assert tuple(skipped[:4]) == (run.started, run.model, "", "")
    assert all(map(pd.isna, skipped[4:]))


def test_a_skipped_record_has_no_values() -> None:
    """Also where its variant loaded, so that a weight or perplexity would be known."""
    run = make_run([make_record(), skipped_record("fp32", "too long", scenario="prompt_length")])
    row = run_table(run).iloc[1]
    assert (row["status"], row["reason"]) == ("skipped", "too long")
    assert row[NAMES].isna().all()


def test_a_failed_test_keeps_what_it_measured() -> None:
    run = make_run([make_record(median_s=0.5, status=Status.ERROR, reason="AssertionError: no")])
    row = run_table(run).iloc[0]
    assert row["status"] == "error"
    assert row["latency_s"] == 0.5


def test_an_error_without_measurement_has_no_values() -> None:
    row = run_table(make_run([skipped_record("fp32", "OutOfMemory", status=Status.ERROR)])).iloc[0]
    assert row[["latency_s", "output_tokens_per_s"]].isna().all()


def test_a_record_of_a_variant_that_never_loaded_is_a_row() -> None:
    row = run_table(make_run([skipped_record("fp16", "not here")], variants=[])).iloc[0]
    assert (row["variant"], row["label"]) == ("fp16", "")
    assert row[NAMES].isna().all()


def test_values_of_other_plugins_are_columns_after_the_metrics() -> None:
    variant = make_variant(quality={"accuracy": 0.75})
    table = run_table(make_run([make_record(extra={"answers": 3.0}), make_record("bf16")], [variant]))
    assert list(table.columns) == [*OWN_COLUMNS, *NAMES, "accuracy", "answers"]
    assert table["answers"].iloc[0] == 3.0
    assert table["accuracy"].iloc[0] == 0.75
    assert pd.isna(table["answers"].iloc[1])


def test_a_run_without_records_is_an_empty_table_with_its_columns() -> None:
    table = run_table(make_run([], [make_variant()]))
    assert len(table) == 0
    assert list(table.columns) == [*OWN_COLUMNS, *NAMES]


def test_metric_values_leave_out_what_has_none() -> None:
    values = metric_values(make_record(rounds_s=(1.0,)), make_variant(load_s=None))
    assert "latency_stddev_s" not in values
    assert "load_s" not in values
    assert None not in values.values()


def digests(*records: tuple[str, str]) -> list[str]:
    """Variant and digest of each record of the common workload of a run with these records."""
    run = make_run([make_record(variant, workload=make_workload(digest), case=digest) for variant, digest in records])
    return [f"{record.variant} {record.workload.digest}" for record in common_workload(run) if record.workload]


def test_the_common_workload_is_the_one_that_most_variants_ran() -> None:
    chosen = digests(("fp32", "a"), ("fp32", "b"), ("bf16", "b"), ("fp16", "b"), ("bf16", "a"))
    assert chosen == ["fp32 b", "bf16 b", "fp16 b"]


def test_repeats_on_one_variant_count_once() -> None:
    run = make_run(
        [
            *(make_record("fp32", case=str(number), workload=make_workload("a")) for number in range(5)),
            make_record("fp32", workload=make_workload("b")),
            make_record("bf16", workload=make_workload("b")),
        ]
    )
    assert [record.variant for record in common_workload(run)] == ["fp32", "bf16"]


def test_among_equals_it_is_the_one_of_fewest_prompts() -> None:
    run = make_run(
        [
            make_record(workload=make_workload("batch", prompts=8)),
            make_record(case="one", workload=make_workload("one", prompts=1)),
        ]
    )
    assert [record.case for record in common_workload(run)] == ["one"]


def test_among_equals_otherwise_it_is_the_earliest() -> None:
    assert digests(("fp32", "first"), ("fp32", "second")) == ["fp32 first"]


def test_of_a_variants_records_the_one_beside_most_other_variants_counts() -> None:
    """Both cases ran the same workload; only the second on two variants, side by side."""
    run = make_run([make_record("fp32", case="first"), make_record("fp32", case="b"), make_record("bf16", case="b")])
    assert [record.case for record in common_workload(run)] == ["b", "b"]


def test_it_is_in_the_order_of_the_variants() -> None:
    run = make_run([make_record("bf16"), make_record("fp32")], [make_variant("fp32"), make_variant("bf16")])
    assert [record.variant for record in common_workload(run)] == ["fp32", "bf16"]


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.ERROR, Status.NOT_MEASURED])
def test_only_what_was_measured_counts(status: Status) -> None:
    assert common_workload(make_run([skipped_record("fp32", "why", status=status)])) == []


def test_the_reference_has_a_record_from_its_longest_turns_next_to_others() -> None:
    """Its own test was not selected; v1 was settled after three of the ten rounds."""
    records = [make_block_record("v0", 2.0), make_block_record("v1", 2.0, reference_s=BLOCKS_S[:3])]
    run = make_run(records, [make_variant(), make_variant("v0"), make_variant("v1")])
    reference, *others = common_workload(run)
    assert others == records
    assert (reference.variant, reference.rounds_s, reference.memory) == ("fp32", BLOCKS_S, None)
    assert (reference.scenario, reference.case, reference.workload) == ("precision", "", make_workload())


def test_the_references_own_record_of_a_case_counts_where_it_has_one() -> None:
    run = make_run([make_record("fp32", 3.0), make_block_record("v0", 2.0)])
    assert compared_records(run) == list(run.records)


def test_no_reference_that_never_loaded_is_made_up() -> None:
    run = make_run([make_block_record("v0")])
    assert compared_records(run) == list(run.records)


def batch_record(variant: str, size: int, median_s: float, prompts: str = "prompts", **where: str) -> Record:
    workload = make_workload(f"{prompts} {size}", prompts, prompts=4, batch_size=size)
    return make_record(variant, median_s, case=str(size), workload=workload, **{"scenario": "batch", **where})


def test_the_best_batch_size_of_each_variant() -> None:
    """Other prompts are no rivals, however short they take; nor are other scenarios."""
    records = [
        batch_record("bf16", 1, 0.5),
        batch_record("fp32", 1, 2.0),
        batch_record("fp32", 4, 1.0),
        batch_record("fp32", 8, 1.5),
        batch_record("fp32", 2, 0.1, prompts="others"),
        batch_record("fp32", 2, 0.1, scenario="padding"),
    ]
    variants = [make_variant(), make_variant("bf16"), make_variant("fp16")]
    found = best_batch(make_run(records, variants))
    assert [(name, record.case) for name, record in found.items()] == [("fp32", "4"), ("bf16", "1")]
    assert best_batch(make_run()) == {}


def test_names_that_are_no_text_are_rows_and_columns_like_others() -> None:
    """Bug: no table of a run in a folder whose name isn't UTF-8, and so no report."""
    odd = replace(make_record(extra={"m\udce9": 1.0}), test="caf\udce9/test_a.py::test", reason="\ud800")
    table = run_table(make_run([odd]))
    assert table.loc[0, ["test", "reason", "m\ufffd"]].tolist() == ["caf\ufffd/test_a.py::test", "\ufffd", 1.0]
