"""results.json and results.csv: what comes back is what was written, and what is damaged is refused by name."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_factory import FALLBACK, full_run, make_provenance, make_record, make_run, skipped_record

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.report.files import write_report
from llm_bench_fixtures.results.metrics import METRICS, registry
from llm_bench_fixtures.results.record import Run, Status
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_results, read_run, run_to_json, write_run
from llm_bench_fixtures.results.table import IDENTITY, WORKLOAD_NUMBERS, run_table
from llm_bench_fixtures.text import csv_text

NAMES = [metric.name for metric in METRICS]


def written(run: Run, folder: Path) -> Path:
    write_run(run, folder / RESULTS_FILE)
    return folder / RESULTS_FILE


def with_all_that_can_be_stored() -> Run:
    run = full_run(interrupted=True)
    extra = make_record("fp32", scenario="own", extra={"mine": 0.1}, outputs=("Ζωή \u2028 </script>",))
    noted = replace(run.variants[0], notes=("exported today",), quality_note="a note")
    return replace(run, records=(*run.records, extra), variants=(noted, *run.variants[1:]))


def test_a_run_that_was_saved_without_scenarios_is_read(tmp_path: Path) -> None:
    """As runs of before were: the report then shows each under its name, with the usual columns."""
    path = written(full_run(), tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data.pop("scenarios")
    path.write_text(json.dumps(data), encoding="utf-8")
    assert read_run(path) == full_run(scenarios=())


@pytest.mark.parametrize("run", [full_run(), with_all_that_can_be_stored(), make_run()], ids=["full", "odd", "empty"])
def test_a_run_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    assert read_run(written(run, tmp_path)) == run


@pytest.mark.parametrize("run", [full_run(), with_all_that_can_be_stored(), make_run()], ids=["full", "odd", "empty"])
def test_the_table_comes_back_as_it_was(run: Run, tmp_path: Path) -> None:
    pd.testing.assert_frame_equal(read_results(written(run, tmp_path)), run_table(run), check_exact=True)


@pytest.mark.usefixtures("without_pictures")
def test_the_csv_has_the_same_values(tmp_path: Path) -> None:
    run = with_all_that_can_be_stored()
    write_report(run, registry(), tmp_path)
    texts = pd.read_csv(tmp_path / "results.csv", dtype=str, keep_default_na=False)
    table = run_table(run)
    assert list(texts.columns) == list(table.columns)
    for name in IDENTITY:
        assert list(texts[name]) == [csv_text(text) for text in table[name]]
    for name in [*WORKLOAD_NUMBERS, *NAMES, "mine"]:
        numbers = [float(text) if text else None for text in texts[name]]
        assert numbers == [None if pd.isna(value) else value for value in table[name]]


@pytest.mark.usefixtures("without_pictures")
def test_no_text_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    """Neither a cell nor a header, which a project's own metric names."""
    record = make_record(case="=cmd|' /C calc'!A0", extra={"=1+1": 1.0})
    run = make_run([replace(record, test="@test", reason="\tx")])
    run = replace(run, provenance=replace(run.provenance, model="=me"))
    write_report(run, registry(), tmp_path)
    (header, row) = csv.reader((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines())
    assert header[-1] == "'=1+1"
    assert row[1 : len(IDENTITY)] == [
        *("'=me", "'@test", "precision", "'=cmd|' /C calc'!A0", "fp32", "float32", "measured", "\ufffdx"),
        *("dynamic", "left"),
    ]  # fmt: skip


@pytest.mark.usefixtures("without_pictures")
def test_the_csv_says_what_actually_ran(tmp_path: Path) -> None:
    write_report(full_run(), registry(), tmp_path)
    assert FALLBACK in (tmp_path / "results.csv").read_text(encoding="utf-8")


def test_the_json_says_what_actually_ran(tmp_path: Path) -> None:
    variants = json.loads(written(full_run(), tmp_path).read_text(encoding="utf-8"))["variants"]
    assert next(variant["label"] for variant in variants if variant["id"] == "fp16") == FALLBACK


def test_the_json_holds_the_metrics_for_other_readers(tmp_path: Path) -> None:
    record = json.loads(written(make_run([make_record(median_s=0.5)]), tmp_path).read_text(encoding="utf-8"))[
        "records"
    ][0]
    assert record["metrics"]["output_tokens_per_s"] == 32
    assert record["metrics"]["perplexity"] == 20


def test_a_skipped_record_has_no_metrics_in_the_json_either() -> None:
    """Bug: a skip on a variant that had loaded (a prompt too long) carried its load time, weights and perplexity."""
    run = make_run([make_record(), skipped_record("fp32", "too long", scenario="prompt_length")])
    assert run_to_json(run)["records"][1]["metrics"] == {}


def test_a_failed_test_keeps_what_it_measured_in_the_json() -> None:
    run = make_run([make_record(median_s=0.5, status=Status.ERROR, reason="AssertionError: no")])
    assert run_to_json(run)["records"][0]["metrics"]["latency_s"] == 0.5


def test_a_float_of_numpys_is_written_as_a_float(tmp_path: Path) -> None:
    """A project's own metric may be one."""
    run = make_run([make_record(extra={"mine": np.float64(0.25)})])
    (record,) = read_run(written(run, tmp_path)).records
    assert record.extra == {"mine": 0.25}


def test_a_name_that_is_no_text_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    """Bug: a run in a folder whose name isn't UTF-8 was refused by our own reader."""
    odd = make_record(extra={"m\udce9": 1.0}, outputs=("\ud800",), gate={"\udce9": "5%"}, reason="caf\udce9")
    run = make_run([odd], provenance=make_provenance(command="pytest /caf\udce9/test_a.py"))
    found = read_run(written(run, tmp_path))
    assert found.provenance.command == "pytest /caf\ufffd/test_a.py"
    (record,) = found.records
    assert (record.extra, record.outputs) == ({"m\ufffd": 1.0}, ("\ufffd",))
    assert (record.gate, record.reason) == ({"\ufffd": "5%"}, "caf\ufffd")
    assert record.rounds_s == odd.rounds_s


def test_what_no_file_can_hold_is_refused() -> None:
    run = make_run([make_record(extra={"mine": object()})])  # type: ignore[dict-item]
    with pytest.raises(NotImplementedError, match=r"^object: no value of this type"):
        run_to_json(run)


def test_no_nan_or_infinity_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_run(make_run([make_record(extra={"mine": float("nan")})]), tmp_path / RESULTS_FILE)
    assert not (tmp_path / RESULTS_FILE).exists()


def test_a_failed_write_leaves_the_last_good_file(tmp_path: Path) -> None:
    path = written(make_run(), tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_run(make_run([make_record(extra={"mine": float("inf")})]), path)
    assert read_run(path) == make_run()


def test_no_scratch_file_is_left(tmp_path: Path) -> None:
    written(full_run(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS_FILE]


def changed(tmp_path: Path, **fields: object) -> Path:
    path = written(full_run(), tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, **fields}), encoding="utf-8")
    return path


def refuses(path: Path, message: str) -> None:
    """Both readers refuse the file with a message that begins with its name."""
    for read in (read_run, read_results):
        with pytest.raises(UnreadableResults, match=rf"^{re.escape(str(path))} {message}"):
            read(path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_file_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    path = written(full_run(), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refuses(path, "can't be read as JSON")


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff\xfe\x00", b""], ids=["csv", "not UTF-8", "empty"])
def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / RESULTS_FILE
    path.write_bytes(content)
    refuses(path, "can't be read as JSON")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refuses(tmp_path / "nowhere.json", "can't be read: No such file")


@pytest.mark.parametrize("content", ["[]", "{}", '{"schema": "pytest-benchmark", "version": 1}', "3"])
def test_another_programs_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / RESULTS_FILE
    path.write_text(content, encoding="utf-8")
    refuses(path, "is not a results file of llm-bench-fixtures")


@pytest.mark.parametrize("version", [0, 3, 5, None])
def test_another_version_is_refused(tmp_path: Path, version: object) -> None:
    refuses(changed(tmp_path, version=version), f"is of schema version {version}; this reads 4")


@pytest.mark.parametrize("field", ["provenance", "reference", "variants", "records"])
def test_a_file_that_lacks_a_field_is_refused(tmp_path: Path, field: str) -> None:
    path = written(full_run(), tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    del data[field]
    path.write_text(json.dumps(data), encoding="utf-8")
    refuses(path, "is damaged")


@pytest.mark.parametrize(
    "fields",
    [
        {"records": [3]},
        {"records": None},
        {"variants": [{"status": "odd"}]},
        {"provenance": [1]},
        {"instrumentation_ratios": [1.0]},
    ],
    ids=["a record that is none", "no list", "a status that is none", "a list for a table", "a list for a mapping"],
)
def test_a_file_with_a_field_of_another_kind_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    refuses(changed(tmp_path, **fields), "is damaged")


def test_a_later_field_that_this_reader_does_not_know_is_passed_over(tmp_path: Path) -> None:
    assert read_run(changed(tmp_path, added_later=1)) == full_run()


FAULTS: dict[str, tuple[dict[str, object], str]] = {
    "nothing": ({}, ""),
    "more values than are read": ({"MOST_VALUES": 20}, "values, and no run has more than 20"),
    "more bytes than are read": ({"MOST_BYTES": 1000}, "kB, and no run has more than 1.00 kB"),
}


@pytest.mark.parametrize(("limits", "said"), FAULTS.values(), ids=FAULTS)
def test_whoever_writes_a_run_is_told_why_it_will_not_be_read(
    limits: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a run of too many tokens was written, and refused by whoever read it."""
    for name, limit in limits.items():
        monkeypatch.setattr(f"llm_bench_fixtures.results.storage.{name}", limit)
    run, path = make_run([make_record()]), tmp_path / RESULTS_FILE
    fault = write_run(run, path)
    assert bool(fault) is bool(said)
    assert said in fault
    if said:
        with pytest.raises(UnreadableResults) as refused:
            read_run(path)
        assert str(refused.value) == f"{path} {fault}"
        monkeypatch.undo()
    assert read_run(path) == run


def test_whoever_writes_a_field_that_can_not_be_is_told_which(tmp_path: Path) -> None:
    path = tmp_path / RESULTS_FILE
    fault = write_run(make_run([make_record(), make_record(case="x" * 100_001)]), path)
    assert fault == "is damaged: records[1].test: expected a text of length <= 100000"
    refuses(path, re.escape(fault))
