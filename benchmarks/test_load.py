"""What a server makes of requests that come at a rate, whether or not it keeps up. It runs with --llm-endpoint only."""

PROMPT_TOKENS = 64


def test_load(llm_load, llm_request_rate):
    llm_load(llm_request_rate, prompt_tokens=PROMPT_TOKENS)
