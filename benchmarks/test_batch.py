"""What batching gives: prompts of varying length, more and more of them at a time."""

import pytest

pytestmark = pytest.mark.llm_scenario(
    "batch",
    title="Batch size",
    order=50,
    columns=("output_tokens_per_s", "per_sample_latency_s", "ttft_s", "tpot_s", "padded_tokens", "own_memory_bytes"),
)

LEAST_PROMPTS = 2  # larger sizes run a single batch


def test_batch(llm_benchmark, llm_prompts, llm_batch_size):
    llm_benchmark(llm_prompts.varied(max(LEAST_PROMPTS, llm_batch_size)), batch_size=llm_batch_size)
