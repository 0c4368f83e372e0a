"""The record of a benchmark, from rounds that are written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llm_bench_fixtures.errors import TokenizerFailed
from llm_bench_fixtures.measure.timing import BatchTimes, Round
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.variants import select_variants
from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.session.case import Measured
from llm_bench_fixtures.session.recording import record_of
from llm_bench_fixtures.session.reference import KeptReference
from llm_bench_fixtures.workloads import Workload

(FP32,) = select_variants("fp32", CATALOGUE, "fp32")
BLANK = Record("test_a.py::test", "a", "", "fp32", Status.NOT_MEASURED, gate={"latency_s": "5%"})
WORKLOAD = Workload(((1, 2, 3), (4, 5, 6)), new_tokens=2, batch_size=1)
ROUND = Round(
    latency_s=0.5,
    batches=(BatchTimes((0.1, 0.2), 0.25, paused_after=(0,)), BatchTimes((0.1, 0.2000000049), 0.25)),
    continuations=((7, 8), (9, 10)),
    energy_j=3.0,
    waited_s=0.0,
    cold_steps=3,
    is_bound=True,
)


def text_of(ids: object, *, skip_special_tokens: bool) -> str:
    return f"{ids}{' without special ones' if skip_special_tokens else ''}"


def recorded(measured: Measured, *, decode: Any = text_of, is_remote: bool = False, **given: Any) -> Record:
    session: Any = SimpleNamespace(reference=KeptReference("fp32"))
    model: Any = SimpleNamespace(facts=SimpleNamespace(is_remote=is_remote), variant=FP32)
    prompts: Any = SimpleNamespace(decode=decode)
    return record_of(session, BLANK, model, prompts, WORKLOAD, measured, **given)


def test_a_record_holds_its_rounds_batches_and_texts() -> None:
    record = recorded(Measured(None, (ROUND, ROUND), crowded_rounds=1, core_to_core=(2.00049, 4.0)))
    assert (record.test, record.gate, record.status) == ("test_a.py::test", {"latency_s": "5%"}, Status.MEASURED)
    assert record.rounds_s == (0.5, 0.5)
    assert record.batches_s == ((0.25, 0.25),) * 2
    assert record.tokens_s == (((0.1, 0.2), (0.1, 0.2)),) * 2
    assert (record.batch_rows, record.pauses, record.crowded_rounds) == ((1, 1), 2, 1)
    assert (record.cold_steps, record.bound_rounds) == (6, 2)
    assert record.core_to_core == (2.0, 4.0)
    assert (record.energy_j, record.waited_s, record.reference_s) == ((3.0, 3.0), (0.0, 0.0), ())
    assert record.outputs == ("(7, 8)", "(9, 10)")
    assert record.workload is not None
    assert (record.workload.prompt_tokens, record.workload.new_tokens) == (6, 4)
    assert (record.workload.longest_prompt, record.workload.longest_new) == (3, 2)


def test_a_server_has_the_energy_of_another_machine() -> None:
    assert recorded(Measured(None, (ROUND,)), is_remote=True).energy_j == ()


def test_a_servers_special_tokens_may_be_a_filling_and_are_not_shown() -> None:
    record = recorded(Measured(None, (ROUND,)), is_remote=True)
    assert record.outputs == ("(7, 8) without special ones", "(9, 10) without special ones")


def test_what_was_not_timed_has_its_texts_and_says_why() -> None:
    record = recorded(Measured(None, ()), continuations=((7, 8), (9, 10)))
    assert (record.status, record.reason) == (Status.NOT_MEASURED, "--benchmark-disable")
    assert record.outputs == ("(7, 8)", "(9, 10)")


def test_a_tokenizer_that_fails_costs_the_texts_alone() -> None:
    def fail(ids: object, *, skip_special_tokens: bool) -> str:
        raise TokenizerFailed("it took over 10 s")

    record = recorded(Measured(None, (ROUND,)), decode=fail)
    assert (record.status, record.outputs, record.reason) == (Status.MEASURED, (), "no texts: it took over 10 s")


@pytest.mark.parametrize("waited_s", [None, 0.1])
def test_waits_are_there_for_each_round_or_for_none(waited_s: float | None) -> None:
    other = Round(0.5, ROUND.batches, ROUND.continuations, waited_s=waited_s)
    record = recorded(Measured(None, (ROUND, other)))
    assert record.waited_s == (() if waited_s is None else (0.0, 0.1))
