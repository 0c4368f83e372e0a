"""What a stranger's files make libraries compute is computed in another process, which may die of it.

A tokenizer that takes all memory ends the whole process, as libraries in Rust do, and what a config asks for may have
no end, whatever its numbers are called. So a candidate's config is loaded, its tokenizer used and its architecture
built where memory and time are bounded, and only then here.

A tokenizer stays in a process of its own. Its rules can multiply a text, as often as it has tokens. What a model
generates is not known before, so no check of its files tells whether decoding that ends. A request that takes more
memory or time than it may is an error, and the next one finds a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, cast

from llm_bench_fixtures.errors import CandidateFailed, ChannelClosed, NoAnswer, TokenizerFailed, WorkerDied
from llm_bench_fixtures.models.architecture import Footprint
from llm_bench_fixtures.models.checks import Check, here
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY_FOLDER, ModelSource
from llm_bench_fixtures.processes.calls import Raised, Returned, outcome_of
from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.launch import start_function, start_importing
from llm_bench_fixtures.processes.memory import free_memory_bytes, limit_own_memory
from llm_bench_fixtures.processes.worker import WorkerProcess
from llm_bench_fixtures.text import without_middle
from llm_bench_fixtures.workloads import Tokenizer

LONGEST_S = 180.0  # seconds of work: converting a tokenizer of 256,000 tokens takes a minute on a slow machine
LEAST_BYTES, MOST_BYTES = 2 * 10**9, 16 * 10**9  # bytes that it may take; a trillion weights' modules take 1 GB
FREE_SHARE = 0.5  # share of the free memory, between these
IMPORTS = (__name__, "transformers.modeling_utils", "transformers.models.auto.modeling_auto")

Examined: TypeAlias = "str | Raised | Returned"
"""The part that is read next, or the end."""


def examine(source: ModelSource, check: Check, *, in_process: bool) -> Footprint:
    """Result of the check, made in another process first unless there is no need: for what came with this package or
    was made by it, and for a model whose author's code may run anyway. Raises what it raises, or CandidateFailed.

    in_process: the user wants everything in this process, to debug it.
    """
    is_known = source.folder == TINY_FOLDER or source.random_weights or source.trust_remote_code
    if is_known or in_process:
        return here(source, check)
    start_importing(IMPORTS, on_cpu=True)  # once, and unless it imports more already; nothing is on an accelerator
    budget = memory_budget()
    process = start_function("the process that was to read it", _serve_check, (source, check, budget), on_cpu=True)
    try:
        return _outcome(process, budget)
    except BaseException:
        process.kill()
        raise
    finally:
        process.close()


def memory_budget() -> int:
    """Bytes that a process may take for what a stranger's files ask for."""
    return min(max(int(free_memory_bytes() * FREE_SHARE), LEAST_BYTES), MOST_BYTES)


def _outcome(process: WorkerProcess[None, Examined], budget_bytes: int) -> Footprint:
    said, part = process.receive(), "files"  # once it has imported all that it needs
    limit = process.limit(LONGEST_S)
    while isinstance(said, str):
        part = said
        try:
            said = process.receive_within(limit)
        except WorkerDied as died:
            most = f"{budget_bytes / 1e9:.1f} GB"
            raise CandidateFailed(f"the process that read its {part}, in at most {most}, {died.how}") from None
        except NoAnswer:
            raise CandidateFailed(f"to read its {part} takes more than {LONGEST_S:.0f} s") from None
    if isinstance(said, Raised):
        raise said.rebuilt()
    return cast("Footprint", said.result)


def _serve_check(channel: Channel[Examined, None], source: ModelSource, check: Check, budget_bytes: int) -> None:
    """The process."""

    def read() -> Footprint:
        with quiet_libraries():
            limit_own_memory(budget_bytes)
            return check(source, channel.send)

    channel.send(outcome_of(read, CandidateFailed))


MOST_TOKENIZER_BYTES = 4 * 10**9  # twice what the largest published ones take while they are read
OWN = ("pad_token_id", "bos_token_id", "eos_token_id")
Request: TypeAlias = "Callable[[Tokenizer], Any]"


class TokenizerApart:
    """A source's tokenizer, behind the same interface. Whatever it is asked raises TokenizerFailed.

    What a tokenizer of transformers has besides is asked for in the process, too.
    """

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._process: WorkerProcess[Request, Returned | Raised] | None = None
        self.pad_token_id, self.bos_token_id, self.eos_token_id = self._ask(attrgetter(*OWN))

    def __call__(self, text: str, /, **how: Any) -> Mapping[str, Any]:
        return dict(self._call("__call__", text, **how))

    def decode(self, ids: Sequence[int], /, **how: Any) -> str:
        return str(self._call("decode", ids, **how))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        is_there, is_method, value = self._ask(partial(_look_up, name))
        if not is_there:
            raise AttributeError(f"the tokenizer of {self._source.name} has no {name}")
        return partial(self._call, name) if is_method else value

    def __len__(self) -> int:
        return int(self._call("__len__"))

    def __setattr__(self, name: str, value: object) -> None:
        """Raises AttributeError for what isn't its own: the tokenizer itself, in another process, would not change."""
        if not name.startswith("_") and name not in OWN:
            raise AttributeError(f"the tokenizer of {self._source.name} is in another process: {name} can't be set")
        super().__setattr__(name, value)

    def _call(self, method: str, /, *given: Any, **how: Any) -> Any:
        return self._ask(partial(_call_method, method, given, how))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end("was closed")
            self._process = None

    def _ask(self, request: Request) -> Any:
        try:
            answer = self._answer(request)
        except NoAnswer:
            self.close()
            raise self._failed(f"this takes more than {LONGEST_S:.0f} s") from None
        except WorkerDied as died:
            self.close()
            raise self._failed(str(died)) from None
        except BaseException:  # a late answer would be taken for the next request's
            self.close()
            raise
        if isinstance(answer, Raised):
            raise self._failed(answer.message)
        return answer.result

    def _answer(self, request: Request) -> Returned | Raised:
        if self._process is None:
            budget = min(memory_budget(), MOST_TOKENIZER_BYTES)
            name = f"its process, of at most {budget / 1e9:.1f} GB,"
            self._process = start_function(name, _serve_tokenizer, (self._source, budget), on_cpu=True)
        self._process.send(request)
        return self._process.receive_within(self._process.limit(LONGEST_S))

    def _failed(self, reason: str) -> TokenizerFailed:
        return TokenizerFailed(f"the tokenizer of {self._source.name} failed: {reason}")


def tokenizer_of(source: ModelSource, *, in_process: bool) -> Tokenizer:
    """The source's tokenizer: in this process where it came with this package, or where the user wants everything here,
    to debug it."""
    is_known = source.folder == TINY_FOLDER or source.random_weights
    return source.load_tokenizer() if is_known or in_process else TokenizerApart(source)


# Functions of this module, because a request travels by its function's name.


def _look_up(name: str, tokenizer: Tokenizer) -> tuple[bool, bool, Any]:
    """Whether the tokenizer has something under the name, whether that is a method, and the value of what is none."""
    value = getattr(tokenizer, name, None)
    return hasattr(tokenizer, name), callable(value), None if callable(value) else _bounded(value)


def _call_method(name: str, given: tuple[Any, ...], how: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """Result of a method, each text in it as long as one may be."""
    result = getattr(tokenizer, name)(*given, **how)
    return [_bounded(one) for one in result] if isinstance(result, list) else _bounded(result)


def _bounded(value: Any) -> Any:
    """A text as long as one may be; of the tokenizer's own mappings what is in them."""
    if isinstance(value, Mapping):
        return dict(value)
    return without_middle(value) if isinstance(value, str) else value


def _serve_tokenizer(channel: Channel[Returned | Raised, Request], source: ModelSource, budget_bytes: int) -> None:
    """The process: answers requests until the other side is gone."""
    loaded: list[Tokenizer] = []

    def answer(request: Request) -> Any:
        if not loaded:
            limit_own_memory(budget_bytes)
            loaded.append(source.load_tokenizer())
        return request(loaded[0])

    with quiet_libraries():
        while True:
            try:
                channel.send(outcome_of(partial(answer, channel.receive()), TokenizerFailed))
            except ChannelClosed:
                return
