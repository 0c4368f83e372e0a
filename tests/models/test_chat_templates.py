"""Prompts in a chat template: as long as they are asked for, and as a user would write them."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.models.chat import TODAY, chat_prompts, render_chats
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.processes.calls import Raised
from llm_bench_fixtures.workloads import VARIED_LENGTHS, Prompts

FRAME = ("<|user|>\n", "\n<|assistant|>\n")
TEMPLATE = (
    "{{ bos_token }}Today is {{ strftime_now('%d %b %Y') }}.\n"
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def with_template(source: ModelSource, template: str) -> Any:
    tokenizer = source.load_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def chats(tiny_source: ModelSource, preloaded: None) -> Prompts:
    return Prompts(tiny_source.load_tokenizer(), FRAME)


@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_a_chat_has_exactly_the_tokens_that_are_asked_for(tokens: int, chats: Prompts, prompts: Prompts) -> None:
    """The template's among them; what is left is the text that a plain prompt of that length has."""
    asked = chats.framing + tokens
    ids = chats.exact(asked, start=5)
    assert len(ids) == asked
    before = prompts.encode(FRAME[0])
    assert ids[: len(before)] == before
    assert ids[len(before) : len(before) + tokens] == prompts.exact(tokens, start=5)
    assert ids[len(before) + tokens :] == prompts.encode(FRAME[1])


def test_a_chat_that_leaves_no_room_for_its_text_can_not_be_had(chats: Prompts) -> None:
    size = chats.framing
    expected = f"^a chat doesn't fit in a length of {size}: the model's chat template alone takes {size} tokens$"
    with pytest.raises(WorkloadUnsupported, match=expected):
        chats.exact(chats.framing)
    with pytest.raises(WorkloadUnsupported):
        chats.edge("one token", longest=99)


def test_texts_are_put_in_the_template_and_encoded_as_one(chats: Prompts, prompts: Prompts) -> None:
    assert chats.encode("Hello") == prompts.encode("<|user|>\nHello\n<|assistant|>\n")
    assert chats.edge("empty", longest=99) == prompts.encode("<|user|>\n\n<|assistant|>\n")
    assert all(ids[: len(prompts.encode("<|user|>\n"))] == prompts.encode("<|user|>\n") for ids in chats.standard)
    assert len(chats.edge("longest", longest=99)) == 99


def test_prompts_of_varying_length_vary_in_their_text(chats: Prompts) -> None:
    lengths = [len(ids) - chats.framing for ids in chats.varied()]
    assert tuple(lengths) == VARIED_LENGTHS


def test_a_chat_that_no_cache_knows_has_its_letters_within_the_template(chats: Prompts, prompts: Prompts) -> None:
    one, other = (chats.unlike(64, 1, salt) for salt in ("qzx" * 40, "vkj" * 40))
    assert len(one) == len(other) == 64
    plain = chats.exact(64)
    before = next(place for place, (mine, its) in enumerate(zip(one, other, strict=True)) if mine != its)
    assert one[:before] == other[:before] == plain[:before]
    assert one != other
    assert one[before - 1 : before + 2] != plain[before - 1 : before + 2]


def test_what_is_measured_on_plain_text_stays_plain(chats: Prompts, prompts: Prompts) -> None:
    assert chats.plain(9) == prompts.exact(9)


@pytest.mark.usefixtures("preloaded")
def test_each_chat_of_several_turns_is_rendered_as_transformers_does(tiny_source: ModelSource) -> None:
    """Up to where the answer begins; what the template refuses costs that chat alone."""
    template = TEMPLATE.replace("Today is {{ strftime_now('%d %b %Y') }}.\n", "{{ messages[0].content[0].upper() }}")
    chats = [
        [{"role": "user", "content": "Hello"}],
        [{"role": "user", "content": ""}],
        [{"role": role, "content": f"{role}'s text"} for role in ("system", "user", "assistant", "user")],
    ]
    load = partial(with_template, tiny_source, template)
    one, refused, several = render_chats("whose", load, chats, on_cpu=True)
    for found, chat in ((one, chats[0]), (several, chats[2])):
        assert found == load().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert isinstance(refused, Raised)
    assert refused.message.startswith("UndefinedError: ")


@pytest.mark.usefixtures("preloaded")
def test_a_template_is_rendered_as_transformers_does_on_the_same_day_each_day(tiny_source: ModelSource) -> None:
    """Else each day would have prompts of its own, which no baseline could be compared with."""
    tokenizer = with_template(tiny_source, TEMPLATE)
    found = chat_prompts("x", tokenizer, partial(with_template, tiny_source, TEMPLATE), on_cpu=True)
    turn = [{"role": "user", "content": "Hello"}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    text = re.sub(r"Today is [^.]*", "Today is 26 Jul 2024", text)
    assert TODAY.year == 2024
    assert found.encode("Hello") == tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
