"""What a server can do, found out by asking: servers ignore silently what they don't know, so the answers are checked
against what they must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Raw

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.models.backends.endpoint_said import Card, Cards, Name, Unreadable, read
from llm_bench_fixtures.models.backends.endpoint_scoring import (
    OTHER_FORM,
    find_scoring,
    forces_tokens,
    generated,
    ids_of,
)
from llm_bench_fixtures.models.backends.endpoint_stream import Answer, Form, converse
from llm_bench_fixtures.text import without_middle
from llm_bench_fixtures.workloads import read_corpus

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.endpoint_http import EndpointClient
    from llm_bench_fixtures.models.backends.endpoint_scoring import Scoring
    from llm_bench_fixtures.workloads import TokenIds, Tokenizer

FORMS = (Form(), Form(is_extended=False), Form(is_chat=True), Form(is_chat=True, is_extended=False))
PROBED_CHARACTERS = 300  # of each text
LONGEST_NAME = 200  # characters of a model's, or of a server's for itself
MOST_LISTED = 20  # of a server's models, in a message
PROBED_TEXTS = 4  # prose and code among them, which tokenizers cut differently
NEW_TOKENS = 4
MOST_SPECIAL = 4  # tokens that a server may put before a text to continue; a chat template may add any number


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
    first_tokens: int = 1
    """New tokens that come with the first event."""
    unread: str = ""
    """Why its description of the model can't be read, where that is so."""


async def explore(client: EndpointClient, wanted: str, tokenizer: Tokenizer) -> Served:
    """wanted: the model's name, or "" for the only one. tokenizer: ours. Raises EndpointFailed."""
    card, unread = await _choose(client, wanted)
    texts = [text[:PROBED_CHARACTERS] for text in read_corpus(None).texts[-PROBED_TEXTS:]]
    form, first = await _form(client, card.id, texts[0])
    added = await _added_tokens(client, form, card.id, texts, tokenizer)
    if added is not None and not form.is_chat:
        form = await _with_ids(client, form, card.id, ids_of(tokenizer, texts[0]))
    prompt: str | TokenIds = ids_of(tokenizer, texts[0]) if form.takes_ids else texts[0]
    again = [await converse(client, form, card.id, prompt, NEW_TOKENS) for _ in range(2)][-1]
    ids = ids_of(tokenizer, texts[0])
    chosen = await generated(client, card.id, ids, tokenizer) if form.takes_ids else None
    scoring, why_not = await find_scoring(client, form, card.id, ids, chosen)
    return Served(
        model=card.id,
        owner=without_middle(card.owned_by or "", LONGEST_NAME),
        context_length=card.context_length,
        unread=unread,
        form=form,
        added_tokens=added,
        has_times=first.has_times and again.has_times,
        tells_ids=again.ids is not None,
        cached_tokens=again.cached_tokens,
        scoring=scoring,
        no_scoring=why_not,
        first_tokens=again.first_tokens,
        forces_tokens=await forces_tokens(client, scoring, card.id, ids, chosen, tokenizer),
    )


async def _choose(client: EndpointClient, wanted: str) -> tuple[Card, str]:
    """The model that is asked for, with what the server says of it, and why only its name can be read, if so.

    Raises EndpointFailed where it is asked for none, and doesn't list exactly one.
    """
    cards = await _listed(client)
    names = list(cards)
    if wanted and wanted not in cards:
        return Card(wanted), ""
    if not wanted and (len(names) != 1 or len(names[0]) > LONGEST_NAME):
        raise EndpointFailed(
            client.key.hide(f"{client.url}: give --llm-endpoint-model the model to ask for; {_list_of(names)}")
        )
    name = wanted or names[0]
    try:
        return read(cards[name], Card, "a description"), ""
    except Unreadable as error:
        return Card(name), client.key.hide(str(error))


async def _listed(client: EndpointClient) -> dict[str, Raw]:
    """The descriptions of models by their names; none where the server has no list, or one of another kind."""
    try:
        found = (await client.get("/models", Cards)).data
    except Unreadable:
        return {}
    except EndpointFailed as error:
        if error.status not in OTHER_FORM:
            raise
        return {}
    cards = {}
    for one in found:
        with suppress(Unreadable):  # a name that isn't there can't be asked for
            cards[read(one, Name).id] = one
    return cards


def _list_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    shown = ", ".join(without_middle(name, LONGEST_NAME) for name in names[:MOST_LISTED])
    return f"it lists {shown or 'none'}{more}"


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
        ours, answer = ids_of(tokenizer, text), await converse(client, form, model, text, 1)
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
