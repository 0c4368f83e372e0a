"""Scenarios: as the ready suite's files say them, and as a suite of one's own does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.results.metrics import registry

if TYPE_CHECKING:
    from conftest import Bench

SUITE = Path(__file__).parents[2] / "benchmarks"


def mark_of(path: Path) -> pytest.Mark | None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mark = getattr(module, "pytestmark", None)
    return mark.mark if mark else None


MARKS = {path.stem.removeprefix("test_"): mark for path in SUITE.glob("test_*.py") if (mark := mark_of(path))}


def test_the_order_in_the_report() -> None:
    assert sorted(MARKS, key=lambda name: MARKS[name].kwargs["order"]) == [
        "own",
        "precision",
        "quantization",
        "cache",
        "padding",
        "batch",
        "prompt_length",
        "edge_prompts",
        "threads",
    ]


@pytest.mark.parametrize("name", MARKS)
def test_each_is_named_as_its_file_and_shows_metrics_that_there_are(name: str) -> None:
    assert MARKS[name].args == (name,)
    assert MARKS[name].kwargs["title"]
    assert MARKS[name].kwargs["columns"]
    assert set(MARKS[name].kwargs["columns"]) <= set(registry())


def test_a_scenario_says_itself_how_it_is_shown(bench: Bench) -> None:
    """Title, columns and place come from the marker, whose name is the file's unless it gives one."""
    bench.write(
        test_a="""
        import pytest

        pytestmark = pytest.mark.llm_scenario(title="Chat", columns=("decode_tokens_per_s", "letters"))

        def test_chat(llm_benchmark):
            llm_benchmark("Hello")
        """,
        test_b="""
        import pytest

        pytestmark = pytest.mark.llm_scenario("asked", columns=["rounds"], order=1)

        def test_ask(llm_benchmark):
            llm_benchmark("Hello?")
        """,
        conftest="""
        from llm_bench_fixtures import Direction, Kind, Metric, Unit

        def pytest_llm_bench_metrics():
            return [Metric("letters", "Letters", "letters", Unit.COUNT, Direction.NEITHER, Kind.EXACT, "their number")]
        """,
    )
    assert bench.run().ret == 0
    text = bench.markdown()
    assert text.index("\n| Asked |") < text.index("\n| Chat |")
    page = bench.page()
    assert [name for name in ("Asked", "Chat", "letters") if name not in page] == []
    assert bench.results()["scenarios"] == [
        {"name": "asked", "title": "", "columns": ["rounds"]},
        {"name": "a", "title": "Chat", "columns": ["decode_tokens_per_s", "letters"]},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            'columns=("ttft_s", "speed")',
            "unknown metric in the columns of scenario own: 'speed'. Did you mean speedup?",
        ),
        ('colums=("ttft_s",)', "test_own.py::test_mine*unexpected keyword argument 'colums'"),
    ],
)
def test_a_scenario_that_cannot_be_shown_is_refused_before_anything_runs(
    bench: Bench, arguments: str, message: str
) -> None:
    bench.write(
        test_own=f"""
        import pytest

        @pytest.mark.llm_scenario({arguments})
        def test_mine(llm_benchmark):
            llm_benchmark("Hello")
        """
    )
    result = bench.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{message}*"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert not bench.report.exists()
