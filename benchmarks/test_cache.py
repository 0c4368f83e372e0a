"""What the KV cache saves: kept and grown, kept in a fixed size, and not kept."""

import pytest

from llm_bench_fixtures import CacheKind

pytestmark = pytest.mark.llm_scenario(
    "cache",
    title="KV cache",
    order=30,
    columns=("ttft_s", "tpot_s", "output_tokens_per_s", "cache_bytes", "own_memory_bytes"),
)

PROMPT_TOKENS = 64


@pytest.mark.parametrize("cache", list(CacheKind), ids=str)
def test_cache(llm_benchmark, llm_prompts, cache):
    llm_benchmark(llm_prompts.exact(PROMPT_TOKENS), cache=cache)
