"""Faults of what stands beside the plugin: other plugins that are missing, a project's own hooks, processes that die.

Each costs what it is the fault of, and is told with its hook, its file and what was expected.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from run_factory import make_record

from llm_bench_fixtures.errors import HookFailed
from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.plugin import hookspecs
from llm_bench_fixtures.plugin.hooks import pytest_benchmark_compare_machine_info
from llm_bench_fixtures.plugin.own_hooks import measured_by_hooks, own_metrics, own_variants, scores_by_hooks
from llm_bench_fixtures.results.metrics import Direction, Kind, Metric, Unit
from llm_bench_fixtures.text import harmless_text

if TYPE_CHECKING:
    from pytester_bench import Bench

NEVER = ("INTERNALERROR", "Traceback (most recent call last)")


def config_with(folder: Path, **hooks: Any) -> Any:
    """What is looked at of pytest's config, in a project whose conftest.py has these hooks."""
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(hookspecs)
    functions = {name: staticmethod(function) for name, function in hooks.items()}
    manager.register(type("Conftest", (), {**functions, "__file__": str(folder / "tests" / "conftest.py")})())
    return SimpleNamespace(hook=manager.hook, pluginmanager=manager, rootpath=folder)


def metric(name: Any) -> Metric:
    return Metric(name, "Mine", "mine", Unit.NONE, Direction.NEITHER, Kind.EXACT, "...")


def gives(value: Any) -> Any:
    return lambda: value


def fails() -> Any:
    return [1 / 0]


FP32 = CATALOGUE[0]
VARIANTS = "a sequence of Variant"
METRICS = "a sequence of Metric"
# Hook, what its implementation does, and what is said behind its name and file.
REFUSED = [
    ("variants that raise", "variants", fails, "ZeroDivisionError: division by zero", VARIANTS),
    ("variants that skip", "variants", lambda: pytest.skip("not here"), "Skipped: not here", VARIANTS),
    ("variants that exit", "variants", lambda: sys.exit(0), "SystemExit: 0", VARIANTS),
    ("variants that are ids", "variants", gives(["mine"]), "'mine' is no Variant", VARIANTS),
    ("variants that are a number", "variants", gives(3), "TypeError: 'int' object is not iterable", VARIANTS),
    (
        "a variant of a name that is taken",
        "variants",
        gives([Variant("fp32", "mine", "mine")]),
        "a variant named 'fp32' is there already",
        VARIANTS,
    ),
    (
        "two variants of one name",
        "variants",
        gives([Variant("mine", "a", "a"), Variant("mine", "b", "b")]),
        "a variant named 'mine' is there already",
        VARIANTS,
    ),
    (
        "a variant whose precision is a text",
        "variants",
        gives([Variant("mine", "torch", "mine", "bfloat16")]),  # type: ignore[arg-type]
        "the precision of mine is 'bfloat16', which is no Precision",
        VARIANTS,
    ),
    ("metrics that raise", "metrics", fails, "ZeroDivisionError: division by zero", METRICS),
    ("metrics that are names", "metrics", gives(["mine"]), "'mine' is no Metric", METRICS),
    (
        "a metric of a name that is taken",
        "metrics",
        gives([metric("latency_s")]),
        "a metric named 'latency_s' is there already",
        METRICS,
    ),
    (
        "a metric called as a column",
        "metrics",
        gives([metric("status")]),
        "a metric can't be named 'status'",
        METRICS,
    ),
    ("a metric without a name", "metrics", gives([metric(None)]), "a metric can't be named None", METRICS),
]


@pytest.mark.parametrize(
    ("hook", "implementation", "said", "expected"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_what_a_run_would_be_made_of_is_refused(
    tmp_path: Path, hook: str, implementation: Any, said: str, expected: str
) -> None:
    """Bug: INTERNALERROR, or a variant that took the place of ours."""
    config = config_with(tmp_path, **{f"pytest_llm_bench_{hook}": implementation})
    with pytest.raises(HookFailed) as caught:
        _ = own_metrics(config) if hook == "metrics" else list(own_variants(config, CATALOGUE))
    assert str(caught.value) == f"pytest_llm_bench_{hook} in tests/conftest.py: {said} (expected {expected})"


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    """The same variant may be added by two files."""
    mine = Variant("mine", "torch", "mine", Precision.BFLOAT16)
    config = config_with(tmp_path, pytest_llm_bench_variants=gives([mine, mine]))
    assert list(own_variants(config, CATALOGUE)) == [mine, mine]
    assert list(own_variants(config_with(tmp_path, pytest_llm_bench_variants=gives(None)), CATALOGUE)) == []
    assert "mine" in own_metrics(config_with(tmp_path, pytest_llm_bench_metrics=gives([metric("mine")])))


class Stubborn:
    """A number that can't be converted."""

    def __float__(self) -> float:
        raise RuntimeError("not today")


NUMBERS = "numbers by metric name"
# What the hook returns, what of it is kept, and what is said of the rest.
MEASURED = [
    (
        "a value of a name that is taken",
        {"latency_s": -5.0, "mine": 1},
        {"mine": 1.0},
        "latency_s is this package's own",
    ),
    ("a value called as a column", {"status": 1.0, "mine": 1}, {"mine": 1.0}, "status is this package's own"),
    ("a text", {"mine": "fast", "other": 1}, {"other": 1.0}, "mine is 'fast', and no number up to 1e+30"),
    ("None", {"mine": None, "other": 1}, {"other": 1.0}, "TypeError: float() argument must be"),
    ("a name that is a number", {3: 1.0, "mine": 1}, {"mine": 1.0}, "3 is no name of a metric"),
    ("a figure that no file may hold", {"mine": 1e31}, {}, "mine is 1e+31, and no number up to 1e+30"),
    ("what raises when it is converted", {"mine": Stubborn(), "other": 1}, {"other": 1.0}, "RuntimeError: not today"),
    ("a list", [1.0], {}, "it returned [1.0]"),
    ("a value that isn't finite", {"mine": float("nan"), "other": 1}, {"other": 1.0}, ""),
]


@pytest.mark.parametrize(("given", "kept", "said"), [pytest.param(*row[1:], id=row[0]) for row in MEASURED])
def test_a_wrong_value_of_a_benchmark_costs_itself(tmp_path: Path, given: Any, kept: Any, said: str) -> None:
    """Bug: `latency_s: -5` took the place of the measured one in CSV and JSON."""
    config = config_with(tmp_path, pytest_llm_bench_measure=gives(given))
    values, missing = measured_by_hooks(config, None, make_record())  # type: ignore[arg-type]
    assert values == kept
    assert len(missing) == bool(said)
    for text in missing:
        assert text.startswith(f"pytest_llm_bench_measure in tests/conftest.py: {said}")
        assert text.endswith(f"(expected {NUMBERS})")


# What the hook returns, what of it is kept, and what is noted of the variant.
SCORED = [
    (
        "a score of a name that is taken",
        {"latency_s": 1.0, "mine": 0.5},
        {"mine": 0.5},
        "latency_s is this package's own",
    ),
    ("a list", [0.5], {}, "it returned [0.5]"),
    ("a score without figures", CorpusScore(None, ()), {}, "it returned None"),  # type: ignore[arg-type]
    ("blocks that are texts", CorpusScore({"mine": 1.0}, ("a",)), {}, "could not convert"),  # type: ignore[arg-type]
    ("a perplexity, where ours has none", {"perplexity": 20.0}, {"perplexity": 20.0}, ""),
]


@pytest.mark.parametrize(("given", "kept", "said"), [pytest.param(*row[1:], id=row[0]) for row in SCORED])
def test_a_wrong_score_costs_itself(tmp_path: Path, given: Any, kept: Any, said: str) -> None:
    (score,) = scores_by_hooks(config_with(tmp_path, pytest_llm_bench_score=gives(given)), None, None)  # type: ignore[arg-type]
    assert dict(score.metrics) == kept
    assert len(score.notes) == bool(said)
    assert all(note.startswith(f"pytest_llm_bench_score in tests/conftest.py: {said}") for note in score.notes)


CONFTEST = """
import pytest
from llm_bench_fixtures import Direction, Kind, Metric, Unit

def pytest_llm_bench_metrics():
    fields = (Unit.NONE, Direction.NEITHER, Kind.EXACT, "...")
    return [Metric("broken", "Broken", "broken", *fields, value=lambda record, variant: 1 / 0)]

def pytest_llm_bench_measure(record):
    if "ends" in record.test:
        pytest.fail("the hook ended the test")
    raise KeyError("nothing")

def pytest_llm_bench_score():
    raise KeyError("nothing")
"""
SUITE = """
def test_mine(llm_benchmark):
    assert llm_benchmark("Hello").extra == {}

def test_ends(llm_benchmark):
    llm_benchmark("Hello")
"""


def test_hooks_that_raise_cost_no_measurement(bench: Bench) -> None:
    """Bug: a measure hook that failed cost the test its times, and a score hook the variant its benchmarks."""
    bench.write(conftest=CONFTEST, test_own=SUITE)
    result = bench.run()
    result.assert_outcomes(passed=1, failed=1, warnings=result.parseoutcomes().get("warnings", 0))
    said = "pytest_llm_bench_measure in conftest.py: KeyError: 'nothing' (expected numbers by metric name)"
    mine, ends = bench.records()
    assert (mine["status"], mine["reason"], len(mine["rounds_s"])) == ("measured", said, 2)
    assert (ends["status"], ends["reason"], len(ends["rounds_s"])) == ("error", "the hook ended the test", 2)
    (fp32,) = bench.variants().values()
    assert fp32["quality"]["perplexity"] > 1
    assert any(note.startswith("pytest_llm_bench_score in conftest.py: KeyError: 'nothing'") for note in fp32["notes"])
    assert said in result.stdout.str()  # as a warning
    assert said in bench.page()
    assert not any(word in result.stdout.str() + result.stderr.str() for word in NEVER)


def test_a_hook_that_raises_before_the_run_is_a_usage_error(own_suite: Bench) -> None:
    """Bug: INTERNALERROR."""
    own_suite.write(conftest="def pytest_llm_bench_variants():\n    raise KeyError('nothing')\n")
    result = own_suite.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: pytest_llm_bench_variants in conftest.py: KeyError: 'nothing' (expected *"])
    assert not any(word in result.stdout.str() + result.stderr.str() for word in NEVER)


WITHOUT = ("-p", "no:benchmark")


def test_without_plugins_that_others_have_an_unrelated_suite_is_left_alone(bench: Bench) -> None:
    """Bugs: every run in the environment ended with PluginValidationError, or with INTERNALERROR."""
    bench.write(test_unrelated="def test_passes(): pass\ndef test_fails(): assert False\n")
    for without in (WITHOUT, ("-p", "no:setuponly", "-p", "no:setupplan")):
        result = bench.run_with(*without, "-p", "no:cacheprovider")
        result.assert_outcomes(passed=1, failed=1)
        assert "llm-bench:" not in result.stdout.str() + result.stderr.str()


def test_without_pytest_benchmark_our_own_tests_say_what_they_need(own_suite: Bench) -> None:
    own_suite.write(test_plain="def test_plain(): pass\ndef test_texts(llm_corpus): assert llm_corpus.texts\n")
    result = own_suite.run(*WITHOUT, "--llm-gate")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["llm_benchmark needs pytest-benchmark, which this run is without: *"])
    assert not any(word in result.stdout.str() + result.stderr.str() for word in NEVER)


def plant(bench: Bench, name: str) -> Path:
    """A module in the working folder that leaves a trace when it is imported or run; returns the trace."""
    trace = bench.pytester.path / f"{name} ran"
    bench.write(**{name: f"import pathlib\npathlib.Path({str(trace)!r}).touch()\n"})
    return trace


def test_a_look_at_the_processor_runs_nothing_of_the_working_folder(bench: Bench) -> None:
    """Bug: pytest-benchmark starts a Python for it, which imports from there first."""
    trace = plant(bench, "cpuinfo")
    (bench.pytester.path / "tests").mkdir()
    (bench.pytester.path / "tests" / "test_usual.py").write_text("def test(benchmark): benchmark(int)\n")
    command = [Path(sys.executable).with_name("pytest"), *("-p", "no:cacheprovider"), "--benchmark-json=out.json"]
    done = subprocess.run([*command, "tests"], cwd=bench.pytester.path, capture_output=True, check=False)
    assert b"1 passed" in done.stdout
    assert (bench.pytester.path / "out.json").is_file()
    assert not trace.exists()


HOSTILE = "\x1b]52;c;aGk=\x07 and\n::error::no\n##[error]no \u202e"
WARNING = f"""
import warnings
import pytest

QUOTED = {HOSTILE!r}

@pytest.fixture
def measured(llm_model):
    warnings.warn(QUOTED)

def test_quotes_a_model(measured):
    pass
"""


def test_warnings_hold_no_commands_to_a_terminal_or_a_ci_runner(own_suite: Bench) -> None:
    """Bug: pytest's summary of them showed a model's control sequences."""
    own_suite.write(test_warned=WARNING)
    shown = own_suite.run().stdout.str()
    assert shown.count("no \ufffd") == 1
    assert "\ufffd]52;c;aGk=\ufffd and" in shown
    assert not any(command in shown for command in ("\x1b]", "\x07", "\n::error", "##[", "\u202e"))


def test_a_saved_run_that_is_compared_with_shows_no_commands() -> None:
    """Its figures take the place of the test's own in pytest-benchmark's table."""
    compared = {
        "machine_info": {"node": "##[error]no"},
        "benchmarks": [{"fullname": "test_a.py::test", "stats": {"name": HOSTILE, "min": 1.0, "outliers": "1;2"}}],
    }
    pytest_benchmark_compare_machine_info(compared)
    (benchmark,) = compared["benchmarks"]
    assert compared["machine_info"] == {"node": "## [error]no"}
    assert benchmark["stats"] == {"name": harmless_text(HOSTILE), "min": 1.0, "outliers": "1;2"}  # type: ignore[index]
