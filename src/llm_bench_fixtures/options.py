"""The options and ini values of the plugin: their names, defaults and help, and how each is parsed.

Each row of `OPTIONS` is at the same time the command-line flag `--llm-NAME`, the ini value `llm_NAME` and the field
`NAME` of `Settings`. The command line wins over the ini file, and that over the default.

Every pytest run in the environment reads this table, so nothing is imported here that pytest itself doesn't.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import InvalidSetting, UnknownName

if TYPE_CHECKING:
    from llm_bench_fixtures.history.gate import Missing
    from llm_bench_fixtures.history.rules import NamedRule
    from llm_bench_fixtures.variants import Precision


class WindowScheme(StrEnum):
    """How a corpus is cut to be scored."""

    STRIDED = "strided"
    ROLLING = "rolling"
    LLAMA = "llama"


class LoadFormat(StrEnum):
    AUTO = "auto"
    DUMMY = "dummy"


@dataclass(frozen=True)
class Option:
    """One setting: how it is parsed, its default as one would type it, and what `--help` says."""

    name: str
    parse: Callable[[str], Any]
    default: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return "--llm-" + self.name.replace("_", "-")

    @property
    def ini(self) -> str:
        return "llm_" + self.name

    @property
    def full_help(self) -> str:
        return self.help if self.is_switch or not self.default else f"{self.help}. Default: {self.default}"

    @property
    def is_switch(self) -> bool:
        return self.parse is parse_bool


def parse_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InvalidSetting("expected at least one name")
    return names


def parse_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise UnknownName("truth value", text, words) from None


def integer_of_at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise InvalidSetting(f"expected a whole number, got {text!r}") from None
        if number < least:
            raise InvalidSetting(f"expected at least {least}, got {number}")
        return number

    return parse


def parse_seconds(text: str) -> float:
    seconds = _number(text)
    if seconds is None:
        raise InvalidSetting(f"expected seconds, got {text!r}")
    return seconds


def parse_share(text: str) -> float:
    """0.05 and 5% are the same."""
    number = _number(text.strip().removesuffix("%"))
    if number is None:
        raise InvalidSetting(f"expected a share such as 5% or 0.05, got {text!r}")
    if text.strip().endswith("%"):
        return number / 100
    if number >= 1:
        raise InvalidSetting(f"{text} would be {number:.0%}: type {text}%, or a share below 1")
    return number


def _number(text: str) -> float | None:
    """A finite number that isn't negative."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def parse_window(text: str) -> int:
    return 0 if text == "0" else integer_of_at_least(2)(text)


def parse_positive_integers(text: str) -> tuple[int, ...]:
    """Ascending, each once."""
    return tuple(sorted({integer_of_at_least(1)(part) for part in parse_names(text)}))


def parse_load_format(text: str) -> LoadFormat:
    if text not in list(LoadFormat):
        raise UnknownName("load format", text, LoadFormat)
    return LoadFormat(text)


def parse_window_scheme(text: str) -> WindowScheme:
    if text not in list(WindowScheme):
        raise UnknownName("scheme of windows", text, WindowScheme)
    return WindowScheme(text)


def parse_path(text: str) -> Path:
    return Path(text).expanduser()


def parse_optional_path(text: str) -> Path | None:
    return parse_path(text) if text else None


def parse_optional_precision(text: str) -> Precision | None:
    from llm_bench_fixtures.variants import parse_precision

    return parse_precision(text) if text else None


def parse_device(text: str) -> str:
    from llm_bench_fixtures.device import DeviceKind

    kind, _, index = text.partition(":")
    if text in ("auto", *DeviceKind) or (kind == DeviceKind.CUDA and index.isdecimal()):
        return text
    raise InvalidSetting(f"unknown device {text!r}. Known: auto, cpu, cuda, cuda:N, mps")


def parse_gate_rules(text: str) -> tuple[NamedRule, ...]:
    from llm_bench_fixtures.history.rules import parse_rules

    return parse_rules(text)


def parse_gate_missing(text: str) -> frozenset[Missing]:
    from llm_bench_fixtures.history.gate import parse_missing

    return parse_missing(text)


OPTIONS: tuple[Option, ...] = (
    Option(
        "model",
        parse_names,
        "tiny",
        "MODEL[,MODEL...]",
        "hub id or local folder of the model, 'tiny' for the embedded one, or with --llm-load-format=dummy also a "
        "preset (gpt2, llama-125m). Of a list, the first that loads is used",
    ),
    Option(
        "load_format",
        parse_load_format,
        "auto",
        "FORMAT",
        "auto: the model's own weights. dummy: seeded random weights in the shape of the model's config, with the "
        "embedded tokenizer: real cost, no download, no meaning",
    ),
    Option("trust_remote_code", parse_bool, "false", "", "let the model's repository run its own Python code"),
    Option("device", parse_device, "auto", "DEVICE", "auto, cpu, cuda, cuda:N or mps"),
    Option(
        "variants",
        str,
        "",
        "ID[,ID...]",
        "ways to run the model, such as fp32,bf16,bnb-nf4,ort-int8-dynamic. Default: all, and those that can't run "
        "here are skipped with their reason",
    ),
    Option("reference", str, "fp32", "ID", "the variant that the others are compared with; it runs first"),
    Option("new_tokens", integer_of_at_least(1), "16", "N", "tokens to generate for each prompt"),
    Option("rounds", integer_of_at_least(1), "3", "N", "timed rounds of each benchmark, at least"),
    Option(
        "warmup_rounds",
        integer_of_at_least(1),
        "1",
        "N",
        "untimed rounds before the timed ones; in the first of them memory and work are observed",
    ),
    Option(
        "precision",
        parse_share,
        "5%",
        "SHARE",
        "add timed rounds until the latency's 95% interval is within this share of it to either side, such as 2%, or "
        "--llm-max-time is spent. 0: only --llm-rounds",
    ),
    Option(
        "max_time",
        parse_seconds,
        "0.5",
        "SECONDS",
        "of timed rounds for one benchmark, after which --llm-precision adds no more",
    ),
    Option(
        "probe",
        parse_bool,
        "false",
        "",
        "before each timed round time a fixed matrix product and a fixed read of memory too, some milliseconds that "
        "are in no latency: wherever times are compared with those of another run, they tell how much slower the "
        "machine itself was. Use it in both runs: it empties the caches before each round",
    ),
    Option(
        "isolate",
        parse_bool,
        "false",
        "",
        "run each variant in a process of its own: its memory and its first generate are then its own, and a crash "
        "ends only its benchmarks",
    ),
    Option(
        "limits_time",
        parse_seconds,
        "2",
        "SECONDS",
        "to measure how fast this machine reads memory and multiplies matrices, which the speeds are compared with. "
        "0: leave that out",
    ),
    Option(
        "prompt_lengths", parse_positive_integers, "16,64,128,256", "N[,N...]", "prompt lengths to sweep, in tokens"
    ),
    Option("batch_sizes", parse_positive_integers, "1,2,4,8", "N[,N...]", "batch sizes to sweep"),
    Option(
        "corpus",
        parse_optional_path,
        "",
        "FILE",
        "text file, or folder of .txt files, to compute the perplexity on. Default: the embedded corpus",
    ),
    Option(
        "windows",
        parse_window_scheme,
        "strided",
        "SCHEME",
        "how the corpus is cut to score it. strided: Hugging Face's perplexity; rolling: as lm-evaluation-harness; "
        "llama: as llama-perplexity",
    ),
    Option(
        "window",
        parse_window,
        "0",
        "N",
        "tokens that the model sees at once when it scores the corpus. 0: its context, at most 1024",
    ),
    Option(
        "stride",
        integer_of_at_least(0),
        "0",
        "N",
        "tokens from one strided window's start to the next. 0: half a window",
    ),
    Option(
        "bnb_compute_dtype",
        parse_optional_precision,
        "",
        "DTYPE",
        "dtype in which bitsandbytes variants compute. Default: float32 on CPU, bfloat16 elsewhere",
    ),
    Option(
        "bnb_double_quant",
        parse_bool,
        "false",
        "",
        "quantize the scales of the 4-bit bitsandbytes variants too",
    ),
    Option("seed", integer_of_at_least(0), "0", "N", "seed of the dummy weights"),
    Option("report", parse_path, "llm-bench-report", "DIR", "folder for the report, its data and its plots"),
    Option(
        "cache_dir",
        parse_optional_path,
        "",
        "DIR",
        "folder for exported and quantized models. Default: this user's cache folder",
    ),
    Option(
        "gate",
        parse_bool,
        "false",
        "",
        "judge this run by a saved one, and fail where it is worse: the newest complete run in pytest-benchmark's "
        "storage, or what --benchmark-compare or --llm-baseline names",
    ),
    Option(
        "gate_rules",
        parse_gate_rules,
        "",
        "RULE[,RULE...]",
        "[SCENARIO/]METRIC:CHANGE, where METRIC may be a kind (timing, memory, quality, exact) and CHANGE is what may "
        "change for the worse: 5% relative, 0.5 in the metric's unit, 0 nothing, or blocking, advisory, off. Default: "
        "docs/gate.md",
    ),
    Option(
        "gate_missing",
        parse_gate_missing,
        "fail",
        "WHAT[,WHAT...]",
        "what may be missing without failing the gate: baseline, new, vanished, skipped or errored (tests), "
        "fingerprint (another machine, model, corpus or library set). pass: baseline and new. fail: nothing",
    ),
    Option(
        "gate_summary",
        parse_optional_path,
        "",
        "FILE",
        "write the gate's verdict as Markdown, for a comment or a step summary",
    ),
    Option(
        "baseline",
        str,
        "",
        "WHAT",
        "the saved run to judge by: branch:NAME (its newest), merge-base:REF (of the commit where this branch left "
        "REF, or the nearest before it), or a run's number, name or file",
    ),
)
