"""A server with OpenAI's interface: `--llm-endpoint`. The model runs wherever the server has it; here is the client.

It sends one request a prompt, those of a batch at the same time. What sends them is imported with the first model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from llm_bench_fixtures.errors import BackendUnavailable, EndpointFailed, InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.models.backend import Backend, LoadRequest
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.model import BatchCounter, Model, ModelFacts, Reply, Send, joined, unpadded
from llm_bench_fixtures.models.transformers import DEFAULT_CONTEXT, context_of
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.parsers import Setting, parse_seconds, shortened
from llm_bench_fixtures.processes.environment import most_open_files
from llm_bench_fixtures.progress import tell_share
from llm_bench_fixtures.workloads import MOST_PROMPT_TOKENS, CacheKind, TokenIds, Tokenizer, plain_ids

if TYPE_CHECKING:
    import asyncio

    import torch

    from llm_bench_fixtures.models.backends.endpoint_protocol import ScoringApi, Served, StreamedAnswer
    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.options.settings import Settings

NAME = "endpoint"  # backend's name, the unnamed variant's id, and what ids of named ones begin with
KEY = "LLM_BENCH_ENDPOINT_KEY"  # the environment variable; _NAME is added for a server with a name
_NAMED = re.compile(r"(?:([A-Za-z0-9._-]+)=)?(.*)")

T = TypeVar("T")

SCORED_AT_ONCE = 4  # requests
REFUSALS = frozenset({400, 413, 422})  # statuses of a request that is itself at fault, as a prompt that is too long


def parse_endpoints(text: str) -> Mapping[str, str]:
    """Base URLs by the ids of their variants. Raises InvalidSetting, which quotes nothing that may be a secret."""
    found = parse_by_variant(text)
    for url in found.values():
        _check_url(url)
    keys = [key_variable(identifier) for identifier in found]
    if len(set(keys)) < len(keys):
        raise InvalidSetting(f"two servers would share a key, of {', '.join(sorted(keys))}: give them other names")
    return found


def parse_by_variant(text: str) -> Mapping[str, str]:
    """Values by the ids of their variants, from `VALUE` or `NAME=VALUE`, separated by commas."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, value = _NAMED.fullmatch(part).groups()  # type: ignore[union-attr]  # it matches every line
        identifier = f"{NAME}-{name}" if name else NAME
        if identifier in found:
            raise InvalidSetting(f"{identifier} is given twice: name each, as in first=VALUE,second=VALUE")
        found[identifier] = value
    return found


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidSetting("expected a URL such as http://127.0.0.1:8000/v1, got something else") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidSetting(f"a URL that holds a user name, a password or a query is refused: give the key in {KEY}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # What has no scheme may be a key that was pasted there.
        got = shortened(url) if "://" in url else "a text without http:// or https://"
        raise InvalidSetting(f"expected a URL such as http://127.0.0.1:8000/v1, got {got}")


def key_variable(identifier: str) -> str:
    """The environment variable that holds the key for a variant's server, and for no other's."""
    name = identifier.removeprefix(NAME).removeprefix("-")
    return KEY + (re.sub(r"[^A-Z0-9]", "_", f"_{name.upper()}") if name else "")


ENDPOINT = Setting(NAME, parse_endpoints)
MODEL = Setting("endpoint_model", parse_by_variant)
TIMEOUT = Setting("endpoint_timeout", parse_seconds)


def variants_of(settings: Settings) -> tuple[Variant, ...]:
    """One for each server that was named. Raises InvalidSetting for a model of another server."""
    urls = settings.of(ENDPOINT)
    unknown = settings.of(MODEL).keys() - urls.keys()
    if unknown:
        raise InvalidSetting(
            f"--llm-endpoint-model: no server is {', '.join(sorted(unknown))}; "
            f"those of --llm-endpoint are {', '.join(urls) or 'none'}"
        )
    return tuple(Variant(identifier, NAME, f"the server at {url}") for identifier, url in urls.items())


def load(request: LoadRequest) -> EndpointModel:
    """Find out what the server does. Raises EndpointFailed where it does nothing of use."""
    import asyncio

    from llm_bench_fixtures.models.backends.endpoint_client import EndpointClient, read_key
    from llm_bench_fixtures.models.backends.endpoint_protocol import explore

    identifier, settings = request.variant.id, request.settings
    url = settings.of(ENDPOINT).get(identifier)
    if url is None:
        raise InvalidSetting(f"{identifier} has no URL: give it in --llm-endpoint")
    client = EndpointClient(url, read_key(key_variable(identifier)), settings.of(TIMEOUT))
    runner, tokenizer = asyncio.Runner(), request.source.load_tokenizer()
    try:
        served = runner.run(explore(client, settings.of(MODEL).get(identifier, ""), tokenizer))
        if settings.chat and not served.form.takes_ids:
            raise BackendUnavailable(
                "with --llm-chat prompts are token ids, the template's among them, and this server takes texts only: "
                "leave --llm-chat out; chats that a server frames itself are measured without it"
            )
    except BaseException:
        runner.run(client.close())
        runner.close()
        raise
    device = Device(DeviceKind.CPU, "cpu", request.device.hardware)
    return EndpointModel(request.variant, device, tokenizer, _facts(request.source, served), runner, served)


def _facts(source: ModelSource, served: Served) -> ModelFacts:
    from llm_bench_fixtures.models.backends.endpoint_client import is_loopback

    client, config = served.asker.client, source.load_config().get_text_config()
    is_beside, shares_tokens = is_loopback(client.url), served.added_tokens is not None
    has_open_key = bool(client.key.headers) and not client.url.startswith("https://") and not is_beside
    context = served.card.context_length or (context_of(config) if shares_tokens else DEFAULT_CONTEXT)
    by = f" ({served.card.owner})" if served.card.owner else ""
    return ModelFacts(
        label=client.key.hide(f"{served.asker.model} at {urlsplit(client.url).netloc}{by}"),  # the server's words
        weight_bytes=None,
        context_length=min(context, MOST_PROMPT_TOKENS) - (0 if served.form.takes_ids else served.added_tokens or 0),
        vocabulary=int(config.vocab_size),
        runs_source=shares_tokens,
        is_remote=True,
        is_beside=is_beside,
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
        prompts = _prompts(input_ids, attention_mask)
        counter = BatchCounter(len(prompts), on_token or (lambda: None))
        asked = (self._ask(prompt, new_tokens, partial(counter.reach, row)) for row, prompt in enumerate(prompts))
        answers = self._runner.run(_all(asked))
        return joined(input_ids, [self._new_ids(answer, new_tokens) for answer in answers])

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
        import asyncio

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
        with self._served.asker.client.loaded(), most_open_files():
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
        self._runner.run(self._served.asker.client.close())
        self._runner.close()


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of what goes on at the same time. Where one fails, the others are given up."""
    import asyncio

    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _prompts(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> list[TokenIds]:
    """The prompts in a batch. Raises WorkloadUnsupported for padding beyond the longest prompt, or on the right."""
    prompts = unpadded(input_ids, attention_mask)
    if max(map(len, prompts)) < input_ids.shape[1] or not bool(attention_mask[:, -1].all()):
        raise WorkloadUnsupported("requests to a server have no padding")
    return list(map(tuple, prompts))


BACKEND = Backend(
    load,
    modules=("httpx2",),
    extra=NAME,
    imports=("httpx2",),
    variants_of=variants_of,
    takes_requests=True,
    is_served=True,
    takes_attention=False,
    threads_setting="",
    takes_quantized=True,  # the server has the weights
    loggers=("httpx2", "httpcore2"),
    options=(ENDPOINT, MODEL, TIMEOUT),
)
