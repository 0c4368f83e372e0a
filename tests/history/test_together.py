"""What may be put together as one run, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_factory import make_provenance, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.history.together import (
    differences,
    fingerprint_of,
    is_same_run,
    pools_of,
    why_apart,
    why_runs_apart,
)
from llm_bench_fixtures.measure.tasks import TaskFacts
from llm_bench_fixtures.results.record import Run


@pytest.mark.parametrize(
    "changes",
    [
        {"started": "2027-01-01T00:00:00+00:00"},
        {"branch": "topic"},
        {"command": "pytest -k bf16"},
        {"energy": "RAPL"},
        {"read_bytes_per_s": 1e10},
    ],
)
def test_when_and_which_tests_were_run_keeps_nothing_apart(changes: dict[str, Any]) -> None:
    assert not list(why_apart(make_provenance(), make_provenance(**changes)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hardware": "b"}, "another machine: b, 2 threads, Linux, not a processor, 2 cores, 2 threads, Linux"),
        ({"commit": "f" * 40}, "another commit: ffffffffffff, not 0123456789ab"),
        ({"commit": ""}, "another commit: unknown, not 0123456789ab"),
        ({"dirty": True}, "their uncommitted changes differ, or are unknown"),
        ({"dirty": True, "changes": "0a"}, "their uncommitted changes differ, or are unknown"),
        ({"options": {"new_tokens": "32"}}, "another --llm-new-tokens: 32, not its default"),
        ({"model": "gpt2"}, "another model: gpt2, not tiny"),
        ({"corpus": "mine"}, "another corpus: mine, not embedded corpus"),
        ({"prompts": "mine"}, "other prompts: mine, not none"),
        ({"choices": "mine"}, "other questions: mine, not none"),
        ({"libraries": {"torch": "2.7.0"}}, "another set of libraries: torch 2.7.0, not torch 2.6.0"),
        ({"libraries": {"torch": "2.6.0", "pytest": "9"}}, "another version of pytest: 9, not none"),
    ],
)  # fmt: skip
def test_what_keeps_two_runs_apart_is_said(changes: dict[str, Any], reason: str) -> None:
    assert list(why_apart(make_provenance(), make_provenance(**changes))) == [reason]


def test_layers_elsewhere_keep_two_runs_apart_and_their_times_unjudged() -> None:
    whole, spread = make_provenance(), make_provenance(options={"device_map": "auto"})
    assert "another --llm-device-map: auto, not its default" in list(why_apart(whole, spread))
    (found,) = differences(fingerprint_of(whole), fingerprint_of(spread))
    assert found.part == "process"
    assert found.head == f"{found.base}, layers placed by auto"


def test_the_same_uncommitted_changes_keep_nothing_apart() -> None:
    """Where they are known: before, a run of a changed project could be put together with none."""
    origins = [make_provenance(dirty=bool(digest), changes=digest) for digest in ("0a", "0a", "0b")]
    origins += [make_provenance(dirty=True)] * 2
    assert not list(why_apart(*origins[:2]))
    for two in (origins[1:3], origins[3:]):
        assert list(why_apart(*two)) == ["their uncommitted changes differ, or are unknown"]


def test_other_untracked_files_keep_runs_of_a_clean_commit_apart() -> None:
    assert list(why_apart(make_provenance(changes="0a"), make_provenance())) == [
        "their uncommitted changes differ, or are unknown"
    ]


def test_other_weights_under_the_same_name_keep_them_apart() -> None:
    origins = [make_provenance(model_digests={"weights": digest}) for digest in "ab"]
    assert list(why_apart(*origins)) == ["other files of the model: weights"]


TASK = TaskFacts("quiz", (), items=20, of=100, shots=0, digest="0a")


@pytest.mark.parametrize("changes", [{"digest": "0b"}, {"of": 101}, {"harness": "9"}])
def test_another_task_under_the_same_name_keeps_them_apart(changes: dict[str, Any]) -> None:
    """Before, a task with other items behind the first few was the same."""
    origins = [make_provenance(tasks=(one,)) for one in (TASK, replace(TASK, **changes), replace(TASK, items=30))]
    assert list(why_apart(*origins[:2])) == ["other items, prompts or code of the task quiz"]
    assert not list(why_apart(origins[0], origins[2]))
    assert not list(why_apart(make_provenance(), origins[0]))


def test_two_runs_outside_of_git_may_be_put_together() -> None:
    assert not list(why_apart(make_provenance(commit=""), make_provenance(commit="")))


def two(**changes: Any) -> tuple[Run, Run]:
    run = make_run([make_record(), make_record("bf16")])
    return run, replace(run, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reference": "bf16"}, "another reference: bf16, not fp32"),
        ({"variants": (make_variant("bf16", configuration="float32"),)}, "bf16 ran as something else"),
        ({"records": (make_record(workload=make_workload("mine")),)}, "other prompts or settings in 1 test"),
    ],
)
def test_runs_that_did_other_work_are_kept_apart(changes: dict[str, Any], reason: str) -> None:
    assert list(why_runs_apart(*two(**changes))) == [reason]


def test_runs_of_other_tests_and_variants_may_be_put_together() -> None:
    """As shards are."""
    first = make_run([make_record("fp32")])
    assert not list(why_runs_apart(first, make_run([make_record("bf16", scenario="cache")])))


def test_each_run_joins_those_that_it_is_like() -> None:
    runs = [make_run([make_record()], provenance=make_provenance(hardware=name)) for name in "abab"]
    assert pools_of(runs) == [[0, 2], [1, 3]]


def test_one_run_in_two_files_is_found_by_its_times() -> None:
    first, again = two(session_s=13.0)
    assert is_same_run(first, again)
    assert not is_same_run(first, make_run([make_record(median_s=1.1)]))
    assert not is_same_run(make_run(), make_run())


def test_a_run_that_holds_rounds_of_another_is_found() -> None:
    """Bug: two files that shared all rounds but one test's were pooled, and agreed with each other by 0 %."""
    shared, other = make_record(), make_record("bf16", median_s=1.2)
    assert is_same_run(make_run([shared, other]), make_run([shared, make_record("bf16", median_s=1.3)]))


def test_a_run_joins_only_those_that_it_may_all_be_put_together_with() -> None:
    """The first has no bf16, so that it can't tell the other two apart. Bug: all three were pooled."""
    variants = [[make_variant()], *([make_variant(), make_variant("bf16", configuration=name)] for name in ("a", "b"))]
    assert pools_of([make_run([make_record()], one) for one in variants]) == [[0, 1], [2]]
