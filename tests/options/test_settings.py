from __future__ import annotations

import re
from itertools import chain
from math import inf
from pathlib import Path

import pytest

from llm_bench_fixtures.answer.need import NEED, WANT
from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.gate import options as gate_options
from llm_bench_fixtures.gate.options import Allowance
from llm_bench_fixtures.gate.rules import NamedRule
from llm_bench_fixtures.measure.windows import WindowPlan, plan_windows
from llm_bench_fixtures.models import backends
from llm_bench_fixtures.models.backends import bitsandbytes, endpoint
from llm_bench_fixtures.models.variants import SPELLINGS, Precision
from llm_bench_fixtures.options.parsers import LoadFormat, Setting, TokenShape, WindowScheme, parse_bool
from llm_bench_fixtures.options.settings import FIELDS, TOLD_BY_THEMSELVES, Settings, parse_settings
from llm_bench_fixtures.options.table import OPTIONS, flag_of, ini_of
from llm_bench_fixtures.processes import affinity
from llm_bench_fixtures.workloads import CacheKind


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """May be used."""
    monkeypatch.setattr(affinity, "usable_cores", lambda: 3)


def test_nothing_given_means_every_default() -> None:
    assert parse_settings({}) == Settings(
        model=("tiny",),
        load_format=LoadFormat.AUTO,
        trust_remote_code=False,
        device="auto",
        device_map=None,
        attention="",
        chat=False,
        variants="",
        reference="fp32",
        prompts="",
        shape=(),
        cache=(CacheKind.DYNAMIC,),
        show_texts=False,
        new_tokens=16,
        rounds=None,
        warmup_rounds=1,
        time=1800.0,
        max_noise=0.03,
        probe=False,
        in_process=False,
        memory_share=0.6,
        limits_time=2.0,
        prompt_lengths=(16, 64, 128, 256),
        batch_sizes=(1, 2, 4, 8),
        request_rates=(1.0, 2.0, 4.0),
        load_time=30.0,
        corpus=None,
        windows=WindowScheme.STRIDED,
        window=0,
        stride=0,
        choices="",
        tasks=(),
        overhead=False,
        fit=None,
        threads=(),
        seed=0,
        report=Path("llm-bench-report"),
        resume=False,
        cache_dir=None,
        history="",
        given={},
    )


def test_none_is_as_good_as_absent() -> None:
    assert parse_settings(dict.fromkeys(OPTIONS)) == parse_settings({})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model", " ./mine , tiny,", ("./mine", "tiny")),
        ("load_format", "dummy", LoadFormat.DUMMY),
        ("trust_remote_code", "YES", True),
        ("trust_remote_code", "off", False),
        ("device", "cpu", "cpu"),
        ("device", "cuda", "cuda"),
        ("device", "cuda:1", "cuda:1"),
        ("new_tokens", "1", 1),
        ("prompt_lengths", "64,16,64", (16, 64)),
        ("batch_sizes", "8", (8,)),
        ("prompts", "-", "-"),
        ("shape", "512/128, 16/4,16/4", (TokenShape(16, 4), TokenShape(512, 128))),
        ("shape", "", ()),
        ("corpus", "texts/a.txt", Path("texts/a.txt")),
        ("corpus", "~/a.txt", Path.home() / "a.txt"),
        ("cache_dir", "~/cache", Path.home() / "cache"),
        ("max_noise", "2%", 0.02),
        ("max_noise", "0.05", 0.05),
        ("time", "20m", 1200.0),
        ("time", "90s", 90.0),
        ("time", "1h30m", 5400.0),
        ("time", "1.5h", 5400.0),
        ("time", "none", inf),
        ("in_process", "yes", True),
        ("memory_share", "25%", 0.25),
        ("memory_share", "0", 0.0),
        ("limits_time", "0", 0.0),
        ("threads", "", ()),
        ("threads", "2,1,2", (1, 2)),
        ("threads", "auto", (1, 2, 3)),
        ("fit", "", None),
        ("fit", "24GB", 24 * 10**9),
        ("fit", "1.5 TB", 15 * 10**11),
        ("fit", "900mb", 900 * 10**6),
        ("fit", "16GiB", 16 * 2**30),
        ("choices", "none", "none"),
        ("seed", "0", 0),
        ("windows", "llama", WindowScheme.LLAMA),
        ("report", "out", Path("out")),
    ],
)
def test_an_option_parses(name: str, text: str, value: object) -> None:
    assert getattr(parse_settings({name: text}), name) == value


def test_a_tilde_in_the_report_folder_is_the_home_folder() -> None:
    """As in the corpus and the cache folder; an ini file has no shell that would expand it."""
    assert parse_settings({"report": "~/out"}).report == Path.home() / "out"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("max_noise", "a%", "--llm-max-noise: expected a share such as 5% or 0.05, got 'a%'"),
        ("memory_share", "half", "--llm-memory-share: expected a share such as 5% or 0.05, got 'half'"),
        *(
            ("time", text, f"--llm-time: expected a time such as 20m, 90s or 1h30m, or none, got {text!r}")
            for text in ("0", "0m", "-5", "10 minutes", "20", "1m1h", "", "1e3s")
        ),
        ("time", "169h", "--llm-time: expected at most 168h, a week, or none, got '169h'"),
        *(
            ("fit", text, f"--llm-fit: expected a size with its unit, such as 24GB, 900MB or 16GiB, got {text!r}")
            for text in ("24", "GB", "-1GB", "24G", "24 gigabytes", "1e3GB", "24GBs")
        ),
        ("threads", "0", "--llm-threads: expected at least 1, got 0; or auto: 1, 2, 4, … and all cores"),
        ("threads", "all", "--llm-threads: expected a whole number, got 'all'; or auto: 1, 2, 4, … and all cores"),
        ("threads", "2,4", "--llm-threads: expected at most 3, one for each core to be used, or auto, got 4"),
        ("fit", "0GB", "--llm-fit: expected more than 0 and at most 1000TB, got '0GB'"),
        ("fit", "1001TB", "--llm-fit: expected more than 0 and at most 1000TB, got '1001TB'"),
        ("limits_time", "inf", "--llm-limits-time: expected seconds, got 'inf'"),
        ("model", " , ", "--llm-model: expected at least one name"),
        ("load_format", "real", "--llm-load-format: unknown load format 'real'. Known: auto, dummy"),
        (
            "trust_remote_code",
            "maybe",
            "--llm-trust-remote-code: unknown truth value 'maybe'. Known: true, yes, on, 1, false, no, off, 0",
        ),
        ("new_tokens", "0", "--llm-new-tokens: expected at least 1, got 0"),
        ("rounds", "many", "--llm-rounds: expected a whole number, got 'many'"),
        ("warmup_rounds", "0", "--llm-warmup-rounds: expected at least 1, got 0"),
        ("prompt_lengths", "16,0", "--llm-prompt-lengths: expected at least 1, got 0"),
        ("prompt_lengths", "", "--llm-prompt-lengths: expected at least one name"),
        ("batch_sizes", "1,two", "--llm-batch-sizes: expected a whole number, got 'two'"),
        (
            "shape",
            "512",
            "--llm-shape: expected tokens of a prompt and of its answer, such as 512/128; got '512'",
        ),
        ("shape", "512/0", "--llm-shape: expected at least 1, got 0"),
        ("shape", "a/4", "--llm-shape: expected a whole number, got 'a'"),
        ("windows", "disjoint", "--llm-windows: unknown scheme of windows 'disjoint'. Known: strided, rolling, llama"),
        ("window", "-1", "--llm-window: expected at least 2, got -1"),
        ("stride", "1.5", "--llm-stride: expected a whole number, got '1.5'"),
        ("seed", "-3", "--llm-seed: expected at least 0, got -3"),
    ],
)
def test_a_bad_value_is_refused_with_the_flag_and_what_is_accepted(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_settings({name: text})
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["tpu", "", "cuda:x", "cuda:-1", "cuda:", "cpu:7", "mps:0"])
def test_a_device_that_is_none_of_the_known_is_refused_with_the_known(text: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_settings({"device": text})
    assert str(caught.value) == f"--llm-device: unknown device {text!r}. Known: auto, cpu, cuda, cuda:N, mps"


def test_shapes_next_to_prompts_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"^--llm-shape: --llm-prompts has the lengths of its prompts; leave one"):
        parse_settings({"prompts": "mine.jsonl", "shape": "512/128"})


def test_a_cache_for_own_prompts_without_any_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="--llm-cache is the cache of prompts of your own, and there are none"):
        parse_settings({"cache": "static"})
    assert parse_settings({"cache": "dynamic"}).cache == (CacheKind.DYNAMIC,)
    assert parse_settings({"cache": "static", "shape": "8/4"}).cache == (CacheKind.STATIC,)


def test_a_stride_beyond_the_window_would_skip_tokens_and_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"--llm-stride: 65 is more than the window of 64 tokens"):
        parse_settings({"window": "64", "stride": "65"})


def test_a_window_of_one_token_has_nothing_to_score_and_is_refused() -> None:
    """A token is scored given the tokens before it in its window, so the least window is two tokens."""
    with pytest.raises(InvalidSetting, match="--llm-window"):
        parse_settings({"window": "1"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"windows": "rolling", "stride": "8"}, "--llm-stride: rolling windows have no stride"),
        ({"windows": "llama", "stride": "8"}, "--llm-stride: llama windows have no stride"),
        ({"windows": "llama", "window": "2"}, "--llm-window: llama windows have at least 3 tokens"),
    ],
)
def test_what_a_scheme_of_windows_has_no_use_for_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_settings(given)
    assert str(caught.value) == message


def test_the_three_options_of_the_windows_make_one_plan() -> None:
    settings = parse_settings({"windows": "strided", "window": "64", "stride": "16"})
    assert plan_windows(settings) == WindowPlan(WindowScheme.STRIDED, 64, 16)


def test_a_stride_of_the_whole_window_is_accepted() -> None:
    assert parse_settings({"window": "64", "stride": "64"}).stride == 64


def test_a_row_names_its_flag_and_its_ini_value() -> None:
    assert (flag_of("batch_sizes"), ini_of("batch_sizes")) == ("--llm-batch-sizes", "llm_batch_sizes")


def test_the_switches_are_the_truth_values() -> None:
    switches = {name for name, option in OPTIONS.items() if option.is_switch}
    assert switches == {
        "trust_remote_code",
        "chat",
        "show_texts",
        "probe",
        "in_process",
        "overhead",
        "bnb_double_quant",
        "gate",
    }
    readers = {setting.name: setting.parse for setting in (*FIELDS, *backends.SETTINGS, *gate_options.SETTINGS)}
    assert switches == {name for name, parse in readers.items() if parse is parse_bool}


@pytest.mark.parametrize(
    ("text", "value"), [("", False), ("false", False), ("true", True), ("./true", Path("true")), ("~", Path.home())]
)
def test_the_run_to_go_on_with(text: str, value: object) -> None:
    assert parse_settings({"resume": text}).resume == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("auto", {}),
        ('{"": 0, "h.1": "cuda:1", "h.2": "cuda", "h.3": "disk", "lm_head": "cpu"}',
         {"": 0, "h.1": 1, "h.2": 0, "h.3": "disk", "lm_head": "cpu"}),
    ],
)  # fmt: skip
def test_where_a_models_parts_lie(text: str, value: object) -> None:
    assert parse_settings({"device_map": text}).device_map == value


def test_one_map_is_recorded_as_one_text() -> None:
    """Bug: two runs were kept apart by a space, by the order of names, and by how a device was written."""
    texts = ('{"":0,"h.1":"cuda:1"}', '{"h.1": 1, "": "cuda"}')
    assert [parse_settings({"device_map": text}).told["device_map"] for text in texts] == ['{"": 0, "h.1": 1}'] * 2
    assert parse_settings({"device_map": "auto"}).told == {"device_map": "auto"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("balanced", """expected auto, or JSON such as {"": "cpu", "lm_head": 0}, got 'balanced'"""),
        ("{}", "expected auto, or JSON"),
        ("[" * 100_000, "expected auto, or JSON"),
        ('{"lm_head": "gpu"}', "expected cpu, disk, cuda:N or N for the part 'lm_head', got 'gpu'"),
        ('{"lm_head": true}', "got 'True'"),
        ('{"lm_head": -1}', "got '-1'"),
        ('{"": "disk"}', "all lies on disk; at least one part needs a device that computes: cpu, or cuda:N"),
    ],
)
def test_a_map_that_says_no_places_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(message)):
        parse_settings({"device_map": text})


def test_what_changes_figures_is_told_unless_it_is_the_default() -> None:
    given = {"new_tokens": "32", "seed": "0", "report": "mine", "time": "2h", "gguf": "a.gguf"}
    assert parse_settings(given).told == {"new_tokens": "32", "gguf": "a.gguf"}


def test_of_each_option_it_is_known_whether_it_changes_figures() -> None:
    """A run is put together with others by what its provenance tells. A new option belongs to one of these."""
    in_the_provenance = {"model", "device", "attention", "chat", "reference", "in_process", "corpus", "choices"}
    in_the_provenance |= {"prompts", "shape", "tasks"}
    which_tests = {"variants", "cache", "prompt_lengths", "batch_sizes", "request_rates", "threads", "overhead"}
    how_long = {"time", "rounds", "max_noise", "memory_share", "limits_time", "endpoint_timeout"}
    judges = {"need", "want", "fit", "gate", "gate_rules", "gate_missing", "gate_summary", "baseline"}
    others = {"trust_remote_code", "show_texts", "report", "resume", "cache_dir", "history"}
    groups = (in_the_provenance, which_tests, how_long, judges, others, TOLD_BY_THEMSELVES)
    assert sorted(chain(*groups)) == sorted(OPTIONS)


def test_every_option_is_read_once_and_by_what_the_table_says() -> None:
    assert ["given", *(setting.name for setting in FIELDS)] == list(Settings.__dataclass_fields__)
    read = (*FIELDS, NEED, WANT, *backends.SETTINGS, *gate_options.SETTINGS)
    assert [*OPTIONS] == [setting.name for setting in read]


def test_the_help_of_a_server_names_the_variables_of_its_key() -> None:
    assert f"{endpoint.KEY} in the environment, for endpoint-a from {endpoint.key_variable('endpoint-a')}" in (
        endpoint.ENDPOINT.option.help
    )


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (bitsandbytes.COMPUTE_DTYPE, None, None),
        (bitsandbytes.COMPUTE_DTYPE, "bf16", Precision.BFLOAT16),
        (bitsandbytes.DOUBLE_QUANT, None, False),
        (bitsandbytes.DOUBLE_QUANT, "1", True),
        (gate_options.GATE, None, False),
        (gate_options.RULES, None, ()),
        (gate_options.RULES, "latency_s:5%", (NamedRule("latency_s", "5%"),)),
        (gate_options.MISSING, None, frozenset()),
        (gate_options.MISSING, "new", frozenset({Allowance.NEW})),
        (gate_options.SUMMARY, None, None),
        (gate_options.BASELINE, "branch:main", "branch:main"),
    ],
)
def test_a_row_that_stands_with_its_reader_is_read_from_the_same_texts(
    setting: Setting[object], text: str | None, value: object
) -> None:
    assert parse_settings({setting.name: text}).of(setting) == value


def test_a_bad_value_of_such_a_row_is_refused_with_its_flag() -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_settings({"bnb_compute_dtype": "int8"}).of(bitsandbytes.COMPUTE_DTYPE)
    assert str(caught.value) == f"--llm-bnb-compute-dtype: unknown dtype 'int8'. Known: {', '.join(SPELLINGS)}"
