"""A model's tokenizer in a process of its own, which may die of what it computes.

Rules of a tokenizer can multiply a text, as often as it has tokens. What a model generates is not known before, so no
check of its files tells whether decoding that ends. Memory and time of the process are bounded; a request that takes
more is an error, and the next one finds a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import ChannelClosed, LlmBenchError, NoAnswer, TokenizerFailed, WorkerDied, reason_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY_FOLDER
from llm_bench_fixtures.models.tryout import LONGEST_S, memory_budget
from llm_bench_fixtures.processes.calls import Raised, Returned
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.memory import limit_own_memory
from llm_bench_fixtures.text import without_middle

if TYPE_CHECKING:
    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.processes.channels import Channel
    from llm_bench_fixtures.processes.worker import WorkerProcess
    from llm_bench_fixtures.workloads import Tokenizer

MOST_BYTES = 4 * 10**9  # twice what the largest published ones take while they are read
Request: TypeAlias = "Callable[[Tokenizer], Any]"


@dataclass(frozen=True)
class Traits:
    """What every user of a tokenizer asks for."""

    pad_token_id: int
    bos_token_id: int | None
    eos_token_id: int | None


@dataclass(frozen=True)
class Encode:
    """The ids of a text."""

    text: str
    how: Mapping[str, Any]

    def __call__(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return dict(tokenizer(self.text, **self.how))


@dataclass(frozen=True)
class Decode:
    """The text of ids, as long as a text may be."""

    ids: Any
    how: Mapping[str, Any]

    def __call__(self, tokenizer: Tokenizer) -> str:
        return without_middle(tokenizer.decode(self.ids, **self.how))


class Nature(Enum):
    """What a tokenizer has under a name."""

    NOTHING = auto()
    METHOD = auto()
    VALUE = auto()


@dataclass(frozen=True)
class Look:
    """What the tokenizer has under a name, with the value where it is one."""

    name: str

    def __call__(self, tokenizer: Tokenizer) -> tuple[Nature, Any]:
        try:
            value = getattr(tokenizer, self.name)
        except AttributeError:
            return Nature.NOTHING, None
        return (Nature.METHOD, None) if callable(value) else (Nature.VALUE, _bounded(value))


@dataclass(frozen=True)
class CallMethod:
    """What a method returns, each text in it as long as one may be."""

    name: str
    given: tuple[Any, ...]
    how: Mapping[str, Any]

    def __call__(self, tokenizer: Tokenizer) -> Any:
        result = getattr(tokenizer, self.name)(*self.given, **self.how)
        if isinstance(result, list):
            return [_bounded(one) for one in result]
        return _bounded(result)


def _bounded(value: Any) -> Any:
    return without_middle(value) if isinstance(value, str) else value


OWN = ("pad_token_id", "bos_token_id", "eos_token_id")


class TokenizerApart:
    """A source's tokenizer, behind the same interface. Whatever it is asked raises TokenizerFailed.

    What a tokenizer of transformers has besides is asked for in the process, too.
    """

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._process: WorkerProcess[Request, Returned | Raised] | None = None
        traits: Traits = self._ask(_traits_of)
        self.pad_token_id = traits.pad_token_id
        self.bos_token_id, self.eos_token_id = traits.bos_token_id, traits.eos_token_id

    def __call__(self, text: str, /, **how: Any) -> Mapping[str, Any]:
        ids: dict[str, Any] = self._ask(Encode(text, how))
        return ids

    def decode(self, ids: Sequence[int], /, **how: Any) -> str:
        return str(self._ask(Decode(ids, how)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        nature, value = self._ask(Look(name))
        if nature is Nature.NOTHING:
            raise AttributeError(f"the tokenizer of {self._source.name} has no {name}")
        return self._method(name) if nature is Nature.METHOD else value

    def __len__(self) -> int:
        return int(self._ask(CallMethod("__len__", (), {})))

    def __setattr__(self, name: str, value: object) -> None:
        """Raises AttributeError for what isn't its own: the tokenizer itself, in another process, would not change."""
        if not name.startswith("_") and name not in OWN:
            raise AttributeError(f"the tokenizer of {self._source.name} is in another process: {name} can't be set")
        super().__setattr__(name, value)

    def _method(self, name: str) -> Callable[..., Any]:
        return lambda *given, **how: self._ask(CallMethod(name, given, how))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.close()
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
        except BaseException:  # its late answer would be taken for the next request's
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


def _traits_of(tokenizer: Tokenizer) -> Traits:
    return Traits(tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)


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
                channel.send(_outcome(answer, channel.receive()))
            except ChannelClosed:
                return


def _outcome(answer: Callable[[Request], Any], request: Request) -> Returned | Raised:
    try:
        return Returned(answer(request))
    except LlmBenchError as error:
        return Raised.of(error)
    except BaseException as error:  # what tokenizers raise has no narrower base; a panic of Rust is no Exception
        return Raised(TokenizerFailed, reason_of(error))
