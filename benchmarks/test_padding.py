"""What padding costs: unequal prompts one by one, and as one batch padded on either side to several widths."""

import pytest

from llm_bench_fixtures import Padding, Side

pytestmark = pytest.mark.llm_scenario(
    "padding",
    title="Padding",
    order=40,
    columns=(
        "output_tokens_per_s",
        "prefill_tokens_per_s",
        "prefill_positions_per_s",
        "prompt_tokens",
        "padded_tokens",
        "padding_share",
    ),
)

PROMPTS = 4
MODES = {
    "one by one": (1, Padding()),
    "left, to the longest": (PROMPTS, Padding(Side.LEFT)),
    "right, to the longest": (PROMPTS, Padding(Side.RIGHT)),
    "left, to a multiple of 32": (PROMPTS, Padding(Side.LEFT, multiple_of=32)),
    "left, to 128": (PROMPTS, Padding(Side.LEFT, at_least=128)),
}


@pytest.mark.parametrize(("batch_size", "padding"), MODES.values(), ids=MODES)
def test_padding(llm_benchmark, llm_prompts, batch_size, padding):
    prompts = llm_prompts.varied()[-PROMPTS:]  # others than those of the batch sizes up to four
    llm_benchmark(prompts, batch_size=batch_size, padding=padding)
