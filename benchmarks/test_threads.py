"""Number of threads in which a variant is fastest: 1, 2, 4, … of them next to its default. It runs with --llm-threads
only."""

import pytest

pytestmark = pytest.mark.llm_scenario(
    "threads", title="Threads", order=80, columns=("ttft_s", "tpot_s", "output_tokens_per_s")
)

PROMPT_TOKENS = 64


@pytest.mark.usefixtures("llm_threads")
def test_threads(llm_benchmark, llm_prompts):
    llm_benchmark(llm_prompts.exact(PROMPT_TOKENS))
