"""What can be wrong with a chat template, which is a program of somebody else's: a row for each fault, with what must
be said. None of them runs in this process, or runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.models import chat
from llm_bench_fixtures.models.chat import chat_prompts
from llm_bench_fixtures.models.source import ModelSource

pytestmark = pytest.mark.usefixtures("preloaded")

OF_X = "--llm-chat: the chat template of x "
NO_END = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"

TEMPLATES: Mapping[str, tuple[str, str]] = {
    "none": ("", "--llm-chat: x has no chat template; give an instruct model, or leave the option out"),
    "no template at all": ("{% if %}", f"{OF_X}can't be rendered: TemplateSyntaxError: Expected an expression"),
    "one that raises": (
        "{{ raise_exception('no system turn') }}",
        f"{OF_X}can't be rendered: TemplateError: no system turn",
    ),
    "one that asks for what isn't there": ("{{ a.b }}", f"{OF_X}can't be rendered: UndefinedError: 'a' is undefined"),
    "one without end": (NO_END, f"{OF_X}was not rendered after 1 s; it may have no end"),
    "a loop beyond the sandbox": ("{% for a in range(10**9) %}{% endfor %}", f"{OF_X}can't be rendered: OverflowError"),
    "more memory than there is": ("{{ ('a' * 10**12) | length }}", f"{OF_X}can't be rendered: MemoryError"),
    "a text without end": ("{{ 'a' * 2 * 10**6 }}", f"{OF_X}can't be rendered: it is longer than 1,000,000 characters"),
    "one that drops the text": ("Hello", f"{OF_X}shows what the user says 0 times, and once is what makes a prompt"),
    "one that repeats the text": (
        "{{ messages[0].content * 2 }}",
        f"{OF_X}shows what the user says 2 times, and once is what makes a prompt",
    ),
    "one that reaches for Python": (
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        f"{OF_X}can't be rendered: SecurityError: access to attribute '__init__'",
    ),
}


def with_template(source: ModelSource, template: str) -> Any:
    tokenizer = source.load_tokenizer()
    tokenizer.chat_template = template or None
    return tokenizer


@pytest.mark.parametrize(("template", "message"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_that_makes_no_prompt_is_named(
    template: str, message: str, tiny_source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "RENDER_S", 1.0 if template == NO_END else chat.RENDER_S)
    load = partial(with_template, tiny_source, template)
    with pytest.raises(InvalidSetting) as caught:
        chat_prompts("x", load(), load, on_cpu=True)
    assert str(caught.value).startswith(message)
