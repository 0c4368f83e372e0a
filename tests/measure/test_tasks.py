"""What a task asks of a model: likelihoods and texts, of a model whose next sign depends on the one before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from bigrams import SIGNS, Bigrams

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.measure import tasks
from llm_bench_fixtures.measure.tasks import Continuation, continuations, log_likelihoods, rolling_log_likelihoods
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.model import ScoresTokens
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.workloads import CacheKind

CHANCES = {  # each adds up to 1
    "^": {" ": 0.1, "a": 0.6, "b": 0.1, "c": 0.1, "^": 0.1},
    "a": {" ": 0.1, "a": 0.1, "b": 0.5, "c": 0.2, "^": 0.1},
    "b": {" ": 0.1, "a": 0.2, "b": 0.1, "c": 0.5, "^": 0.1},
    "c": {" ": 0.4, "a": 0.3, "b": 0.1, "c": 0.1, "^": 0.1},
    " ": {" ": 0.1, "a": 0.1, "b": 0.1, "c": 0.1, "^": 0.6},
}
END = SIGNS.index("^")


class Writer(Bigrams):
    """Its texts end where ^ is the likeliest sign, after which `generate` goes on."""

    def __init__(self, cpu: Device) -> None:
        super().__init__(cpu, CHANCES, bos=True)
        self.tokenizer.eos_token_id = END
        self.asked: list[tuple[int, int]] = []  # tokens of each prompt, and new ones

    def generate(self, input_ids: Any, mask: Any, new_tokens: int, cache: CacheKind, on_token: Any = None) -> Any:
        self.asked.append((input_ids.shape[1], new_tokens))
        for _ in range(new_tokens):
            likeliest = self._table[input_ids[:, -1]].argmax(-1, keepdim=True)
            input_ids = torch.cat([input_ids, likeliest], dim=1)
        return input_ids


class Server(Writer):
    """Tells the likelihoods of texts alone."""

    def token_log_likelihoods(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        self.rows = [len(row) for row in rows]
        return [[-1.0] * (len(row) - 1) for row in rows]


@pytest.fixture
def writer(cpu: Device) -> Writer:
    return Writer(cpu)


def test_a_text_after_a_context_has_the_likelihoods_of_its_own_tokens(writer: Writer) -> None:
    """b after a 0.5, c after b 0.5, both the likeliest; a after b 0.2."""
    found = log_likelihoods(writer, [("ca", "bc"), ("c", "ab"), ("b", "a")])
    assert [nats for nats, _ in found] == pytest.approx([math.log(0.25), math.log(0.15), math.log(0.2)])
    assert [is_likeliest for _, is_likeliest in found] == [True, False, False]


def test_white_space_at_a_contexts_end_belongs_to_the_text(writer: Writer) -> None:
    """A space after c 0.4, b after it 0.1."""
    ((nats, _),) = log_likelihoods(writer, [("c ", "b")])
    assert nats == pytest.approx(math.log(0.04))


def test_without_a_context_the_start_token_is_one(writer: Writer) -> None:
    """A text that begins with that token is given it."""
    found = log_likelihoods(writer, [("", "ab"), ("", "^ab")])
    assert [nats for nats, _ in found] == pytest.approx([math.log(0.3)] * 2)
    assert writer.seen[-1] == [[END, 1], [END, 1]]


def test_a_context_that_begins_with_the_start_token_gets_no_second_one(writer: Writer) -> None:
    log_likelihoods(writer, [("^c", "a"), ("c", "a")])
    assert writer.seen[-1] == [[END, 3], [END, 3]]


def test_what_is_too_long_loses_its_beginning(writer: Writer) -> None:
    """The model's context is 16 tokens, and the last one isn't fed."""
    log_likelihoods(writer, [("a" + "c" * 20, "ab")])
    assert writer.seen[-1] == [[3] * 15 + [1]]


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (("a", ""), "'' after 'a' has no token of its own in this tokenizer"),
        (("a", "b" * 17), "a text has 17 tokens, and the model's context is 16"),
    ],
)
def test_what_no_model_of_that_tokenizer_and_context_can_be_asked(
    pair: tuple[str, str], why: str, writer: Writer
) -> None:
    with pytest.raises(WorkloadUnsupported, match=f"^{why}$"):
        log_likelihoods(writer, [pair])


def test_a_tokenizer_without_a_start_is_a_reason(cpu: Device) -> None:
    with pytest.raises(WorkloadUnsupported, match="has no token that begins a text"):
        rolling_log_likelihoods(Bigrams(cpu, CHANCES), ["ab"])


def test_a_whole_text_counts_every_token_once_however_long_it_is(writer: Writer) -> None:
    """a after the start 0.6, b 0.5. Of forty c the first has 0.1, and so have the others, over three windows. The
    start token is put before a text by the tokenizer, too, and counts there: 0.1."""
    found = rolling_log_likelihoods(writer, ["ab", "c" * 40, ""])
    assert found == pytest.approx([math.log(0.1 * 0.3), 41 * math.log(0.1), math.log(0.1)])


def test_a_server_does_not_tell_which_token_is_the_likeliest(cpu: Device) -> None:
    server = Server(cpu)
    assert isinstance(server, ScoresTokens)
    assert log_likelihoods(server, [("a", "bc")]) == [(-2.0, None)]
    log_likelihoods(server, [("a" * 20, "b")])
    assert server.rows == [16]  # it reads the last token, too
    with pytest.raises(WorkloadUnsupported, match="may put another token in the place of the one that ends"):
        continuations(server, [Continuation("a", (), 4)])


def test_a_text_ends_where_the_model_ends_it(writer: Writer) -> None:
    """After a: b, c, a space, and then ^ is the likeliest."""
    assert continuations(writer, [Continuation("a", (), 8)]) == ["bc "]


def test_a_text_ends_before_the_first_stop_in_it(writer: Writer) -> None:
    assert continuations(writer, [Continuation("a", ("c ", "c"), 8), Continuation("c", ("x",), 1)]) == ["b", " "]


def test_a_text_that_ends_soon_costs_no_more(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens at first, then as many as there are. A text that fills what is allowed was never seen to end."""
    monkeypatch.setattr(tasks, "FIRST_TOKENS", 2)
    assert continuations(writer, [Continuation("a", ("c",), 8)]) == ["b"]
    assert writer.asked == [(2, 2)]
    writer.asked.clear()
    assert continuations(writer, [Continuation("a", (), 8), Continuation("a", (), 3)]) == ["bc ", "bc "]
    assert writer.asked == [(2, 2), (4, 2), (2, 2), (4, 1)]


def test_a_prompt_leaves_room_for_the_text(writer: Writer) -> None:
    continuations(writer, [Continuation("a" * 30, (), 6)])
    assert writer.asked == [(10, 6)]
    with pytest.raises(WorkloadUnsupported, match="16 new tokens are asked for, and the model's context is 16"):
        continuations(writer, [Continuation("a", (), 16)])


def test_how_far_it_is_is_told_by_texts(writer: Writer) -> None:
    class Noting(Progress):
        def tell(self, share: float) -> None:
            shares.append(share)

    shares: list[float] = []
    with Noting().told():
        continuations(writer, [Continuation("a", (), 4)] * 2)
    assert shares == [0.5, 1.0]
