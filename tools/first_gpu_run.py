"""The first run on a GPU, in one command and at most eight minutes.

    python tools/first_gpu_run.py --wheels build/wheels              on the machine with the GPU; it needs no network
    python tools/first_gpu_run.py --device cpu                       tries the script where there is none
    python tools/first_gpu_run.py --collect-wheels build/wheels --present names.txt
                                                                     before that, on a machine with network

The machine needs Linux on x86-64, Python 3.11 or newer with torch for CUDA and transformers, and this repository. What
else the package depends on is carried as wheels: --collect-wheels downloads those that the machine lacks. names.txt
lists what it has, a name a line, as `pip list --format=freeze` there prints it.

The steps, each in a process of its own with its own time limit and its log in the folder --work:

    wheels    installs those of --wheels that are missing, into the folder --work
    facts     device, driver, versions
    tests     pytest -m cuda: device, clocks, memory, tokens, caches, processes, a variant that doesn't fit
    plain     one prompt in a plain loop that reads CUDA events, and in transformers' generate
    limits    how fast the device reads and multiplies, beside its data sheet
    suite     the suite on random weights in the shape of Llama 3.2 1B: fp32, bf16, fp16, bnb-nf4; first the same prompt
    compile   compile-bf16 on the embedded model

A step that fails or runs out of time is written down, and the next one runs. The page (--page) is written anew after
each step, so what ends the run early loses nothing. Without --page, it is in the folder --work until the facts are
those of a CUDA device, and in docs/ from then on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gpu_page
import gpu_wheels
from gpu_page import Outcome, Status, Workload

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "first-gpu-run.md"
WORK = ROOT / "build" / "first-gpu-run"
MINUTES = 8.0
WHEELS_S = 30.0
FAREWELL_S = 15.0  # for a step that is interrupted to write down what it has
PLUGIN = "llm_bench_fixtures.plugin.hooks"
WORKLOAD = Workload(("fp32", "bf16", "fp16"), prompt_tokens=64, new_tokens=16)
"""Workload of benchmarks/test_precision.py."""
LAST_LINES = 25

SHAPE = {  # the shape of Llama 3.2 1B: 1.24 billion weights
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 4096, "head_dim": 2}


@dataclass(frozen=True)
class Step:
    """A command, and how to read what it leaves behind."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    figures: Callable[[str], Mapping[str, Any]]
    """Figures of the text that it leaves."""
    leaves: Path | None = None
    """The file with that text; None: the log."""
    passes: tuple[int, ...] = (0,)
    """The exit statuses of a step that did its work."""
    needs_cuda: bool = False


def steps(device: str, work: Path) -> list[Step]:
    """Steps after the wheels, in order. All limits fit into MINUTES together."""
    child = (sys.executable, str(ROOT / "tools" / "gpu_children.py"))
    test = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    model, report, compiled, junit = (work / name for name in ("model", "report", "compile", "tests.xml"))
    measure = (f"--llm-device={device}", f"--llm-cache-dir={work / 'cache'}", "--llm-choices=none")
    suite = [str(ROOT / "benchmarks" / f"test_{name}.py") for name in ("precision", "cache", "batch")]
    variants, tokens = ",".join(WORKLOAD.variants), f"--llm-new-tokens={WORKLOAD.new_tokens}"
    dummy = (f"--llm-model={model}", "--llm-load-format=dummy", f"--llm-variants={variants},bnb-nf4", tokens)
    sizes = (f"--prompt-tokens={WORKLOAD.prompt_tokens}", f"--new-tokens={WORKLOAD.new_tokens}")
    plain = (*child, "plain", f"--device={device}", f"--model={model}", f"--variants={variants}", *sizes)
    compiling = ("--llm-variants=fp32,compile-bf16", f"--llm-report={compiled}")
    return [
        Step("facts", (*child, "facts", f"--device={device}"), 30, last_line),
        Step(
            "tests",
            (*test, "-m", "cuda", "-rfE", f"--junitxml={junit}", str(ROOT / "tests" / "cuda")),
            120,  # three of them start runs, whose processes import torch anew
            counts,
            junit,
            needs_cuda=True,
        ),
        Step("plain", plain, 45, last_line),
        Step("limits", (*child, "limits", f"--device={device}"), 30, last_line),
        Step(
            "suite",
            (*test, *suite, *measure, *dummy, f"--llm-report={report}", "--llm-limits-time=1"),
            150,
            measured,
            report / "results.json",
            passes=(0, 1),
        ),
        Step(
            "compile",
            (*test, suite[0], *measure, *compiling),
            60,
            measured,
            compiled / "results.json",
            passes=(0, 1),
            needs_cuda=True,
        ),
    ]


def last_line(output: str) -> Mapping[str, Any]:
    told: Mapping[str, Any] = json.loads(output.strip().splitlines()[-1])
    return told


def counts(junit: str) -> dict[str, dict[str, int]]:
    (suite,) = ElementTree.fromstring(junit).iter("testsuite")  # noqa: S314  # written by our own run
    failed, errors, skipped = (int(suite.get(name, 0)) for name in ("failures", "errors", "skipped"))
    passed = int(suite.get("tests", 0)) - failed - errors - skipped
    return {"tests": {"passed": passed, "failed": failed, "errors": errors, "skipped": skipped}}


def measured(results: str) -> dict[str, Any]:
    """Metrics of one prompt by variant; those of every case; and what wasn't measured, with the reason."""
    run = json.loads(results)
    done = [one for one in run["records"] if one["status"] == "measured"]
    found: dict[str, Any] = {one["variant"]: one["metrics"] for one in done if one["scenario"] == "precision"}
    cases = [{"case": one["test"].rpartition("::")[2], **one["metrics"]} for one in done]
    reasons = {f"{one['id']}: {one['reason']}": None for one in run["variants"] if one["reason"]}
    reasons |= {f"{one['test'].rpartition('::')[2]}: {one['reason']}": None for one in run["records"] if one["reason"]}
    return {**found, "cases": cases, "not_measured": [*reasons]}


def run_step(step: Step, device: str, work: Path, environment: Mapping[str, str], limit_s: float) -> Outcome:
    """Run it for so long at most; its output is in a log. What an earlier run left in its place is removed."""
    command = shlex.join(step.command).replace(str(ROOT) + "/", "").replace(sys.executable, "python")
    if step.needs_cuda and device == "cpu":
        return Outcome(step.name, Status.NOT_RUN, command, reason="it needs a CUDA device")
    if limit_s <= 0:
        return Outcome(step.name, Status.NOT_RUN, command, reason="no time was left")
    log, began_s = work / f"{step.name}.log", time.monotonic()
    left = step.leaves or log
    left.unlink(missing_ok=True)
    status = _call(step, log, environment, limit_s)
    outcome = Outcome(step.name, status, command, time.monotonic() - began_s)
    output = log.read_text(encoding="utf-8", errors="replace")
    try:
        outcome = replace(outcome, figures=step.figures(left.read_text(encoding="utf-8", errors="replace")))
    except Exception as error:  # whatever a step left unfinished
        reason = f"no figures: {type(error).__name__}: {error}"
        outcome = replace(outcome, status=Status.FAILED if status is Status.DONE else status, reason=reason)
    if outcome.status is Status.DONE:
        return outcome
    return replace(outcome, reason=tail(f"{output}\n{outcome.reason}"))


def _call(step: Step, log: Path, environment: Mapping[str, str], limit_s: float) -> Status:
    with log.open("wb") as written:
        process = subprocess.Popen(
            step.command, cwd=log.parent, env=dict(environment), stdout=written, stderr=written, start_new_session=True
        )
        try:
            return Status.DONE if process.wait(limit_s) in step.passes else Status.FAILED
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest writes its report then
            return Status.TIMED_OUT
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with all that it started, unless it ends by itself soon."""
    try:
        process.wait(FAREWELL_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail(output: str) -> str:
    """Last lines of an output, without folders of this machine."""
    lines = [line for line in output.replace(str(ROOT) + "/", "").splitlines() if line.strip()]
    return "\n".join(re.sub(r"`{3,}", "'''", line) for line in lines[-LAST_LINES:])


def environment_of(site: Path) -> dict[str, str]:
    """Children find this tree's package, then what the machine has, then nothing of a network."""
    paths = [str(ROOT / "src"), str(site), os.environ.get("PYTHONPATH", "")]
    more = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    if not metadata.entry_points(group="pytest11", name="llm_bench_fixtures"):
        more["PYTEST_PLUGINS"] = PLUGIN
    return {**os.environ, **more}


def write_model(folder: Path, device: str) -> None:
    """The config alone: its weights are made by the suite, at random."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE | (SMALL if device == "cpu" else {}), indent=1))


def prepare(wheels: Path | None, site: Path) -> Step | Outcome:
    """Installs the wheels that are missing, if there are any."""
    if wheels is None:
        return Outcome("wheels", Status.NOT_RUN, reason="no folder of wheels was given")
    chosen = gpu_wheels.missing(wheels, gpu_wheels.installed())
    if not chosen:
        return Outcome("wheels", Status.DONE)
    return Step("wheels", tuple(gpu_wheels.install_command(chosen, site)), WHEELS_S, lambda _: {})


def run(device: str, wheels: Path | None, work: Path, minutes: float) -> Iterator[Outcome]:
    """Every step's outcome, as it ends."""
    until_s = time.monotonic() + 60 * minutes - FAREWELL_S
    work.mkdir(parents=True, exist_ok=True)
    write_model(work / "model", device)
    environment = environment_of(work / "site")
    for step in (prepare(wheels, work / "site"), *steps(device, work)):
        if isinstance(step, Outcome):
            yield step
            continue
        limit_s = min(step.limit_s * minutes / MINUTES, until_s - time.monotonic())
        yield run_step(step, device, work, environment, limit_s)


def page_for(outcomes: Sequence[Outcome], work: Path) -> Path:
    """The page of the docs, or one in the folder of this run while CUDA has not run."""
    return PAGE if gpu_page.has_cuda_run(outcomes) else work / PAGE.name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu to try the script (default: cuda:0)")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="a folder of wheels; the missing ones are installed")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="for logs, reports and what is made")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="the page to write (default: in docs/ once CUDA has run)"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all steps together (default: 8)")
    parser.add_argument(
        "--collect-wheels", type=Path, metavar="DIR", help="download wheels for another machine; no run"
    )
    parser.add_argument("--present", type=Path, metavar="FILE", help="names of the distributions that it has")
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="its Python (default: 3.12)")
    parser.add_argument("--cuda", default="130", metavar="VERSION", help="its torch's CUDA, as in cu130 (default: 130)")
    given = parser.parse_args()
    if given.collect_wheels:
        present = given.present.read_text(encoding="utf-8").split("\n") if given.present else ["torch", "transformers"]
        found = gpu_wheels.collect(given.collect_wheels, map(gpu_wheels.name_of, present), given.python, given.cuda)
        print(*(f"{wheel.stat().st_size / 2**20:6.1f} MiB  {wheel.name}" for wheel in found), sep="\n")
        return 0
    work = given.work.resolve()
    started = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    command = shlex.join(["python", "tools/first_gpu_run.py", *sys.argv[1:]])
    outcomes: list[Outcome] = []
    for outcome in run(given.device, given.wheels and given.wheels.resolve(), work, given.minutes):
        print(f"{outcome.name}: {outcome.status}, {outcome.seconds:.0f} s", flush=True)
        outcomes.append(outcome)
        page = (given.page or page_for(outcomes, work)).resolve()
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(gpu_page.page(outcomes, started, command, WORKLOAD), encoding="utf-8")
    print(f"\n{page.read_text(encoding='utf-8')}\nwritten to {page}; logs in {work}")
    if not gpu_page.has_cuda_run(outcomes):
        print(f"CUDA has not run: {PAGE.relative_to(ROOT)} is left as it was, unless --page names it")
    return int(any(one.status in (Status.FAILED, Status.TIMED_OUT) for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
