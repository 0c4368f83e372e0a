"""A paired run from its command line."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from llm_bench_fixtures.cli import pair as command
from llm_bench_fixtures.cli.console import write_json
from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import NOTHING
from llm_bench_fixtures.options.table import OPTIONS, flag_of, paths_that_stand_alone
from llm_bench_fixtures.paired.control import PairedRun
from llm_bench_fixtures.paired.sides import PairSide


def run_sides(arguments: list[str]) -> object:
    parser = argparse.ArgumentParser()
    command.add_run_arguments(parser)
    given = parser.parse_args(arguments)
    vars(given).update(passed_on=[], threshold=0.03, grows=True, allow=NOTHING)
    return command.run_sides("base", "head", command.make_plan(given))


@contextmanager
def interrupted_at_its_end(name: str, here: Path, scratch: Path) -> Iterator[PairSide]:
    yield PairSide(name, here, "python")
    raise KeyboardInterrupt


def test_an_interruption_while_the_sides_are_cleaned_up_loses_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "open_side", interrupted_at_its_end)
    monkeypatch.setattr(PairedRun, "run", lambda self: "the result")
    assert run_sides([]) == "the result"


def test_an_interruption_before_anything_ran_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[PairSide]:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "open_side", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sides([])


@pytest.mark.parametrize("arguments", [["pair", "HEAD"], ["aa"]])
def test_where_no_process_inherits_a_socket_a_pair_is_refused_in_a_sentence(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: on Windows it ended with a ValueError of subprocess."""
    monkeypatch.setattr(command, "os", SimpleNamespace(name="nt"))
    assert main(arguments) == ExitStatus.USAGE
    assert "inherit a socket, which they can on Linux and macOS only" in capsys.readouterr().err


def test_what_is_written_as_json_can_be_read_whatever_a_name_holds(tmp_path: Path) -> None:
    path = write_json({"test\udce9": ["caf\udce9"]}, tmp_path / "pair.json")
    assert msgspec.json.decode(path.read_bytes()) == {"test\ufffd": ["caf\ufffd"]}


def test_more_threads_than_cores_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "usable_cores", lambda: 2)
    with pytest.raises(SystemExit):
        run_sides(["--threads", "99"])
    assert "--threads: 99 threads would wait for each other on 2 cores" in capsys.readouterr().err


def test_a_folder_of_tests_after_a_switch_is_no_value_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: `-- --llm-overhead benchmarks/` was refused as if the switch took the path."""
    monkeypatch.chdir(tmp_path)
    Path("benchmarks").mkdir()
    for name in (name for name, option in OPTIONS.items() if option.is_switch):
        assert paths_that_stand_alone([flag_of(name), "benchmarks"], Path()) == []
    assert paths_that_stand_alone(["--llm-model", "benchmarks"], Path()) == [("--llm-model", "benchmarks")]
    assert paths_that_stand_alone(["benchmarks"], Path("elsewhere")) == []
