from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_bench_fixtures.measure.equivalence import divergent_share, first_divergence

Tokens = st.lists(st.integers(0, 2), max_size=8)


@pytest.mark.parametrize(
    ("a", "b", "index"),
    [
        ((1, 2, 3), (1, 2, 3), 3),
        ((1, 2, 3), (9, 2, 3), 0),
        ((1, 2, 3), (1, 2, 9), 2),
        ((1, 2, 3), (1, 9, 9), 1),
        ((1, 2), (1, 2, 3), 2),
        ((), (1,), 0),
        ((), (), 0),
    ],
)
def test_the_first_divergence_by_hand(a: tuple[int, ...], b: tuple[int, ...], index: int) -> None:
    assert first_divergence(a, b) == index


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4), 0.0),
        ((1, 2, 3, 4), (1, 9, 3, 9), 0.5),
        ((1, 2), (9, 9), 1.0),
        ((1, 2, 3), (1, 2, 3, 4), 0.25),
        ((), (1,), 1.0),
        ((), (), 0.0),
    ],
)
def test_the_divergent_share_by_hand(a: tuple[int, ...], b: tuple[int, ...], share: float) -> None:
    assert divergent_share(a, b) == share


@settings(database=None)
@given(Tokens, Tokens)
def test_neither_depends_on_which_text_comes_first(a: list[int], b: list[int]) -> None:
    assert first_divergence(a, b) == first_divergence(b, a)
    assert divergent_share(a, b) == divergent_share(b, a)


@settings(database=None)
@given(Tokens, Tokens)
def test_what_comes_before_the_first_divergence_is_the_same(a: list[int], b: list[int]) -> None:
    index = first_divergence(a, b)
    assert a[:index] == b[:index]
    assert a[index : index + 1] != b[index : index + 1] or index == len(a) == len(b)


@settings(database=None)
@given(Tokens, Tokens)
def test_only_equal_texts_have_no_divergent_share(a: list[int], b: list[int]) -> None:
    assert (divergent_share(a, b) == 0) == (a == b)
