"""What is run: prompts of exact lengths, how they are padded and batched, and the tensors that come of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.reading import refusals

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
TokenIds: TypeAlias = tuple[int, ...]
"""The tokens of one prompt or of one continuation."""

ASSETS = Path(__file__).parent / "assets"
CORPUS_FOLDER = ASSETS / "corpus"
CALIBRATION_FOLDER = ASSETS / "calibration"

STANDARD_PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a land far, far away,",
    "To be or not to be, that is the",
)
"""The prompts whose continuations the report shows side by side."""
VARIED_LENGTHS = (12, 52, 44, 16, 36, 24, 8, 60)  # in tokens; the mean of the first 2, 4 or 8 is 31 to 32
LONGEST = "longest"
LONGEST_TOKENS = 2048  # of the longest prompt; filling a context of 32,768 would take a small model hours on a CPU
REPEATS = 64
MOST_PROMPT_TOKENS = 2**24  # the longest published contexts hold ten millions
MOST_TEXT_BYTES = 10**9
MANY_LINES = "\n".join(f"{number}. A short line, and then the next one." for number in range(1, 13))
ODD_UNICODE = "Ζωή 🦜🧭 नमस्ते ｆｕｌｌ ﷽ e\u0301\u0327\u0323 \u200d\u200b 漢字 ᚠᚢᚦ ½"


class CacheKind(StrEnum):
    """Kind of cache that `generate` keeps of the tokens it has seen."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    OFF = "off"


class Side(StrEnum):
    """Where padding goes."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Padding:
    """How the shorter prompts of a batch are filled up.

    The width is the longest prompt's, rounded up to a multiple of `multiple_of`, and at least `at_least`.
    """

    side: Side = Side.LEFT
    multiple_of: int = 1
    at_least: int = 0

    def __str__(self) -> str:
        """Padding in words, as "left, to a multiple of 32, at least 128"."""
        multiple = f"a multiple of {self.multiple_of}" if self.multiple_of > 1 else "the longest"
        return f"{self.side}, to {multiple}" + (f", at least {self.at_least}" if self.at_least else "")

    def width(self, longest: int) -> int:
        return max(-(-longest // self.multiple_of) * self.multiple_of, self.at_least)


@dataclass(frozen=True)
class Workload:
    """The prompts and generation settings of one benchmark.

    The prompts run in their order, `batch_size` at a time (the last batch may be smaller).
    """

    prompts: tuple[TokenIds, ...]
    new_tokens: int
    """New tokens of each prompt; where `lengths` has each one's own, the most."""
    batch_size: int
    padding: Padding = Padding()
    cache: CacheKind = CacheKind.DYNAMIC
    lengths: tuple[int, ...] = ()
    """New tokens of each prompt, where these differ. A batch generates as many as its longest answer has."""

    def __post_init__(self) -> None:
        if not self.prompts or not all(self.prompts):
            raise InvalidSetting("a workload needs at least one prompt, and each at least one token")
        if self.lengths and (len(self.lengths) != len(self.prompts) or max(self.lengths) != self.new_tokens):
            raise InvalidSetting("a workload needs a number of new tokens for each prompt, and their largest")
        if min(self.new_tokens, self.batch_size, *self.lengths) < 1:
            raise InvalidSetting("a workload needs at least one new token and a batch size of at least one")
        if self.batch_size > len(self.prompts):
            raise InvalidSetting(
                f"a batch of {self.batch_size} needs as many prompts, and there are {len(self.prompts)}"
            )

    @property
    def groups(self) -> list[tuple[TokenIds, ...]]:
        """The prompts of each batch."""
        return self._in_batches(self.prompts)

    def _in_batches(self, values: tuple[T, ...]) -> list[tuple[T, ...]]:
        return [values[start : start + self.batch_size] for start in range(0, len(values), self.batch_size)]

    @property
    def new_tokens_by_batch(self) -> list[int]:
        """Tokens that each batch generates for each of its prompts."""
        return [max(group) for group in self._in_batches(self._lengths)]

    @property
    def _lengths(self) -> tuple[int, ...]:
        return self.lengths or (self.new_tokens,) * len(self.prompts)

    @property
    def all_new_tokens(self) -> int:
        """New tokens of all prompts together, as far as they were asked for."""
        return sum(self._lengths)

    def answers(self, rows: Sequence[TokenIds]) -> tuple[TokenIds, ...]:
        """The new tokens of each prompt without those that only the others of its batch needed."""
        return tuple(row[:length] for row, length in zip(rows, self._lengths, strict=True))

    @property
    def widths(self) -> list[int]:
        """Columns of each batch, padding included."""
        return [self.padding.width(max(map(len, group))) for group in self.groups]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, padding not counted."""
        return sum(map(len, self.prompts))

    @property
    def padded_tokens(self) -> int:
        """Padding tokens of all batches."""
        areas = (len(group) * width for group, width in zip(self.groups, self.widths, strict=True))
        return sum(areas) - self.prompt_tokens

    @property
    def steps(self) -> int:
        """Tokens that a round generates one after the other, over all batches."""
        return sum(self.new_tokens_by_batch)

    @property
    def longest(self) -> tuple[int, int]:
        """Columns of the longest batch, and the new tokens that it generates."""
        return max(zip(self.widths, self.new_tokens_by_batch, strict=True), key=sum)

    @property
    def digest(self) -> str:
        """Digest of the work: equal for two workloads that ask for exactly the same."""
        return short_digest({name: value for name, value in asdict(self).items() if name != "lengths" or value})

    @property
    def prompts_digest(self) -> str:
        """Digest of the prompts and of the number of new tokens each."""
        return short_digest([self.prompts, self.lengths or self.new_tokens])


def blank(tokens: int) -> TokenIds:
    """So many tokens that nobody reads, as a range, which takes no memory."""
    return cast("TokenIds", range(tokens))


def short_digest(value: object) -> str:
    """Sixteen hex digits, the same for values that are the same as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Batch:
    """The tensors of prompts that run together."""

    input_ids: torch.Tensor
    """(B, T) int64."""
    attention_mask: torch.Tensor
    """(B, T) int64: 0 where there is padding, else 1."""


def make_batches(workload: Workload, pad_token_id: int, device: str) -> list[Batch]:
    """The tensors of a workload, on the device."""
    pairs = zip(workload.groups, workload.widths, strict=True)
    return [pad_batch(group, width, workload.padding.side, pad_token_id, device) for group, width in pairs]


def pad_batch(rows: Sequence[Sequence[int]], width: int, side: Side, pad_token_id: int, device: str) -> Batch:
    """Rows of token ids as one batch of `width` columns, with a mask that is 0 where there is padding."""
    import torch

    input_ids = torch.full((len(rows), width), pad_token_id, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.int64)
    for index, row in enumerate(rows):
        columns = slice(width - len(row), width) if side is Side.LEFT else slice(0, len(row))
        input_ids[index, columns] = torch.tensor(row, dtype=torch.int64)
        mask[index, columns] = 1
    return Batch(input_ids.to(device), mask.to(device))


@dataclass(frozen=True)
class Corpus:
    """Texts to score. `name` says which for the report."""

    name: str
    texts: tuple[str, ...]
    answers: tuple[str, ...] = ()
    """Text that follows each text, where that alone is scored: the texts are prompts then."""
    is_rendered: bool = False
    """Whether the texts are a chat template's, with its special tokens."""

    @property
    def digest(self) -> str:
        """Digest of the texts in their order."""
        return short_digest([self.texts, self.answers] if self.answers else self.texts)

    @property
    def read(self) -> tuple[str, ...]:
        """All that a model reads to score it."""
        return tuple(map("".join, zip(self.texts, self.answers, strict=True))) if self.answers else self.texts


def read_corpus(path: Path | None) -> Corpus:
    """The corpus in a text file, or of all .txt files of a folder, each a text of its own; None: the embedded one.

    Raises InvalidSetting that names the file where there is nothing to read.
    """
    name = "embedded corpus" if path is None else path.name
    path = path or CORPUS_FOLDER
    try:
        check_readable([path])
        files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        check_readable(files)
        texts = tuple(file.read_text(encoding="utf-8") for file in files)
    except InvalidSetting as error:
        raise InvalidSetting(f"--llm-corpus: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"--llm-corpus: {path} can't be read as UTF-8 text: {error}") from error
    texts = tuple(text for text in texts if text.strip())
    if not texts:
        raise InvalidSetting(f"--llm-corpus: there is no text in {path}")
    return Corpus(name, texts)


def check_readable(files: Sequence[Path]) -> None:
    """Raise InvalidSetting for what has no end, or too much before it: pipes, devices, sockets, gigabytes of text."""
    for file, why in refusals(files):
        raise InvalidSetting(f"{file} {why}; copy what it gives into a file")
    size = sum(file.stat().st_size for file in files if file.is_file())
    if size > MOST_TEXT_BYTES:
        where = files[0] if len(files) == 1 else files[0].parent
        raise InvalidSetting(f"{where} holds {size / 1e9:.1f} GB of text, and 1 GB is the most; give a part of it")


def read_readable(path: Path) -> bytes:
    """Bytes of a file. Raises InvalidSetting as `check_readable`, and where it can't be read."""
    check_readable([path])
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSetting(f"{path} can't be read: {error.strerror or error}") from error


class Tokenizer(Protocol):
    """Interface that is needed of a tokenizer. Each of transformers' has it.

    One that has a true `is_fast` can tell which text a token stands for.
    """

    pad_token_id: int
    """Fills up the shorter rows of a batch. Any id will do, as a mask hides it."""

    bos_token_id: int | None
    eos_token_id: int | None
    """The token that ends a text; None where there is none. `generate` goes on after it."""

    def __call__(self, text: str, /, **how: Any) -> Mapping[str, Any]:
        """`input_ids`: the text's ids, in a list.

        how: `add_special_tokens` (bool, default True), `verbose` (bool, about warnings), and for one that is fast
        `return_offsets_mapping` (bool), which adds `offset_mapping`: start and end of each token in the text.
        """
        ...

    def decode(self, ids: Sequence[int], /, *, skip_special_tokens: bool = False) -> str:
        """The text of the ids."""
        ...


def plain_ids(tokenizer: Tokenizer, text: str) -> TokenIds:
    """The text's token ids, without special tokens."""
    return text_ids(tokenizer, text, is_rendered=True)


def text_ids(tokenizer: Tokenizer, text: str, *, is_rendered: bool) -> TokenIds:
    """The text's token ids, without special tokens where it is a chat template's, which has them."""
    return tuple(tokenizer(text, add_special_tokens=not is_rendered, verbose=False)["input_ids"])


class Prompts:
    """Prompts for one tokenizer. Those of a given length are cut from the embedded corpus, so they are real text.

    With a chat template, each is a user's turn, and its length counts the template's tokens too.
    """

    def __init__(self, tokenizer: Tokenizer, frame: tuple[str, str] | None = None) -> None:
        """frame: a chat template as rendered, before and after the user's text; None for plain text."""
        self.tokenizer = tokenizer
        self._is_chat = frame is not None
        self._frame = frame or ("", "")
        self._before, self._after = (plain_ids(tokenizer, text) if text else () for text in self._frame)
        self._text = plain_ids(tokenizer, "\n\n".join(read_corpus(None).texts))

    @property
    def framing(self) -> int:
        """Tokens that the template alone takes; 0 for plain text."""
        return len(self._before) + len(self._after)

    def framed(self, text: str) -> str:
        """The text as a model is given it, before it is encoded."""
        before, after = self._frame
        return f"{before}{text}{after}"

    def encode(self, text: str) -> TokenIds:
        """The text's token ids, with the template around it; of an empty text, the model's start token."""
        ids = text_ids(self.tokenizer, self.framed(text), is_rendered=self._is_chat)
        if ids:
            return ids
        for start in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if start is not None:
                return (start,)
        raise InvalidSetting("an empty prompt needs a start token, and this tokenizer has none")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def exact(self, tokens: int, start: int = 0) -> TokenIds:
        """A prompt of exactly that many tokens, whose text is cut from position `start` of the corpus. In a chat
        template, the text is encoded separately from the template.

        Raises InvalidSetting beyond MOST_PROMPT_TOKENS, before that takes all memory, and WorkloadUnsupported where the
        template leaves no room for a text.
        """
        return (*self._before, *self.plain(self._room(tokens), start), *self._after)

    def _room(self, tokens: int) -> int:
        """Tokens that the template leaves of so many."""
        if self._is_chat and tokens <= self.framing:
            raise WorkloadUnsupported(
                f"a chat doesn't fit in a length of {tokens}: the model's chat template alone takes {self.framing} "
                "tokens"
            )
        return tokens - self.framing

    def plain(self, tokens: int, start: int = 0) -> TokenIds:
        """Text only, without a template, of exactly that many tokens; the corpus is repeated as needed. A start token
        that the tokenizer puts first is not in it."""
        if tokens > MOST_PROMPT_TOKENS:
            raise InvalidSetting(f"a prompt of {tokens:,} tokens is asked for; the most are {MOST_PROMPT_TOKENS:,}")
        return tuple(islice(cycle(self._text), start, start + tokens))

    def unlike(self, tokens: int, number: int, salt: str) -> TokenIds:
        """A prompt of exactly that many tokens whose text begins unlike any other: no cache of prompts knows the text's
        first half, which is the salt's as far as it goes.

        salt: letters that were drawn for it. number: which of several, so that the rest differs too. Raises
        WorkloadUnsupported as `exact` does.
        """
        room = self._room(tokens)
        first = text_ids(self.tokenizer, salt, is_rendered=self._is_chat)[: (room + 1) // 2]
        rest = self.plain(room - len(first), start=31 * number % len(self._text))
        return (*self._before, *first, *rest, *self._after)

    def varied(self, count: int = len(VARIED_LENGTHS)) -> tuple[TokenIds, ...]:
        """Different prompts, the same ones each time, whose texts have varying lengths."""
        lengths = islice(cycle(VARIED_LENGTHS), count)
        return tuple(self.exact(self.framing + length, start=150 * index) for index, length in enumerate(lengths))

    @property
    def standard(self) -> tuple[TokenIds, ...]:
        """The prompts whose continuations are shown side by side."""
        return tuple(self.encode(text) for text in STANDARD_PROMPTS)

    def edge(self, name: str, longest: int) -> TokenIds:
        """The unusual prompt of that name (one of EDGE_PROMPTS); `longest`: tokens of the longest that fits,
        of which LONGEST_TOKENS are used at most."""
        return _EDGE[name](self, longest)


_EDGE: Mapping[str, Callable[[Prompts, int], TokenIds]] = {
    "one token": lambda prompts, _: prompts.exact(1),
    "many lines": lambda prompts, _: prompts.encode(MANY_LINES),
    "repeated token": lambda prompts, _: prompts.exact(1) * REPEATS,
    "odd unicode": lambda prompts, _: prompts.encode(ODD_UNICODE),
    "empty": lambda prompts, _: prompts.encode(""),
    LONGEST: lambda prompts, longest: prompts.exact(min(longest, LONGEST_TOKENS)),  # last, as it takes longest
}
EDGE_PROMPTS = tuple(_EDGE)
"""Names of the unusual prompts that `llm_prompts.edge` makes."""
