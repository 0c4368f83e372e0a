"""A variant in a process of its own. Each test starts one, which takes seconds, so there are few."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest
import torch
from small_models import write_model
from waiting import BACKSTOP_S, has_ended, wait_until

from llm_bench_fixtures.errors import CandidateFailed, IncompleteWeights, WorkerDied, WorkerFailed
from llm_bench_fixtures.measure.timing import run_round, without_preemptions
from llm_bench_fixtures.measure.turns import take_turns
from llm_bench_fixtures.models.loading import IsolatedModel, LoadRequest
from llm_bench_fixtures.models.quarantine import TokenizerApart
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Variant, waiting_passively, with_threads
from llm_bench_fixtures.processes.calls import NEVER, Preemptions
from llm_bench_fixtures.processes.worker import can_suspend
from llm_bench_fixtures.progress import Phase, Progress, ProgressDisplay
from llm_bench_fixtures.workloads import CacheKind, Prompts, Workload

pytestmark = [pytest.mark.slow("each test starts a process"), pytest.mark.usefixtures("preloaded")]

MakeRequest = Callable[..., LoadRequest]


def process_of(_: TransformersModel) -> int:
    return os.getpid()


def threads_of(_: TransformersModel) -> int:
    return torch.get_num_threads()


def fail(_: TransformersModel, message: str) -> None:
    raise ZeroDivisionError(message)


def fail_in_our_words(_: TransformersModel) -> None:
    raise IncompleteWeights(["one", "two"])


def die(_: TransformersModel) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(_: TransformersModel) -> None:
    os._exit(3)


@pytest.fixture(scope="module")
def isolated(make_request: MakeRequest) -> Iterator[IsolatedModel]:
    model = IsolatedModel(make_request("fp32"))
    yield model
    model.close()


def test_the_model_is_in_another_process(isolated: IsolatedModel) -> None:
    assert isolated.call(process_of) not in (os.getpid(), os.getppid())


def test_it_runs_on_as_many_threads(isolated: IsolatedModel) -> None:
    assert isolated.call(threads_of) == torch.get_num_threads()


def test_a_variant_in_a_number_of_threads_has_them_and_says_so(make_request: MakeRequest) -> None:
    """It is another configuration than the same variant by default, so that the two can be compared."""
    request = make_request("fp32")
    model = IsolatedModel(replace(request, variant=with_threads(request.variant, 1)))
    try:
        assert model.call(threads_of) == 1
        assert model.facts.label == "float32, in 1 thread"
        assert model.facts.configuration == "plain float32, in 1 thread"
    finally:
        model.close()


def waits_asleep(_: TransformersModel) -> bool:
    return os.environ.get("OMP_WAIT_POLICY") == "passive"


def test_a_variant_whose_threads_wait_asleep_has_libraries_that_were_told_so(make_request: MakeRequest) -> None:
    """In a process that isn't forked, as these read it when they are imported; the others are as before."""
    request = make_request("fp32")
    told = []
    for variant in (waiting_passively(request.variant), request.variant):
        model = IsolatedModel(replace(request, variant=variant))
        try:
            told.append((model.call(waits_asleep), model.facts.configuration))
        finally:
            model.close()
    assert told == [(True, "plain float32, waiting asleep (OMP_WAIT_POLICY=passive)"), (False, "plain float32")]


def test_it_gives_the_same_texts_and_facts(
    isolated: IsolatedModel, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    workload = Workload(prompts.varied(3), new_tokens=6, batch_size=2)
    assert isolated.call(run_round, workload).continuations == run_round(tiny_fp32, workload).continuations
    of_the_process = {"load_s": 0.0, "resident_before_load_bytes": 0, "libraries_before_load_bytes": None}
    assert replace(isolated.facts, **of_the_process) == replace(tiny_fp32.facts, **of_the_process)


def test_logits_and_generate_are_as_at_hand(
    isolated: IsolatedModel, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    ids = torch.tensor([prompts.exact(9)])
    mask = torch.ones_like(ids)
    torch.testing.assert_close(isolated.logits(ids, mask), tiny_fp32.logits(ids, mask))
    texts = [model.generate(ids, mask, 4, CacheKind.DYNAMIC) for model in (isolated, tiny_fp32)]
    assert torch.equal(*texts)


def test_a_strangers_tokenizer_is_in_a_process_that_ends_with_the_models(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    """Bug: a suite of one's own that decoded with it did so in pytest's process, which some decoders end."""
    model = IsolatedModel(make_request("fp32", source=ModelSource("stranger", write_model(tmp_path))))
    assert tuple(model.tokenizer("two two")["input_ids"]) == model.prompts.encode("two two")
    process = cast("TokenizerApart", model.tokenizer)._process
    assert process is not None
    model.close()
    assert not process.resident_bytes


def test_this_process_waits_without_working(isolated: IsolatedModel) -> None:
    """A parent that spins while the child measures takes a core from it."""
    before = psutil.Process().cpu_times()
    isolated.call(sleep, 2.0)
    after = psutil.Process().cpu_times()
    assert (after.user + after.system) - (before.user + before.system) < 1.0


def sleep(_: TransformersModel, seconds: float) -> None:
    time.sleep(seconds)


def pausing(_: TransformersModel, pause: Callable[[], None]) -> int:
    pause()
    return os.getpid()


def state_of(pid: int) -> str:
    return psutil.Process(pid).status()


@pytest.mark.skipif(not can_suspend(), reason="a process might stay suspended here")
def test_in_a_pause_and_after_its_turn_the_process_is_suspended(isolated: IsolatedModel) -> None:
    pid = isolated.call(process_of)
    turns = isolated.in_turns(NEVER, pausing)
    assert next(turns) is None
    wait_until(lambda: state_of(pid) == psutil.STATUS_STOPPED)
    assert next(turns) == pid
    wait_until(lambda: state_of(pid) == psutil.STATUS_STOPPED)
    assert isolated.call(process_of) == pid


@pytest.mark.skipif(not can_suspend(), reason="a process might stay suspended here")
def test_a_preempted_process_is_suspended_and_its_round_is_as_ever(isolated: IsolatedModel, prompts: Prompts) -> None:
    """It is suspended for 0.2 s each time, which its figures don't have; some may come before the round."""
    pid = isolated.call(process_of)
    workload = Workload((prompts.exact(16),), new_tokens=32, batch_size=1)
    for _ in range(2):
        alone = isolated.call(run_round, workload)
    preemptions = Preemptions(alone.latency_s / 6)
    for turn in isolated.in_turns(preemptions, take_turns, workload, is_preempted=True):
        if turn is None:
            wait_until(lambda: state_of(pid) == psutil.STATUS_STOPPED)
            time.sleep(0.2)
        else:
            (done,) = turn
    own = without_preemptions(done, preemptions.intervals)
    assert own.continuations == alone.continuations
    assert own.preemptions >= 1
    assert done.latency_s - own.latency_s >= 0.2 * own.preemptions
    tokens_s = own.batches[0].tokens_s
    assert 0.0 < tokens_s[0] < own.batches[0].end_s <= own.latency_s
    assert list(tokens_s) == sorted(tokens_s)


def test_a_model_that_cannot_pause_gives_its_result_at_once(
    isolated: IsolatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's tokens are on their way meanwhile."""
    assert isolated.can_pause == can_suspend()
    monkeypatch.setattr(isolated, "facts", replace(isolated.facts, is_remote=True))
    assert not isolated.can_pause
    assert list(isolated.in_turns(NEVER, pausing)) == [isolated.call(process_of)]


@pytest.mark.skipif(not can_suspend(), reason="a process might stay suspended here")
def test_no_suspended_process_outlives_the_one_that_started_it(tmp_path: Path) -> None:
    """Killed, it has no time to wake it; and one that ends without having closed it isn't kept by it. Children of a
    suspended one, as compilers have them, run on, and end as they would."""
    for end in ("os.kill(os.getpid(), signal.SIGKILL)", "pass"):
        script = tmp_path / "starter.py"
        script.write_text(STARTER.format(end=end))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
        for pid in map(int, done.stdout.split()):
            wait_until(lambda pid=pid: has_ended(pid))


STARTER = """\
import os
import signal
import subprocess

from llm_bench_fixtures.processes.launch import start_function


def held(channel):
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # until this process has ended
    channel.send(f"{{os.getpid()}} {{child.pid}}")
    channel.wait()


if __name__ == "__main__":
    process = start_function("it", held, (), on_cpu=True)
    print(process.receive(), flush=True)
    process.suspend()
    {end}
"""


def test_a_failure_comes_back_with_its_traceback_and_ends_nothing(isolated: IsolatedModel) -> None:
    with pytest.raises(WorkerFailed, match=r"^ZeroDivisionError: on purpose$") as failed:
        isolated.call(fail, "on purpose")
    assert ", in fail\n" in failed.value.traceback
    assert isolated.call(process_of)


class ComesApart:
    """Travels as a call that fails on arrival, as a function of a module does that the process can't import."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return importlib.import_module, ("no_such_module",)


def test_a_request_that_cannot_be_read_is_an_error_and_ends_nothing(isolated: IsolatedModel) -> None:
    with pytest.raises(WorkerFailed, match="No module named 'no_such_module'"):
        isolated.call(sleep, cast(float, ComesApart()))
    assert isolated.call(process_of)


def test_an_error_of_ours_comes_back_as_itself(isolated: IsolatedModel) -> None:
    with pytest.raises(IncompleteWeights, match=r"^the model's files lack one, two: download or save it again$"):
        isolated.call(fail_in_our_words)


@pytest.mark.parametrize(
    ("death", "how"), [(die, "was killed by SIGKILL, perhaps for lack of memory"), (leave, "ended with status 3")]
)
def test_a_death_is_told_and_every_later_call_too(death: object, how: str, make_request: MakeRequest) -> None:
    model = IsolatedModel(make_request("fp32"))
    for function in (death, process_of):
        with pytest.raises(WorkerDied, match=f"^fp32: the process that it ran in {how}$"):
            model.call(function)  # type: ignore[arg-type]
    model.close()


class TimeLimit(BaseException):
    """As a plugin's: no Exception, so that no test catches it."""


def reach_the_limit(_: TransformersModel) -> None:
    """As an alarm does in the middle of a call."""
    caller = multiprocessing.parent_process()
    assert caller is not None
    os.kill(caller.pid or 0, signal.SIGALRM)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarm")
def test_after_a_time_limit_the_next_call_has_it_loaded_again(
    make_request: MakeRequest,
) -> None:
    """Bug: the variant whose turn it was when another's test ended failed all tests to come."""

    def raise_it(*_: object) -> None:
        raise TimeLimit

    model = IsolatedModel(make_request("fp32"))
    first = model.call(process_of)
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        with pytest.raises(TimeLimit):
            model.call(reach_the_limit)
    finally:
        signal.signal(signal.SIGALRM, before)
    second = model.call(process_of)
    assert second not in (first, os.getpid())
    assert model.call(process_of) == second
    model.close()


def test_what_the_load_raises_is_raised_here_and_leaves_no_process(make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request("fp32", source=ModelSource("nothing", tmp_path))
    children = len(psutil.Process().children())
    with pytest.raises((WorkerFailed, CandidateFailed)):
        IsolatedModel(request)
    assert len(psutil.Process().children()) == children


def test_its_long_activities_are_shown_and_counted_here(make_request: MakeRequest) -> None:
    shown: list[str] = []

    class Display(ProgressDisplay):
        def finished(self, text: str) -> None:
            shown.append(text)

    progress = Progress(Display(), show_after_s=0.0)
    variant = Variant("mine", "slow_backend", "sleeps where it loads")
    with pytest.raises(WorkerFailed, match="nothing to load"):
        IsolatedModel(make_request(variant, progress=progress))
    assert progress.phase_s[Phase.EXPORTING] >= 0.6
    assert "turning it over" in shown
