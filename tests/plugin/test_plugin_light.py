"""What only a process of its own can show: what is imported, what is written to the terminal, what workers do."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

HEAVY = ("torch", "transformers", "onnxruntime", "bitsandbytes", "pandas", "matplotlib", "plotly", "scipy", "jinja2")
OF_EVERY_RUN = {  # modules of the package that every pytest run loads, each at some 0.4 ms
    "llm_bench_fixtures",
    *("llm_bench_fixtures.options", "llm_bench_fixtures.options.table"),
    *("llm_bench_fixtures.plugin", "llm_bench_fixtures.plugin.fixtures", "llm_bench_fixtures.plugin.hooks"),
    *("llm_bench_fixtures.plugin.hookspecs", "llm_bench_fixtures.suite", "llm_bench_fixtures.version"),
}
IMPORTS_CONFTEST = """
    import json
    import sys
    from pathlib import Path

    def pytest_unconfigure():
        Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
"""


def imported(bench: Bench) -> set[str]:
    """The modules that the run imported."""
    return set(json.loads((bench.pytester.path / "modules.json").read_text()))


def test_a_suite_that_has_nothing_to_do_with_it_pays_next_to_nothing(bench: Bench) -> None:
    """Bug: it imported 69 modules of the package, and wcwidth, for options that nobody gave and hooks that did
    nothing."""
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
    bench.pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:llm_bench_fixtures")
    without = imported(bench)
    result = bench.pytester.runpytest_subprocess("-p", "no:cacheprovider")  # none of the plugin's options is given
    result.assert_outcomes(passed=2, skipped=1, failed=1)
    assert "llm-bench:" not in result.stdout.str()
    assert imported(bench) - without == OF_EVERY_RUN
    assert not bench.report.exists()


def test_skipped_benchmarks_load_nothing(own_suite: Bench) -> None:
    own_suite.write(conftest=IMPORTS_CONFTEST, test_plain="def test_plain(): pass")
    result = own_suite.run_apart("--benchmark-skip")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    assert imported(own_suite).isdisjoint(HEAVY)
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
    result = bench.run_apart("--llm-variants", "fp32,bnb-int8")
    assert result.ret == 0
    result.assert_outcomes(passed=9)
    assert "warning" not in result.stdout.str().lower()
    assert result.stderr.str().strip() == ""
