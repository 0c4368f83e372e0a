"""The script that compares rounds with plain loops: what it derives, and that both sides are the same work."""

from __future__ import annotations

import measure_bare_loops
import pytest
import torch
from measure_bare_loops import LOOPS, Noting, OwnClock, Pair, describe, describe_prompts, measure_pair, tpot_s

from llm_bench_fixtures.errors import GenerationMismatch
from llm_bench_fixtures.models.backends import ROWS
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import TokenIds

PROMPT = (5, 6, 7)


def test_time_per_token_is_counted_from_the_first_one() -> None:
    """Two distances, of 0.5 and 1 s, after a prefill of 10 s."""
    assert tpot_s([10.0, 10.5, 11.5]) == 0.75


def test_a_text_that_ended_has_no_time_per_token() -> None:
    with pytest.raises(GenerationMismatch, match="the text ended"):
        tpot_s([10.0])


def test_the_median_of_the_pairs_ratios_is_printed_with_the_own_loops_range() -> None:
    """Ratios 1, 2 and 4; of three pairs the interval is all of them."""
    pairs = [Pair(0.04, 0.01), Pair(0.01, 0.01), Pair(0.04, 0.02)]
    told = "round / own loop: 2.000 (95 % interval 1.000 to 4.000), 3 pairs; own loop 10.00 / 10.00 / 20.00 ms a token"
    assert describe(pairs) == told


def test_of_several_prompts_the_median_of_their_medians_is_printed() -> None:
    """Medians 1, 2 and 4; an odd pair of one prompt moves nothing."""
    prompts = [[Pair(ratio, 1.0), Pair(ratio, 1.0), Pair(9.0, 1.0)] for ratio in (1.0, 2.0, 4.0)]
    assert describe_prompts(prompts).startswith("latency of the round / of the own loop: 2.000, median over 3 prompts")


def test_the_prompt_that_transformers_hands_over_first_is_no_token() -> None:
    noted: list[int] = []
    streamer = Noting(lambda: noted.append(len(noted)))
    for tokens in ((5, 6, 7), (8,), (9,)):
        streamer.put(torch.tensor(tokens))
    streamer.end()
    assert len(noted) == 2


@pytest.mark.parametrize(("is_by_token", "times"), [(True, 2), (False, 1)])
def test_a_loop_is_timed_by_token_or_to_its_end(is_by_token: bool, times: int, tiny_fp32: TransformersModel) -> None:
    clock = OwnClock(tiny_fp32, is_by_token)
    for happens in (clock.start, clock.note, clock.note, clock.end):
        happens()
    assert len(clock.tokens_s()) == times


@pytest.mark.parametrize("is_round_first", [True, False])
def test_a_round_and_the_own_loop_give_the_same_text(is_round_first: bool, tiny_fp32: TransformersModel) -> None:
    pair = measure_pair(tiny_fp32, PROMPT, 3, is_round_first, is_by_token=False)
    assert pair.round_s > 0
    assert pair.own_s > 0


def test_where_the_whole_answer_is_timed_no_token_is_noted(
    tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A streamer takes 3 % of the time of a model whose tokens take less than a millisecond."""
    monkeypatch.setattr(measure_bare_loops, "Noting", None)
    assert measure_pair(tiny_fp32, PROMPT, 3, is_round_first=True, is_by_token=False).own_s > 0
    with pytest.raises(TypeError):
        measure_pair(tiny_fp32, PROMPT, 3, is_round_first=True, is_by_token=True)


def test_another_text_is_another_work(tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(model: object, prompt: TokenIds, new_tokens: int, clock: OwnClock) -> list[int]:
        clock.start()
        for _ in range(new_tokens):
            clock.note()
        return [-1] * new_tokens

    monkeypatch.setattr(measure_bare_loops, "LOOPS", {"torch": other})
    with pytest.raises(GenerationMismatch, match=r"own loop \[-1, -1, -1\]"):
        measure_pair(tiny_fp32, PROMPT, 3, is_round_first=True, is_by_token=True)


def test_every_backend_but_servers_has_a_loop() -> None:
    assert {*ROWS} - {*LOOPS} == {"endpoint"}
