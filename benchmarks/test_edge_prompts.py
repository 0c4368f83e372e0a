"""Prompts that break careless code: the shortest, the longest, the empty, the odd."""

import pytest

from llm_bench_fixtures import EDGE_PROMPTS

pytestmark = pytest.mark.llm_scenario(
    "edge_prompts", title="Edge prompts", order=70, columns=("ttft_s", "tpot_s", "output_tokens_per_s", "prompt_tokens")
)


@pytest.mark.parametrize("prompt", EDGE_PROMPTS)
def test_edge_prompts(llm_benchmark, llm_prompts, prompt):
    llm_benchmark(llm_prompts.edge(prompt, longest=llm_benchmark.longest_prompt))
