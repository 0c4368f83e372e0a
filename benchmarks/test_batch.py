"""What batching gives: the same prompts of varying length, more and more of them at a time."""


def test_batch(llm_benchmark, llm_prompts, llm_batch_sizes, llm_batch_size):
    llm_benchmark(llm_prompts.varied(max(8, *llm_batch_sizes)), batch_size=llm_batch_size)
