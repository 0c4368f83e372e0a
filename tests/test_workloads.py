from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.workloads import (
    CALIBRATION_FOLDER,
    CORPUS_FOLDER,
    EDGE_PROMPTS,
    MANY_LINES,
    ODD_UNICODE,
    VARIED_LENGTHS,
    CacheKind,
    Padding,
    Prompts,
    Side,
    Workload,
    make_batches,
    pad_batch,
    read_corpus,
)

TRAINING_FOLDER = Path(__file__).parents[1] / "tools" / "training_text"
LENGTHS_3_1_4 = ((1, 2, 3), (4,), (5, 6, 7, 8))


def test_a_padding_says_where_it_goes_and_how_far() -> None:
    assert str(Padding()) == "left, to the longest"
    assert str(Padding(Side.RIGHT, multiple_of=32, at_least=128)) == "right, to a multiple of 32, at least 128"


@pytest.mark.parametrize(
    ("padding", "longest", "width"),
    [
        (Padding(), 13, 13),
        (Padding(multiple_of=8), 13, 16),
        (Padding(multiple_of=8), 16, 16),
        (Padding(at_least=20), 13, 20),
        (Padding(at_least=10), 13, 13),
        (Padding(multiple_of=8, at_least=12), 13, 16),
        (Padding(multiple_of=8, at_least=30), 13, 30),
    ],
)
def test_the_width_of_a_batch(padding: Padding, longest: int, width: int) -> None:
    assert padding.width(longest) == width


def test_prompts_run_in_order_and_the_last_batch_may_be_smaller() -> None:
    workload = Workload(LENGTHS_3_1_4, new_tokens=1, batch_size=2)
    assert workload.groups == [((1, 2, 3), (4,)), ((5, 6, 7, 8),)]


def test_each_batch_is_as_wide_as_its_longest_prompt() -> None:
    assert Workload(LENGTHS_3_1_4, new_tokens=1, batch_size=2).widths == [3, 4]


def test_prompt_tokens_do_not_count_padding() -> None:
    assert Workload(LENGTHS_3_1_4, new_tokens=1, batch_size=3, padding=Padding(at_least=100)).prompt_tokens == 8


@pytest.mark.parametrize(
    ("batch_size", "padding", "padded"),
    [
        (1, Padding(), 0),
        (2, Padding(), 2),  # 2 x 3 + 1 x 4 columns hold 8 tokens
        (3, Padding(), 4),  # 3 x 4
        (3, Padding(multiple_of=8), 16),  # 3 x 8
        (1, Padding(at_least=5), 7),  # 3 x 5
    ],
)
def test_padded_tokens_are_the_area_less_the_prompts(batch_size: int, padding: Padding, padded: int) -> None:
    assert Workload(LENGTHS_3_1_4, 1, batch_size, padding).padded_tokens == padded


def test_the_longest_sequence_is_the_widest_batch_with_its_new_tokens() -> None:
    workload = Workload(LENGTHS_3_1_4, new_tokens=16, batch_size=2, padding=Padding(multiple_of=8))
    assert workload.longest == (8, 16)


def test_each_prompt_may_have_its_own_number_of_new_tokens() -> None:
    """A batch generates as many as its longest answer has; what only the others needed is no answer's."""
    workload = Workload(LENGTHS_3_1_4, new_tokens=5, batch_size=2, lengths=(5, 1, 3))
    assert (workload.new_tokens_by_batch, workload.steps, workload.all_new_tokens) == ([5, 3], 8, 9)
    assert workload.longest == (3, 5)  # the other batch has 4 + 3
    assert workload.answers([(1, 2, 3, 4, 5), (6, 7, 8, 9, 10), (11, 12, 13)]) == ((1, 2, 3, 4, 5), (6,), (11, 12, 13))
    alike = Workload(LENGTHS_3_1_4, new_tokens=5, batch_size=2)
    assert (alike.new_tokens_by_batch, alike.steps, alike.all_new_tokens) == ([5, 5], 10, 15)
    assert alike.digest != workload.digest
    assert alike.prompts_digest != workload.prompts_digest


@pytest.mark.parametrize("lengths", [(1, 2), (1, 2, 4), (0, 2, 3)])
def test_lengths_that_do_not_fit_the_prompts_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(InvalidSetting, match="a workload needs"):
        Workload(LENGTHS_3_1_4, new_tokens=3, batch_size=1, lengths=lengths)


def test_a_workload_of_one_length_keeps_the_digest_that_saved_runs_have() -> None:
    assert Workload(((1, 2), (3,)), 4, 2).digest == "fe4acd04b86cad24"


@pytest.mark.parametrize("prompts", [(), ((),), ((1,), ())])
def test_a_workload_without_a_token_to_start_from_is_refused(prompts: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InvalidSetting, match="at least one prompt, and each at least one token"):
        Workload(prompts, new_tokens=1, batch_size=1)


@pytest.mark.parametrize(("new_tokens", "batch_size"), [(0, 1), (1, 0)])
def test_a_workload_of_nothing_is_refused(new_tokens: int, batch_size: int) -> None:
    with pytest.raises(InvalidSetting, match="at least one new token and a batch size of at least one"):
        Workload(((1,),), new_tokens, batch_size)


def test_equal_work_has_an_equal_digest() -> None:
    one = Workload(((1, 2), (3,)), 4, 2, Padding(Side.RIGHT), CacheKind.STATIC)
    other = Workload(((1, 2), (3,)), 4, 2, Padding(Side.RIGHT), CacheKind.STATIC)
    assert one.digest == other.digest


OTHER_WORK = [
    Workload(((1, 2), (4,)), 4, 2),
    Workload(((3,), (1, 2)), 4, 2),
    Workload(((1,), (2, 3)), 4, 2),
    Workload(((1, 2), (3,)), 5, 2),
    Workload(((1, 2), (3,)), 4, 1),
    Workload(((1, 2), (3,)), 4, 2, Padding(Side.RIGHT)),
    Workload(((1, 2), (3,)), 4, 2, Padding(multiple_of=8)),
    Workload(((1, 2), (3,)), 4, 2, Padding(at_least=8)),
    Workload(((1, 2), (3,)), 4, 2, cache=CacheKind.OFF),
    Workload(((1, 2), (3,)), 4, 2, lengths=(4, 3)),
    Workload(((1, 2), (3,)), 4, 2, lengths=(3, 4)),
]


def test_each_other_work_has_a_digest_of_its_own() -> None:
    digests = {workload.digest for workload in (Workload(((1, 2), (3,)), 4, 2), *OTHER_WORK)}
    assert len(digests) == 1 + len(OTHER_WORK)


def test_the_prompts_digest_knows_prompts_and_new_tokens_only() -> None:
    base = Workload(((1, 2), (3,)), 4, 2).prompts_digest
    same = [workload.prompts_digest == base for workload in OTHER_WORK]
    assert same == [False] * 4 + [True] * 5 + [False] * 2


def test_left_padding_puts_the_prompt_at_the_end() -> None:
    batch = pad_batch([(5, 6), (7, 8, 9)], width=4, side=Side.LEFT, pad_token_id=0, device="cpu")
    assert batch.input_ids.tolist() == [[0, 0, 5, 6], [0, 7, 8, 9]]
    assert batch.attention_mask.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]


def test_right_padding_puts_the_prompt_at_the_start() -> None:
    batch = pad_batch([(5, 6), (7, 8, 9)], width=4, side=Side.RIGHT, pad_token_id=0, device="cpu")
    assert batch.input_ids.tolist() == [[5, 6, 0, 0], [7, 8, 9, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]


def test_a_prompt_token_that_is_the_padding_token_is_not_masked() -> None:
    batch = pad_batch([(0, 0)], width=3, side=Side.LEFT, pad_token_id=0, device="cpu")
    assert batch.attention_mask.tolist() == [[0, 1, 1]]


def test_the_batches_of_a_workload_have_its_widths_and_side() -> None:
    workload = Workload(LENGTHS_3_1_4, new_tokens=1, batch_size=2, padding=Padding(Side.RIGHT, multiple_of=4))
    first, second = make_batches(workload, pad_token_id=9, device="cpu")
    assert first.input_ids.tolist() == [[1, 2, 3, 9], [4, 9, 9, 9]]
    assert second.input_ids.tolist() == [[5, 6, 7, 8]]


@settings(database=None)
@given(
    st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=9), min_size=1, max_size=6),
    st.sampled_from(Side),
    st.integers(1, 4),
)
def test_what_the_mask_shows_is_the_prompts(rows: list[list[int]], side: Side, batch_size: int) -> None:
    workload = Workload(tuple(map(tuple, rows)), 1, min(batch_size, len(rows)), Padding(side, multiple_of=4))
    batches = make_batches(workload, pad_token_id=0, device="cpu")
    shown = [
        ids[mask == 1].tolist()
        for batch in batches
        for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]
    assert shown == rows
    assert sum(int((batch.attention_mask == 0).sum()) for batch in batches) == workload.padded_tokens


@pytest.mark.parametrize("tokens", [1, 16, 511, 20_000])
def test_an_exact_prompt_has_that_many_tokens(tokens: int, prompts: Prompts) -> None:
    assert len(prompts.exact(tokens)) == tokens


def test_an_exact_prompt_starts_where_asked(prompts: Prompts) -> None:
    assert prompts.exact(10, start=5) == prompts.exact(15)[5:]


def test_an_exact_prompt_is_text_of_the_corpus(prompts: Prompts) -> None:
    start_of_corpus = read_corpus(None).texts[0][:20]
    assert prompts.decode(prompts.exact(20)).startswith(start_of_corpus)


def test_varied_prompts_have_the_varied_lengths_again_and_again(prompts: Prompts) -> None:
    lengths = [len(prompt) for prompt in prompts.varied(10)]
    assert lengths == [*VARIED_LENGTHS, VARIED_LENGTHS[0], VARIED_LENGTHS[1]]


def test_varied_prompts_differ_and_are_the_same_each_time(prompts: Prompts) -> None:
    assert len(set(prompts.varied())) == len(VARIED_LENGTHS)
    assert prompts.varied() == prompts.varied()


def test_standard_prompts_are_their_texts(prompts: Prompts) -> None:
    assert prompts.decode(prompts.standard[0]) == "The capital of France is"


def test_the_token_that_ends_a_text_is_shown_where_that_is_asked(prompts: Prompts) -> None:
    hello = prompts.encode("Hello")
    end = "<|endoftext|>"
    assert (prompts.decode((*hello, 0)), prompts.decode((*hello, 0), skip_special_tokens=False)) == (
        "Hello",
        f"Hello{end}",
    )


def test_an_empty_text_is_the_start_token(prompts: Prompts, tiny_source: ModelSource) -> None:
    assert prompts.encode("") == (tiny_source.load_tokenizer().bos_token_id,)


def test_the_edge_prompt_of_one_token(prompts: Prompts) -> None:
    assert len(prompts.edge("one token", longest=496)) == 1


def test_the_longest_edge_prompt_has_as_many_tokens_as_fit(prompts: Prompts) -> None:
    assert len(prompts.edge("longest", longest=496)) == 496


def test_the_edge_prompt_of_a_repeated_token_is_one_token_64_times(prompts: Prompts) -> None:
    prompt = prompts.edge("repeated token", longest=496)
    assert (len(prompt), len(set(prompt))) == (64, 1)


@pytest.mark.parametrize(
    ("name", "text"), [("many lines", MANY_LINES), ("odd unicode", ODD_UNICODE)], ids=["lines", "unicode"]
)
def test_the_edge_prompts_of_text_decode_to_their_text(name: str, text: str, prompts: Prompts) -> None:
    assert prompts.decode(prompts.edge(name, longest=496)) == text


def test_every_edge_prompt_fits_the_embedded_model(prompts: Prompts) -> None:
    for name in EDGE_PROMPTS:
        assert 1 <= len(prompts.edge(name, longest=496)) <= 496


def test_a_corpus_of_one_file_is_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Ζωή and more.", encoding="utf-8")
    corpus = read_corpus(tmp_path / "mine.txt")
    assert (corpus.name, corpus.texts) == ("mine.txt", ("Ζωή and more.",))


def test_a_corpus_of_a_folder_has_its_txt_files_in_order_and_no_blank_one(tmp_path: Path) -> None:
    for name, text in (("b.txt", "second"), ("a.txt", "first"), ("c.txt", " \n"), ("d.md", "not this")):
        (tmp_path / name).write_text(text)
    assert read_corpus(tmp_path).texts == ("first", "second")


def test_a_corpus_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"--llm-corpus: .*gone\.txt can't be read"):
        read_corpus(tmp_path / "gone.txt")


def test_a_corpus_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("Zoé".encode("latin-1"))
    with pytest.raises(InvalidSetting, match=r"--llm-corpus: .*latin\.txt can't be read as UTF-8 text"):
        read_corpus(tmp_path / "latin.txt")


def test_a_corpus_without_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(InvalidSetting, match=r"--llm-corpus: there is no text in .*blank\.txt"):
        read_corpus(tmp_path / "blank.txt")


def test_a_folder_without_txt_files_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=f"--llm-corpus: there is no text in {re.escape(str(tmp_path))}"):
        read_corpus(tmp_path)


def test_the_embedded_corpus_has_at_least_3000_tokens(prompts: Prompts) -> None:
    corpus = read_corpus(None)
    assert corpus.name == "embedded corpus"
    assert sum(len(prompts.encode(text)) for text in corpus.texts) >= 3000


def sequences_of_12_words(folder: Path) -> set[tuple[str, ...]]:
    found = set()
    for path in folder.glob("*.txt"):
        words = re.findall(r"\w+", path.read_text(encoding="utf-8").lower())
        found |= {tuple(words[start : start + 12]) for start in range(len(words) - 11)}
    assert found, f"no text in {folder}"
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(CORPUS_FOLDER, CALIBRATION_FOLDER, id="corpus-calibration"),
        pytest.param(CORPUS_FOLDER, TRAINING_FOLDER, id="corpus-training"),
        pytest.param(CALIBRATION_FOLDER, TRAINING_FOLDER, id="calibration-training"),
    ],
)
def test_texts_to_score_calibrate_and_train_with_share_no_12_words(one: Path, other: Path) -> None:
    """Else the perplexity would be of text that the model, or its activation ranges, had seen."""
    assert not sequences_of_12_words(one) & sequences_of_12_words(other)
