"""Which dtype pays: one prompt, every precision."""

import pytest

PROMPT_TOKENS = 64


@pytest.mark.llm_variants("precision")
def test_precision(llm_benchmark, llm_prompts):
    llm_benchmark(llm_prompts.exact(PROMPT_TOKENS))
