"""Saved runs: both kinds of files give what the run itself gives, and what is damaged is refused by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_factory import full_run, make_block_record, make_record, make_run, make_variant
from saved_factory import store, stored_json

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.history.saved import fault_of_stored, has_raw_data, judged_run, read_run_of, read_saved_run
from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.record import Blessing, Record, RecordHead, RunState, Status
from llm_bench_fixtures.results.storage import read_run, write_run
from llm_bench_fixtures.results.table import metric_values
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate


def test_results_json_gives_what_the_run_gives(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_run(full_run(), path)
    assert read_saved_run(path) == replace(judged_run(full_run()), source=str(path))


def test_pytest_benchmarks_file_gives_what_the_run_gives(tmp_path: Path) -> None:
    """Its benchmarks first, then what was skipped or failed; all but the times of batches and tokens, and the texts."""
    run = full_run(failed_tests=1, selection=("benchmarks",))
    found = read_saved_run(store(run, tmp_path / "0001_a.json"))
    expected = {one.test: one for one in judged_run(run).records}
    assert {one.test: one for one in found.records} == {test: without_raw(one) for test, one in expected.items()}
    assert {one.test: one.metrics for one in found.records} == {test: one.metrics for test, one in expected.items()}
    assert replace(found, records=()) == replace(run, records=())


def without_raw(record: Record) -> Record:
    return replace(record, batches_s=(), tokens_s=(), outputs=())


def test_what_is_compared_is_read() -> None:
    (record,) = judged_run(make_run([make_record(median_s=0.5, probe_s=((0.001, 0.002),))])).records
    assert (record.status, record.variant) == (Status.MEASURED, "fp32")
    assert record.workload is not None
    assert record.workload.digest == "one prompt"
    assert record.metrics["latency_s"] == 0.5
    assert record.metrics["perplexity"] == 20
    assert record.probe_s == ((0.001, 0.002),)


def test_a_metric_that_the_reader_does_not_know_is_kept(tmp_path: Path) -> None:
    path = store(make_run([make_record(extra={"mine": 7.0})]), tmp_path / "0001_a.json")
    (record,) = read_saved_run(path).records
    assert record.metrics["mine"] == 7


def test_times_of_tokens_are_skipped_unread_where_only_heads_are_read(tmp_path: Path) -> None:
    """Text in their place is refused only where the whole run is read."""
    path = tmp_path / "results.json"
    write_run(make_run([make_record()]), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["records"][0] |= {"tokens_s": "no times", "batches_s": "none", "outputs": 3}
    path.write_text(json.dumps(data), encoding="utf-8")
    (record,) = read_run_of(path, RecordHead).records
    assert (record.variant, record.status) == ("fp32", Status.MEASURED)
    for read in (read_run, read_saved_run):
        with pytest.raises(UnreadableResults, match="is damaged"):
            read(path)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, RunState.COMPLETE),
        ({"regressed": True}, RunState.REGRESSED),
        ({"records": ()}, RunState.NOT_MEASURED),
        ({"failed_tests": 1, "regressed": True}, RunState.FAILED),
        ({"interrupted": True, "failed_tests": 1}, RunState.INTERRUPTED),
    ],
)
def test_only_a_complete_run_is_a_baseline_by_itself(changes: dict[str, object], state: RunState) -> None:
    run = replace(judged_run(make_run([make_record()])), **changes)  # type: ignore[arg-type]
    assert run.state is state
    assert run.is_baseline == (state is RunState.COMPLETE)
    assert replace(run, blessing=Blessing("it is slower on purpose", "2026-01-02T03:04:05+00:00")).is_baseline


def refuses(path: Path, message: str) -> None:
    with pytest.raises(UnreadableResults, match=rf"^{re.escape(str(path))} {message}"):
        read_saved_run(path)


def test_a_file_without_benchmarks_of_ours_is_refused(tmp_path: Path) -> None:
    data = stored_json(full_run())
    del data["llm_bench"]
    path = tmp_path / "0001_a.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    refuses(path, "has no benchmarks that llm-bench-fixtures measured")


@pytest.mark.parametrize("version", [2, "3", None])
def test_another_version_is_refused(tmp_path: Path, version: object) -> None:
    data = stored_json(full_run())
    data["llm_bench"]["version"] = version
    path = tmp_path / "0001_a.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    refuses(path, f"is of schema version {version!r}; this reads 4")


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "3", '{"benchmarks": 3}', "not JSON", '{"benchmarks": [NaN]}', "\udcff"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"datetime": ' + "[" * 100_000, id="deep in what is passed over"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "0001_a.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    refuses(path, "")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
@pytest.mark.parametrize("kind", ["results", "stored"])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    path = tmp_path / "0001_a.json"
    if kind == "results":
        write_run(full_run(), path)
    else:
        store(full_run(), path)
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: int(share * len(whole))])
    refuses(path, "")


def test_the_blocks_of_a_run_come_back_to_be_judged(tmp_path: Path) -> None:
    bf16 = make_block_record("bf16", 2.0, waited_s=(0.0,) * 10, expected_variance=VarianceEstimate(0.01, 9.5))
    run = make_run([make_block_record(spread=0.0), bf16])
    assert read_saved_run(store(run, tmp_path / "0001_a.json")).records == tuple(map(without_raw, run.records))


@pytest.mark.parametrize(
    "changes",
    [
        {"reference_s": (1.0,) * 4},
        {"waited_s": (0.0,)},
        {"reference_waited_s": (0.0,) * 6},
        {"core_to_core": (1.8,) * 9},
    ],
    ids=[
        "too few",
        "too few waits",
        "too many waits",
        "too few looks",
    ],
)
def test_blocks_that_do_not_fit_the_rounds_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    path = store(full_run(), tmp_path / "0001_a.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    data["benchmarks"][0]["extra_info"]["llm_bench"] |= changes
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UnreadableResults, match="has blocks that don't fit its rounds"):
        read_saved_run(path)


def test_a_whole_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_run(full_run(), tmp_path / "results.json")
    run = read_saved_run(tmp_path / "results.json")
    assert run == full_run()
    assert has_raw_data(run)


def test_metrics_stand_in_for_times_of_tokens_that_were_not_saved(tmp_path: Path) -> None:
    """The first of 16 tokens after 0.4 s, the others in 0.6 s: 40 ms each."""
    run = read_saved_run(store(make_run([make_record()]), tmp_path / "0001_a.json"))
    (record,), (variant,) = run.records, run.variants
    assert (record.tokens_s, record.outputs) == ((), ())
    values = metric_values(record, variant)
    assert (values["ttft_s"], values["tpot_s"]) == (pytest.approx(0.4), pytest.approx(0.04))
    assert values["per_sample_latency_s"] == 1.0
    assert not has_raw_data(run)


def test_saved_metrics_stand_in_for_nothing_that_can_be_computed(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_run(make_run([make_record()]), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["records"][0]["metrics"] |= {"ttft_s": 9.0, "latency_s": 9.0, "energy_j": 9.0}
    path.write_text(json.dumps(data), encoding="utf-8")
    (record,) = read_saved_run(path).records
    values = metric_values(record, make_variant())
    assert (values["ttft_s"], values["latency_s"]) == (pytest.approx(0.4), 1.0)
    assert "energy_j" not in values


@pytest.mark.parametrize(
    "damage",
    [
        {"tokens_s": [[[0.1]]]},
        {"tokens_s": [[[]]] * 5},
        {"tokens_s": [[[0.0]]] * 5},
        {"batches_s": [[1.0, 1.0]] * 5},
        {"batches_s": [[1.0]] * 4},
        {"batch_rows": []},
        {"batch_rows": [0]},
        {"rounds_s": []},
    ],
)
def test_times_that_do_not_fit_each_other_are_damage(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = tmp_path / "results.json"
    write_run(make_run([make_record()]), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    data["records"][0] |= damage
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(UnreadableResults, match="is damaged"):
        read_saved_run(path)


def test_a_load_of_many_requests_is_known_to_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests are raw data, too, and were not counted."""
    point = LoadPoint("test_load[1]", "endpoint", 1.0, 100.0, 8, 8, 1.0, 0.1, (Request(0.0, 0.0),) * 100)
    stored = stored_json(replace(make_run([make_record()]), loads=(point,)), raw=False)
    monkeypatch.setattr("llm_bench_fixtures.results.storage.MOST_BYTES", 20_000)
    assert "no run has more than" in fault_of_stored(stored)


@pytest.mark.parametrize("raw", [True, False], ids=["with the times of its tokens", "without"])
def test_what_will_be_too_large_to_be_read_is_known_when_it_is_saved(
    raw: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten records of 80 tokens, and a limit between both sizes."""
    record = make_record(tokens_s=tuple((tuple(range(1, 17)),) for _ in range(5)))
    run = make_run([replace(record, test=f"test_a.py::test[{number}]") for number in range(10)])
    stored = stored_json(run, raw=raw)
    path = tmp_path / "0001_a.json"
    path.write_text(json.dumps(stored, indent=4), encoding="utf-8")
    assert fault_of_stored(stored) == ""
    monkeypatch.setattr("llm_bench_fixtures.results.storage.MOST_BYTES", 50_000)
    fault = fault_of_stored(stored)
    assert bool(fault) is raw
    if raw:
        with pytest.raises(UnreadableResults) as refused:
            read_saved_run(path)
        assert str(refused.value) == f"{path} {fault}"
