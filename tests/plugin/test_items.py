from __future__ import annotations

import pytest

from llm_bench_fixtures.plugin.items import shortest


@pytest.mark.parametrize(
    ("value", "text"),
    [(8, "8"), (1_048_576, "1048576"), (1_000_001, "1000001"), (2.0, "2"), (0.5, "0.5"), (1234.5678, "1234.5678")],
)
def test_a_value_in_a_tests_id_is_whole(value: float, text: str) -> None:
    assert shortest(value) == text
