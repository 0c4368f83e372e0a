"""A user's own prompts, read from a file or standard input in the forms in which people have them.

A row has a text or a chat, and may have the answer, its length and a name. Read are this package's own names, vLLM's
custom JSONL, OpenAI's chat JSONL, ShareGPT's JSON, and the names of guidellm and aiperf; as JSON lines, a JSON array or
CSV with a header.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec

from llm_bench_fixtures.errors import InvalidSetting, alternatives
from llm_bench_fixtures.options.parsers import parse_path, shortened
from llm_bench_fixtures.workloads import MOST_PROMPT_TOKENS, MOST_TEXT_BYTES, read_readable

STANDARD_INPUT = "-"
EXAMPLE = '{"prompt": "Snow is", "answer": " white.", "output_tokens": 8}'
TEXTS = ("prompt", "text", "text_input", "input", "question", "instruction")  # what a prompt is called
CHATS = ("messages", "conversations")
OTHERS = {  # names of guidellm's, the first of which counts where a row has none of those above, and its form
    "chat_messages": "messages",
    "conversation": "messages",
    "context": "prompt",
    "content": "prompt",
    "turn": "prompt",
}
LENGTHS = ("output_tokens", "output_length", "output_tokens_count", "completion_tokens_count")  # an answer's length
TEXT_PARTS = ("text", "input_text", "output_text")
SPEAKERS = {  # roles by ShareGPT's names
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "function_call", "observation"), ""),  # no text of anybody's
}

_HALF = re.compile(r"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])")  # half of a surrogate pair, which is no text

Message: TypeAlias = Mapping[str, str]
"""A message's `role` and `content`."""
Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MOST_PROMPT_TOKENS)]


@dataclass(frozen=True)
class OwnPrompt:
    """One row."""

    where: str
    """Line and name of the row."""
    text: str = ""
    """Empty for a chat."""
    messages: tuple[Message, ...] = ()
    answer: str = ""
    """Empty where there is none."""
    output_tokens: int | None = None


@dataclass(frozen=True)
class OwnPrompts:
    """The rows of a file."""

    name: str
    prompts: tuple[OwnPrompt, ...]
    digest: str
    """Digest of the file's bytes."""
    unasked: int = 0
    """How many other rows are conversations in which no user asks anything, or a tool is called."""

    @property
    def are_chats(self) -> bool:
        return bool(self.prompts[0].messages)


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: Any = None


class _Turn(msgspec.Struct):
    value: str
    sender: str = msgspec.field(name="from")


class _Row(msgspec.Struct):
    prompt: str | None = None
    text: str | None = None
    text_input: str | None = None
    input: str | None = None
    question: str | None = None
    instruction: str | None = None
    messages: list[_Message] | None = None
    conversations: list[_Turn] | None = None
    output_tokens: Tokens | None = None
    output_length: Tokens | None = None
    output_tokens_count: Tokens | None = None
    completion_tokens_count: Tokens | None = None
    answer: str | None = None
    name: str | int | float | None = None


def read_own_prompts(given: str, standard_input: Callable[[], bytes]) -> OwnPrompts:
    """The prompts in a file, or with "-" those that `standard_input` gives. Raises InvalidSetting that names file, line
    and what is wrong."""
    try:
        if given == STANDARD_INPUT:
            return parse_own_prompts("standard input", standard_input())
        path = parse_path(given)
        return parse_own_prompts(path.name, read_readable(path))
    except InvalidSetting as error:
        raise InvalidSetting(f"--llm-prompts: {error}") from error


def parse_own_prompts(name: str, data: bytes) -> OwnPrompts:
    """name: of the file. Raises InvalidSetting."""
    if len(data) > MOST_TEXT_BYTES:
        raise InvalidSetting(f"{name} holds more than {MOST_TEXT_BYTES / 1e9:.0f} GB; give a part of it")
    prompts: list[OwnPrompt] = []
    first = form = ""
    unasked = 0
    for where, given in _rows(name, _decoded(name, data)):
        place = f"{name}, {where}"
        row = _row(given, place)
        found = _form(row, place)
        first, form = first or where, form or found
        if found != form:
            raise InvalidSetting(f"{place} has {found}, and {first} has {form}: give all rows one form")
        prompt = _prompt(row, form, where, place)
        prompts += [prompt] if prompt else []
        unasked += prompt is None
    if not prompts:
        others = ": in every row no user asks, or a tool is called" if unasked else ""
        raise InvalidSetting(f"there is no prompt in {name}{others}. A line is such as {EXAMPLE}")
    return OwnPrompts(name, tuple(prompts), hashlib.sha256(data).hexdigest()[:16], unasked)


def _decoded(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")  # with the mark that some editors put first, or without
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is {data[error.start]:#04x}"
        raise InvalidSetting(f"{name} is no text in UTF-8: {what}; give JSONL, JSON or CSV in UTF-8") from error
    if "\0" in text:
        raise InvalidSetting(f"{name} is no text: byte {data.index(0)} is zero; give JSONL, JSON or CSV")
    return text


def _rows(name: str, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place. The first character tells JSON from CSV, as standard input has no suffix."""
    start = text.lstrip()[:1]
    if start == "[":
        for number, item in enumerate(_from_json(text, list[msgspec.Raw], name), 1):
            yield f"item {number}", _from_json(item, dict[str, Any], f"{name}, item {number}")
    elif start == "{" or name.endswith((".json", ".jsonl")):
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"line {number}", _from_json(line, dict[str, Any], f"{name}, line {number}")
    elif start:
        yield from _csv_rows(name, text)


def _row(given: Mapping[str, Any], place: str) -> _Row:
    """Names in any case; what is empty isn't there, and 8.0 tokens are 8. A chat may be a text in JSON, as in CSV."""
    present = {name.strip().lower(): value for name, value in given.items() if value not in ("", None)}
    if not present.keys() & {*TEXTS, *CHATS}:
        present |= next(({form: present[name]} for name, form in OTHERS.items() if name in present), {})
    for name in CHATS:
        if isinstance(present.get(name), str):
            present[name] = _from_json(present[name], Any, f"{place}, {name}")
    try:
        return msgspec.convert(present, _Row, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"{place}: {error}. A line is such as {EXAMPLE}") from error


def _csv_rows(name: str, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    csv.field_size_limit(MOST_TEXT_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    before = 0  # lines
    try:
        header = next(filter(None, reader), [])
        known = (*TEXTS, *CHATS, *OTHERS)
        if not {*known} & {column.strip().lower() for column in header}:
            raise InvalidSetting(
                f"{name} is no JSON, and as CSV with commas it has no column {alternatives(known)}, but "
                f"{shortened(', '.join(header))}"
            )
        before = reader.line_num
        for values in reader:
            where, before = f"line {before + 1}", reader.line_num
            if len(values) not in (0, len(header)):
                raise InvalidSetting(f"{name}, {where} has another number of values than the header")
            if values:
                yield where, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise InvalidSetting(f"{name}, line {before + 1}: {error}") from error


def _from_json(text: str | msgspec.Raw, kind: Any, place: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:  # a wrong type is one of these errors
        is_half = isinstance(text, str) and _HALF.search(text)
        why = "an escape such as \\ud800 is half of a character" if is_half else error
        raise InvalidSetting(f"{place}: {why}. Give one object a line, such as {EXAMPLE}, or an array") from error


def _form(row: _Row, where: str) -> str:
    """Name that the row has for its prompt. Raises InvalidSetting unless it has exactly one."""
    found = [name for name in (*TEXTS, *CHATS) if getattr(row, name) is not None]
    if not found:
        raise InvalidSetting(f"{where} has no prompt. A line is such as {EXAMPLE}")
    if len(found) > 1:
        raise InvalidSetting(f"{where} has {' and '.join(found)}: one of them has to be the whole prompt")
    return found[0]


def _prompt(row: _Row, form: str, where: str, place: str) -> OwnPrompt | None:
    """None of a conversation in which no user asks anything, or a tool is called. place: with the file's name."""
    length = next((length for name in LENGTHS if (length := getattr(row, name)) is not None), None)
    named = f"{where} ({shortened(str(row.name))})" if row.name is not None else where
    answer = row.answer or ""
    if form not in CHATS:
        text = str(getattr(row, form))
        if not text.strip():
            raise InvalidSetting(f"{place}: the {form} is blank")
        return OwnPrompt(named, text, (), answer, length)
    chat = getattr(row, form)
    messages = [*(_turns(chat, place) if form == "conversations" else _messages(chat, place))]
    if not all(message["role"] for message in messages):
        return None
    if messages and messages[-1]["role"] == "assistant":
        if answer:
            raise InvalidSetting(f"{place} has two answers: the last message, and answer")
        answer = messages.pop()["content"]
    if not any(message["role"] == "user" for message in messages):
        if form == "conversations":  # ShareGPT's files have such
            return None
        raise InvalidSetting(f"{place} has no message of a user's before the answer")
    return OwnPrompt(named, "", tuple(messages), answer, length)


def _messages(given: list[_Message], place: str) -> Iterator[Message]:
    for message in given:
        is_text = message.content is not None and not message.tool_calls
        parts = [_Part("text", message.content)] if isinstance(message.content, str) else message.content or ()
        other = next((part.type for part in parts if part.type not in TEXT_PARTS), "")
        if other:
            raise InvalidSetting(f"{place} has a message with {shortened(other)}, and text alone can be measured")
        yield {"role": message.role if is_text else "", "content": "".join(part.text for part in parts)}


def _turns(given: list[_Turn], place: str) -> Iterator[Message]:
    for turn in given:
        if turn.sender not in SPEAKERS:
            known = ", ".join(SPEAKERS)
            raise InvalidSetting(f"{place} has a turn from {shortened(turn.sender)}, which is none of {known}")
        yield {"role": SPEAKERS[turn.sender], "content": turn.value}
