"""What a worker of a pair does as it is told, and the metrics of a round."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from waiting import BACKSTOP_S, has_ended, wait_until

from llm_bench_fixtures import __version__
from llm_bench_fixtures.measure.timing import BatchTimes, Round
from llm_bench_fixtures.paired.protocol import (
    PROTOCOL,
    Begin,
    Collected,
    Ended,
    Finished,
    Go,
    Hello,
    Next,
    Ready,
    Selected,
    Times,
    open_channel,
)
from llm_bench_fixtures.plugin.pair_worker import Turns, times_of
from llm_bench_fixtures.results.record import Status

if TYPE_CHECKING:
    from conftest import Bench


def test_the_metrics_of_a_round_by_hand() -> None:
    """Two batches, of 3 and 1 prompts, with tokens at 1, 2, 3 s and at 2, 4, 6 s."""
    batches = (BatchTimes((1.0, 2.0, 3.0), 3.0), BatchTimes((2.0, 4.0, 6.0), 6.0))
    found = times_of(Round(9.0, batches, ()), (3, 1))
    assert found.latency_s == 9.0
    assert found.ttft_s == pytest.approx((3 * 1.0 + 2.0) / 4)
    assert found.tpot_s == pytest.approx((3 * 1.0 + 2.0) / 4)
    assert found.decode_tokens_per_s == pytest.approx((3 * 2 + 2) / (2.0 + 4.0))
    assert found.prefills_s == (1.0, 2.0)
    assert found.steps_s == (1.0, 1.0, 2.0, 2.0)


def test_a_single_token_has_no_decode() -> None:
    found = times_of(Round(1.0, (BatchTimes((1.0,), 1.0),), ()), (1,))
    assert (found.tpot_s, found.decode_tokens_per_s, found.steps_s) == (None, None, ())


def test_a_test_whose_file_is_no_text_has_a_name_that_can_be_sent() -> None:
    """Bug: a byte of a folder's name that isn't UTF-8 ended the worker."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        coordinator = open_channel(ours)
        coordinator.send(Begin(observes=False, cores=()))
        coordinator.send(Selected(("caf\ufffd/test_a.py::test",)))
        assert Turns(open_channel(theirs)).choose(("caf\udce9/test_a.py::test",)) == ("caf\udce9/test_a.py::test",)
        assert [coordinator.receive() for _ in range(2)][1] == Collected(("caf\ufffd/test_a.py::test",))


WORKER = """
def test(llm_benchmark):
    record = llm_benchmark("Hello", new_tokens=4)
    assert [len(batch) for batch in record.tokens_s[0]] == [4]
"""


def test_a_worker_runs_the_rounds_that_it_is_told(pytester: pytest.Pytester, bench: Bench) -> None:
    """Of the whole workload, of its first token, and before them one of two tokens."""
    pytester.makepyfile(WORKER)
    ours, theirs = socket.socketpair()
    with ours:
        coordinator = open_channel(ours)
        coordinator.send(Begin(observes=False, cores=()))
        coordinator.send(Selected(("test_a_worker_runs_the_rounds_that_it_is_told.py::test[fp32]",)))
        for order in (Go(is_counted=True, is_prefill=True), Go(is_counted=True), Next()):
            coordinator.send(order)
        bench.run(f"--llm-pair-socket={theirs.detach()}")
        _, _, ready, prefill, whole, ended = (coordinator.receive() for _ in range(6))
        assert isinstance(ready, Ready)
        assert (ready.variant, ready.is_on_cpu, len(ready.times.steps_s)) == ("fp32", True, 1)
        assert isinstance(prefill, Times)
        assert isinstance(whole, Times)
        assert (len(prefill.steps_s), len(whole.steps_s)) == (0, 3)
        assert isinstance(ended, Ended)
        assert (ended.status, ended.reason) == (Status.MEASURED, "")


@pytest.mark.parametrize(
    ("arguments", "collected"),
    [
        ((), ["benchmarks/test_fast.py::test"]),
        (("-k", "benchmarks"), ["benchmarks/test_fast.py::test"]),
        (("-k", "other"), []),  # also the name of a folder
        (("--llm-corpus", "other"), ["benchmarks/test_fast.py::test"]),
        (("-x", "other"), ["other/test_slow.py::test"]),
        (("other/test_slow.py::test",), ["other/test_slow.py::test"]),
    ],
)
def test_benchmarks_are_run_unless_a_path_is_given(
    pytester: pytest.Pytester, arguments: tuple[str, ...], collected: list[str]
) -> None:
    for path in ("benchmarks/test_fast.py", "other/test_slow.py"):
        (pytester.path / path).parent.mkdir()
        (pytester.path / path).write_text("def test(llm_benchmark): pass\n", encoding="utf-8")
    ours, theirs = socket.socketpair()
    with ours:
        coordinator = open_channel(ours)
        coordinator.send(Begin(observes=False, cores=()))
        coordinator.send(Selected(()))
        pytester.runpytest(f"--llm-pair-socket={theirs.detach()}", "--llm-variants=fp32", *arguments)
        assert coordinator.receive() == Hello(PROTOCOL, __version__)
        assert coordinator.receive() == Collected(tuple(f"{test}[fp32]" for test in collected))
        assert coordinator.receive() == Finished(pytest.ExitCode.NO_TESTS_COLLECTED)


STUCK = """
import os, pathlib, subprocess, sys, time
import pytest

@pytest.fixture(autouse=True, scope="session")
def stuck():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path("pids.part").write_text(f"{os.getpid()} {child.pid}")
    os.replace("pids.part", "pids")
    time.sleep(600)

def test(llm_benchmark):
    pass
"""


def test_a_worker_ends_with_its_children_in_the_middle_of_a_call_once_its_coordinator_was_killed(
    tmp_path: Path,
) -> None:
    """Bug: it noticed when its call had ended. What the kernel does after SIGKILL is to close the socket."""
    (tmp_path / "test_stuck.py").write_text(STUCK, encoding="utf-8")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        coordinator = open_channel(ours)
        coordinator.send(Begin(observes=False, cores=()))
        coordinator.send(Selected(("test_stuck.py::test[fp32]",)))
        options = ("-p", "no:cacheprovider", "--llm-variants=fp32", f"--llm-pair-socket={theirs.fileno()}")
        worker = psutil.Popen(
            [sys.executable, "-m", "pytest", *options],
            cwd=tmp_path,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until((tmp_path / "pids").exists)
            child = int((tmp_path / "pids").read_text().split()[1])
            ours.close()
            assert worker.wait(BACKSTOP_S) == -signal.SIGKILL
            wait_until(lambda: has_ended(child))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


def test_a_plain_run_imports_nothing_of_pairs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test():
            assert "llm_bench_fixtures.plugin.hooks" in sys.modules
            assert not [name for name in sys.modules if "pair" in name and "llm_bench" in name]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_help_does_not_show_the_option_of_a_worker(pytester: pytest.Pytester) -> None:
    out = pytester.runpytest("--help").stdout.str()
    assert "--llm-variants" in out
    assert "--llm-pair-socket" not in out
