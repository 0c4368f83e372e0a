"""What the KV cache saves: kept and grown, kept in a fixed size, and not kept."""

import pytest

from llm_bench_fixtures import CacheKind

PROMPT_TOKENS = 64


@pytest.mark.parametrize("cache", list(CacheKind), ids=str)
def test_cache(llm_benchmark, llm_prompts, cache):
    llm_benchmark(llm_prompts.exact(PROMPT_TOKENS), cache=cache)
