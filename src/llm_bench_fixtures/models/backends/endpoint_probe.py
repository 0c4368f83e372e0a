"""What a server can do, found out by asking: servers ignore silently what they don't know, so the answers are checked
against what they must be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.models.backends.endpoint_stream import Answer, Form, converse
from llm_bench_fixtures.text import without_middle
from llm_bench_fixtures.workloads import read_corpus

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.endpoint_http import EndpointClient
    from llm_bench_fixtures.workloads import TokenIds, Tokenizer

FORMS = (Form(), Form(is_extended=False), Form(is_chat=True), Form(is_chat=True, is_extended=False))
OTHER_FORM = frozenset({400, 404, 405, 422, 501})  # statuses of a server that doesn't know what it was asked
PROBED_CHARACTERS = 300  # of each text
LONGEST_NAME = 200  # characters of a model's, or of a server's for itself
MOST_LISTED = 20  # of a server's models, in a message
PROBED_TEXTS = 4  # prose and code among them, which tokenizers cut differently
NEW_TOKENS = 4
MOST_SPECIAL = 4  # tokens that a server may put before a text to continue; a chat template may add any number
LOG_PROB_TOLERANCE = 0.1  # nats between a token's likelihood when generated and in a prompt; bfloat16 moves it
OF_A_LOG_PROB = 0.01  # of an unlikely token's, besides: bfloat16 has steps of 0.125 between 16 and 32


class Scoring(StrEnum):
    """How a server is asked for the likelihoods of a prompt's tokens."""

    PROMPT_LOGPROBS = "prompt_logprobs"  # vLLM's
    ECHO = "echo"  # OpenAI's, of before the chat


@dataclass(frozen=True)
class Served:
    """What a server was found to do."""

    model: str
    """By its name there."""
    owner: str
    """What the server calls itself, if it does."""
    context_length: int | None
    form: Form
    added_tokens: int | None
    """Tokens that it puts around a prompt's text. None: it cuts texts into other tokens than ours."""
    has_times: bool
    """Whether it tells with each event how many tokens there are."""
    tells_ids: bool
    cached_tokens: int | None
    """Of a prompt that came the second time. None: not told."""
    scoring: Scoring | None
    no_scoring: str = ""
    """Why it isn't asked for likelihoods."""
    forces_tokens: bool = False
    """Whether it tells the likelihood of a token that it is made to generate."""


class _Meta(msgspec.Struct):
    n_ctx: int | None = None


class _Card(msgspec.Struct):
    id: str
    owned_by: str = ""
    max_model_len: int | None = None
    meta: _Meta | None = None


class _Cards(msgspec.Struct):
    data: list[_Card] = []


async def explore(client: EndpointClient, wanted: str, tokenizer: Tokenizer) -> Served:
    """wanted: the model's name, or "" for the only one. tokenizer: ours. Raises EndpointFailed."""
    card = await _choose(client, wanted)
    texts = [text[:PROBED_CHARACTERS] for text in read_corpus(None).texts[-PROBED_TEXTS:]]
    form, first = await _form(client, card.id, texts[0])
    added = await _added_tokens(client, form, card.id, texts, tokenizer)
    if added is not None and not form.is_chat:
        form = await _with_ids(client, form, card.id, _ids(tokenizer, texts[0]))
    prompt: str | TokenIds = _ids(tokenizer, texts[0]) if form.takes_ids else texts[0]
    again = [await converse(client, form, card.id, prompt, NEW_TOKENS) for _ in range(2)][-1]
    ids = _ids(tokenizer, texts[0])
    chosen = await _generated(client, card.id, ids, tokenizer) if form.takes_ids else None
    scoring, why_not = await _scoring(client, form, card.id, ids, chosen)
    return Served(
        model=card.id,
        owner=without_middle(card.owned_by, LONGEST_NAME),
        context_length=card.max_model_len or (card.meta.n_ctx if card.meta else None),
        form=form,
        added_tokens=added,
        has_times=first.has_times and again.has_times,
        tells_ids=again.ids is not None,
        cached_tokens=again.cached_tokens,
        scoring=scoring,
        no_scoring=why_not,
        forces_tokens=await _forces_tokens(client, scoring, card.id, ids, chosen, tokenizer),
    )


async def _choose(client: EndpointClient, wanted: str) -> _Card:
    """The model that is asked for, with what the server says of it."""
    try:
        cards = msgspec.convert(await client.get("/models"), _Cards).data
    except msgspec.ValidationError:
        cards = []
    except EndpointFailed as error:
        if error.status not in OTHER_FORM:
            raise
        cards = []
    if wanted:
        return next((card for card in cards if card.id == wanted), _Card(wanted))
    if len(cards) == 1 and len(cards[0].id) <= LONGEST_NAME:
        return cards[0]
    more = f" and {len(cards) - MOST_LISTED:,} more" if len(cards) > MOST_LISTED else ""
    shown = (without_middle(card.id, LONGEST_NAME) for card in cards[:MOST_LISTED])
    listed = f"it lists {', '.join(shown)}{more}" if cards else "it lists none"
    raise EndpointFailed(client.key.hide(f"{client.url}: give --llm-endpoint-model the model to ask for; {listed}"))


async def _form(client: EndpointClient, model: str, text: str) -> tuple[Form, Answer]:
    """The first form that it takes, with its answer. Raises EndpointFailed with what it said to the others."""
    refused: dict[str, EndpointFailed] = {}  # by path, of the plainest form
    for form in FORMS:
        try:
            return form, await converse(client, form, model, text, NEW_TOKENS)
        except EndpointFailed as error:
            if error.status not in OTHER_FORM:
                raise
            refused[form.path] = error
    reasons = dict.fromkeys(map(str, refused.values()))
    raise EndpointFailed("; ".join(reasons), max(error.status for error in refused.values()))


async def _added_tokens(
    client: EndpointClient, form: Form, model: str, texts: Sequence[str], tokenizer: Tokenizer
) -> int | None:
    """How many tokens it has more than we have, if it is the same for all texts, as of another tokenizer it isn't."""
    found = set()
    for text in texts:
        ours, answer = _ids(tokenizer, text), await converse(client, form, model, text, 1)
        if answer.prompt_tokens is None:
            return None
        if answer.prompt_ids is not None and not form.is_chat and answer.prompt_ids[-len(ours) :] != ours:
            return None
        found.add(answer.prompt_tokens - len(ours))
    is_same = len(found) == 1 and min(found) >= 0 and (form.is_chat or max(found) <= MOST_SPECIAL)
    return found.pop() if is_same else None


async def _with_ids(client: EndpointClient, form: Form, model: str, ids: TokenIds) -> Form:
    """The form with token ids for prompts, if the server takes them for what they are."""
    by_ids = Form(form.is_chat, form.is_extended, takes_ids=True)
    try:
        answer = await converse(client, by_ids, model, ids, 1)
    except EndpointFailed as error:
        if not error.status:
            raise
        return form
    return by_ids if answer.prompt_tokens == len(ids) else form


async def _scoring(
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


async def _forces_tokens(
    client: EndpointClient,
    way: Scoring | None,
    model: str,
    ids: TokenIds,
    chosen: tuple[int, float] | None,
    tokenizer: Tokenizer,
) -> bool:
    """Whether a token has the same likelihood when the server is made to generate it as in the prompt.

    chosen: as for `_scoring`. Another token than that is asked for, as a server that ignores this generates the chosen
    one. Whatever fails is no reason to give up the server: only windows that fill its context need it.
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
    told = await _generated(client, model, ids[:-1], tokenizer, allowed_token_ids=ids[-1:])
    return told[1] if told is not None and told[0] == ids[-1] else None


async def _generated(
    client: EndpointClient, model: str, ids: TokenIds, tokenizer: Tokenizer, **more: TokenIds
) -> tuple[int, float] | None:
    """The token that follows, and its log-likelihood; None where the server doesn't tell both."""
    asked = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1, **more}
    for extension in ({"return_token_ids": True}, {}):
        try:
            body = await client.post("/completions", {**asked, **extension})
            return _read_generated(body["choices"][0], tokenizer)
        except EndpointFailed as error:
            if not error.status:
                raise
            if error.status not in OTHER_FORM:
                return None
        except (LookupError, TypeError, ValueError):
            return None
    return None


def _read_generated(choice: Any, tokenizer: Tokenizer) -> tuple[int, float]:
    """By its id where that is told, else by its text, as far as that is one token of ours."""
    found = choice["logprobs"]
    if "content" in found:  # llama.cpp's
        return int(found["content"][0]["id"]), float(found["content"][0]["logprob"])
    (token,) = choice.get("token_ids") or _ids(tokenizer, choice["text"])
    return int(token), float(found["token_logprobs"][0])


async def log_likelihoods(client: EndpointClient, way: Scoring, model: str, ids: TokenIds) -> tuple[float, ...]:
    """Of each token after the first, in nats. Raises EndpointFailed where the answer isn't that."""
    asked: dict[str, Any] = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0}
    asked |= {"prompt_logprobs": 0} if way is Scoring.PROMPT_LOGPROBS else {"echo": True, "logprobs": 1}
    body = await client.post("/completions", asked)
    with client.in_words("/completions"):
        try:
            found = _read_prompt_logprobs(body, ids) if way is Scoring.PROMPT_LOGPROBS else _read_echo(body, ids)
        except (LookupError, TypeError, ValueError):
            raise EndpointFailed("it was ignored") from None
        if not all(map(math.isfinite, found)) or max(found, default=0.0) > LOG_PROB_TOLERANCE:
            raise EndpointFailed("what came are no logarithms of probabilities")
    return found


def _read_prompt_logprobs(body: Any, ids: TokenIds) -> tuple[float, ...]:
    """A dictionary by token id for each token, but the first."""
    entries = body["choices"][0]["prompt_logprobs"]
    if len(entries) != len(ids):
        raise ValueError(entries)
    return tuple(float(entry[str(token)]["logprob"]) for token, entry in zip(ids[1:], entries[1:], strict=True))


def _read_echo(body: Any, ids: TokenIds) -> tuple[float, ...]:
    """A number for each token, but the first, those of new tokens after them."""
    found = body["choices"][0]["logprobs"]["token_logprobs"]
    if len(found) not in (len(ids), len(ids) + 1) or found[0] is not None:
        raise ValueError(found)
    return tuple(map(float, found[1 : len(ids)]))


def _ids(tokenizer: Tokenizer, text: str) -> TokenIds:
    """Without special tokens."""
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
