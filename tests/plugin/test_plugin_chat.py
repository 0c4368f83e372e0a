"""--llm-chat and --llm-attention, as they are used: what runs, what is told of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from small_models import write_model

if TYPE_CHECKING:
    from conftest import Bench

SUITE = """
def test_long(llm_benchmark, llm_prompts):
    llm_benchmark(llm_prompts.exact(40))

def test_short(llm_benchmark, llm_prompts):
    llm_benchmark(llm_prompts.exact(4))

def test_text(llm_benchmark):
    llm_benchmark("Hello")
"""
TEMPLATE = "<|{{ messages[0].role }}|>{{ messages[0].content }}<|assistant|>"


def instruct_model(folder: Path, template: str = TEMPLATE) -> str:
    """Its name as one types it."""
    write_model(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return f"./{folder.name}"


def test_prompts_are_chats_and_the_attention_is_what_was_asked_for(bench: Bench) -> None:
    name = instruct_model(bench.pytester.path / "instruct")
    bench.write(test_chats=SUITE)
    result = bench.run(f"--llm-model={name}", "--llm-chat", "--llm-attention=eager")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines([f"Loaded: {name} | device=cpu | dtype=float32, eager attention | prompts=chats"])
    by_test = {record["test"].partition("::")[2]: record for record in bench.records()}
    assert by_test["test_long[fp32]"]["workload"]["prompt_tokens"] == 40
    assert by_test["test_short[fp32]"]["status"] == "skipped"
    assert by_test["test_short[fp32]"]["reason"].startswith("a chat doesn't fit in a length of 4: the model's")
    assert by_test["test_text[fp32]"]["workload"]["prompt_tokens"] > 4
    provenance = bench.results()["provenance"]
    assert (provenance["attention"], provenance["chat"]) == ("eager", True)
    assert "turns in the model's chat template, whose tokens count; quality is of plain text" in bench.markdown()
    assert bench.variants()["fp32"]["quality"]["perplexity"] > 1


def test_what_can_not_be_had_ends_the_run_before_anything_is_measured(bench: Bench) -> None:
    bench.write(test_chats=SUITE)
    for option, message in {
        "--llm-chat": "*--llm-chat: tiny has no chat template; give an instruct model, or leave the option out*",
        "--llm-attention=quick": "*--llm-attention: unknown attention implementation 'quick'. Known: eager, *",
    }.items():
        result = bench.run(option)
        assert result.ret == 4
        result.stdout.fnmatch_lines([message])
