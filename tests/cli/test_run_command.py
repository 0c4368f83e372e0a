"""`llm-bench run` becomes pytest with the ready suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from llm_bench_fixtures import suite
from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.cli.run import QUICK_LENGTH
from llm_bench_fixtures.options.table import OPTIONS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, command: commands.append([program, *command[1:]]))
    monkeypatch.setattr("subprocess.call", lambda command: 0)
    monkeypatch.setattr(suite, "PACKAGED", tmp_path)
    return commands


@pytest.mark.skipif(os.name != "posix", reason="elsewhere no process becomes another")
@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        ([], []),
        (["./mine"], ["--llm-model=./mine"]),
        (
            ["org/name", "--", "-k", "batch", "-x"],
            ["--llm-model=org/name", "-k", "batch", "-x"],
        ),
        (["--", "-x"], ["-x"]),
    ],
)
def test_the_model_and_what_follows_two_dashes_go_to_pytest(
    arguments: list[str], passed_on: list[str], started: list[list[str]]
) -> None:
    main(["run", *arguments])
    assert started == [[sys.executable, "-m", "pytest", "--pyargs", "llm_bench_fixtures.benchmarks", *passed_on]]


SUITE = "llm_bench_fixtures.benchmarks"
OWN = [f"{SUITE}.test_own", "--llm-choices=none"]
ONE_PROMPT = [f"{SUITE}.test_own", f"{SUITE}.test_prompt_length", "--llm-choices=none", "--llm-prompt-lengths=64"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere no process becomes another")
@pytest.mark.parametrize(
    ("passed_on", "files"),
    [
        ([], ONE_PROMPT),
        (["-k", "fp32"], ONE_PROMPT),
        (["--llm-prompts=mine.jsonl"], OWN),
        (["--llm-shape", "512/128"], OWN),
        (["--llm-prompt-lengths=8"], ONE_PROMPT),
    ],
)
def test_quick_takes_the_workloads_of_the_answer_and_leaves_k_to_the_user(
    passed_on: list[str], files: list[str], started: list[list[str]]
) -> None:
    """Bug: a -k of the user's replaced quick's own, and all scenarios ran."""
    main(["run", "./mine", "--quick", *(["--", *passed_on] if passed_on else [])])
    assert started == [[sys.executable, "-m", "pytest", "--pyargs", *files, "--llm-model=./mine", *passed_on]]


def test_the_quick_prompt_is_as_long_as_the_one_whose_latency_a_whole_run_shows() -> None:
    values = sorted(map(int, OPTIONS["prompt_lengths"].default.split(",")))
    assert values[(len(values) - 1) // 2] == QUICK_LENGTH


def test_an_option_of_pytests_before_the_dashes_is_refused(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^4$"):
        main(["run", "--llm-rounds=9"])
    assert "unrecognized arguments: --llm-rounds=9; what is pytest's goes behind --" in capsys.readouterr().err
    assert started == []
