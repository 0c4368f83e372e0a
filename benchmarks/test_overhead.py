"""What the measuring itself costs: the same generate with each token's time taken and without, alternated."""

import pytest

PROMPT_TOKENS = 64


@pytest.mark.llm_variants("reference")
def test_overhead(llm_overhead, llm_prompts):
    llm_overhead(llm_prompts.exact(PROMPT_TOKENS))
