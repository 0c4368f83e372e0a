"""What a project adds through the plugin's own hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

METRICS_CONFTEST = """
    from llm_bench_fixtures import Direction, Kind, Metric, Unit

    def pytest_llm_bench_metrics():
        return [
            Metric("letters", "Letters", "letters written", Unit.TOKENS, Direction.NEITHER, Kind.EXACT, "their number"),
            Metric("accuracy", "Accuracy", "right answers", Unit.NONE, Direction.HIGHER_IS_BETTER, Kind.QUALITY, "..."),
            Metric("most", "Most", "slowest", Unit.SECONDS, Direction.LOWER_IS_BETTER, Kind.TIMING, "of the rounds",
                value=lambda record, variant: max(record.rounds_s)),
            Metric("unused", "Unused", "never seen", Unit.NONE, Direction.NEITHER, Kind.EXACT, "nothing"),
        ]

    def pytest_llm_bench_measure(config, model, record):
        assert model.call(lambda itself: itself.module) is not None
        assert len(record.rounds_s) == 2
        return {"letters": 1234, "not_a_number": float("nan")}

    def pytest_llm_bench_score(model, corpus):
        return {"accuracy": 0.75 if model.variant.id == "fp32" else 0.5, "endless": float("inf")}

    def pytest_llm_bench_finish(run, report):
        assert (report / "report.html").is_file()
        lines = [f"{record.test} {record.status} {record.extra['letters']}" for record in run.records]
        (report / "seen.txt").write_text("\\n".join(lines))
"""


def test_own_metrics_become_columns(own_suite: Bench) -> None:
    """And can be limited. Bug: one that is computed (`value=`) stood in the report, and neither in results.csv nor in a
    saved run."""
    own_suite.write(conftest=METRICS_CONFTEST)
    result = own_suite.run("--llm-variants", "fp32,bf16", "--llm-need=accuracy>=0.6")
    assert result.ret == 0, result.stdout.str()
    tables = [line for line in own_suite.markdown().splitlines() if line.startswith("| ")]
    assert len([line for line in tables if "| letters written | right answers | slowest, ms |" in line]) == 1
    assert len([line for line in tables if line.startswith("| bf16 |") and "| 1,234 | 0.5000 | " in line]) == 1
    assert "never seen" not in own_suite.markdown()
    assert "bf16 does not keep it (accuracy 0.5000, limit 0.6)" in own_suite.markdown()
    assert "letters written" in own_suite.page()
    for record in own_suite.records():
        assert record["extra"]["letters"] == 1234
        assert record["metrics"]["letters"] == 1234
        assert record["metrics"]["most"] == max(record["rounds_s"])
    fp32 = own_suite.variants()["fp32"]
    assert fp32["quality"]["accuracy"] == 0.75
    assert fp32["quality"]["perplexity"] > 1  # the plugin's own score is there as well
    assert fp32["quality_note"] == "not finite: endless"
    assert (
        (own_suite.report / "results.csv").read_text(encoding="utf-8").splitlines()[0].endswith("accuracy,letters,most")
    )
    assert (own_suite.report / "seen.txt").read_text().splitlines() == [
        f"test_own.py::test_mine[{variant}] measured 1234.0" for variant in ("fp32", "bf16")
    ]


def test_a_metric_of_a_name_that_is_taken_is_refused_before_anything_runs(own_suite: Bench) -> None:
    own_suite.write(
        conftest="""
        from llm_bench_fixtures import Direction, Kind, Metric, Unit

        def pytest_llm_bench_metrics():
            return [Metric("latency_s", "Mine", "mine", Unit.NONE, Direction.NEITHER, Kind.EXACT, "...")]
        """
    )
    result = own_suite.run()
    text = result.stdout.str() + result.stderr.str()
    assert "a metric named 'latency_s' is there already" in text
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in text


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            "[Metric('mine', 'M', 'm', 'furlong', Direction.NEITHER, Kind.EXACT, '...')]",
            "unknown unit of metric mine: ",
        ),
        ("[ReportTable.QUALITY]", "AttributeError: "),
        ("['letters']", "'letters' is no Metric"),
        ("[Metric('mine')]", "TypeError: "),
    ],
    ids=["unit", "attribute", "class", "arguments"],
)
def test_a_wrong_metric_is_a_usage_error_of_one_line(own_suite: Bench, returned: str, message: str) -> None:
    own_suite.write(
        conftest=f"""
        from llm_bench_fixtures import Direction, Kind, Metric, ReportTable

        def pytest_llm_bench_metrics():
            return {returned}
        """
    )
    result = own_suite.run()
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.str().splitlines() if "pytest_llm_bench_metrics" in line]
    assert line.startswith(f"ERROR: pytest_llm_bench_metrics in conftest.py: {message}")
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


def test_an_own_variant_runs_on_an_own_backend(own_suite: Bench) -> None:
    own_suite.write(
        conftest="""
        from llm_bench_fixtures import Precision, Variant

        def pytest_llm_bench_variants(config):
            assert config.getoption("llm_rounds") == "2"
            return [Variant("mine", "my_backend", "mine", Precision.BFLOAT16)]
        """,
        my_backend="""
        from dataclasses import replace
        from llm_bench_fixtures import Backend, load_source_model

        def load(request):
            model = load_source_model(request)
            return replace(model, facts=replace(model.facts, label="my way"))

        BACKEND = Backend(load)
        """,
    )
    assert own_suite.run("--llm-variants", "fp32,mine").ret == 0
    assert own_suite.variants()["mine"]["label"] == "my way"
    assert [record["variant"] for record in own_suite.records()] == ["fp32", "mine"]


def test_an_own_variant_can_be_the_reference(own_suite: Bench) -> None:
    own_suite.write(
        conftest="""
        from llm_bench_fixtures import Precision, Variant

        def pytest_llm_bench_variants():
            return [Variant("mine", "torch", "mine", Precision.BFLOAT16)]
        """
    )
    assert own_suite.run("--llm-variants", "fp32,mine", "--llm-reference", "mine").ret == 0
    assert own_suite.results()["reference"] == "mine"
    assert list(own_suite.variants()) == ["mine", "fp32"]


def test_two_own_variants_of_one_backend_are_not_taken_for_identical_work(own_suite: Bench) -> None:
    """Bug: what runs was told by backend, dtype, autocast and quantization alone. Two variants that differ in what
    their backend does were "identical work", so their difference went into the noise floor."""
    own_suite.write(
        conftest="""
        from llm_bench_fixtures import Variant

        def pytest_llm_bench_variants():
            return [Variant(name, "my_backend", name) for name in ("mine-quick", "mine-slow")]
        """,
        my_backend="""
        import time
        from llm_bench_fixtures import Backend, load_source_model

        def load(request):
            model = load_source_model(request)
            generate = model.generate

            def slow_generate(*args, **how):
                time.sleep(0.05)
                return generate(*args, **how)

            if request.variant.id == "mine-slow":
                model.generate = slow_generate
            return model

        BACKEND = Backend(load)
        """,
    )
    assert own_suite.run("--llm-variants", "mine-quick,mine-slow").ret == 0
    quick, slow = own_suite.variants().values()
    assert quick["configuration"] != slow["configuration"]
    assert "as this run has no pairs of it" in own_suite.markdown()
