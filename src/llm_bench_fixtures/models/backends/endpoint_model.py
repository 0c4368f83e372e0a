"""A model behind a server: one request a prompt, those of a batch at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from llm_bench_fixtures.errors import BackendUnavailable, EndpointFailed, WorkloadUnsupported
from llm_bench_fixtures.models.backends.endpoint import key_variable
from llm_bench_fixtures.models.backends.endpoint_client import EndpointClient, is_loopback, read_key
from llm_bench_fixtures.models.backends.endpoint_protocol import ScoringApi, Served, StreamedAnswer, explore
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.model import BatchCounter, Model, ModelFacts, Reply, Send, unpadded
from llm_bench_fixtures.models.transformers import DEFAULT_CONTEXT, context_of
from llm_bench_fixtures.processes.environment import most_open_files
from llm_bench_fixtures.progress import tell_share
from llm_bench_fixtures.workloads import MOST_PROMPT_TOKENS, Batch, CacheKind, TokenIds, Tokenizer, plain_ids

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.loading import LoadRequest
    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.models.variants import Variant

T = TypeVar("T")

SCORED_AT_ONCE = 4  # requests
REFUSALS = frozenset({400, 413, 422})  # statuses of a request that is itself at fault, as a prompt that is too long


def open_endpoint(request: LoadRequest, url: str, wanted: str, timeout_s: float) -> EndpointModel:
    """Ask the server what it does. wanted: the model's name there, if it is known. Raises EndpointFailed."""
    key = read_key(key_variable(request.variant.id))
    runner = asyncio.Runner()
    client = EndpointClient(url, key, timeout_s)
    tokenizer = request.source.load_tokenizer()
    try:
        served = runner.run(explore(client, wanted, tokenizer))
        if request.settings.chat and not served.form.takes_ids:
            raise BackendUnavailable(
                "with --llm-chat prompts are token ids, the template's among them, and this server takes texts only: "
                "leave --llm-chat out; chats that a server frames itself are measured without it"
            )
    except BaseException:
        runner.run(client.close())
        runner.close()
        raise
    has_open_key = bool(key.headers) and not url.startswith("https://") and not is_loopback(url)
    facts = _facts(request.source, url, served, has_open_key=has_open_key)
    facts = replace(facts, label=key.hide(facts.label))  # the label has the server's words
    device = Device(DeviceKind.CPU, "cpu", request.device.hardware)
    return EndpointModel(request.variant, device, tokenizer, facts, client, runner, served)


def _facts(source: ModelSource, url: str, served: Served, *, has_open_key: bool) -> ModelFacts:
    config = source.load_config().get_text_config()
    shares_tokens = served.added_tokens is not None
    context = served.card.context_length or (context_of(config) if shares_tokens else DEFAULT_CONTEXT)
    by = f" ({served.card.owner})" if served.card.owner else ""
    return ModelFacts(
        label=f"{served.asker.model} at {urlsplit(url).netloc}{by}",
        weight_bytes=None,
        context_length=min(context, MOST_PROMPT_TOKENS) - (0 if served.form.takes_ids else served.added_tokens or 0),
        vocabulary=int(config.vocab_size),
        runs_source=shares_tokens,
        is_remote=True,
        is_beside=is_loopback(url),
        notes=tuple(_notes(served, has_open_key=has_open_key)),
    )


def _notes(served: Served, *, has_open_key: bool) -> Iterator[str]:
    """Notes on the figures for a reader."""
    form, again = served.form, served.again
    if served.unread:
        yield f"the server lists the model with {served.unread}; its name alone is taken"
    if served.added_tokens is None:
        yield (
            "the server's tokens are not those of --llm-model: prompts are texts of so many tokens of --llm-model, and "
            "their lengths are in these"
        )
    elif not form.takes_ids:
        yield "prompts are sent as texts, and may have some tokens more or fewer there"
    if form.is_chat:
        more = f" of {served.added_tokens} tokens" if served.added_tokens else ""
        yield f"prompts go through the server's chat template{more}"
    if not (served.first.has_times and again.has_times):
        yield "the server doesn't report how many tokens an event holds: times after the first are those of events"
    elif again.first_tokens > 1:
        yield (
            f"its first event holds {again.first_tokens} tokens: the time to the first token is that to all of them, "
            "and the time per token, over all tokens but one, is too short"
        )
    if not again.ids:
        yield "the server reports no token ids: its texts are tokenized again to be compared"
    if again.cached_tokens is None:
        yield "the server doesn't report whether repeated prompts come from a cache"
    elif again.cached_tokens:
        yield f"the server takes {again.cached_tokens} tokens of a repeated prompt from a cache"
    if has_open_key:
        yield "the key was sent over a connection that isn't encrypted"


@dataclass(eq=False)
class EndpointModel(Model):
    """Holds connections to a server, which run while this object is asked for something."""

    variant: Variant
    device: Device
    """Where ids and masks lie: the CPU."""

    tokenizer: Tokenizer
    facts: ModelFacts
    _client: EndpointClient
    _runner: asyncio.Runner
    _served: Served

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,  # the server's own affair
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """As `Model.generate`. Raises WorkloadUnsupported for padding that no request has, and where the server ends a
        text before its length."""
        import torch

        prompts = _prompts(input_ids, attention_mask)
        counter = BatchCounter(len(prompts), on_token or (lambda: None))
        asked = (self._ask(prompt, new_tokens, partial(counter.reach, row)) for row, prompt in enumerate(prompts))
        answers = self._runner.run(_all(asked))
        rows = [self._new_ids(answer, new_tokens) for answer in answers]
        return torch.cat([input_ids, torch.tensor(rows, dtype=input_ids.dtype)], dim=1)

    async def _ask(self, ids: TokenIds, new_tokens: int, on_tokens: Callable[[int], None]) -> StreamedAnswer:
        """An answer of exactly that length."""
        answer = await self._answer(ids, new_tokens, on_tokens)
        if answer.tokens < new_tokens:
            raise WorkloadUnsupported(
                f"the server ended a text after {answer.tokens} of {new_tokens} tokens, and takes no exact length"
            )
        return answer

    async def _answer(self, ids: TokenIds, new_tokens: int, on_tokens: Callable[[int], None]) -> StreamedAnswer:
        """An answer of at most that length."""
        form = self._served.form
        prompt: str | TokenIds = ids if form.takes_ids else self.tokenizer.decode(ids, skip_special_tokens=True)
        if not prompt:
            raise WorkloadUnsupported("the server takes texts only, and this prompt has none")
        answer = await self._served.asker.converse(form, prompt, new_tokens, on_tokens)
        largest, vocabulary = max(answer.ids or (0,)), self.facts.vocabulary
        if self.facts.runs_source and largest >= vocabulary:
            raise EndpointFailed(f"the server gave token {largest}, where the vocabulary has {vocabulary:,} tokens")
        return answer

    def _new_ids(self, answer: StreamedAnswer, new_tokens: int) -> list[int]:
        """The new tokens' ids; those of the text, as many of them as there were, where the server tells none."""
        if answer.ids and self.facts.runs_source:
            return answer.ids
        ids = [*plain_ids(self.tokenizer, answer.text)[:new_tokens]]
        return ids + [self.tokenizer.pad_token_id] * (new_tokens - len(ids))

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        raise WorkloadUnsupported("a server gives no logits")

    def token_log_likelihoods(self, rows: Sequence[TokenIds]) -> Sequence[Sequence[float]]:
        """As `ScoresTokens.token_log_likelihoods`."""
        if self._served.scoring is None:
            raise WorkloadUnsupported(self._served.no_scoring)
        try:
            return self._runner.run(self._score(self._served.scoring, rows))
        except EndpointFailed as error:  # speed can be measured without scores
            raise WorkloadUnsupported(str(error)) from None

    async def _score(self, scoring: ScoringApi, rows: Sequence[TokenIds]) -> Sequence[Sequence[float]]:
        limit, done = asyncio.Semaphore(SCORED_AT_ONCE), count(1)

        async def score(row: TokenIds) -> Sequence[float]:
            async with limit:
                found = await self._score_row(scoring, row)
            tell_share(next(done) / len(rows))
            return found

        return await _all(map(score, rows))

    async def _score_row(self, scoring: ScoringApi, row: TokenIds) -> Sequence[float]:
        """A row that fills the context is refused by vLLM, as a token has to follow each."""
        context = self.facts.context_length
        try:
            return await self._served.asker.log_likelihoods(scoring, row)
        except EndpointFailed as error:
            if error.status not in REFUSALS or len(row) < context:
                raise
            refused = f"a window of {len(row)} tokens in a context of {context} was refused ({error})"
            raise EndpointFailed(f"{refused}: give a smaller --llm-window") from None

    def run_requests(self, work: Callable[[Send], Coroutine[Any, Any, T]]) -> T:
        """As `TakesRequests.run_requests`."""
        with self._client.loaded(), most_open_files():
            return self._runner.run(work(self._send))

    async def _send(self, ids: TokenIds, new_tokens: int) -> Reply:
        """A request of a load, which fails by itself. Its text may end early."""
        times: list[float] = []
        sent_s = time.perf_counter()
        try:
            answer = await self._answer(ids, new_tokens, lambda _: times.append(time.perf_counter()))
        except EndpointFailed as error:
            return Reply(sent_s, failure=str(error), is_clients=error.is_clients)
        except WorkloadUnsupported as error:
            return Reply(sent_s, failure=str(error))
        if not times:
            return Reply(sent_s, failure="the server ended the text before its first token")
        return Reply(sent_s, times[0], times[-1], answer.tokens, answer.prompt_tokens, answer.cached_tokens)

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of what goes on at the same time. Where one fails, the others are given up."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _prompts(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[TokenIds]:
    """The prompts in a batch. Raises WorkloadUnsupported for padding beyond the longest prompt, or on the right."""
    prompts = unpadded(Batch(input_ids, attention_mask))
    if max(map(len, prompts)) < input_ids.shape[1] or not bool(attention_mask[:, -1].all()):
        raise WorkloadUnsupported("requests to a server have no padding")
    return list(map(tuple, prompts))
