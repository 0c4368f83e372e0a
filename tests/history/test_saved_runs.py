"""A run that version 0.1.0 saved is read today, in both kinds of files.

saved_runs/ holds nine of the 23 records of a real run of the suite on four variants, with every field that was written;
names of the machine and its paths are taken out. The figures here are read off these files by hand.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.decision import decide
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.history.headings import read_heading
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import RunState, Status
from llm_bench_fixtures.results.storage import read_results, read_run, run_to_json

FOLDER = Path(__file__).parent / "saved_runs"
STORED, RESULTS = FOLDER / "0001_before.json", FOLDER / "results.json"
BOTH = pytest.mark.parametrize("path", [STORED, RESULTS], ids=["stored", "results"])

FP32 = "benchmarks/test_precision.py::test_precision[fp32]"
BATCH = "benchmarks/test_batch.py::test_batch[2-fp32]"
NO_STATIC_CACHE = "benchmarks/test_cache.py::test_cache[ort-int8-dynamic-static]"
VARIANTS = ["fp32", "bf16", "ort-int8-dynamic", "bnb-nf4"]
MEDIAN_S = 0.04659726699998146  # of FP32's rounds: 46.8, 46.6 and 45.2 ms
EXACT = 1e-12  # relative


def test_a_results_file_is_read_whole() -> None:
    run = read_run(RESULTS)
    assert (len(run.records), len(run.measured()), run.state) == (9, 7, RunState.COMPLETE)
    assert (run.reference, [variant.id for variant in run.variants]) == ("fp32", VARIANTS)
    assert run.provenance.commit == "c0e38cf014de4e3b35100f98e9cabdfcb9c708f1"
    assert run.selection[0] == "benchmarks/test_batch.py"
    assert run.phase_s["probing"] == 3.4963347279999653
    batch = next(record for record in run.records if record.test == BATCH)
    assert (len(batch.rounds_s), batch.batch_rows, len(batch.tokens_s[0][0])) == (3, (2, 2, 2, 2), 16)
    assert batch.workload is not None
    assert (batch.workload.digest, batch.workload.new_tokens) == ("2efc65f79ababbc6", 128)
    fp32 = run.variant("fp32")
    assert fp32 is not None
    assert (fp32.weight_bytes, fp32.quality["scored_tokens"], len(fp32.loss_blocks)) == (18_405_392, 6864, 100)
    assert len(fp32.equivalence) == 5


def test_it_is_written_again_as_it_was() -> None:
    """No field is lost and none is spelled otherwise; fields may be added."""
    before = json.loads(RESULTS.read_text(encoding="utf-8"))
    after = json.loads(json.dumps(run_to_json(read_run(RESULTS))))
    assert_holds(after, before)


def assert_holds(after: Any, before: Any, where: str = "the run") -> None:
    if isinstance(before, dict):
        for name, value in before.items():
            assert_holds(after[name], value, f"{where}.{name}")
    elif isinstance(before, list):
        for index, (new, old) in enumerate(zip(after, before, strict=True)):
            assert_holds(new, old, f"{where}[{index}]")
    elif isinstance(before, float):
        assert after == pytest.approx(before, rel=EXACT), where
    else:
        assert after == before, where


def test_its_metrics_come_out_as_they_were_saved() -> None:
    """What is stored is measured, and what is derived from it today is what was derived from it then."""
    table = read_results(RESULTS).set_index("test")
    for record in json.loads(RESULTS.read_text(encoding="utf-8"))["records"]:
        assert {name: table.loc[record["test"], name] for name in record["metrics"]} == pytest.approx(
            record["metrics"], rel=EXACT
        )


@BOTH
def test_a_saved_run_is_read_to_be_judged(path: Path) -> None:
    run = read_saved_run(path)
    assert (run.version, run.state, run.is_baseline, run.blessing) == (4, RunState.COMPLETE, True, None)
    assert (run.source, run.reference, [variant.id for variant in run.variants]) == (str(path), "fp32", VARIANTS)
    records = {record.test: record for record in run.records}
    assert len(records) == 9
    fp32, skipped = records[FP32], records[NO_STATIC_CACHE]
    assert fp32.metrics["latency_s"] == fp32.median_s == MEDIAN_S
    assert fp32.metrics["perplexity"] == 132.85053418752213
    assert fp32.metrics["own_memory_bytes"] == 47_460_352
    assert (skipped.status, skipped.reason) == (
        Status.SKIPPED,
        "ort-int8-dynamic can't generate with cache static",
    )
    assert not skipped.metrics


@BOTH
def test_its_heading_is_read(path: Path) -> None:
    heading = read_heading(path)
    assert f"{heading.started:%Y-%m-%d %H:%M}" == "2026-11-22 01:38"
    assert (heading.measured, heading.records, heading.state) == (7, 9, RunState.COMPLETE)
    assert (heading.provenance.model, heading.provenance.branch) == ("tiny", "main")


@pytest.mark.parametrize("base", [STORED, RESULTS], ids=["stored", "results"])
@pytest.mark.parametrize("head", [STORED, RESULTS], ids=["stored", "results"])
def test_against_itself_nothing_changed(base: Path, head: Path) -> None:
    comparison = compare_runs(read_saved_run(base), read_saved_run(head), Rules(), registry())
    assert {one.verdict for one in comparison.judgements} == {Verdict.UNCHANGED}
    assert {one.ratio for one in comparison.judgements if one.base} == {1.0}
    assert (comparison.judged_tests, comparison.uncovered, comparison.differences) == (7, (), ())
    assert decide(comparison).status is ExitStatus.PASSED


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """The run, and the same a day later."""
    folder = tmp_path / ".benchmarks" / "laptop"
    folder.mkdir(parents=True)
    shutil.copy(STORED, folder)
    later = STORED.read_text(encoding="utf-8").replace("2026-11-22T01:38:20", "2026-11-23T01:38:20")
    (folder / "0002_after.json").write_text(later, encoding="utf-8")
    return folder.parent


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["gate"], "Judged 7 of 7 tests"),
        (["compare", "1", "latest"], "Judged 7 of 7 tests"),
        (["compare", "1", str(RESULTS)], "Judged 7 of 7 tests"),
        (["history"], "2 runs in "),
    ],
    ids=["gate", "compare", "compare with a report", "history"],
)
def test_commands_take_it(storage: Path, capsys: pytest.CaptureFixture[str], command: list[str], said: str) -> None:
    assert main([*command, "--storage", str(storage)]) == 0
    assert said in capsys.readouterr().out


def test_the_trend_follows_it(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "trend.html"
    assert main(["trend", "--storage", str(storage), "-o", str(page)]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert all(variant in page.read_text(encoding="utf-8") for variant in VARIANTS)


def test_the_export_lists_it(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--storage", str(storage)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    of_run = [row for row in rows if row["file"] == "laptop/0001_before.json"]
    latency = [row["value"] for row in of_run if (row["test"], row["metric"]) == (FP32, "latency_s")]
    assert latency == [str(MEDIAN_S)]
    assert len({row["test"] for row in of_run}) == 9
    assert [row["reason"] for row in of_run if row["test"] == NO_STATIC_CACHE] == [
        "ort-int8-dynamic can't generate with cache static"
    ]


def test_it_can_be_blessed_and_is_read_again(storage: Path) -> None:
    assert main(["bless", "1", "--reason", "it is meant", "--storage", str(storage)]) == 0
    run = read_saved_run(storage / "laptop" / "0001_before.json")
    assert run.blessing is not None
    assert run.blessing.reason == "it is meant"
    assert run.variants == read_saved_run(STORED).variants
