"""Each option does what its help says, and says what is wrong with a value that it can't use."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.source import TINY_FOLDER
from llm_bench_fixtures.options.table import OPTIONS, flag_of, ini_of

if TYPE_CHECKING:
    from conftest import Bench


def usage_error(bench: Bench, *args: str) -> str:
    """What pytest says where it refuses the arguments."""
    result = bench.run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not bench.report.exists()
    text = result.stderr.str() + result.stdout.str()
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return text


def test_an_unknown_variant_is_refused_with_the_known_ones(own_suite: Bench) -> None:
    text = usage_error(own_suite, "--llm-variants", "fp32,nonsense")
    assert "unknown variant or engine 'nonsense'. Known: " + ", ".join(variant.id for variant in CATALOGUE) in text


def test_an_unknown_reference_is_refused_with_the_known_ones(own_suite: Bench) -> None:
    text = usage_error(own_suite, "--llm-reference", "nonsense")
    assert "unknown variant 'nonsense'. Known: fp32, " in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--llm-device", "tpu"), "--llm-device: unknown device 'tpu'. Known: auto, cpu, cuda, cuda:N, mps"),
        (("--llm-model", ""), "--llm-model: expected at least one name"),
        (("--llm-rounds", "0"), "--llm-rounds: expected at least 1, got 0"),
        (("--llm-rounds", "many"), "--llm-rounds: expected a whole number, got 'many'"),
        (("--llm-new-tokens", "0"), "--llm-new-tokens: expected at least 1, got 0"),
        (("--llm-batch-sizes", "1,x"), "--llm-batch-sizes: expected a whole number, got 'x'"),
        (("--llm-load-format", "gguf"), "--llm-load-format: unknown load format 'gguf'. Known: auto, dummy"),
        (
            ("--llm-fit", "24"),
            "--llm-fit: expected a size with its unit, such as 24GB, 900MB or 16GiB, got '24'",
        ),
        (("--llm-need", "tpot_ms<=50"), "--llm-need: unknown metric 'tpot_ms'. Did you mean tpot_s"),
        (("--llm-need", "tpot_s<50ms"), "--llm-need: unknown sign '<'. Known: <=, >="),
        (("--llm-need", "memory<=4Gb/s"), "--llm-need: unknown unit of memory 'Gb/s'. Known: kb, kib, mb, "),
        (("--llm-want", "speed"), "--llm-want: unknown thing to want 'speed'. Known: latency, throughput, memory"),
        (("--llm-window", "8", "--llm-stride", "9"), "--llm-stride: 9 is more than the window of 8 tokens"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_value_that_cannot_be_used_is_refused_with_its_flag(
    own_suite: Bench, args: tuple[str, ...], message: str
) -> None:
    assert f"ERROR: {message}" in usage_error(own_suite, *args)


def test_an_ini_file_in_a_models_folder_is_not_taken_for_the_projects(own_suite: Bench) -> None:
    """pytest looks for one beside each argument that stands alone, before any plugin is there."""
    folder = own_suite.pytester.mkdir("model")
    (folder / "pytest.ini").write_text("[pytest]\nllm_rounds = 9\n", encoding="utf-8")
    text = usage_error(own_suite, "--llm-model", "./model")
    assert "model/pytest.ini as this project's own ini file: write --llm-model=./model, with an equals sign" in text
    assert "No candidate could be loaded" in usage_error(own_suite, "--llm-model=./model")


def test_a_path_that_moves_the_projects_root_is_refused(
    own_suite: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bug: `--llm-cache-dir DIR` dropped the project's ini file, or gave each test another id, without a word."""
    own_suite.pytester.makeini("[pytest]\nllm_warmup_rounds = nonsense\n")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for flag in ("--llm-cache-dir", "--llm-corpus"):
        text = usage_error(own_suite, flag, str(elsewhere))
        assert f"has taken {elsewhere} for a folder of tests" in text
        assert f"write {flag}={elsewhere}, with an equals sign" in text
    # as with "=": the project's own ini file is read
    assert "nonsense" in usage_error(own_suite, f"--llm-cache-dir={elsewhere}")
    assert "nonsense" in usage_error(own_suite, "test_own.py", "--llm-cache-dir", str(elsewhere))


def test_a_device_that_is_not_here_is_refused(own_suite: Bench) -> None:
    import torch

    text = usage_error(own_suite, "--llm-device", "cuda:99")
    assert (
        f"--llm-device cuda:99: torch {torch.__version__} finds {torch.cuda.device_count()} CUDA devices here" in text
    )


def test_a_corpus_that_is_not_there_is_refused(own_suite: Bench) -> None:
    assert "--llm-corpus: nowhere.txt can't be read" in usage_error(own_suite, "--llm-corpus", "nowhere.txt")


def test_an_unknown_name_in_a_marker_is_refused(bench: Bench) -> None:
    bench.write(
        test_own="""
        import pytest

        @pytest.mark.llm_variants("nonsense")
        def test_mine(llm_benchmark):
            llm_benchmark("Hello")
        """
    )
    result = bench.run()
    text = result.stdout.str() + result.stderr.str()
    assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED)  # 2 is a collection error's
    assert "unknown variant or group of variants 'nonsense'. Known: precision, quantization, " in text
    assert "state.py" not in text  # a message, no traceback of the plugin
    assert not bench.report.exists()


def test_without_any_model_the_run_ends_with_the_list_of_candidates(own_suite: Bench) -> None:
    text = usage_error(own_suite, "--llm-model", "./nope,/nor/this", "--llm-variants", "fp32,bf16")
    assert "No candidate could be loaded:" in text
    assert "  ./nope     no such folder" in text
    assert "  /nor/this  no such folder" in text
    assert "Give --llm-model a folder, or --llm-model tiny for the embedded model." in text


def test_without_any_model_tests_that_need_none_still_run(own_suite: Bench) -> None:
    own_suite.write(test_plain="def test_plain(): pass")
    result = own_suite.run("--llm-model", "./nope")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=1)
    assert "No candidate could be loaded:" in result.stdout.str()
    assert not own_suite.report.exists()


def test_of_several_models_the_first_that_loads_is_used(own_suite: Bench) -> None:
    result = own_suite.run("--llm-model", "nowhere-folder,tiny")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Loaded: tiny | device=cpu | dtype=float32"])
    assert own_suite.results()["provenance"]["model"] == "tiny"


def test_a_model_in_a_folder(own_suite: Bench) -> None:
    shutil.copytree(TINY_FOLDER, own_suite.pytester.path / "my model")
    result = own_suite.run("--llm-model", "./my model")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Loaded: ./my model | device=cpu | dtype=float32"])


def test_dummy_weights_say_that_they_are_random_and_have_no_perplexity(own_suite: Bench) -> None:
    shape = json.loads((TINY_FOLDER / "config.json").read_text(encoding="utf-8"))
    folder = own_suite.pytester.mkdir("shape")
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    result = own_suite.run("--llm-model", "./shape", "--llm-load-format", "dummy", "--llm-variants", "fp32,bf16")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Loaded: ./shape (random weights) | device=cpu | dtype=float32"])
    assert own_suite.results()["provenance"]["random_weights"]
    for variant in own_suite.variants().values():
        assert (variant["quality"], variant["quality_note"]) == ({}, "random weights")
    row = next(line for line in own_suite.markdown().splitlines() if line.startswith("| fp32 |"))
    assert "quality not measured: random weights |" in row
    assert "Random weights: speed and memory are real" in own_suite.markdown()


def test_the_reference_is_what_the_others_are_compared_with(own_suite: Bench) -> None:
    """A dtype's spelling stands for its variant."""
    assert own_suite.run("--llm-reference", "bf16", "--llm-variants", "float,torch.bfloat16").ret == 0
    assert own_suite.results()["reference"] == "bf16"
    assert list(own_suite.variants()) == ["bf16", "fp32"]
    row = next(line for line in own_suite.markdown().splitlines() if line.startswith("| bf16 |"))
    assert "| 1.00× |" in row


def test_tokens_rounds_and_warmup_rounds(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_mine(llm_benchmark, llm_model, monkeypatch):
            calls = []
            generate = llm_model.model.generate
            counted = lambda *args, **how: calls.append(args) or generate(*args, **how)
            monkeypatch.setattr(llm_model.model, "generate", counted)
            record = llm_benchmark("Hello")
            assert len(calls) == 5
            assert len(record.rounds_s) == 3
            assert record.workload.new_tokens == 4
        """
    )
    assert bench.run("--llm-rounds", "3", "--llm-warmup-rounds", "2", "--llm-new-tokens", "4").ret == 0


def test_corpus_window_and_stride_make_another_perplexity(own_suite: Bench) -> None:
    """A model that sees two tokens at a time knows less than one that sees all."""
    assert own_suite.run().ret == 0
    whole = own_suite.variants()["fp32"]["quality"]
    assert own_suite.run("--llm-window", "2", "--llm-stride", "1").ret == 0
    assert own_suite.variants()["fp32"]["quality"]["perplexity"] > 1.5 * whole["perplexity"]
    other = own_suite.pytester.maketxtfile(other="zxqj kvwp zxqj kvwp\n" * 5)
    assert own_suite.run("--llm-corpus", str(other)).ret == 0
    assert own_suite.variants()["fp32"]["quality"]["loss"] != whole["loss"]
    assert own_suite.results()["provenance"]["corpus"].startswith("other.txt")


def test_the_options_of_bitsandbytes(own_suite: Bench) -> None:
    pytest.importorskip("bitsandbytes")
    options = ("--llm-bnb-compute-dtype", "bf16", "--llm-bnb-double-quant")
    assert own_suite.run("--llm-variants", "bnb-nf4", *options).ret == 0
    assert own_suite.variants()["bnb-nf4"]["label"] == "bitsandbytes nf4, computes in bfloat16, double quantization"


def test_the_reports_folder(own_suite: Bench) -> None:
    result = own_suite.run("--llm-report", "out/of/here")
    assert result.ret == 0
    assert (own_suite.pytester.path / "out/of/here/report.html").is_file()
    assert not own_suite.report.exists()
    result.stdout.fnmatch_lines(["Report: out/of/here/report.html"])


def test_ini_values_work_and_the_command_line_wins(own_suite: Bench) -> None:
    own_suite.pytester.makeini(
        f"""
        [pytest]
        llm_variants = bf16
        llm_rounds = 4
        llm_max_noise = 0
        llm_new_tokens = 3
        llm_report = from-ini
        llm_corpus = {own_suite.corpus}
        """
    )
    assert own_suite.run_with(*own_suite.isolated, "--llm-rounds", "2").ret == 0
    results = json.loads((own_suite.pytester.path / "from-ini" / "results.json").read_text(encoding="utf-8"))
    (record,) = results["records"]
    assert record["variant"] == "bf16"
    assert record["workload"]["new_tokens"] == 3
    assert len(record["rounds_s"]) == 2


def test_a_bad_ini_value_is_refused_too(own_suite: Bench) -> None:
    own_suite.pytester.makeini("[pytest]\nllm_rounds = 0\n")
    result = own_suite.run_with(*own_suite.isolated)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --llm-rounds: expected at least 1, got 0"])


def test_what_was_asked_is_answered_and_kept_with_the_run(own_suite: Bench) -> None:
    own_suite.pytester.makeini("[pytest]\nllm_need = latency_s<=1000, ppl_ratio<=any\n")
    result = own_suite.run("--llm-want=memory")
    assert result.ret == 0
    assert "1 of 1 variant meets the need (latency_s ≤ 1,000 s) on one prompt of " in " ".join(result.outlines)
    provenance = own_suite.results()["provenance"]
    assert (provenance["need"], provenance["want"]) == ("latency_s<=1000, ppl_ratio<=any", "memory")


def test_help_shows_every_option(bench: Bench) -> None:
    text = " ".join(bench.run_with("--help").stdout.str().split())
    for name in OPTIONS:
        assert flag_of(name) in text
        assert f"{ini_of(name)} (string):" in text
    assert "Default: fp32" in text


def test_the_markers_are_known(bench: Bench) -> None:
    bench.run_with("--markers").stdout.fnmatch_lines(
        ["@pytest.mark.llm_variants(*names): *", "@pytest.mark.llm_scenario(name, *, title, columns, order): *"]
    )


def test_tasks_without_their_library_are_refused_with_the_extra(
    own_suite: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    text = usage_error(own_suite, "--llm-tasks=arc_easy")
    assert "--llm-tasks needs lm-eval: pip install 'llm-bench-fixtures[tasks]'" in text
