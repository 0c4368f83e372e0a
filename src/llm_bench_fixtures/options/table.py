"""The table of options: their names, defaults and help.

Each row of `OPTIONS` is at the same time the command-line flag `--llm-NAME`, the ini value `llm_NAME` and the field
`NAME` of `Settings`. The command line wins over the ini file, and that over the default. The gate and the backends
have rows of their own beside what reads them.

Every pytest run in the environment reads this table, so nothing is imported here that pytest itself doesn't.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.options.parsers import (
    LoadFormat,
    WindowScheme,
    integer_of_at_least,
    member_of,
    parse_bool,
    parse_device,
    parse_names,
    parse_optional_path,
    parse_part,
    parse_path,
    parse_seconds,
    parse_share,
    parse_window,
    positive_integers,
    positive_numbers,
    shortened,
)
from llm_bench_fixtures.options.quality_limit import parse_quality_limit

PAIR_SOCKET = "--llm-pair-socket"  # only `llm-bench pair` gives it: the number of a socket that a worker inherits

MOST_TOKENS = 2**24  # of a prompt: the longest published contexts hold ten millions
MOST_ROWS = 65_536  # of a batch
MOST_ROUNDS = 100_000
MOST_REQUESTS_PER_S = 10_000.0
MOST_SEED = 2**63 - 1  # torch's seeds have 64 bits

T = TypeVar("T")


def flag_of(name: str) -> str:
    return "--llm-" + name.replace("_", "-")


def ini_of(name: str) -> str:
    return "llm_" + name


@dataclass(frozen=True)
class Option(Generic[T]):
    """One setting: how it is parsed, its default as one would type it, and what `--help` says."""

    name: str
    parse: Callable[[str], T]
    default: str
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def ini(self) -> str:
        return ini_of(self.name)

    @property
    def full_help(self) -> str:
        return self.help if self.is_switch or not self.default else f"{self.help}. Default: {self.default}"

    @property
    def is_switch(self) -> bool:
        return self.parse is parse_bool

    def read(self, given: Mapping[str, str]) -> T:
        """The value of this option among texts by option name. Raises InvalidSetting that names the flag."""
        text = given.get(self.name)
        if text is not None and "\0" in text:
            raise InvalidSetting(f"{self.flag}: there is a NUL character in {shortened(text)}; take it out")
        try:
            return self.parse(self.default if text is None else text)
        except InvalidSetting as error:
            raise InvalidSetting(f"{self.flag}: {error}") from error


GONE = {  # options that are refused, with what to do instead
    "isolate": "each variant has a process of its own now; --llm-in-process is the way back",
}
RENAMED = {"precision": "max_noise"}  # what an option was called before, which is refused with its new name

OPTIONS: tuple[Option[Any], ...] = (
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
        member_of(LoadFormat, "load format"),
        "auto",
        "FORMAT",
        "auto: the model's own weights. dummy: seeded random weights in the shape of the model's config, with the "
        "embedded tokenizer: real cost, no download, no meaning",
    ),
    Option("trust_remote_code", parse_bool, "false", "", "let the model's repository run its own Python code"),
    Option("device", parse_device, "auto", "DEVICE", "auto, cpu, cuda, cuda:N or mps"),
    Option(
        "attention",
        str,
        "",
        "NAME",
        "attention implementation of the variants that transformers runs on torch, by its name for it: eager, sdpa, "
        "flash_attention_2, flex_attention, … Default: the model's own choice",
    ),
    Option(
        "chat",
        parse_bool,
        "false",
        "",
        "make each prompt a user's turn in the model's chat template, whose tokens count among the prompt's. Quality "
        "is still measured on plain text",
    ),
    Option(
        "variants",
        str,
        "",
        "NAME[,NAME...]",
        "ways to run the model, such as fp32,bf16,bnb-nf4,ort-int8-dynamic; an engine's name (onnxruntime) stands for "
        "all of its ways, 'default' for the default: all of torch, onnxruntime and bitsandbytes and of the further "
        "engines that are installed. Those that can't run here are skipped with their reason",
    ),
    Option("reference", str, "fp32", "ID", "the variant that the others are compared with; it runs first"),
    Option("new_tokens", integer_of_at_least(1, MOST_TOKENS), "16", "N", "tokens to generate for each prompt"),
    Option("rounds", integer_of_at_least(1, MOST_ROUNDS), "3", "N", "timed rounds of each benchmark, at least"),
    Option(
        "warmup_rounds",
        integer_of_at_least(1, MOST_ROUNDS),
        "1",
        "N",
        "untimed rounds before the timed ones; in the first of them memory and work are observed",
    ),
    Option(
        "max_noise",
        parse_share,
        "3%",
        "SHARE",
        "add timed rounds until the 95% interval of the speed-up over the reference is within this share of it to "
        "either side, such as 2%, or --llm-max-time is spent. Without a reference: of the latency. 0: only "
        "--llm-rounds",
    ),
    Option(
        "max_time",
        parse_seconds,
        "0.5",
        "SECONDS",
        "of rounds for one benchmark, on average: what one leaves is there for those after it",
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
        "in_process",
        parse_bool,
        "false",
        "",
        "run every variant in this process, one at a time, as debuggers and profilers need it: speed-ups are then the "
        "quotient of times that were taken minutes apart",
    ),
    Option(
        "memory_share",
        parse_part,
        "60%",
        "SHARE",
        "of the free memory that the loaded variants may take together. As many as fit are loaded, each in a process "
        "of its own, and take turns; 0: one at a time",
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
        "prompt_lengths",
        positive_integers(MOST_TOKENS),
        "16,64,128,256",
        "N[,N...]",
        "prompt lengths to sweep, in tokens",
    ),
    Option("batch_sizes", positive_integers(MOST_ROWS), "1,2,4,8", "N[,N...]", "batch sizes to sweep"),
    Option(
        "request_rates",
        positive_numbers(MOST_REQUESTS_PER_S),
        "1,2,4",
        "N[,N...]",
        "requests per second to load a server with, at random times (a Poisson process), whether or not it keeps up",
    ),
    Option("load_time", parse_seconds, "30", "SECONDS", "during which requests are sent at each of these rates"),
    Option(
        "ttft_limit",
        parse_seconds,
        "1",
        "SECONDS",
        "until the first token, from the time for which a request was planned; goodput counts requests within it",
    ),
    Option(
        "tpot_limit",
        parse_seconds,
        "0.1",
        "SECONDS",
        "for each token after the first, on a request's average; goodput counts requests within it",
    ),
    Option(
        "corpus",
        parse_optional_path,
        "",
        "FILE",
        "text file, or folder of .txt files, to compute the perplexity on. Default: the embedded corpus",
    ),
    Option(
        "windows",
        member_of(WindowScheme, "scheme of windows"),
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
        integer_of_at_least(0, MOST_TOKENS),
        "0",
        "N",
        "tokens from one strided window's start to the next. 0: half a window",
    ),
    Option(
        "choices",
        str,
        "",
        "FILE",
        "questions of multiple choice, a line of JSON each with prompt, choices and answer: the report tells how many "
        "each variant gets right, and how many of its answers flip against the reference's. none: ask nothing. "
        "Default: the embedded ones",
    ),
    Option(
        "overhead",
        parse_bool,
        "false",
        "",
        "run the tests that take llm_overhead too: they measure what taking the tokens' times costs, which is the "
        "tool's affair and not the model's",
    ),
    Option(
        "seed",
        integer_of_at_least(0, MOST_SEED),
        "0",
        "N",
        "seed of the dummy weights, and of the times at which a server is sent requests",
    ),
    Option(
        "quality_limit",
        parse_quality_limit,
        "ppl_ratio:1.01",
        "METRIC:LIMIT",
        "quality that a variant must keep for the report to recommend it: ppl_ratio:1.01, a perplexity of at most 1.01 "
        "times the reference's, or top1_agreement:99%, the same most likely token at 99% of the corpus's tokens",
    ),
    Option("report", parse_path, "llm-bench-report", "DIR", "folder for the report, its data and its plots"),
    Option(
        "cache_dir",
        parse_optional_path,
        "",
        "DIR",
        "folder for exported and quantized models. Default: this user's cache folder",
    ),
)
