"""Whether the answers depend on how the model is run: with which cache, padded, in a batch. Nothing is timed."""

import pytest

from llm_bench_fixtures import Way

PROMPTS = 2


@pytest.mark.parametrize("way", list(Way), ids=str)
def test_equivalence(llm_equivalence, llm_prompts, way):
    llm_equivalence(llm_prompts.varied(PROMPTS), way)
