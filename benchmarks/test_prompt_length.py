"""What a longer prompt costs: one prompt of exactly so many tokens."""

import pytest

pytestmark = pytest.mark.llm_scenario(
    "prompt_length",
    title="Prompt length",
    order=60,
    columns=("ttft_s", "tpot_s", "prefill_tokens_per_s", "output_tokens_per_s", "cache_bytes", "own_memory_bytes"),
)


def test_prompt_length(llm_benchmark, llm_prompts, llm_prompt_length):
    llm_benchmark(llm_prompts.exact(llm_prompt_length))
