"""Which of a user's own prompts are measured, and how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_factory import asking
from small_models import write_model

from llm_bench_fixtures.answer.need import Need, Reader
from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.own_prompts import parse_own_prompts
from llm_bench_fixtures.models.needs import RoundSize
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.session.own import OwnCase, OwnRow, OwnRun, full_batches, own_cases, sample
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import Prompts, Workload

ALONE, BATCH = OwnCase("one at a time"), OwnCase("batch of 4", 4)
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if messages | length > 2 %}{{ raise_exception('too many turns') }}{% endif %}<|assistant|>"
)


def run_of(*rows: Any, **options: str) -> OwnRun:
    """Of the embedded model, whose context is 512."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    prompts = parse_own_prompts("mine.jsonl", data) if rows else None
    given = {"prompts": "mine.jsonl"} if rows else {}
    setup = Setup(parse_settings({"device": "cpu", "batch_sizes": "4", **given, **options}), Progress(), prompts)
    assert setup.own is not None
    return setup.own


def row(prompt: int, new_tokens: int) -> OwnRow:
    return OwnRow((1,) * prompt, new_tokens)


def sizes(rows: list[OwnRow]) -> list[tuple[int, int]]:
    return [(len(one.prompt), one.new_tokens) for one in rows]


def test_the_cases_are_one_at_a_time_and_the_largest_batch() -> None:
    assert own_cases(parse_settings({})) == ()
    assert own_cases(parse_settings({"prompts": "a", "batch_sizes": "1,4"})) == (ALONE, BATCH)
    assert own_cases(parse_settings({"prompts": "a", "batch_sizes": "1"})) == (ALONE,)
    sizes = parse_settings({"prompts": "a", "batch_sizes": "1,2,4"})
    assert own_cases(sizes, asking("tpot<=50ms")) == (ALONE, BATCH)
    shapes = own_cases(parse_settings({"shape": "64/8,16/4", "batch_sizes": "4"}))
    assert list(map(str, shapes)) == ["16/4", "64/8", "batch of 4"]
    assert [case.batch_size for case in shapes] == [1, 1, 4]


@pytest.mark.parametrize(
    "need", [asking("tpot<=50ms", Reader.THROUGHPUT), asking("throughput>=9")], ids=["wanted", "limited"]
)
def test_where_throughput_is_asked_for_smaller_batches_are_tried_after_the_largest(need: Need) -> None:
    """Bug: where a batch of 8 was too slow, no batch was tried that might do."""
    sizes = parse_settings({"prompts": "a", "batch_sizes": "1,2,4"})
    assert own_cases(sizes, need) == (ALONE, BATCH, OwnCase("batch of 2", 2))


def test_each_cache_that_is_asked_for_has_the_same_cases_the_first_ones_first() -> None:
    cases = own_cases(parse_settings({"prompts": "a", "batch_sizes": "4", "cache": "static,dynamic,static"}))
    assert [(str(case), case.cache.value) for case in cases] == [
        ("one at a time, cache static", "static"),
        ("batch of 4, cache static", "static"),
        ("one at a time", "dynamic"),
        ("batch of 4", "dynamic"),
    ]


def test_an_answer_is_as_long_as_is_told_else_as_its_text_else_as_all_others(prompts: Prompts) -> None:
    """A number in the file wins over one on the command line, and that over the answer's text."""
    text = " The ships came home."
    rows = [{"prompt": "Hi", "output_tokens": 3}, {"prompt": "Hi", "answer": text}, {"prompt": "Hi"}]
    assert run_of(*rows).work(ALONE, prompts).new_tokens == (3, len(prompts.encode(text)), 16)
    assert run_of(*rows, new_tokens="5").work(ALONE, prompts).new_tokens == (3, 5, 5)


def test_prompts_run_in_the_files_order_and_in_full_batches_of_like_lengths(prompts: Prompts) -> None:
    rows = [{"prompt": f"{number} hens", "output_tokens": tokens} for number, tokens in enumerate((9, 1, 8, 2, 7))]
    run = run_of(*rows)
    alone, batch = run.work(ALONE, prompts), run.work(BATCH, prompts)
    assert alone.prompts == tuple(prompts.encode(one["prompt"]) for one in rows)
    assert (alone.new_tokens, alone.batch_size) == ((9, 1, 8, 2, 7), 1)
    assert (batch.new_tokens, batch.batch_size) == ((1, 2, 7, 8, 9, 8, 7, 2), 4)
    assert batch.workload == Workload(batch.prompts, 9, 4, lengths=batch.new_tokens)
    assert run.rounds == [RoundSize(size, max(map(len, alone.prompts)), 9) for size in (1, 4)]
    answered = run_of({"prompt": "Hi", "answer": " you", "output_tokens": 2})
    assert answered.rounds[0] == RoundSize(1, len(prompts.encode("Hi you")))  # whose logits are all asked for


def test_fewer_prompts_than_a_batch_has_come_again() -> None:
    assert sizes(full_batches([row(3, 1), row(5, 1)], 4, 512)) == [(3, 1), (5, 1), (3, 1), (5, 1)]


def test_what_does_not_fit_together_is_in_batches_of_its_own() -> None:
    """Bug: the longest prompt was left out of batches. Of 500 tokens padded next to an answer of 200, it needs 700."""
    assert sizes(full_batches([row(500, 10), row(100, 200)], 2, 512)) == [(500, 10)] * 2 + [(100, 200)] * 2
    assert sizes(full_batches([row(300, 10), row(100, 200)], 2, 512)) == [(300, 10), (100, 200)]
    rows = [row(1900, 100), row(300, 500), *[row(300, 400)] * 6, row(500, 120)]
    found = sizes(full_batches(rows, 8, 2048))
    assert found[:8] == [(1900, 100), (500, 120)] * 4
    assert sorted(found[8:]) == [*[(300, 400)] * 6, (300, 500), (500, 120)]


def test_a_batch_that_is_not_full_has_others_before_its_own_again() -> None:
    """Bug: the last batch of nine was eight times the longest prompt."""
    found = full_batches([row(1, number) for number in range(1, 10)], 8, 512)
    assert [one.new_tokens for one in found[8:]] == [9, 8, 7, 6, 5, 4, 3, 2]


def test_few_prompts_are_all_timed_and_of_many_a_seeded_sample() -> None:
    ten = [row(0, 10)]
    assert sample(ten * 64, 640, seed=0) == list(range(64))
    chosen = sample(ten * 100, 10_000, seed=0)
    assert (len(chosen), chosen == sorted(chosen), chosen == sample(ten * 100, 10_000, seed=0)) == (64, True, True)
    assert chosen != sample(ten * 100, 10_000, seed=1)
    assert len(sample(ten * 20, 95, seed=0)) == 9  # as many as take no more steps


def test_however_long_they_are_a_few_of_all_lengths_are_timed() -> None:
    """Bug: of 40 prompts with answers of 300 tokens one was timed, whichever came first."""
    lengths = [300 + (number * 7) % 40 for number in range(40)]
    chosen = sample([row(200, length) for length in lengths], 448, seed=0)
    assert sorted(lengths[number] for number in chosen) == [300, 313, 326, 339]
    assert sample([row(2, 100)] * 3, 95, seed=0) == [0, 1, 2]


def test_prompts_in_a_batch_take_fewer_steps_and_none_comes_twice() -> None:
    """Bug: a batch of four was four times the one prompt. A prompt in it counts for half of one by itself."""
    assert len(sample([row(0, 2)] * 100, 448, seed=0, size=4)) == 64  # the most
    assert len(sample([row(0, 90)] * 40, 448, seed=0, size=4)) == 8  # of 9 that there are steps for, full batches
    assert len(sample([row(0, 900)] * 40, 448, seed=0, size=4)) == 4
    assert len(sample([row(0, 9)] * 200, 448, seed=0, size=100)) == 100


def test_a_round_of_many_prompts_takes_about_so_many_steps(prompts: Prompts) -> None:
    """Each takes 20 and the sixteenth of its prompt's one token: seven of 40 take 140.4, and eight 160.5. In a batch
    of four it counts for half: 12 of 15 that there are steps for, in full batches."""
    run = run_of(*[{"prompt": "a", "output_tokens": 20}] * 40)
    assert [len(run.work(case, prompts).rows) for case in (ALONE, BATCH)] == [7, 12]


def test_what_is_longer_than_the_context_is_left_out_with_words(prompts: Prompts) -> None:
    """A prompt, or its answer after it; the others run."""
    rows = [{"prompt": "Hi"}, {"prompt": "a " * 600, "name": "long"}, {"prompt": "Hi", "output_tokens": 600}]
    run = run_of(*rows)
    assert run.description.endswith("3 prompts")  # before they are read
    assert len(run.work(ALONE, prompts).rows) == 1
    reason = "2 longer than the model's context of 512 tokens, new ones included (line 2 ('long'), line 3)"
    assert run.left_out == f"left out of 3 prompts: {reason}"
    assert run.description.endswith(f"3 prompts; {run.left_out}")
    none = run_of({"prompt": "a " * 600})
    with pytest.raises(WorkloadUnsupported, match=r"^left out of 1 prompt: 1 longer than the model's context of 512"):
        none.work(ALONE, prompts)
    assert none.answers is None


def test_of_a_hundred_thousand_prompts_a_sample_is_read_and_said(prompts: Prompts) -> None:
    rows = [{"prompt": "Hi", "answer": " you"}] * 100_000
    run = run_of(*rows)
    assert len(run.work(ALONE, prompts).rows) == 64
    corpus = run.answers
    assert corpus is not None
    assert (corpus.name, len(corpus.answers), corpus.read[0]) == ("answers of mine.jsonl", 1000, "Hi you")
    timed = "timed: 64 (one at a time), 64 (batch of 4) of a seeded sample of 1,000, the longest too"
    assert run.description.endswith(f"100,000 prompts; {timed}; scored: 1,000 answers of a seeded sample")
    long = run_of(*[{"prompt": "Hi", "output_tokens": 200}] * 40, cache="static,dynamic")
    assert len(long.work(BATCH, prompts).rows) == 4
    timed = "timed: 4 (one at a time), 4 (batch of 4) of 40, the longest too; shorter prompts or answers allow more"
    assert long.description.endswith(f"40 prompts; {timed}")  # whatever the caches


def test_shapes_are_cut_from_the_corpus_each_of_a_batch_elsewhere(prompts: Prompts) -> None:
    run = run_of(shape="16/4,64/8,600/8", batch_sizes="2")
    first, _, too_long, batch = own_cases(parse_settings({"shape": "16/4,64/8,600/8", "batch_sizes": "2"}))
    alone = run.work(first, prompts)
    assert (alone.prompts, alone.new_tokens) == ((prompts.exact(16),), (4,))
    assert sizes([*run.work(batch, prompts).rows]) == [(16, 4), (16, 4), (64, 8), (64, 8)]
    assert len({*run.work(batch, prompts).prompts}) == 4
    assert run.work(too_long, prompts).prompts == (prompts.exact(600),)  # which its own test can't run
    assert run.answers is None
    assert run.description == "16/4, 64/8, 600/8 (prompt/new tokens), cut from the embedded corpus"


def test_a_shape_that_does_not_fit_is_left_out_of_batches_with_words(prompts: Prompts) -> None:
    run = run_of(shape="16/4,600/8")
    assert len(run.work(BATCH, prompts).rows) == 4
    reason = "1 longer than the model's context of 512 tokens, new ones included (600/8)"
    assert run.left_out == f"left out of 2 shapes: {reason}"
    with pytest.raises(WorkloadUnsupported, match=r"^left out of 1 shape: 1 longer than"):
        run_of(shape="600/8").work(BATCH, prompts)


class Letters:
    """A tokenizer of a model's own, to which each letter is a token."""

    is_fast = False
    pad_token_id = bos_token_id = eos_token_id = 0

    def __call__(self, text: str, /, **how: Any) -> dict[str, list[int]]:
        return {"input_ids": [*text.encode()]}

    def decode(self, ids: Sequence[int], /, *, skip_special_tokens: bool = False) -> str:
        return bytes(ids).decode()


def test_a_prompt_too_long_in_a_variants_own_tokens_skips_its_case(prompts: Prompts) -> None:
    """Bug: it ran beyond the context."""
    run, letters = run_of({"prompt": "Hi"}, {"prompt": "hens " * 100, "output_tokens": 20}), Prompts(Letters())
    assert len(run.work(ALONE, prompts).rows) == 2
    reason = r"^in the variant's own tokens longer than the model's context of 512 tokens, new ones included: line 2$"
    with pytest.raises(WorkloadUnsupported, match=reason):
        run.work(ALONE, letters)
    short = run_of({"prompt": "Hi"})
    assert short.work(ALONE, letters).prompts == ((72, 105),)


def instruct(folder: Path, template: str, *rows: Any) -> OwnRun:
    """Of a small model with the template, whose context is 64."""
    write_model(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))
    return run_of(*rows, model=str(folder), in_process="true")


def chat(*contents: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(contents)]}


@pytest.mark.usefixtures("preloaded")
def test_chats_are_rendered_whole_and_one_that_the_template_refuses_is_left_out(
    tmp_path: Path, prompts: Prompts
) -> None:
    run = instruct(tmp_path / "chats", TEMPLATE, chat("Hi", "Ho"), chat("a", "b", "c"), chat("Why?"))
    own = run.work(ALONE, run._setup.prompts)
    assert own.prompts == tuple(prompts.encode(f"<|user|>{text}<|assistant|>") for text in ("Hi", "Why?"))
    assert run.answers is not None
    assert (run.answers.texts, run.answers.answers) == (("<|user|>Hi<|assistant|>",), ("Ho",))
    assert run.answers.is_rendered
    assert run.left_out == "left out of 3 prompts: 1 refused by the model's chat template (line 2)"


@pytest.mark.usefixtures("preloaded")
def test_chats_for_a_model_that_takes_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-prompts: mine.jsonl has chats, and tiny has no chat template; "):
        _ = run_of(chat("Hi")).rounds
    refused = instruct(tmp_path / "none", "{{ raise_exception('no') }}", chat("Hi"))
    with pytest.raises(InvalidSetting, match=r"takes none of the chats in mine\.jsonl: TemplateError: no$"):
        _ = refused.rounds
