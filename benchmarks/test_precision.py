"""Which dtype is worth using: one prompt, every precision."""

import pytest

pytestmark = pytest.mark.llm_scenario(
    "precision",
    title="Precision",
    order=10,
    columns=("ttft_s", "tpot_s", "output_tokens_per_s", "weight_bytes", "own_memory_bytes", "perplexity"),
)

PROMPT_TOKENS = 64


@pytest.mark.llm_variants("precision")
def test_precision(llm_benchmark, llm_prompts):
    llm_benchmark(llm_prompts.exact(PROMPT_TOKENS))
