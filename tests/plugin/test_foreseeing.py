"""How large a test's workload is expected to be."""

from __future__ import annotations

from typing import Any, cast

import pytest

from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.plugin import foreseeing
from llm_bench_fixtures.plugin.foreseeing import shape_of
from llm_bench_fixtures.session.forecast import Shape
from llm_bench_fixtures.workloads import CacheKind, Padding


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ({"llm_prompt_length": 256}, Shape(256, 16)),
        ({"llm_batch_size": 4}, Shape(56, 16, prompts=8, batch_size=4)),
        ({"llm_batch_size": 12}, Shape(60, 16, prompts=12, batch_size=12)),
        ({"prompt": "longest"}, Shape(512 - 16, 16)),
        ({"batch_size": 4, "padding": Padding()}, Shape(60, 16, prompts=4, batch_size=4)),
        ({"batch_size": 4, "padding": Padding(at_least=128)}, Shape(128, 16, prompts=4, batch_size=4)),
        ({"batch_size": 1, "padding": Padding()}, Shape(35, 16, prompts=4, batch_size=1)),
        ({"cache": CacheKind.OFF}, Shape(64, 16, has_no_cache=True)),
        ({"prompt": "a" * 400}, Shape(100, 16)),
    ],
    ids=["a length", "a batch", "a larger one", "the longest", "padding", "wide", "one by one", "no cache", "a text"],
)
def test_the_size_follows_from_the_parameters(
    given: dict[str, Any], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts have 12, 44, 24, 60, 8, 36, 16 and 52 tokens: in fours they are 60 and 52 wide."""
    sizes = str(max(8, int(given.get("llm_batch_size", 0))))
    settings = parse_settings({"new_tokens": "16", "batch_sizes": sizes})
    monkeypatch.setattr(foreseeing, "parameters_of", lambda _: given)
    assert shape_of(cast(pytest.Item, None), settings, 512) == shape
