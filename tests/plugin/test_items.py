from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from llm_bench_fixtures.plugin.items import reference_line, shortest, without_lacking

if TYPE_CHECKING:
    from pytester_bench import Bench

    from llm_bench_fixtures.session.setup import Setup


@pytest.mark.parametrize(
    ("value", "text"),
    [(8, "8"), (1_048_576, "1048576"), (1_000_001, "1000001"), (2.0, "2"), (0.5, "0.5"), (1234.5678, "1234.5678")],
)
def test_a_value_in_a_tests_id_is_whole(value: float, text: str) -> None:
    assert shortest(value) == text


class Collected:
    """An item as pytest collects it, which nobody may compare: that takes time with the square of a file's tests."""

    def __init__(self, name: str, *fixturenames: str) -> None:
        self.name, self.fixturenames = name, fixturenames

    def __eq__(self, other: object) -> bool:
        raise AssertionError("two items are compared")


def test_a_load_without_a_server_is_left_out() -> None:
    config = cast(pytest.Config, SimpleNamespace(stash=pytest.Stash()))
    found = [Collected("test_load[8]", "llm_load"), Collected("test_a"), Collected("test_b", "llm_model")]
    assert [item.name for item in without_lacking(config, found)] == ["test_a", "test_b"]


@pytest.mark.parametrize(
    ("given", "reference", "line"),
    [
        ({}, "bf16", "bf16 is the reference, because the model takes 28.0 GB in float32, and 23.0 GB are free"),
        ({"reference": "bf16"}, "bf16", ""),
        ({}, "fp32", ""),
    ],
)
def test_a_reference_that_was_chosen_for_lack_of_memory_is_told(
    given: dict[str, str], reference: str, line: str
) -> None:
    assert reference_line(setup_of(given, reference)) == line


def test_it_is_told_where_memory_is_free_for_a_model_that_may_lie_elsewhere_too() -> None:
    """Bug: memory and disk, where --llm-device-map puts layers too, are not in what is free, and nothing said so."""
    line = reference_line(setup_of({}, "bf16", device_map={}))
    assert line.endswith("23.0 GB are free on cuda:0, cuda:1 (nothing else is counted)")


def setup_of(given: dict[str, str], reference: str, device_map: dict[str, int | str] | None = None) -> Setup:
    settings = SimpleNamespace(given=given, reference=reference, device_map=device_map)
    device = SimpleNamespace(free_bytes=23 * 10**9, names=("cuda:0", "cuda:1"))
    setup = SimpleNamespace(settings=settings, source=SimpleNamespace(weights=7 * 10**9), device=device)
    return cast("Setup", setup)


STATES = """
import pytest

@pytest.fixture(scope="module", params=["warm", "cold"])
def state(request):
    return request.param

@pytest.mark.llm_variants("bf16")
def test_one(llm_benchmark):
    llm_benchmark("a")

def test_two(llm_benchmark, state):
    llm_benchmark("a")

def test_three(llm_benchmark, state):
    llm_benchmark("a")
"""


def test_cases_that_the_answer_does_not_go_by_come_in_their_scenarios_order(bench: Bench) -> None:
    test = "def test_mine(llm_benchmark):\n    llm_benchmark('a')\n"
    ordered = "import pytest\npytestmark = pytest.mark.llm_scenario(order={})\n"
    bench.write(
        test_a=test,
        test_b=ordered.format(2) + test,
        test_c=ordered.format(1) + test,
        test_prompt_length=ordered.format(3) + test,
    )
    result = bench.run("--collect-only", "-q", "--llm-variants=fp32")
    files = [line.partition(".py")[0] for line in result.outlines[:4]]
    assert files == ["test_prompt_length", "test_c", "test_b", "test_a"]
    bench.write(conftest="def pytest_collection_modifyitems(items):\n    items.reverse()\n")
    result = bench.run("--collect-only", "-q", "--llm-variants=fp32")
    assert [line.partition(".py")[0] for line in result.outlines[:4]] == [
        "test_prompt_length",
        "test_c",
        "test_b",
        "test_a",
    ]


def test_a_fixture_of_the_users_leaves_the_plan_in_force(bench: Bench) -> None:
    """Bug: pytest moves tests by the values of such a fixture, and by a variant's number among those of a marker, which
    was taken for a plugin's order."""
    bench.write(test_a="def test_mine(llm_benchmark):\n    llm_benchmark('a')\n", test_prompt_length=STATES)
    result = bench.run("--collect-only", "-q", "--llm-variants=fp32,bf16")
    assert result.outlines[0] == "test_prompt_length.py::test_two[warm-fp32]"
    assert result.outlines[4] == "test_a.py::test_mine[fp32]"
