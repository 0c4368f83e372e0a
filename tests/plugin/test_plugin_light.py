"""What only a process of its own can show: what is imported, what is written to the terminal, what workers do."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

HEAVY = ("torch", "transformers", "onnxruntime", "bitsandbytes", "pandas", "matplotlib", "plotly", "scipy", "jinja2")
IMPORTS_CONFTEST = """
    import json
    import sys
    from pathlib import Path

    def pytest_unconfigure():
        Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
"""


def imports(bench: Bench, names: Iterable[str]) -> set[str]:
    """Those of the modules that the run imported."""
    return set(json.loads((bench.pytester.path / "modules.json").read_text())).intersection(names)


def test_a_suite_that_has_nothing_to_do_with_it_pays_nothing(bench: Bench) -> None:
    bench.write(
        conftest=IMPORTS_CONFTEST,
        test_unrelated="""
        import pytest

        def test_passes():
            pass

        def test_skips():
            pytest.skip("why not")

        def test_fails():
            assert False

        def test_usual_benchmark(benchmark):
            benchmark.pedantic(sum, args=([1, 2],), rounds=2)
        """,
    )
    result = bench.pytester.runpytest_subprocess("-p", "no:cacheprovider")  # none of the plugin's options is given
    result.assert_outcomes(passed=2, skipped=1, failed=1)
    assert "llm-bench:" not in result.stdout.str()
    assert imports(bench, HEAVY) == set(), result.stdout.str()
    assert imports(bench, ["llm_bench_fixtures.options.table"])
    rooms = ("measure", "results.record", "models.loading", "models.transformers", "models.device", "workloads")
    assert imports(bench, [f"llm_bench_fixtures.{name}" for name in rooms]) == set()
    assert imports(bench, ["llm_bench_fixtures.models.backends.onnxruntime"])  # for its options
    assert not bench.report.exists()


def test_skipped_benchmarks_load_nothing(own_suite: Bench) -> None:
    own_suite.write(conftest=IMPORTS_CONFTEST, test_plain="def test_plain(): pass")
    result = own_suite.run_apart("--benchmark-skip")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    assert imports(own_suite, HEAVY) == set()
    assert not own_suite.report.exists()


@pytest.mark.slow("a process of its own that imports every library")
def test_the_libraries_say_nothing(bench: Bench) -> None:
    """The noisiest there is: bitsandbytes on a CPU, right padding, every cache, a text longer than the context."""
    if importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")
    bench.write(
        test_own="""
        import pytest
        from llm_bench_fixtures import Padding, Side

        def test_padding(llm_benchmark, llm_prompts):
            llm_benchmark(llm_prompts.varied(3), padding=Padding(Side.RIGHT))

        @pytest.mark.parametrize("cache", ["dynamic", "static", "off"])
        def test_cache(llm_benchmark, cache):
            llm_benchmark("Hello", cache=cache)

        def test_long(llm_prompts):
            llm_prompts.encode("Hello there. " * 2000)
        """
    )
    result = bench.run_apart("--llm-variants", "fp32,bf16,bnb-int8")
    assert result.ret == 0
    result.assert_outcomes(passed=13)
    assert "warning" not in result.stdout.str().lower()
    assert result.stderr.str().strip() == ""


@pytest.mark.slow("three processes of its own")
def test_with_xdist_nothing_is_measured_which_one_line_says(own_suite: Bench) -> None:
    """pytest-benchmark disables itself there. Bug: the workers left a results.json that said "interrupted"."""
    pytest.importorskip("xdist")
    result = own_suite.run_apart("-n", "2", "--llm-variants", "fp32,bf16")
    assert result.ret == 0
    result.assert_outcomes(passed=2, warnings=result.parseoutcomes().get("warnings", 0))
    said = [line for line in result.outlines if "llm-bench:" in line]
    assert said == [
        "llm-bench: no times and no report, as pytest-xdist runs tests at the same time: run the benchmarks without -n"
    ]
    assert not own_suite.report.exists()
