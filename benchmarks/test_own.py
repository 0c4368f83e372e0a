"""Prompts of your own, as a service would run them. It runs with --llm-prompts or --llm-shape only."""

import pytest

pytestmark = pytest.mark.llm_scenario(
    "own",
    title="Your own prompts",
    order=5,
    columns=("per_sample_latency_s", "ttft_s", "tpot_s", "output_tokens_per_s", "prompt_tokens", "own_memory_bytes"),
)


def test_own(llm_benchmark, llm_own):
    llm_benchmark(llm_own.prompts, new_tokens=llm_own.new_tokens, batch_size=llm_own.batch_size, cache=llm_own.cache)
