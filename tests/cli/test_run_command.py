"""`llm-bench run` becomes pytest with the ready suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from llm_bench_fixtures import suite
from llm_bench_fixtures.cli.main import main


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
        (["./mine", "--quick", "--", "-x"], ["--llm-model=./mine", "-k", "prompt_length or test_own", "-x"]),
    ],
)
def test_the_model_and_what_follows_two_dashes_go_to_pytest(
    arguments: list[str], passed_on: list[str], started: list[list[str]]
) -> None:
    main(["run", *arguments])
    assert started == [[sys.executable, "-m", "pytest", "--pyargs", "llm_bench_fixtures.benchmarks", *passed_on]]


def test_an_option_of_pytests_before_the_dashes_is_refused(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^4$"):
        main(["run", "--llm-rounds=9"])
    assert "unrecognized arguments: --llm-rounds=9; what is pytest's goes behind --" in capsys.readouterr().err
    assert started == []
