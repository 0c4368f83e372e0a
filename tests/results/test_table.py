"""The results as one DataFrame."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from run_factory import full_run, make_record, make_run, make_variant, make_workload, skipped_record

from llm_bench_fixtures.results.metrics import METRICS
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.results.table import OWN_COLUMNS, WORKLOAD_NUMBERS, metric_values, run_table

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


def test_names_that_are_no_text_are_rows_and_columns_like_others() -> None:
    """Bug: no table of a run in a folder whose name isn't UTF-8, and so no report."""
    odd = replace(make_record(extra={"m\udce9": 1.0}), test="caf\udce9/test_a.py::test", reason="\ud800")
    table = run_table(make_run([odd]))
    assert table.loc[0, ["test", "reason", "m\ufffd"]].tolist() == ["caf\ufffd/test_a.py::test", "\ufffd", 1.0]
