"""How large a test's workload is expected to be, and what makes a long run short."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.plugin import items as tests
from llm_bench_fixtures.plugin import stash
from llm_bench_fixtures.plugin.foreseeing import shorter_ways, workload_of
from llm_bench_fixtures.plugin.items import PLAN
from llm_bench_fixtures.plugin.stash import SESSION
from llm_bench_fixtures.session.plan import Case, Plan
from llm_bench_fixtures.workloads import VARIED_LENGTHS, CacheKind, Padding, Workload, blank

FOUR = tuple(map(blank, (36, 24, 8, 60)))


@pytest.mark.parametrize(
    ("given", "workload"),
    [
        ({"llm_prompt_length": 256}, Workload((blank(256),), 16, 1)),
        ({"llm_batch_size": 4}, Workload(tuple(map(blank, (12, 52, 44, 16))), 16, 4)),
        ({"llm_batch_size": 12}, Workload(tuple(map(blank, (*VARIED_LENGTHS, 12, 52, 44, 16))), 16, 12)),
        ({"llm_batch_size": 1}, Workload((blank(12), blank(52)), 16, 1)),
        ({"prompt": "longest"}, Workload((blank(512 - 16),), 16, 1)),
        ({"batch_size": 4, "padding": Padding()}, Workload(FOUR, 16, 4)),
        ({"batch_size": 4, "padding": Padding(at_least=128)}, Workload(FOUR, 16, 4, Padding(at_least=128))),
        ({"batch_size": 1, "padding": Padding()}, Workload(FOUR, 16, 1)),
        ({"cache": CacheKind.OFF}, Workload((blank(64),), 16, 1, cache=CacheKind.OFF)),
        ({"prompt": "a" * 399}, Workload((blank(100),), 16, 1)),
    ],
    ids=[
        *("a length", "a batch", "a larger one", "one at a time", "the longest", "padding", "wide", "one by one"),
        *("no cache", "a text"),
    ],
)
def test_the_size_follows_from_the_parameters(
    given: dict[str, Any], workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = parse_settings({"new_tokens": "16"})
    monkeypatch.setattr(tests, "parameters_of", lambda _: given)
    assert workload_of(cast(pytest.Item, None), settings, 512) == workload


@pytest.mark.parametrize(
    ("files", "has_own", "ways"),
    [
        (["prompt_length", "batch", "cache"], False, ['-k "prompt_length or batch"']),
        (["own", "prompt_length", "cache"], True, ["-k own"]),
        (["prompt_length"], False, []),
        (["mine", "other"], False, []),
        (["mine", "batch"], False, []),
    ],
    ids=["the suite", "own prompts", "one test", "a suite of one's own", "one with a batch"],
)
def test_what_makes_a_run_short_leaves_what_the_answer_goes_by(
    files: list[str], has_own: bool, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: with own prompts it left out the only tests that were asked for; elsewhere all tests, or none."""
    monkeypatch.setattr(tests, "is_benchmark", lambda _: True)
    monkeypatch.setattr(stash, "is_kept", lambda _: False)
    monkeypatch.setattr(tests, "case_of", lambda item: item.nodeid)
    items = [SimpleNamespace(nodeid=f"test_{name}.py::test_it[fp32]") for name in files]
    variants = ("fp32", "bf16")
    cases = [Case(item.nodeid, name, frozenset(variants), 1.0) for item, name in zip(items, files, strict=True)]
    own = object() if has_own else None
    bench = SimpleNamespace(setup=SimpleNamespace(own=own), loader=SimpleNamespace(known=variants))
    config = SimpleNamespace(stash={SESSION: bench, PLAN: Plan(cases, [variants])})
    session = cast(pytest.Session, SimpleNamespace(config=config, items=items))
    assert [*shorter_ways(session)] == [*ways, "fewer --llm-variants"]
    bench.loader.known = variants[:1]
    assert [*shorter_ways(session)] == ways
