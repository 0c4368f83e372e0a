"""What quantization saves and costs: each quantized variant next to what it is made from, on readable prompts."""

import pytest

from llm_bench_fixtures import STANDARD_PROMPTS

pytestmark = pytest.mark.llm_scenario(
    "quantization",
    title="Quantization",
    order=20,
    columns=("ttft_s", "tpot_s", "output_tokens_per_s", "weight_bytes", "perplexity", "first_divergent_token"),
)


@pytest.mark.llm_variants("quantization")
@pytest.mark.parametrize("prompt", STANDARD_PROMPTS, ids=["capital", "tale", "question"])
def test_quantization(llm_benchmark, prompt):
    llm_benchmark(prompt)
