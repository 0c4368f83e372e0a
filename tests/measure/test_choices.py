"""Which choice a model finds likeliest, and the sets that it is asked: the embedded one, and a user's own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from bigrams import Bigrams, Letters

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure import quality
from llm_bench_fixtures.measure.choices import (
    NONE,
    ChoiceItem,
    ChoiceSet,
    choose,
    embedded_choices,
    read_choices,
)
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.statistics.spread import exact_interval
from llm_bench_fixtures.workloads import CALIBRATION_FOLDER, CORPUS_FOLDER

TRAINING_FOLDER = Path(__file__).parents[2] / "tools" / "training_text"
Around = Callable[..., Bigrams]


@pytest.fixture
def bigrams(cpu: Device) -> Around:
    return lambda after, **how: Bigrams(cpu, after, **how)


def test_the_answer_is_the_choice_with_the_likeliest_sum_not_the_likeliest_mean(bigrams: Around) -> None:
    """The space has 0.1. a: 0.1 x 0.5 = 0.05, a mean of 0.22 a token. bb: 0.1 x 0.3 x 0.9 = 0.027, a mean of 0.3."""
    model = bigrams({"c": {" ": 0.1, "a": 0.3, "b": 0.3}, " ": {"a": 0.5, "b": 0.3}, "b": {"b": 0.9}})
    assert choose(model, [ChoiceItem("c", ("bb", "a"), 0)]) == (1,)


def test_a_longer_choice_wins_where_its_product_is_larger(bigrams: Around) -> None:
    """ab: 0.5 x 0.8 = 0.4; c: 0.3."""
    model = bigrams({" ": {"a": 0.5, "c": 0.3, "b": 0.18}, "a": {"b": 0.8, "c": 0.17}})
    assert choose(model, [ChoiceItem("b", ("c", "ab"), 0)]) == (1,)


def test_the_prompts_own_likelihood_does_not_count(bigrams: Around) -> None:
    """Both prompts are followed alike, and only one of them is likely."""
    model = bigrams({" ": {"a": 0.9, "b": 0.05}, "c": {"c": 0.9, " ": 0.05}, "b": {"b": 0.001, " ": 0.05}})
    assert choose(model, [ChoiceItem(prompt, ("b", "a"), 0) for prompt in ("cccc", "bbbb")]) == (1, 1)


def test_of_equally_likely_choices_it_is_the_first(bigrams: Around) -> None:
    model = bigrams({" ": {"a": 0.4, "b": 0.4}})
    assert choose(model, [ChoiceItem("c", ("c", "b", "a"), 0), ChoiceItem("c", ("a", "b"), 0)]) == (1, 0)


def test_a_choice_follows_after_a_space_and_its_last_token_is_not_fed(bigrams: Around) -> None:
    model = bigrams({})
    choose(model, [ChoiceItem("ab", ("c", "ca"), 0)])
    assert model.seen == [[[1, 2, 0, 3], [1, 2, 0, 0]]]  # the longer one first, the other padded with the token 0


def test_a_start_token_stands_before_the_prompt_where_the_tokenizer_puts_one(bigrams: Around) -> None:
    model = bigrams({}, bos=True)
    choose(model, [ChoiceItem("a", ("b", "c"), 0)])
    assert model.seen == [[[4, 1, 0], [4, 1, 0]]]


def test_white_space_at_a_prompts_end_belongs_to_the_choices(bigrams: Around) -> None:
    """As in the harness. After "c" the double space would be a target of both choices, so that nothing changes."""
    model = bigrams({" ": {"a": 0.1, "b": 0.7, " ": 0.2}})
    assert choose(model, [ChoiceItem("c ", ("a", "b"), 0)]) == (1,)
    assert model.seen == [[[3, 0, 0], [3, 0, 0]]]


def test_items_are_answered_alike_in_any_batch(bigrams: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bigrams({" ": {"a": 0.5, "b": 0.3}, "b": {"b": 0.6}, "a": {"c": 0.9}})
    items = [ChoiceItem("c" * length, ("bb", "a", "ac"[: 1 + length % 2] + "b"), 0) for length in range(1, 9)]
    together = choose(model, items)
    assert together == tuple(answer for item in items for answer in choose(model, [item]))
    monkeypatch.setattr(quality, "BATCH_TOKENS", 1)
    assert choose(model, items) == together


def test_no_answer_where_no_likelihood_can_be_compared(bigrams: Around) -> None:
    """A NaN among them, or none of them possible; the item beside them is answered."""
    model = bigrams({" ": {"a": math.nan, "b": 0.5}, "b": {"c": 0.9}})
    assert choose(model, [ChoiceItem("c", ("a", "b"), 1)]) == (None,)
    nothing = bigrams({" ": {"a": 0.0, "b": 0.0, "c": 0.5}})
    assert choose(nothing, [ChoiceItem("c", ("a", "b"), 1), ChoiceItem("c", ("a", "c"), 1)]) == (None, 1)


def test_an_item_longer_than_the_context_is_not_asked(bigrams: Around) -> None:
    """Sixteen tokens are fed, as the last one is a target only."""
    model = bigrams({})
    assert choose(model, [ChoiceItem("c" * 15, ("a", "b"), 0)])
    with pytest.raises(WorkloadUnsupported, match=r"^an item has 17 tokens, and the model's context is 16$"):
        choose(model, [ChoiceItem("c" * 16, ("a", "b"), 0)])


def test_a_choice_without_a_token_is_not_asked(bigrams: Around) -> None:
    class Deaf(Letters):
        def __call__(self, text: str, /, **how: Any) -> Mapping[str, Any]:
            return super().__call__(text.removesuffix(" b"), **how)

    model = bigrams({})
    model.tokenizer = Deaf()
    with pytest.raises(WorkloadUnsupported, match=r"^'b' after 'a' has no token of its own in this tokenizer$"):
        choose(model, [ChoiceItem("a", ("c", "b"), 0)])


ITEM = '{"prompt": "Snow is", "choices": ["loud.", "white."], "answer": 1}'


def test_a_file_of_ones_own_may_have_blank_lines_and_further_fields(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'\n{ITEM}\r\n\n{{"id": 7, "prompt": "日は", "choices": ["昇る", "飲む", "書く"], "answer": 0}}\n')
    read = read_choices(str(path))
    assert read == ChoiceSet(
        "mine.jsonl",
        (ChoiceItem("Snow is", ("loud.", "white."), 1), ChoiceItem("日は", ("昇る", "飲む", "書く"), 0)),
    )
    assert read.guessing == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert read.description == f"mine.jsonl ({read.digest}), 2 items, of which guessing gets 41.7 %"


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.jsonl").write_text(ITEM)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_choices("~/mine.jsonl") == ChoiceSet("mine.jsonl", (ChoiceItem("Snow is", ("loud.", "white."), 1),))


def test_none_asks_nothing() -> None:
    assert read_choices(NONE) is None


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("Snow is white.", "JSON is malformed: invalid character"),
        ('{"prompt": "Snow is", "choices": ["white.", "loud."]}', "Object missing required field `answer`"),
        (ITEM.replace("1}", '"white."}'), "Expected `int`, got `str` - at `$.answer`"),
        (ITEM.replace('["loud.", "white."]', '"white."'), "Expected `array`, got `str` - at `$.choices`"),
        (ITEM.replace('"Snow is"', "7"), "Expected `str`, got `int` - at `$.prompt`"),
        ('["Snow is"]', "Expected `object`, got `array`"),
        (ITEM.replace("Snow is", " "), "the prompt is blank"),
        (ITEM.replace("loud.", ""), "an item needs at least two choices, none of them blank"),
        (ITEM.replace('"loud.", ', ""), "an item needs at least two choices, none of them blank"),
        (ITEM.replace("loud", "white"), "two of the choices are the same"),
        (ITEM.replace("1}", "2}"), "the answer is 2, and there are choices 0 to 1"),
        (ITEM.replace("1}", "-1}"), "the answer is -1, and there are choices 0 to 1"),
    ],
)
def test_a_broken_line_is_refused_with_its_number_and_what_is_wrong(line: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{ITEM}\n\n{line}\n{ITEM}\n")
    with pytest.raises(InvalidSetting) as caught:
        read_choices(str(path))
    assert str(caught.value).startswith(f"--llm-choices: {path}, line 3: {what}")
    assert str(caught.value).endswith(
        'A line is such as {"prompt": "Snow is", "choices": ["white.", "loud."], "answer": 0}'
    )


def test_bytes_that_are_no_text_are_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(ITEM.encode() + b"\n" + ITEM.replace("Snow", "Schnée").encode("latin-1"))
    with pytest.raises(InvalidSetting, match=r"^--llm-choices: .*latin\.jsonl, line 2: "):
        read_choices(str(path))


def test_a_file_that_is_not_there_and_one_without_items_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-choices: .*gone\.jsonl can't be read: No such file"):
        read_choices(str(tmp_path / "gone.jsonl"))
    (tmp_path / "empty.jsonl").write_text("\n \n")
    with pytest.raises(InvalidSetting, match=r"^--llm-choices: there is no item in .*empty\.jsonl$"):
        read_choices(str(tmp_path / "empty.jsonl"))


@pytest.mark.parametrize("change", [{"prompt": "Rain is"}, {"choices": ("white.", "loud.")}, {"answer": 0}], ids=str)
def test_other_items_have_another_digest(change: dict[str, Any]) -> None:
    item = ChoiceItem("Snow is", ("loud.", "white."), 1)
    assert ChoiceSet("a", (item,)).digest == ChoiceSet("b", (item,)).digest
    assert ChoiceSet("a", (item,)).digest != ChoiceSet("a", (replace(item, **change),)).digest


def test_without_a_file_it_is_the_embedded_set() -> None:
    assert read_choices("") == embedded_choices()


def test_the_embedded_set_is_large_enough_to_find_one_flip_in_forty() -> None:
    """None in 150 leaves a share of 2.4 % open. No prompt is asked twice."""
    items = embedded_choices().items
    assert exact_interval(0, len(items))[1] < 1 / 40
    assert len({item.prompt for item in items}) == len(items)
    assert embedded_choices().name == "embedded choices"


def test_neither_place_nor_length_gives_the_embedded_answers_away() -> None:
    """Guessing gets a third; always taking the first, or the shortest, little more."""
    items = embedded_choices().items
    assert fmean(item.answer == 0 for item in items) == pytest.approx(1 / 3, abs=0.05)
    by_length = [sum(_is_shortest(item)) / len(_is_shortest(item)) for item in items]
    assert fmean(by_length) < 0.45


def _is_shortest(item: ChoiceItem) -> list[bool]:
    """Of each of its shortest choices, whether it is the right one."""
    least = min(map(len, item.choices))
    return [index == item.answer for index, choice in enumerate(item.choices) if len(choice) == least]


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize("folder", [TRAINING_FOLDER, CORPUS_FOLDER, CALIBRATION_FOLDER], ids=lambda path: path.name)
def test_no_embedded_item_stands_in_another_text_of_the_project(folder: Path) -> None:
    """Else the embedded model would be asked to recite."""
    texts = " ".join(words(path.read_text(encoding="utf-8")) for path in folder.glob("*.txt"))
    assert texts
    right = [words(f"{item.prompt} {item.choices[item.answer]}") for item in embedded_choices().items]
    assert [text for text in right if f" {text} " in f" {texts} "] == []


def test_the_embedded_model_answers_better_than_by_guessing(tiny_fp32: TransformersModel) -> None:
    choices = embedded_choices()
    answers = choose(tiny_fp32, choices.items)
    right = sum(answer == item.answer for answer, item in zip(answers, choices.items, strict=True))
    assert exact_interval(right, len(choices.items))[0] > choices.guessing + 0.1


def test_its_answers_are_those_of_one_forward_pass_a_choice(tiny_fp32: TransformersModel) -> None:
    """The harness's way, spelled out: without batches, padding or windows."""

    def log_likelihood(prompt: str, choice: str) -> float:
        context, whole = (tiny_fp32.tokenizer(text)["input_ids"] for text in (prompt, f"{prompt} {choice}"))
        with torch.inference_mode():
            log_probabilities = tiny_fp32.module(torch.tensor([whole])).logits[0].log_softmax(-1)
        return sum(float(log_probabilities[place - 1, whole[place]]) for place in range(len(context), len(whole)))

    items = embedded_choices().items[::8]
    expected = []
    for item in items:
        scores = [log_likelihood(item.prompt, choice) for choice in item.choices]
        expected.append(scores.index(max(scores)))
    assert choose(tiny_fp32, items) == tuple(expected)
