"""`llm-bench report` on saved runs: everything is made again, and what a run lacks or can't be compared is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_factory import BLOCKS_S, full_run, make_block_record, make_provenance, make_record, make_run, make_variant
from shell import HOSTILE, Shell

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.models.needs import LayerCache, Parts, Taken
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import read_run, write_run
from llm_bench_fixtures.version import __version__

without_pictures = pytest.mark.usefixtures("without_pictures")
FILES = {".llm-bench-report", ".gitignore", "report.html", "report.md", "results.csv", "results.json", "results.tex"}


def kept(run: Run, folder: Path) -> str:
    folder.mkdir(parents=True)
    write_run(run, folder / "results.json")
    return str(folder)


@pytest.fixture(autouse=True)
def storage(shell: Shell) -> None:
    """One that is there, though it may be empty."""
    shell.storage.mkdir()


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_the_whole_report_is_made_again(shell: Shell, tmp_path: Path) -> None:
    output = shell("report", kept(full_run(), tmp_path / "saved"), "-o", str(tmp_path / "again"))
    assert (output.status, output.err) == (0, "")
    again = tmp_path / "again"
    assert {path.name for path in again.iterdir() if path.is_file()} == FILES
    assert list((again / "plots").glob("*.png"))
    assert read_run(again / "results.json") == full_run()
    assert output.lines[-1] == f"Report: {again / 'report.html'}"
    assert "Keep fp32: no other variant within the quality limit is more than 10 % faster" in " ".join(
        output.out.split()
    )


@without_pictures
def test_another_need_is_asked(shell: Shell, tmp_path: Path) -> None:
    saved = kept(full_run(), tmp_path / "saved")
    output = shell("report", saved, "-o", str(tmp_path / "again"), "--need", "ppl_ratio<=1.02")
    assert "Use bf16 for the lowest latency" in output.out
    assert "Use bf16 for the lowest latency" in text(tmp_path / "again" / "report.md")


@without_pictures
def test_another_memory_is_fitted(shell: Shell, tmp_path: Path) -> None:
    """Of 12 MB, 2 % is spared, 1 MB is the process' and 4 the weights'; each prompt of 64 tokens takes 64 kB."""
    parts = Parts(1_000_000, 0, 0, 0, is_known=True, kept=(LayerCache(100),), taken=Taken(0, 0, 900, 0), logits=0)
    variants = [make_variant("fp32", parts=parts)]
    saved = kept(
        make_run([make_record()], variants, provenance=make_provenance(memory_bytes=10**9)), tmp_path / "saved"
    )
    output = shell("report", saved, "-o", str(tmp_path / "again"), "--fit", "12MB")
    told = "In 12.0 MB, of prompts of 64 tokens and 16 new: fp32 at most 105 at a time."
    assert told in " ".join(output.out.split())
    assert "Does it fit in 12.0 MB?" in text(tmp_path / "again" / "report.html")
    assert "Does it fit in 12.0 MB?" in text(tmp_path / "again" / "report.md")


@without_pictures
def test_a_saved_run_is_judged_by_what_it_was_asked_unless_another_need_is(shell: Shell, tmp_path: Path) -> None:
    """fp32's 100 ms ± 11 % are beyond 80 ms, bf16's 80 ms are at it, and bnb-nf4's are not."""
    asked = make_provenance(need="latency_s<=80ms, ppl_ratio<=1.02", want="memory")
    saved = kept(full_run(provenance=asked), tmp_path / "saved")
    own = shell("report", saved, "-o", str(tmp_path / "own"))
    said = "shown to meet the need (latency_s ≤ 80 ms, ppl_ratio ≤ 1.02) on one prompt of 64 tokens; bf16 may meet it."
    assert f"No variant is {said}" in " ".join(own.out.split())
    assert "Meet the need" not in own.out
    other = shell("report", saved, "-o", str(tmp_path / "other"), "--need", "latency_s<=90ms, ppl_ratio<=1.02")
    assert "1 of 4 variants meets the need (latency_s ≤ 90 ms, " in " ".join(other.out.split())
    assert "Meet the need, least memory first:" in other.out
    both = shell(
        "report", saved, "-o", str(tmp_path / "both"), "--need", "latency_s<=90ms, ppl_ratio<=1.02", "--want", "latency"
    )
    assert "Meet the need, lowest latency first:" in both.out


@without_pictures
@pytest.mark.parametrize("need", ["score>=3", "\x1b[31mrubbish"])
def test_what_a_saved_run_was_asked_may_not_be_known_here(shell: Shell, tmp_path: Path, need: str) -> None:
    saved = kept(full_run(provenance=make_provenance(need=need)), tmp_path / "saved")
    output = shell("report", saved, "-o", str(tmp_path / "again"))
    assert output.status == 0
    assert "what it was asked can't be used here: --llm-need: " in " ".join(output.err.split())
    assert "\x1b" not in output.err
    assert "Keep fp32: no other variant within the quality limit" in " ".join(output.out.split())


@without_pictures
def test_a_report_is_made_anew_in_its_own_folder_and_the_blessing_of_its_results_stays(
    shell: Shell, tmp_path: Path
) -> None:
    saved = kept(full_run(), tmp_path / "saved")
    assert shell("bless", saved, "--reason", "meant").status == 0
    before = text(tmp_path / "saved" / "results.json")
    assert shell("report", saved, "-o", saved).status == 0
    assert text(tmp_path / "saved" / "results.json") == before
    assert (tmp_path / "saved" / "report.html").is_file()


@without_pictures
def test_a_run_of_pytest_benchmarks_storage_says_what_it_lacks(shell: Shell, tmp_path: Path) -> None:
    """Its times to the first token were saved as figures."""
    shell.keep(1, full_run().records, full_run().variants, changes={"scenarios": full_run().scenarios})
    output = shell("report", "1", "-o", str(tmp_path / "again"))
    assert output.status == 0
    assert "texts and the times of single tokens were not saved with this run" in " ".join(output.out.split())
    page = text(tmp_path / "again" / "report.html")
    assert "were not saved with this run" in page
    assert 'id="texts"' not in page
    assert "TTFT" in page
    results = json.loads(text(tmp_path / "again" / "results.json"))
    assert results["records"][0]["metrics"]["ttft_s"] > 0


@without_pictures
def test_it_is_compared_with_another_run(shell: Shell, tmp_path: Path) -> None:
    shell.keep(1)
    shell.keep(2, variants=[make_variant(weight_bytes=5_000_000)])
    output = shell("report", "2", "--against", "1", "-o", str(tmp_path / "out"))
    assert output.status == 0
    sentence = "fp32: weights 4.00 MB → 5.00 MB, +25.0 %"
    assert sentence in " ".join(output.out.split())
    assert sentence in text(tmp_path / "out" / "report.html")
    assert sentence in text(tmp_path / "out" / "report.md")
    loose = shell("report", "2", "--against", "1", "-o", str(tmp_path / "out"), "--rules", "weight_bytes:30%")
    assert sentence not in " ".join(loose.out.split())


@without_pictures
def test_several_runs_are_one_page(shell: Shell, tmp_path: Path) -> None:
    machines = [
        kept(full_run(provenance=make_provenance(hardware=name)), tmp_path / name) for name in ("laptop", "server")
    ]
    old = tmp_path / "old.json"
    old.write_text('{"schema": "llm-bench-fixtures/run", "version": 2}', encoding="utf-8")
    output = shell("report", *machines, str(old), "-o", str(tmp_path / "out"))
    assert output.status == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES - {"results.json"}
    assert "is of schema version 2; this reads 4" in " ".join(output.out.split())
    assert "schema version 2" in text(tmp_path / "out" / "report.html")
    table = text(tmp_path / "out" / "results.csv").splitlines()
    assert table[0].startswith("run,model,test,")
    assert {line.split(",")[0] for line in table[1:]} == {"laptop", "server"}


def test_without_a_command_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitStatus.USAGE
    assert "make the report of a saved run again" in " ".join(capsys.readouterr().err.split())


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"llm-bench {__version__}\n"


def noisy(number: int, speedup: float, tmp_path: Path, **provenance: Any) -> str:
    """A run of that day, kept in a report's folder."""
    blocks_s = [seconds * (1 + number / 1000) for seconds in BLOCKS_S]  # no two runs take equally long
    records = [
        make_block_record("fp32", 1.0, 0.0, blocks_s),
        make_block_record("bf16", speedup, 0.05 + number / 1000, blocks_s),
    ]
    origin = make_provenance(started=f"2026-01-{number:02}T00:00:00+00:00", **provenance)
    return kept(make_run(records, provenance=origin), tmp_path / f"run-{number}")


@without_pictures
def test_runs_of_one_version_are_pooled(shell: Shell, tmp_path: Path) -> None:
    runs = [noisy(number, 1.5 + number / 100, tmp_path) for number in (1, 2, 3)]
    alone = shell("report", runs[0], "-o", str(tmp_path / "alone"))
    output = shell("report", *runs, "-o", str(tmp_path / "out"))
    assert (output.status, output.err) == (0, "")
    assert "1.51× (1." in alone.out
    assert "1.52× (1." in output.out
    assert "3 runs pooled" in output.out
    said = "3 runs of the same version are pooled: their speed-ups differ by at most 1.32 % (bf16)."
    assert said in " ".join(output.out.split())
    folder = tmp_path / "out"
    assert {path.name for path in folder.iterdir() if path.is_file()} == FILES - {"results.json"} | {"runs.json"}
    page, markdown = text(folder / "report.html"), text(folder / "report.md")
    assert "How far the runs agree" in page
    assert all(name in page for name in ("run-1", "run-2", "run-3"))
    assert said in markdown
    agreement = json.loads(text(folder / "runs.json"))
    assert agreement["runs"] == [f"{run}/results.json" for run in runs]
    assert [round(one["ratio"], 2) for one in agreement["variants"][1]["speedups"]] == [1.51, 1.52, 1.53]


@without_pictures
def test_pooled_runs_of_two_machines_are_compared(shell: Shell, tmp_path: Path) -> None:
    machines = ("laptop", "server", "laptop", "server", "server")
    runs = [noisy(number, 1.5, tmp_path, hardware=name) for number, name in enumerate(machines, 1)]
    output = shell("report", *runs, "-o", str(tmp_path / "out"))
    assert output.status == 0
    assert "- laptop: 2 runs of the same version are pooled" in output.out
    assert "- server: 3 runs of the same version are pooled" in output.out
    page = text(tmp_path / "out" / "report.html")
    assert "How far the runs agree" in page
    assert "laptop: Speed-up in each run" in page
    assert all(f"run-{number}" in page for number in range(1, 6))


@without_pictures
def test_why_runs_of_one_machine_are_not_pooled_is_said(shell: Shell, tmp_path: Path) -> None:
    runs = [noisy(1, 1.5, tmp_path, commit="a" * 40), noisy(2, 1.6, tmp_path, commit="b" * 40)]
    output = shell("report", *runs, "-o", str(tmp_path / "out"))
    assert f"{'b' * 12}: not pooled with {'a' * 12}: another commit" in " ".join(output.out.split())


@without_pictures
def test_what_of_several_can_not_be_read_is_left_out(shell: Shell, tmp_path: Path) -> None:
    runs = [noisy(number, 1.5, tmp_path) for number in (1, 2)]
    broken = str(shell.damage())
    output = shell("report", *runs, broken, "-o", str(tmp_path / "out"))
    assert output.status == 0
    assert f"left out: {broken}" in output.err
    assert "2 runs pooled" in output.out


@without_pictures
def test_one_run_in_two_files_is_not_pooled_with_itself(shell: Shell, tmp_path: Path) -> None:
    run = full_run()
    output = shell("report", kept(run, tmp_path / "a"), kept(run, tmp_path / "b"), "-o", str(tmp_path / "out"))
    assert output.status == ExitStatus.USAGE
    assert "hold rounds of the same run: name one of them" in output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("9",), "no run '9'"),
        ((), "name at least one RUN, such as `latest`"),
        ((".",), "no run '.': it is a folder without results.json"),
        (("1", "1"), "is named twice: name each run once"),
        (("1", "2", "--against", "1"), "--against compares one run with another"),
        (("1", "--against", "1"), "is the run itself"),
        (("1", "--against", "9"), "no run '9'"),
        (("1", "--rules", "speed:5%"), "unknown metric"),
    ],
)
@without_pictures
def test_what_can_not_be_done_is_said(shell: Shell, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    shell.keep(1)
    shell.keep(2)
    output = shell("report", *arguments, "-o", str(tmp_path / "out"))
    assert output.status == ExitStatus.USAGE
    assert message in output.err
    assert not (tmp_path / "out").exists()


@without_pictures
def test_of_a_folder_of_runs_the_files_are_named(shell: Shell, tmp_path: Path) -> None:
    shell.keep(1)
    kept(full_run(), tmp_path / "runs" / "laptop")
    (tmp_path / "runs" / "other.json").write_text("{}", encoding="utf-8")
    output = shell("report", str(tmp_path / "runs"), "-o", str(tmp_path / "out"))
    assert output.status == ExitStatus.USAGE
    file = tmp_path / "runs" / "laptop" / "results.json"
    assert f"it is a folder without results.json (give one of: {file}), and no number" in " ".join(output.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1", "--need", "speed:2"), "unknown metric 'speed'. Did you mean speedup"),
        (("1", "--fit", "12"), "expected a size with its unit, such as 24GB, 900MB or 16GiB, got '12'"),
    ],
)
@without_pictures
def test_what_can_not_be_read_as_an_argument_is_said(
    shell: Shell, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        shell("report", *arguments)
    assert ended.value.code == ExitStatus.USAGE
    assert message in capsys.readouterr().err


@without_pictures
def test_a_damaged_run_is_named(shell: Shell, tmp_path: Path) -> None:
    shell.keep(1)
    broken = str(shell.damage())
    for arguments in ((broken,), ("1", "--against", broken)):
        output = shell("report", *arguments, "-o", str(tmp_path / "out"))
        assert output.status == ExitStatus.USAGE
        assert broken in output.err


@without_pictures
def test_where_no_run_can_be_read_there_is_no_page(shell: Shell, tmp_path: Path) -> None:
    broken = [str(shell.damage(name)) for name in ("0098_cut.json", "0099_cut.json")]
    output = shell("report", *broken, "-o", str(tmp_path / "out"))
    assert output.status == ExitStatus.USAGE
    assert all(path in output.err for path in broken)


@without_pictures
def test_metrics_of_the_project_are_said_to_be_in_the_data_only(shell: Shell, tmp_path: Path) -> None:
    run = make_run([make_record(extra={"mine": 7.0})])
    output = shell("report", kept(run, tmp_path / "saved"), "-o", str(tmp_path / "out"))
    assert "Only in results.csv, because only the project itself knows what they are: mine." in output.out
    assert "mine" in text(tmp_path / "out" / "results.csv").splitlines()[0].split(",")


@without_pictures
def test_nothing_in_a_saved_run_is_obeyed(shell: Shell, tmp_path: Path) -> None:
    run = full_run(provenance=make_provenance(model=HOSTILE, hardware=HOSTILE))
    saved = kept(replace(run, records=tuple(replace(one, case=HOSTILE) for one in run.records)), tmp_path / "a")
    other = kept(full_run(), tmp_path / "b")
    for arguments in ((saved, "--against", other), (saved, other)):
        output = shell("report", *arguments, "-o", str(tmp_path / "out"))
        assert output.status == 0
        assert "\x1b" not in output.out
        assert "\u202e" not in output.out
        assert "<img src=x" not in text(tmp_path / "out" / "report.html")
