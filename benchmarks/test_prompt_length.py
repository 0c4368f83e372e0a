"""What a longer prompt costs: one prompt of exactly so many tokens."""


def test_prompt_length(llm_benchmark, llm_prompts, llm_prompt_length):
    llm_benchmark(llm_prompts.exact(llm_prompt_length))
