"""The table of options: their names, defaults and help.

Each row of `OPTIONS` is at the same time the command-line flag `--llm-NAME` and the ini value `llm_NAME`. The command
line wins over the ini file, and that over the default. What its text means stands where it is read: in `Settings`, and
of the engines' and the gate's options in a `Setting`.

Every pytest run in the environment reads this table, so it is plain data, and imports nothing that pytest itself
doesn't.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PAIR_SOCKET = "--llm-pair-socket"  # only `llm-bench pair` gives it: the number of a socket that a worker inherits


def flag_of(name: str) -> str:
    return "--llm-" + name.replace("_", "-")


def ini_of(name: str) -> str:
    return "llm_" + name


@dataclass(frozen=True)
class Option:
    """What one may type: its name, its default as one would type it, and what `--help` says."""

    name: str
    default: str
    metavar: str
    """Empty for a switch."""
    help: str

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def ini(self) -> str:
        return ini_of(self.name)

    @property
    def is_switch(self) -> bool:
        return not self.metavar

    @property
    def full_help(self) -> str:
        return self.help if self.is_switch or not self.default else f"{self.help}. Default: {self.default}"


GONE = {  # options that are refused, with what to do instead
    "isolate": "each variant has a process of its own now; --llm-in-process is the way back",
}
RENAMED = {"precision": "max_noise"}  # what an option was called before, which is refused with its new name

OPTIONS = (
    # Read in options/settings.py.
    Option(
        "model",
        "tiny",
        "MODEL[,MODEL...]",
        "hub id or local folder of the model, 'tiny' for the embedded one, or with --llm-load-format=dummy also a "
        "preset (gpt2, llama-125m). Of a list, the first that loads is used",
    ),
    Option(
        "load_format",
        "auto",
        "FORMAT",
        "auto: the model's own weights. dummy: seeded random weights in the shape of the model's config, with the "
        "embedded tokenizer: real cost, no download, no meaning",
    ),
    Option("trust_remote_code", "false", "", "let the model's repository run its own Python code"),
    Option("device", "auto", "DEVICE", "auto, cpu, cuda, cuda:N or mps"),
    Option(
        "attention",
        "",
        "NAME",
        "attention implementation of the variants that transformers runs on torch, by its name for it: eager, sdpa, "
        "flash_attention_2, flex_attention, … Default: the model's own choice",
    ),
    Option(
        "chat",
        "false",
        "",
        "make each prompt a user's turn in the model's chat template, whose tokens count among the prompt's. Quality "
        "is still measured on plain text",
    ),
    Option(
        "variants",
        "",
        "NAME[,NAME...]",
        "ways to run the model, such as fp32,bf16,bnb-nf4,ort-int8-dynamic; an engine's name (onnxruntime) stands for "
        "all of its ways, 'default' for the default: all of torch, onnxruntime and bitsandbytes and of the further "
        "engines that are installed. Those that can't run here are skipped with their reason",
    ),
    Option("reference", "fp32", "ID", "the variant that the others are compared with; it runs first"),
    Option("new_tokens", "16", "N", "tokens to generate for each prompt"),
    Option("rounds", "3", "N", "timed rounds of each benchmark, at least"),
    Option(
        "warmup_rounds",
        "1",
        "N",
        "untimed rounds before the timed ones; in the first of them memory and work are observed",
    ),
    Option(
        "max_noise",
        "3%",
        "SHARE",
        "add timed rounds until the 95% interval of the speed-up over the reference is within this share of it to "
        "either side, such as 2%, or --llm-max-time is spent. Without a reference: of the latency. 0: only "
        "--llm-rounds",
    ),
    Option(
        "max_time",
        "0.5",
        "SECONDS",
        "of rounds for one benchmark, on average: what one leaves is there for those after it",
    ),
    Option(
        "probe",
        "false",
        "",
        "before each timed round time a fixed matrix product and a fixed read of memory too, some milliseconds that "
        "are in no latency: wherever times are compared with those of another run, they tell how much slower the "
        "machine itself was. Use it in both runs: it empties the caches before each round",
    ),
    Option(
        "in_process",
        "false",
        "",
        "run every variant in this process, one at a time, as debuggers and profilers need it: speed-ups are then the "
        "quotient of times that were taken minutes apart",
    ),
    Option(
        "memory_share",
        "60%",
        "SHARE",
        "of the free memory that the loaded variants may take together. As many as fit are loaded, each in a process "
        "of its own, and take turns; 0: one at a time",
    ),
    Option(
        "limits_time",
        "2",
        "SECONDS",
        "to measure how fast this machine reads memory and multiplies matrices, which the speeds are compared with. "
        "0: leave that out",
    ),
    Option("prompt_lengths", "16,64,128,256", "N[,N...]", "prompt lengths to sweep, in tokens"),
    Option("batch_sizes", "1,2,4,8", "N[,N...]", "batch sizes to sweep"),
    Option(
        "request_rates",
        "1,2,4",
        "N[,N...]",
        "requests per second to load a server with, at random times (a Poisson process), whether or not it keeps up",
    ),
    Option("load_time", "30", "SECONDS", "during which requests are sent at each of these rates"),
    Option(
        "ttft_limit",
        "1",
        "SECONDS",
        "until the first token, from the time for which a request was planned; goodput counts requests within it",
    ),
    Option(
        "tpot_limit",
        "0.1",
        "SECONDS",
        "for each token after the first, on a request's average; goodput counts requests within it",
    ),
    Option(
        "corpus",
        "",
        "FILE",
        "text file, or folder of .txt files, to compute the perplexity on. Default: the embedded corpus",
    ),
    Option(
        "windows",
        "strided",
        "SCHEME",
        "how the corpus is cut to score it. strided: Hugging Face's perplexity; rolling: as lm-evaluation-harness; "
        "llama: as llama-perplexity",
    ),
    Option(
        "window",
        "0",
        "N",
        "tokens that the model sees at once when it scores the corpus. 0: its context, at most 1024",
    ),
    Option("stride", "0", "N", "tokens from one strided window's start to the next. 0: half a window"),
    Option(
        "choices",
        "",
        "FILE",
        "questions of multiple choice, a line of JSON each with prompt, choices and answer: the report tells how many "
        "each variant gets right, and how many of its answers flip against the reference's. none: ask nothing. "
        "Default: the embedded ones",
    ),
    Option(
        "overhead",
        "false",
        "",
        "run the tests that take llm_overhead too: they measure what taking the tokens' times costs, which is the "
        "tool's affair and not the model's",
    ),
    Option("seed", "0", "N", "seed of the dummy weights, and of the times at which a server is sent requests"),
    Option(
        "quality_limit",
        "ppl_ratio:1.01",
        "METRIC:LIMIT",
        "quality that a variant must keep for the report to recommend it: ppl_ratio:1.01, a perplexity of at most 1.01 "
        "times the reference's, or top1_agreement:99%, the same most likely token at 99% of the corpus's tokens",
    ),
    Option("report", "llm-bench-report", "DIR", "folder for the report, its data and its plots"),
    Option("cache_dir", "", "DIR", "folder for exported and quantized models. Default: this user's cache folder"),
    # Read by engines, each in its file of models/backends.
    Option(
        "bnb_compute_dtype",
        "",
        "DTYPE",
        "dtype in which bitsandbytes variants compute. Default: float32 on CPU, bfloat16 elsewhere",
    ),
    Option("bnb_double_quant", "false", "", "quantize the scales of the 4-bit bitsandbytes variants too"),
    Option(
        "gguf",
        "",
        "FILE",
        "a GGUF file of --llm-model in 32 or 16 bits, for the gguf variants to be made from in place of the model's "
        "own files",
    ),
    Option(
        "endpoint",
        "",
        "[NAME=]URL[,...]",
        "measure a server with OpenAI's interface too, such as http://127.0.0.1:8000/v1, as the variant endpoint; of "
        "several each has a name: a=URL,b=URL are endpoint-a and endpoint-b. A key is taken from "
        "LLM_BENCH_ENDPOINT_KEY in the environment, for endpoint-a from LLM_BENCH_ENDPOINT_KEY_A",
    ),
    Option(
        "endpoint_model",
        "",
        "[NAME=]MODEL[,...]",
        "the model to ask the server for, by its name there. Default: the only one that it lists",
    ),
    Option(
        "endpoint_timeout",
        "60",
        "SECONDS",
        "until a request to a server has to be answered to its end; one that isn't costs its row, or counts as failed",
    ),
    # Read by the gate, in gate/options.py.
    Option(
        "gate",
        "false",
        "",
        "judge this run by a saved one, and fail where it is worse: the newest complete run in pytest-benchmark's "
        "storage, or what --benchmark-compare or --llm-baseline names",
    ),
    Option(
        "gate_rules",
        "",
        "RULE[,RULE...]",
        "[SCENARIO/]METRIC:CHANGE, where METRIC may be a kind (timing, memory, quality, exact) and CHANGE is what may "
        "change for the worse: 5% relative, 0.5 in the metric's unit, 0 nothing, or blocking, advisory, off. Default: "
        "docs/reference/stored-gate.md",
    ),
    Option(
        "gate_missing",
        "fail",
        "WHAT[,WHAT...]",
        "what may be missing without failing the gate: baseline, new, vanished, skipped or errored (tests), "
        "fingerprint (another machine, model, corpus or library set). pass: baseline and new. fail: nothing",
    ),
    Option("gate_summary", "", "FILE", "write the gate's verdict as Markdown, for a comment or a step summary"),
    Option(
        "baseline",
        "",
        "WHAT",
        "the saved run to judge by: branch:NAME (its newest), merge-base:REF (of the commit where this branch left "
        "REF, or the nearest before it), or a run's number, name or file",
    ),
)


def paths_that_stand_alone(arguments: Sequence[str], folder: Path) -> list[tuple[str, str]]:
    """Options with the argument after them, where that is a value without an equals sign, and a path seen from the
    folder: pytest takes it for a folder of tests. Switches have no value."""
    flags = {option.flag for option in OPTIONS if not option.is_switch}
    return [(flag, value) for flag, value in pairwise(arguments) if flag in flags and os.path.lexists(folder / value)]
