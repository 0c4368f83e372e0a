from __future__ import annotations

from llm_bench_fixtures.models.model import BatchCounter


def test_a_token_is_told_of_once_all_rows_have_it() -> None:
    """Rows that began earlier wait for the longest prompt's."""
    told: list[str] = []
    counter = BatchCounter(2, lambda: told.append("token"))
    for row, expected in [(0, 0), (0, 0), (1, 1), (0, 1), (1, 2), (1, 3)]:
        counter.add(row)
        assert len(told) == expected


def test_tokens_that_come_at_once_are_told_of_one_by_one() -> None:
    told: list[str] = []
    counter = BatchCounter(2, lambda: told.append("token"))
    for row, tokens, expected in [(0, 3, 0), (1, 2, 2), (1, 7, 3), (0, 7, 7)]:
        counter.reach(row, tokens)
        assert len(told) == expected
