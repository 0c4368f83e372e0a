"""The script of the first run on a GPU: its pure parts, and steps that end in every way."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import first_gpu_run
import gpu_page
import gpu_wheels
import pytest
from first_gpu_run import Step, run_step
from gpu_page import DATA_SHEETS, Outcome, Status, Workload, ratio
from run_factory import full_run

from llm_bench_fixtures.results.storage import write_run

ROOT = Path(__file__).resolve().parents[2]
PRETEND = ROOT / "tests" / "cuda" / "pretend"
ONE_VARIANT = Workload(("fp32",), prompt_tokens=8, new_tokens=4)
ON_CUDA = {"device": "cuda:0", "cuda": "13.0"}
SUITE = {"fp32": {"ttft_s": 0.011, "tpot_s": 0.006, "cuda_max_allocated_bytes": 5_050_000_000}}
PLAIN = {"fp32": {"ttft_s": 0.010, "tpot_s": 0.005, "generate_ttft_s": 0.011, "peak_bytes": 5_000_000_000}}


def test_a_ratio_needs_both_figures() -> None:
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(None, 2.0) is None
    assert ratio(3.0, None) is None
    assert ratio(3.0, 0.0) is None


def test_the_data_sheets_are_in_bytes_and_operations() -> None:
    """NVIDIA's, of the H200: 4.8 TB/s, and 989 TFLOP/s in 16 bits without sparsity."""
    sheet = DATA_SHEETS["NVIDIA H200"]
    assert (sheet.read_bytes_per_s, sheet.flops_per_s["bfloat16"]) == (4.8e12, 989e12)
    for one in DATA_SHEETS.values():
        assert one.flops_per_s["float32"] < one.flops_per_s["bfloat16"] == one.flops_per_s["float16"]


def outcomes(**figures: dict[str, object]) -> list[Outcome]:
    return [Outcome(name, Status.DONE, f"run {name}", 2.0, figures=told) for name, told in figures.items()]


def test_the_page_has_ratios_and_shares_of_the_data_sheet() -> None:
    limits = {"read_bytes_per_s": 3.6e12, "copy_bytes_per_s": 4.32e12, "matmul_flops_per_s": {"bfloat16": 791.2e12}}
    facts = {"name": "NVIDIA H200", "memory_bytes": 141e9, **ON_CUDA}
    text = gpu_page.page(outcomes(facts=facts, suite=SUITE, plain=PLAIN, limits=limits), "today", "me", ONE_VARIANT)
    assert "One prompt of 8 tokens, 4 new ones, random weights." in text
    assert "| fp32 | TTFT | 11.00 | 10.00 | 1.100 | 11.00 | 1.000 |" in text
    assert "| fp32 | TPOT | 6.00 | 5.00 | 1.200 |  |  |" in text
    assert "| fp32 | 5,050 | 5,000 | 1.010 |" in text
    assert "| reading, TB/s | 3.6 | 4.32 | 4.8 | 75% | 90% |" in text
    assert "| bfloat16 products, TFLOP/s | 791 |  | 989 | 80% |  |" in text
    assert "CUDA has not run" not in text


@pytest.mark.parametrize(
    ("status", "facts", "has_run"),
    [
        (Status.DONE, ON_CUDA, True),
        (Status.FAILED, {}, False),
        (Status.TIMED_OUT, ON_CUDA, False),
        (Status.DONE, {"device": "cpu", "cuda": "13.0"}, False),
        (Status.DONE, {"device": "cuda:0", "cuda": None}, False),  # pretended: torch has no CUDA
    ],
)
def test_the_page_goes_into_the_docs_once_cuda_has_run(
    status: Status, facts: dict[str, object], has_run: bool, tmp_path: Path
) -> None:
    """Bug: where the facts failed, the page of the docs lost its words that CUDA has not run."""
    done = [Outcome("wheels", Status.DONE), Outcome("facts", status, figures=facts)]
    assert first_gpu_run.page_for(done, tmp_path) == (first_gpu_run.PAGE if has_run else tmp_path / "first-gpu-run.md")
    assert ("CUDA has not run.**" in gpu_page.page(done, "today", "me", ONE_VARIANT)) is not has_run


def test_what_failed_stands_on_the_page_beside_what_did_not() -> None:
    failed = Outcome("plain", Status.TIMED_OUT, "run plain", 60.0, "the last line")
    suite = {**SUITE, "not_measured": ["bnb-nf4: OutOfMemory"], "cases": [{"case": "test_batch[fp32-8]", "mbu": 0.5}]}
    text = gpu_page.page([*outcomes(suite=suite), failed], "today", "me", ONE_VARIANT)
    assert "| plain | ran out of time | 60 |" in text
    assert "the last line" in text
    assert "- bnb-nf4: OutOfMemory" in text
    assert "| test_batch[fp32-8] |  |  |  | 50 |" in text
    assert "| fp32 | TTFT | 11.00 |  |  |  |  |" in text


@pytest.mark.parametrize(
    ("code", "limit_s", "status", "reason"),
    [
        ("print('{\"a\": 1}')", 60.0, Status.DONE, ""),
        ("raise SystemExit('no such device')", 60.0, Status.FAILED, "no such device"),
        ("print('not JSON')", 60.0, Status.FAILED, "no figures: JSONDecodeError"),
        ("import time; time.sleep(600)", 0.5, Status.TIMED_OUT, "no figures"),
        ("", 0.0, Status.NOT_RUN, "no time was left"),
    ],
)
def test_each_end_of_a_step_is_told(code: str, limit_s: float, status: Status, reason: str, tmp_path: Path) -> None:
    step = Step("mine", (sys.executable, "-c", code), 60.0, first_gpu_run.last_line)
    outcome = run_step(step, "cpu", tmp_path, os.environ, limit_s)
    assert outcome.status is status
    assert reason in outcome.reason
    assert outcome.figures == ({"a": 1} if status is Status.DONE else {})


@pytest.mark.parametrize("code", ["raise SystemExit(4)", "raise SystemExit(1)"])
@pytest.mark.parametrize("name", ["tests", "suite", "compile"])
def test_figures_of_an_earlier_run_are_not_this_runs(name: str, code: str, tmp_path: Path) -> None:
    """Bug: a step that ended at once was shown with what the last one in the same folder had measured."""
    (step,) = (one for one in first_gpu_run.steps("cuda:0", tmp_path) if one.name == name)
    assert step.leaves is not None
    step.leaves.parent.mkdir(exist_ok=True)
    write_run(full_run(), step.leaves)
    step = replace(step, command=(sys.executable, "-c", code), figures=first_gpu_run.measured)
    outcome = run_step(step, "cuda:0", tmp_path, os.environ, 60.0)
    assert (outcome.status, outcome.figures) == (Status.FAILED, {})
    assert "no figures: FileNotFoundError" in outcome.reason


def test_what_a_saved_run_measured_is_read(tmp_path: Path) -> None:
    """One prompt, 16 tokens evenly over the last three fifths of 0.1 s: TTFT 40 ms, TPOT 60 ms / 15 = 4 ms."""
    write_run(full_run(), tmp_path / "results.json")
    found = first_gpu_run.measured((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert found["fp32"]["ttft_s"] == pytest.approx(0.04)
    assert found["fp32"]["tpot_s"] == pytest.approx(0.004)
    assert {"fp32", "fp16", "bf16"} == found.keys() - {"cases", "not_measured"}
    cases = {case["case"]: case for case in found["cases"]}
    assert cases["test_cache[off-fp32]"]["ttft_s"] == pytest.approx(0.12)
    assert "ort-fp32: OutOfMemory: 512 bytes asked for" in found["not_measured"]
    assert "test_precision[-ort-fp32]: OutOfMemory: 512 bytes asked for" in found["not_measured"]


def test_the_tests_that_passed_are_those_without_another_end() -> None:
    junit = (
        '<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite tests="9" failures="2" errors="1" skipped="3"/>'
    )
    found = first_gpu_run.counts(f"{junit}</testsuites>")
    assert found == {"tests": {"passed": 3, "failed": 2, "errors": 1, "skipped": 3}}


def test_the_limits_fit_into_the_run_and_the_longest_comes_late(tmp_path: Path) -> None:
    """Bug: they added up to 615 seconds of 480, and a slow suite left no time for what it is compared with."""
    found = {step.name: step.limit_s for step in first_gpu_run.steps("cuda:0", tmp_path)}
    assert [*found] == ["facts", "tests", "plain", "limits", "suite", "compile"]
    assert first_gpu_run.WHEELS_S + sum(found.values()) + first_gpu_run.FAREWELL_S <= 60 * first_gpu_run.MINUTES


def test_the_plain_loop_has_the_suites_prompt(tmp_path: Path) -> None:
    suite = (ROOT / "benchmarks" / "test_precision.py").read_text(encoding="utf-8")
    assert f"\nPROMPT_TOKENS = {first_gpu_run.WORKLOAD.prompt_tokens}\n" in suite
    commands = {step.name: step.command for step in first_gpu_run.steps("cuda:0", tmp_path)}
    assert {"--prompt-tokens=64", "--new-tokens=16", "--variants=fp32,bf16,fp16"} <= {*commands["plain"]}
    assert {"--llm-new-tokens=16", "--llm-variants=fp32,bf16,fp16,bnb-nf4"} <= {*commands["suite"]}


def test_what_needs_cuda_is_not_run_on_a_cpu(tmp_path: Path) -> None:
    waiting = {step.name for step in first_gpu_run.steps("cpu", tmp_path) if step.needs_cuda}
    assert waiting == {"tests", "compile"}
    step = Step("tests", ("no-such-program",), 60.0, first_gpu_run.last_line, needs_cuda=True)
    assert run_step(step, "cpu", tmp_path, os.environ, 60.0).status is Status.NOT_RUN


def test_only_what_the_machine_lacks_is_wanted() -> None:
    wanted = ["jinja2>=3.1", "Plotly>=6", "tomli; python_version < '3.11'", "pyarrow; extra == 'parquet'"]
    assert gpu_wheels.lacking(wanted, ["Jinja2"]) == ["Plotly>=6", "tomli"]
    assert gpu_wheels.lacking(["huggingface-hub>=0.34"], ["huggingface_hub"]) == []


def wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as written:
        for file, content in files.items():
            written.writestr(file, content)
    return path


def test_wheels_of_what_is_there_are_left_out(tmp_path: Path) -> None:
    there, missing = (wheel(tmp_path, name, {}) for name in ("huggingface_hub", "ruptures"))
    assert gpu_wheels.missing(tmp_path, {"huggingface-hub": "1.0"}) == [missing]
    assert there.exists()


def test_a_missing_wheel_is_installed_without_network_into_a_folder_of_its_own(tmp_path: Path) -> None:
    info = "notthere-1.0.dist-info"
    files = {
        "notthere.py": "X = 1\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: notthere\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"notthere.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    path = wheel(tmp_path, "notthere", files)
    step = first_gpu_run.prepare(tmp_path, tmp_path / "site")
    assert isinstance(step, Step)
    outcome = run_step(step, "cpu", tmp_path, os.environ, 600.0)
    assert outcome.status is Status.DONE, outcome.reason
    assert path.name in outcome.command
    assert (tmp_path / "site" / "notthere.py").read_text() == "X = 1\n"


def test_a_wheel_keeps_the_libraries_of_one_cuda(tmp_path: Path) -> None:
    """And its list of files names no other, which pip would look for."""
    names = ["bnb/libbnb_cuda130.so", "bnb/libbnb_cuda118.so", "bnb/libbnb_rocm64.so", "bnb/libbnb_cpu.so"]
    record = "".join(f"{name},sha256=x,1\n" for name in names)
    path = wheel(tmp_path, "bnb", {**dict.fromkeys(names, "x"), "bnb-1.0.dist-info/RECORD": record})
    gpu_wheels.keep_build(path, "130")
    with zipfile.ZipFile(path) as opened:
        assert set(opened.namelist()) == {names[0], names[3], "bnb-1.0.dist-info/RECORD"}
        assert opened.read("bnb-1.0.dist-info/RECORD").decode().splitlines() == [
            f"{names[0]},sha256=x,1",
            f"{names[3]},sha256=x,1",
        ]


def test_what_a_wheel_needs_is_read_from_it(tmp_path: Path) -> None:
    metadata = "Metadata-Version: 2.1\nRequires-Dist: numpy>=1.20\nRequires-Dist: scipy\n\nRequires-Dist: a lie\n"
    path = wheel(tmp_path, "mine", {"mine-1.0.dist-info/METADATA": metadata})
    assert gpu_wheels.requirements_of(path) == ["numpy>=1.20", "scipy"]


@pytest.mark.nightly("it measures a model in three variants, and again in a plain loop")
def test_on_a_cpu_every_step_that_can_run_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    options = ("--device", "cpu", "--work", str(tmp_path), "--page", str(page), "--minutes", "120")
    monkeypatch.setattr(sys, "argv", ["first_gpu_run.py", *options])
    status = first_gpu_run.main()
    text = page.read_text(encoding="utf-8")
    assert status == 0, text
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    ends = {row[0]: row[1] for row in rows if len(row) == 3}
    assert {name for name, end in ends.items() if end == "done"} == {"facts", "plain", "limits", "suite"}, text
    assert {name for name, end in ends.items() if end == "not run"} == {"wheels", "tests", "compile"}
    times = [row for row in rows if row[1] in ("TTFT", "TPOT")]
    assert [row[0] for row in times] == ["fp32", "fp32", "bf16", "bf16", "fp16", "fp16"]
    assert all(float(figure) > 0 for row in times for figure in row[2:])
    assert "CUDA has not run: docs/reference/first-gpu-run.md is left as it was" in capsys.readouterr().out


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(
            ("-k", "device_on_cuda"),
            marks=pytest.mark.slow("it imports torch in a process of its own"),
            id="those of the device",
        ),
        pytest.param((), marks=pytest.mark.nightly("four of them start processes of their own"), id="all"),
    ],
)
def test_the_tests_that_need_cuda_run_on_a_pretended_device(chosen: tuple[str, ...]) -> None:
    """So that they, and the code for CUDA up to torch's own calls, don't fall behind where there is no GPU."""
    options = ("-q", "-p", "no:cacheprovider", "-m", "cuda")
    command = (sys.executable, "-m", "pytest", *options, *chosen, "tests/cuda")
    environment = {**os.environ, "PYTHONPATH": str(PRETEND)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
