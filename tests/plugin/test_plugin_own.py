"""A user's own prompts in a run: which are measured and how, what the answer goes by, and what nobody gets to see."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from small_models import write_model

if TYPE_CHECKING:
    from conftest import Bench

SUITE = Path(__file__).parents[2] / "benchmarks" / "test_own.py"
SECRET = "heffalump"  # in every prompt and answer
ROWS = [
    {"prompt": f"Once upon a time, a {SECRET}", "answer": " went home.", "output_tokens": 3},
    {"prompt": f"The {SECRET} of the keeper", "answer": f" is a {SECRET}."},
    {"prompt": f"The {SECRET}"},
]
LENGTHS = """
def test_prompt_length(llm_benchmark, llm_prompts, llm_prompt_length):
    llm_benchmark(llm_prompts.exact(llm_prompt_length))
"""
OWN_CORPUS = "--llm-corpus="  # none besides the answers


@pytest.fixture
def own(bench: Bench) -> Bench:
    """The scenario's file, next to one of prompt lengths."""
    bench.write(test_own=SUITE.read_text(encoding="utf-8"), test_prompt_length=LENGTHS)
    return bench


def written(bench: Bench, *rows: Any) -> str:
    path = bench.pytester.path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"--llm-prompts={path}"


def holding(text: str, folder: Path) -> list[str]:
    """Names of the files that the text is in."""
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def by_case(bench: Bench, variant: str = "fp32") -> dict[str, dict[str, Any]]:
    records = [one for one in bench.records() if (one["scenario"], one["variant"]) == ("own", variant)]
    return {one["case"]: one for one in records}


def test_own_prompts_are_what_the_answer_goes_by_and_their_answers_what_quality_does(own: Bench) -> None:
    options = ("--llm-variants=fp32,bf16", "--llm-batch-sizes=2", "--llm-prompt-lengths=4", "--benchmark-autosave")
    result = own.run_in_turns(written(own, *ROWS), OWN_CORPUS, *options)
    result.assert_outcomes(passed=6)
    digest = "mine.jsonl ("
    result.stdout.fnmatch_lines([f"llm-bench: own prompts: {digest}*), 3 prompts"])
    cases = by_case(own)
    assert list(cases) == ["one at a time", "batch of 2"]
    assert [(one["workload"]["prompts"], one["workload"]["batch_size"]) for one in cases.values()] == [(3, 1), (4, 2)]
    assert cases["one at a time"]["workload"]["new_tokens"] == 3 + 2 + 2
    assert [len(tokens) for tokens in cases["one at a time"]["tokens_s"][0]] == [3, 2, 2]
    assert own.records()[0]["case"] == "one at a time"
    assert ("on 3 prompts of" in own.markdown(), ", one at a time" in own.markdown()) == (True, True)
    results = own.results()
    assert results["provenance"]["prompts"].startswith(digest)
    assert results["provenance"]["corpus"].startswith("answers of mine.jsonl (")
    assert results["provenance"]["corpus"].endswith("), each after its prompt")
    assert own.variants()["bf16"]["quality"]["ppl_ratio"] == pytest.approx(1, abs=0.2)
    assert "Own prompts" in own.page()
    assert not holding(SECRET, own.report)
    assert not holding(SECRET, own.pytester.path / ".benchmarks")
    assert holding(digest, own.report)  # the search finds what is there


def test_what_is_generated_is_shown_where_that_is_asked_for(own: Bench) -> None:
    options = ("--llm-batch-sizes=1", "--llm-prompt-lengths=4")
    assert own.run(written(own, *ROWS), OWN_CORPUS, *options).ret == 0
    assert by_case(own)["one at a time"]["outputs"] == []
    assert own.run(written(own, *ROWS), OWN_CORPUS, *options, "--llm-show-texts").ret == 0
    assert len(by_case(own)["one at a time"]["outputs"]) == 3


def test_a_prompt_longer_than_the_context_is_a_skipped_row_and_the_others_run(own: Bench) -> None:
    long = {"prompt": f"a {SECRET} " * 400}
    result = own.run(written(own, *ROWS, long), OWN_CORPUS, "test_own.py", "--llm-batch-sizes=1")
    result.assert_outcomes(passed=1)
    cases = by_case(own)
    assert list(cases) == ["left out", "one at a time"]
    reason = "left out of 4 prompts: 1 longer than the model's context of 512 tokens, new ones included (line 4)"
    assert (cases["left out"]["status"], cases["left out"]["reason"]) == ("skipped", reason)
    assert f"- fp32: 1 benchmark skipped: {reason}" in own.markdown()
    none = own.run(written(own, long), "test_own.py", "--llm-batch-sizes=1")
    none.assert_outcomes(skipped=1)


@pytest.mark.slow("each starts processes that hold models")
def test_a_run_of_own_prompts_goes_on_and_one_of_others_does_not(own: Bench) -> None:
    """Bug: which prompts were left out is known once the model is, so a run that went on took them for others."""
    long, options = {"prompt": f"a {SECRET} " * 400}, (OWN_CORPUS, "test_own.py", "--llm-batch-sizes=2")
    own.run_in_turns(written(own, *ROWS, long), *options).assert_outcomes(passed=2)
    result = own.run_in_turns(written(own, *ROWS, long), *options, "--llm-resume")
    result.stdout.fnmatch_lines(["llm-bench: 2 of 2 benchmarks kept of the run that began *"])
    result = own.run_in_turns(written(own, *ROWS[:2], long), *options, "--llm-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "other prompts: mine.jsonl (" in result.stderr.str() + result.stdout.str()


def test_shapes_have_a_case_each(own: Bench) -> None:
    result = own.run("--llm-shape=16/3,8/2,600/8", "--llm-batch-sizes=2", "test_own.py")
    result.assert_outcomes(passed=3, skipped=1)
    facts = {case: (one["workload"] or {}) for case, one in by_case(own).items()}
    assert facts.pop("left out") == {}
    assert {case: (one.get("prompt_tokens"), one.get("new_tokens")) for case, one in facts.items()} == {
        "8/2": (8, 2),
        "16/3": (16, 3),
        "600/8": (None, None),
        "batch of 2": (2 * 8 + 2 * 16, 2 * 2 + 2 * 3),
    }
    said = "8/2, 16/3, 600/8 (prompt/new tokens), cut from the embedded corpus"
    assert own.results()["provenance"]["prompts"] == said


def test_the_answer_goes_by_the_first_cache_and_a_further_one_is_measured_after_it(own: Bench) -> None:
    options = ("--llm-cache=static,dynamic", "--llm-batch-sizes=2", "--llm-prompt-lengths=4", "-k", "own")
    result = own.run_in_turns("--llm-shape=16/4", *options)
    result.assert_outcomes(passed=4)
    assert [(case, one["workload"]["cache"]) for case, one in by_case(own).items()] == [
        ("16/4, cache static", "static"),
        ("batch of 2, cache static", "static"),
        ("16/4", "dynamic"),
        ("batch of 2", "dynamic"),
    ]


def test_where_throughput_is_wanted_each_batch_size_is_a_case(own: Bench) -> None:
    options = ("--collect-only", "-q", "--llm-batch-sizes=1,2,4", "test_own.py")
    cases = ["one at a time", "batch of 4", "batch of 2"]
    result = own.run(written(own, *ROWS), OWN_CORPUS, "--llm-want=throughput", *options)
    result.stdout.fnmatch_lines([f"test_own.py::test_own?{case}-fp32?" for case in cases])
    usual = own.run(written(own, *ROWS), OWN_CORPUS, "--llm-need=tpot<=50ms", *options)
    usual.stdout.no_fnmatch_line("*batch of 2*")


def test_messages_are_chats_in_the_models_template(own: Bench) -> None:
    name = own.pytester.path / "instruct"
    write_model(name)
    path = name / "tokenizer_config.json"
    template = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    messages = [{"role": role, "content": role} for role in ("system", "user", "assistant")]
    rows = [{"messages": messages}, {"messages": messages[:2]}]
    result = own.run(f"--llm-model={name}", written(own, *rows), OWN_CORPUS, "test_own.py", "--llm-batch-sizes=1")
    result.assert_outcomes(passed=1)
    assert own.results()["provenance"]["prompts"].endswith("2 prompts in the model's chat template")
    assert own.variants()["fp32"]["quality"]["perplexity"] > 1
    without = own.run(written(own, *rows), OWN_CORPUS, "test_own.py")
    assert without.ret == pytest.ExitCode.USAGE_ERROR
    without.stdout.fnmatch_lines(["*--llm-prompts: mine.jsonl has chats, and tiny has no chat template; *"])


def test_without_prompts_there_is_nothing_of_it(own: Bench) -> None:
    result = own.run("--collect-only", "-q")
    assert not any(word in result.stdout.str() for word in ("test_own.py", "deselected", "llm-bench:"))
    alone = own.run("--collect-only", "test_own.py")
    needed = "llm-bench: prompts of your own: --llm-prompts FILE, or --llm-shape 512/128 for their lengths alone"
    alone.stdout.fnmatch_lines(["collected 0 items", needed])
    named = own.run("--collect-only", "test_own.py::test_own")
    assert named.ret == pytest.ExitCode.USAGE_ERROR
    named.stdout.fnmatch_lines([needed])


def test_what_can_not_be_used_is_refused_before_anything_is_collected(own: Bench) -> None:
    for rows, options, message in (
        ([{"prompt": 1}], (OWN_CORPUS,), "--llm-prompts: mine.jsonl, line 1: Expected `str | null`, got `int`*"),
        (ROWS, (), "--llm-corpus: quality is measured on the answers in mine.jsonl; give an empty --llm-corpus= *"),
        (ROWS, (OWN_CORPUS, "--llm-shape=8/2"), "--llm-shape: --llm-prompts has the lengths of its prompts; *"),
    ):
        result = own.run(written(own, *rows), *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {message}"])


@pytest.mark.slow("each is a pytest of its own")
def test_prompts_are_read_from_standard_input_but_once(own: Bench) -> None:
    """pytest captures it before any plugin is configured; a worker of pytest-xdist speaks to its controller by it."""
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--llm-prompts", "-", "--collect-only", "-q")
    piped = json.dumps(ROWS[0]).encode()
    result = own.pytester.run(*command, stdin=piped)
    result.stdout.fnmatch_lines(["test_own.py::test_own?one at a time-fp32?"])
    broken = own.pytester.run(*command, stdin=piped[:-1])
    broken.stderr.fnmatch_lines(["ERROR: --llm-prompts: standard input, line 1: Input data was truncated*"])
    several = own.pytester.run(*command, "-n", "2", stdin=piped)
    several.stderr.fnmatch_lines(["ERROR: --llm-prompts: standard input can't be read by several processes; *"])
