"""Whether the answers depend on how the model is run: with which cache, padded, in a batch. Nothing is timed."""

import pytest

from llm_bench_fixtures import ExecutionMode

PROMPTS = 2


@pytest.mark.parametrize("mode", list(ExecutionMode), ids=str)
def test_equivalence(llm_equivalence, llm_prompts, mode):
    llm_equivalence(llm_prompts.varied(PROMPTS), mode)
