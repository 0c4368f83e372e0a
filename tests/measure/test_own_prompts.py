"""Files of prompts as people have them, and what is said of those that can't be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.measure.own_prompts import OwnPrompt, OwnPrompts, parse_own_prompts, read_own_prompts

ASKED = ({"role": "user", "content": "Hi"},)


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def parsed(text: str, name: str = "mine.jsonl") -> OwnPrompts:
    return parse_own_prompts(name, text.encode())


def only(text: str, name: str = "mine.jsonl") -> OwnPrompt:
    (prompt,) = parsed(text, name).prompts
    return prompt


FORMS: Mapping[str, tuple[str, OwnPrompt]] = {
    "our own": (
        lines({"prompt": "Hi", "answer": " there", "output_tokens": 3, "name": "greeting"}),
        OwnPrompt("line 1 ('greeting')", "Hi", (), " there", 3),
    ),
    "vLLM's, with more than is read": (
        lines({"prompt": "Hi", "output_tokens": 10, "temperature": 0}),
        OwnPrompt("line 1", "Hi", output_tokens=10),
    ),
    "OpenAI's, whose last message is the answer": (
        lines({"messages": [*ASKED, {"role": "assistant", "content": "Ho"}]}),
        OwnPrompt("line 1", "", ASKED, "Ho"),
    ),
    "OpenAI's parts": (
        lines({"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in "Hi"]}], "answer": "Ho"}),
        OwnPrompt("line 1", "", ASKED, "Ho"),
    ),
    "ShareGPT's": (
        json.dumps([{"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}]),
        OwnPrompt("item 1", "", ASKED, "Ho"),
    ),
    "aiperf's": (lines({"text": "Hi", "output_length": 4}), OwnPrompt("line 1", "Hi", output_tokens=4)),
    "guidellm's": (lines({"input": "Hi", "output_tokens_count": 5}), OwnPrompt("line 1", "Hi", output_tokens=5)),
    "guidellm's, of which the first counts": (
        lines({"Context": "Hi", "content": "Ho", "completion_tokens_count": 5}),
        OwnPrompt("line 1", "Hi", output_tokens=5),
    ),
    "LMSYS's, whose turn is a number": (
        lines({"conversation": [*ASKED, {"role": "assistant", "content": "Ho"}], "turn": 1}),
        OwnPrompt("line 1", "", ASKED, "Ho"),
    ),
    "an instruction without input": (lines({"instruction": "Hi", "input": ""}), OwnPrompt("line 1", "Hi")),
    "names in another case": (lines({"Prompt": "Hi", "ANSWER": "Ho"}), OwnPrompt("line 1", "Hi", (), "Ho")),
    "numbers as other tools write them": (
        lines({"prompt": "Hi", "output_tokens": 8.0, "name": 7}),
        OwnPrompt("line 1 ('7')", "Hi", output_tokens=8),
    ),
    "parts of OpenAI's responses": (
        lines({"messages": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]}),
        OwnPrompt("line 1", "", ASKED),
    ),
    "CSV of chats": (
        'messages,output_tokens\n"[{""role"": ""user"", ""content"": ""Hi""}]",8\n',
        OwnPrompt("line 2", "", ASKED, output_tokens=8),
    ),
    "CSV of ShareGPT's": (
        'Conversations\n"[{""from"": ""human"", ""value"": ""Hi""}]"\n',
        OwnPrompt("line 2", "", ASKED),
    ),
    "CSV": ('prompt,output_tokens,answer\n"Hi, you",,Ho\n', OwnPrompt("line 2", "Hi, you", (), "Ho")),
    "CSV with lengths": ("text,output_tokens\r\nHi,7\r\n", OwnPrompt("line 2", "Hi", output_tokens=7)),
    "a byte order mark": ("\ufeff" + lines({"prompt": "Hi"}), OwnPrompt("line 1", "Hi")),
    "lines without anything": ("\n\n" + lines({"prompt": "Hi"}) + "\n", OwnPrompt("line 3", "Hi")),
}


@pytest.mark.parametrize(("text", "prompt"), FORMS.values(), ids=FORMS)
def test_each_form_is_read_as_it_is(text: str, prompt: OwnPrompt) -> None:
    """Its name says nothing of the form where the first character does: standard input has none."""
    assert only(text, "standard input") == prompt


def test_a_conversation_goes_on_after_its_first_answer() -> None:
    turns = [("system", "Be kind."), ("human", "Hi"), ("gpt", "Ho"), ("human", "Why?")]
    text = lines({"conversations": [{"from": name, "value": value} for name, value in turns]})
    assert [message["role"] for message in only(text).messages] == ["system", "user", "assistant", "user"]
    assert only(text).answer == ""


def test_conversations_in_which_nobody_asks_are_counted() -> None:
    """ShareGPT's file has some thousand."""
    asked = {"conversations": [{"from": "human", "value": "Hi"}]}
    found = parsed(json.dumps([{"conversations": []}, asked, {"conversations": [{"from": "gpt", "value": "Ho"}]}]))
    assert (found.unasked, [prompt.where for prompt in found.prompts]) == (2, ["item 2"])


CALL = {"role": "assistant", "tool_calls": [{"type": "function"}]}
TOOLS: Mapping[str, Any] = {
    "no content": {"messages": [*ASKED, {**CALL, "content": None}]},
    "content left out": {"messages": [*ASKED, CALL]},
    "empty content": {"messages": [*ASKED, {**CALL, "content": ""}]},
    "ShareGPT's": {"conversations": [{"from": "human", "value": "Hi"}, {"from": "tool", "value": "{}"}]},
}


@pytest.mark.parametrize("row", TOOLS.values(), ids=TOOLS)
def test_conversations_in_which_a_tool_is_called_are_counted(row: Any) -> None:
    """They refused the whole file."""
    (form,) = row
    asked = {form: row[form][:1]}
    found = parsed(lines(row, asked))
    assert (found.unasked, [prompt.where for prompt in found.prompts]) == (1, ["line 2"])
    with pytest.raises(InvalidSetting, match=r"^there is no prompt in mine\.jsonl: in every row no user asks"):
        parsed(lines(row))


def test_a_file_is_known_by_its_bytes() -> None:
    text = lines({"prompt": "Hi"})
    assert parsed(text).digest == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert (parsed(text).are_chats, any(one.answer for one in parsed(text).prompts)) == (False, False)


EXAMPLE = "A line is such as {"
SHAPE = "Give one object a line, such as {"
BROKEN: Mapping[str, tuple[str, str]] = {
    "a broken line": ('{"text": "Hi"}\n{"text": "Hi"\n', f"mine.jsonl, line 2: Input data was truncated. {SHAPE}"),
    "an object of several lines": ('{\n "prompt": "Hi"\n}', f"mine.jsonl, line 1: Input data was truncated. {SHAPE}"),
    "half of a character": (
        lines({"prompt": "\U0001f600"}, {"prompt": "a\ud83d"}),
        f"mine.jsonl, line 2: an escape such as \\ud800 is half of a character. {SHAPE}",
    ),
    "no object": ('{"prompt": "Hi"}\n["Hi"]\n', "mine.jsonl, line 2: Expected `object`, got `array`"),
    "a broken item": ('[{"prompt": "Hi"}, 3]', "mine.jsonl, item 2: Expected `object`, got `int`"),
    "another type": (lines({"prompt": 3}), "mine.jsonl, line 1: Expected `str | null`, got `int` - at `$.prompt`"),
    "no tokens": (lines({"prompt": "Hi", "output_tokens": 0}), "mine.jsonl, line 1: Expected `int` >= 1"),
    "no prompt": (lines({"answer": "Ho"}), f"mine.jsonl, line 1 has no prompt. {EXAMPLE}"),
    "a blank one": (lines({"prompt": " "}), "mine.jsonl, line 1: the prompt is blank"),
    "two": (lines({"instruction": "Add", "input": "1, 2"}), "mine.jsonl, line 1 has input and instruction: one"),
    "mixed forms": (
        lines({"prompt": "Hi"}, {"prompt": "Ho"}, {"messages": list(ASKED)}),
        "mine.jsonl, line 3 has messages, and line 1 has prompt: give all rows one form",
    ),
    "nobody who asks": (
        lines({"messages": [{"role": "assistant", "content": "Ho"}]}),
        "mine.jsonl, line 1 has no message of a user's before the answer",
    ),
    "two answers": (
        lines({"messages": [*ASKED, {"role": "assistant", "content": "Ho"}], "answer": "Ha"}),
        "mine.jsonl, line 1 has two answers: the last message, and answer",
    ),
    "a picture": (
        lines({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
        "mine.jsonl, line 1 has a message with 'image_url', and text alone can be measured",
    ),
    "a stranger": (
        lines({"conversations": [{"from": "martian", "value": "Hi"}]}),
        "mine.jsonl, line 1 has a turn from 'martian', which is none of human, user, gpt, ",
    ),
    "nothing": ("", f"there is no prompt in mine.jsonl. {EXAMPLE}"),
    "nothing but an array": ("[]", f"there is no prompt in mine.jsonl. {EXAMPLE}"),
    "zeros": ("\0\0", "mine.jsonl is no text: byte 0 is zero; give JSONL, JSON or CSV"),
    "no JSON in lines": ("Hello\n", "mine.jsonl, line 1: JSON is malformed"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parsed(text)
    assert str(caught.value).startswith(message)


BROKEN_CSV: Mapping[str, tuple[str, str]] = {
    "another column": ("ask;answer\nHi;Ho\n", "mine.csv is no JSON, and as CSV with commas it has no column "),
    "a value too many": ("prompt,answer\nHi,Ho,Ha\n", "mine.csv, line 2 has another number of values than the header"),
    "a value too few": ("prompt,answer\nHi,Ho\nHi\n", "mine.csv, line 3 has another number of values than the header"),
    "an open quote": ('prompt\n"Hi\n', "mine.csv, line 2: unexpected end of data"),
    "no number": ("prompt,output_tokens\nHi,many\n", "mine.csv, line 2: Expected `int | null`, got `str`"),
    "no JSON": ("messages\n[{'role'}]\n", "mine.csv, line 2, messages: JSON is malformed"),
    "a value too many after lines without any": (
        "prompt,answer\n\n\nHi,Ho,Ha\n",
        "mine.csv, line 4 has another number of values than the header",
    ),
    "no value": ('prompt,answer\n"",Ho\n', "mine.csv, line 2 has no prompt."),
}


@pytest.mark.parametrize(("text", "message"), BROKEN_CSV.values(), ids=BROKEN_CSV)
def test_what_is_wrong_with_a_csv_is_said_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parsed(text, "mine.csv")
    assert str(caught.value).startswith(message)


def test_a_line_of_a_csv_is_where_its_row_begins() -> None:
    """A quoted text may hold lines of its own."""
    found = parsed('prompt\n"one\ntwo"\nthree\n', "mine.csv")
    assert [prompt.where for prompt in found.prompts] == ["line 2", "line 4"]


def test_what_is_no_text_is_refused_with_the_byte() -> None:
    with pytest.raises(
        InvalidSetting, match=r"^mine\.bin is no text in UTF-8: byte 1 is 0xff; give JSONL, JSON or CSV in UTF-8$"
    ):
        parse_own_prompts("mine.bin", b"a\xff")


def test_a_file_that_is_not_there_is_named_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-prompts: .*absent\.jsonl can't be read: No such file"):
        read_own_prompts(str(tmp_path / "absent.jsonl"), lambda: b"")


def test_a_dash_is_what_is_piped_in(tmp_path: Path) -> None:
    found = read_own_prompts("-", lambda: lines({"prompt": "Hi"}).encode())
    assert (found.name, found.prompts) == ("standard input", (OwnPrompt("line 1", "Hi"),))
    path = tmp_path / "mine.jsonl"
    path.write_text(lines({"prompt": "Ho"}), encoding="utf-8")
    assert read_own_prompts(str(path), lambda: b"").name == "mine.jsonl"
