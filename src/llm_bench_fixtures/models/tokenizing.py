"""A model's tokenizer in a process of its own, which may die of what it computes.

Rules of a tokenizer can multiply a text, as often as it has tokens. What a model generates is not known before, so no
check of its files tells whether decoding that ends. Memory and time of the process are bounded; a request that takes
more is an error, and the next one finds a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import ChannelClosed, NoAnswer, TokenizerFailed, WorkerDied
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.tryout import LONGEST_S, memory_budget
from llm_bench_fixtures.processes.calls import Raised, Returned, outcome_of
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.memory import limit_own_memory
from llm_bench_fixtures.text import without_middle

if TYPE_CHECKING:
    from llm_bench_fixtures.processes.channels import Channel
    from llm_bench_fixtures.processes.worker import WorkerProcess
    from llm_bench_fixtures.workloads import Tokenizer

MOST_BYTES = 4 * 10**9  # twice what the largest published ones take while they are read
OWN = ("pad_token_id", "bos_token_id", "eos_token_id")
Request: TypeAlias = "Callable[[Tokenizer], Any]"


class TokenizerApart:
    """A source's tokenizer, behind the same interface. Whatever it is asked raises TokenizerFailed.

    What a tokenizer of transformers has besides is asked for in the process, too.
    """

    pad_token_id: int
    bos_token_id: int | None
    eos_token_id: int | None

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._process: WorkerProcess[Request, Returned | Raised] | None = None
        for name, token in zip(OWN, self._ask(_own), strict=True):
            setattr(self, name, token)

    def __call__(self, text: str, /, **how: Any) -> Mapping[str, Any]:
        ids: dict[str, Any] = self._call("__call__", text, **how)
        return ids

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
            budget = min(memory_budget(), MOST_BYTES)
            name = f"its process, of at most {budget / 1e9:.1f} GB,"
            self._process = start_function(name, _serve, (self._source, budget), on_cpu=True)
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


def _own(tokenizer: Tokenizer) -> tuple[Any, ...]:
    return tuple(getattr(tokenizer, name) for name in OWN)


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


def _serve(channel: Channel[Returned | Raised, Request], source: ModelSource, budget_bytes: int) -> None:
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
