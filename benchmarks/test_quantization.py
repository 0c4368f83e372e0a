"""What quantization saves and costs: each quantized variant beside what it is made from, on prompts to be read."""

import pytest

from llm_bench_fixtures import STANDARD_PROMPTS


@pytest.mark.llm_variants("quantization")
@pytest.mark.parametrize("prompt", STANDARD_PROMPTS, ids=["capital", "tale", "question"])
def test_quantization(llm_benchmark, prompt):
    llm_benchmark(prompt)
