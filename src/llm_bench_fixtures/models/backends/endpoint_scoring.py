"""The likelihoods of tokens that a server gives, and whether it gives them: checked against a known answer."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.models.backends.endpoint_said import Scored, Scores, Unreadable, room_for

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.endpoint_http import EndpointClient
    from llm_bench_fixtures.models.backends.endpoint_stream import Form
    from llm_bench_fixtures.workloads import TokenIds, Tokenizer

OTHER_FORM = frozenset({400, 404, 405, 422, 501})  # statuses of a server that doesn't know what it was asked
LOG_PROB_TOLERANCE = 0.1  # nats between a token's likelihood when generated and in a prompt; bfloat16 moves it
OF_A_LOG_PROB = 0.01  # of an unlikely token's, besides: bfloat16 has steps of 0.125 between 16 and 32


class Scoring(StrEnum):
    """How a server is asked for the likelihoods of a prompt's tokens."""

    PROMPT_LOGPROBS = "prompt_logprobs"  # vLLM's
    ECHO = "echo"  # OpenAI's, of before the chat


async def find_scoring(
    client: EndpointClient, form: Form, model: str, ids: TokenIds, chosen: tuple[int, float] | None
) -> tuple[Scoring | None, str]:
    """How it gives the likelihoods of a prompt's tokens, or why they can't be had.

    chosen: the token that it generates after the ids, with its log-likelihood, which is the known answer: in a prompt
    the token must have the same.
    """
    if not form.takes_ids:
        return None, "the server takes no prompts in the tokens of --llm-model, which are to be scored"
    if chosen is None:
        return None, "the server doesn't tell a token that it generates with its likelihood, to check a prompt's by"
    token, expected = chosen
    reasons = []
    for way in Scoring:
        try:
            found = await log_likelihoods(client, way, model, (*ids, token))
        except EndpointFailed as error:
            reasons.append(f"{way}: {str(error).removeprefix(f'{client.url}/completions: ')}")
            continue
        if not abs(found[-1] - expected) <= LOG_PROB_TOLERANCE:  # which no NaN is
            seen = f"a token had {expected:.2f} nats when it was generated, and {found[-1]:.2f} in a prompt"
        elif min(found) >= -LOG_PROB_TOLERANCE:
            seen = "every token of a prompt is as good as certain"
        else:
            return way, ""
        reasons.append(f"{way}: {seen}")
    return None, f"the server gives no likelihoods of a prompt's tokens ({'; '.join(reasons)})"


async def forces_tokens(
    client: EndpointClient,
    way: Scoring | None,
    model: str,
    ids: TokenIds,
    chosen: tuple[int, float] | None,
    tokenizer: Tokenizer,
) -> bool:
    """Whether a token has the same likelihood when the server is made to generate it as in the prompt.

    chosen: as for `find_scoring`. Another token than that is asked for, as a server that ignores this generates the
    chosen one. Whatever fails is no reason to give up the server: only windows that fill its context need it.
    """
    other = next((token for token in ids if chosen is not None and token != chosen[0]), None)
    if way is None or other is None:
        return False
    try:
        forced = await forced_log_likelihood(client, model, (*ids, other), tokenizer)
        if forced is None:
            return False
        found = await log_likelihoods(client, way, model, (*ids, other))
    except EndpointFailed:
        return False
    return abs(found[-1] - forced) <= LOG_PROB_TOLERANCE + OF_A_LOG_PROB * abs(forced)


async def forced_log_likelihood(
    client: EndpointClient, model: str, ids: TokenIds, tokenizer: Tokenizer
) -> float | None:
    """Of the last token, which the server is made to generate after the others; None where it doesn't do that.

    vLLM takes no prompt that fills its context, as a token has to follow each.
    """
    told = await generated(client, model, ids[:-1], tokenizer, allowed_token_ids=ids[-1:])
    return told[1] if told is not None and told[0] == ids[-1] else None


async def generated(
    client: EndpointClient, model: str, ids: TokenIds, tokenizer: Tokenizer, **more: TokenIds
) -> tuple[int, float] | None:
    """The token that follows, and its log-likelihood; None where the server doesn't tell both."""
    asked = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1, **more}
    for extension in ({"return_token_ids": True}, {}):
        try:
            found = await client.post("/completions", {**asked, **extension}, Scores, room_for(len(ids)))
            return _read_generated(found.choices[0], tokenizer)
        except Unreadable:
            return None
        except EndpointFailed as error:
            if not error.status:
                raise
            if error.status not in OTHER_FORM:
                return None
    return None


def _read_generated(choice: Scored, tokenizer: Tokenizer) -> tuple[int, float] | None:
    """By its id where that is told, else by its text, as far as that is one token of ours. None where it isn't told."""
    found = choice.logprobs
    if found is None:
        return None
    if found.content:  # llama.cpp's
        first = found.content[0]
        return None if first.id is None else (first.id, first.logprob)
    ids, [score] = choice.token_ids or ids_of(tokenizer, choice.text or ""), (found.token_logprobs or [None])[:1]
    return (ids[0], score) if len(ids) == 1 and score is not None else None


async def log_likelihoods(client: EndpointClient, way: Scoring, model: str, ids: TokenIds) -> tuple[float, ...]:
    """Of each token after the first, in nats. Raises EndpointFailed where the answer isn't that."""
    asked: dict[str, Any] = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0}
    asked |= {"prompt_logprobs": 0} if way is Scoring.PROMPT_LOGPROBS else {"echo": True, "logprobs": 1}
    body = await client.post("/completions", asked, Scores, room_for(len(ids)))
    found = (_read_prompt_logprobs if way is Scoring.PROMPT_LOGPROBS else _read_echo)(body.choices[0], ids)
    with client.in_words("/completions"):
        if len(found) != len(ids) - 1:
            raise EndpointFailed("it was ignored")
        if not all(map(math.isfinite, found)) or max(found, default=0.0) > LOG_PROB_TOLERANCE:
            raise EndpointFailed("what came are no logarithms of probabilities")
    return found


def _read_prompt_logprobs(choice: Scored, ids: TokenIds) -> tuple[float, ...]:
    """A dictionary by token id for each token, but the first. Fewer values where it isn't that."""
    entries = choice.prompt_logprobs or []
    if len(entries) != len(ids):
        return ()
    told = ((entry or {}).get(str(token)) for token, entry in zip(ids[1:], entries[1:], strict=True))
    return tuple(one.logprob for one in told if one is not None)


def _read_echo(choice: Scored, ids: TokenIds) -> tuple[float, ...]:
    """A number for each token, but the first, those of new tokens after them. Fewer values where it isn't that."""
    found = (choice.logprobs.token_logprobs if choice.logprobs else None) or []
    if len(found) not in (len(ids), len(ids) + 1) or found[0] is not None:
        return ()
    return tuple(one for one in found[1 : len(ids)] if one is not None)


def ids_of(tokenizer: Tokenizer, text: str) -> TokenIds:
    """Without special tokens."""
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
