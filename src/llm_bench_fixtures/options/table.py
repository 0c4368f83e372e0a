"""The table of options: their names, defaults and help.

Each row of `OPTIONS` is at the same time the command-line flag `--llm-NAME` and the ini value `llm_NAME`. The command
line wins over the ini file, and that over the default. What its text means stands where it is read: in `Settings`, and
of the engines', the gate's and the answer's options in a `Setting`.

Every pytest run in the environment reads this table, so it is plain data, and imports nothing that pytest itself
doesn't.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    """What one may type: its value, what `--help` says, and its default as one would type it."""

    metavar: str
    """Empty for a switch."""
    help: str
    default: str = ""
    alone: str = ""
    """Value that the flag without a value stands for, where it takes one or none."""

    @property
    def is_switch(self) -> bool:
        return not self.metavar

    @property
    def full_help(self) -> str:
        return self.help if self.is_switch or not self.default else f"{self.help}. Default: {self.default}"


def switch(help_text: str) -> Option:
    return Option("", help_text, "false")


OPTIONS: Mapping[str, Option] = {
    # Read in options/settings.py.
    "model": Option(
        "MODEL[,MODEL...]",
        "hub id or local folder of the model, 'tiny' for the embedded one, or with --llm-load-format=dummy also a "
        "preset (gpt2, llama-125m). Of a list, the first that loads is used",
        "tiny",
    ),
    "load_format": Option(
        "FORMAT",
        "auto: the model's own weights. dummy: seeded random weights in the shape of the model's config, with the "
        "embedded tokenizer (real cost, no download, meaningless text)",
        "auto",
    ),
    "trust_remote_code": switch("let the model's repository run its own Python code"),
    "device": Option("DEVICE", "auto, cpu, cuda, cuda:N or mps", "auto"),
    "device_map": Option(
        "MAP",
        "auto: spread the layers of a model that is larger than one device over the CUDA devices (from that of "
        "--llm-device on), memory and disk, by accelerate. Or JSON that says which part lies where, such as "
        '\'{"": 0, "model.layers.9": "cpu"}\'. Only variants of torch and bitsandbytes run, one at a time. '
        "Default: one device",
    ),
    "attention": Option(
        "NAME",
        "attention implementation for variants that transformers runs on torch: eager, sdpa, flash_attention_2, "
        "flex_attention, … Default: the model's own choice",
    ),
    "chat": switch(
        "wrap each prompt as a user's turn in the model's chat template, whose tokens count as prompt tokens. "
        "Quality is still measured on plain text, unless it is of answers in --llm-prompts"
    ),
    "variants": Option(
        "NAME[,NAME...]",
        "ways to run the model, such as fp32,bf16,bnb-nf4,ort-int8-dynamic; an engine's name (onnxruntime) stands "
        "for all of its variants, 'default' for the default: all of torch, onnxruntime and bitsandbytes, and of "
        "every other engine that is installed. Variants that can't run here are skipped with a reason",
    ),
    "reference": Option("ID", "the variant that the others are compared with; it runs first", "fp32"),
    "time": Option(
        "TIME",
        "time for the whole run, its report included, such as 20m, 90s or 1h30m; none: no limit. The run ends at most "
        "5% later. A benchmark that it didn't reach is a row that says so, and no error. The default is enough for the "
        "embedded model, and keeps a large one from running for hours. A longer time than a large one needs goes into "
        "further rounds",
        "30m",
    ),
    "prompts": Option(
        "FILE",
        "your own prompts, which then decide the answer: JSONL, JSON or CSV with prompt or messages, and optionally "
        "output_tokens, answer and name; - is standard input. With answers, quality is measured on these",
    ),
    "shape": Option(
        "N/N[,N/N...]",
        "prompt and answer lengths in tokens, in place of your own prompts, such as 512/128,2048/64",
    ),
    "cache": Option(
        "KIND[,KIND...]",
        "cache of keys and values that prompts of your own run with: dynamic, static or off. The answer goes by the "
        "first; the others show whether one of them would meet --llm-need",
        "dynamic",
    ),
    "show_texts": switch("keep what is generated from --llm-prompts in the results, and show it in the report"),
    "new_tokens": Option("N", "tokens to generate for each prompt", "16"),
    "rounds": Option(
        "N",
        "least number of timed rounds of each benchmark. auto: 3, or 2 where a large model's further ones follow, or "
        "a round takes over 2 seconds and the interval is narrow enough by then",
        "auto",
    ),
    "warmup_rounds": Option(
        "N",
        "untimed rounds before the timed ones; memory and work are measured in the first of them. For a model of 200M "
        "parameters or more, a few tokens replace it, and memory and work are measured in the first timed round",
        "1",
    ),
    "max_noise": Option(
        "SHARE",
        "add timed rounds until the 95% interval of the speed-up over the reference (without one, of the latency) is "
        "within ±SHARE, such as 1%. Each benchmark gets 0.35 seconds for this on average; at 1% nine times as much. "
        "0: only --llm-rounds",
        "3%",
    ),
    "probe": switch(
        "before each timed round, also time a fixed matrix product and a fixed read of memory; these milliseconds are "
        "in no latency. They show how much slower the machine itself was than in another run. Use it in both runs: it "
        "empties the caches before each round"
    ),
    "in_process": switch(
        "run every variant in this process, one at a time, for debuggers and profilers. Speed-ups are then ratios of "
        "times measured minutes apart"
    ),
    "memory_share": Option(
        "SHARE",
        "share of the free memory that the loaded variants may take together. As many as fit are loaded, each in a "
        "process of its own, and take turns; 0: one at a time",
        "60%",
    ),
    "limits_time": Option(
        "SECONDS",
        "time for measuring how fast this machine reads memory and multiplies matrices, the limits that speeds are "
        "compared with. 0: skip",
        "2",
    ),
    "prompt_lengths": Option("N[,N...]", "prompt lengths to sweep, in tokens", "16,64,128,256"),
    "batch_sizes": Option("N[,N...]", "batch sizes to sweep", "1,2,4,8"),
    "request_rates": Option(
        "N[,N...]",
        "requests per second to load a server with, at random times (a Poisson process), whether or not it keeps up",
        "1,2,4",
    ),
    "load_time": Option("SECONDS", "how long requests are sent at each of these rates", "30"),
    "corpus": Option(
        "FILE", "text file, or folder of .txt files, to compute perplexity on. Default: the embedded corpus"
    ),
    "windows": Option(
        "SCHEME",
        "how the corpus is cut into windows for scoring. strided: as Hugging Face's perplexity; rolling: as "
        "lm-evaluation-harness; llama: as llama-perplexity",
        "strided",
    ),
    "window": Option(
        "N", "tokens that the model sees at once when it scores the corpus. 0: its context, at most 1024", "0"
    ),
    "stride": Option("N", "tokens from one strided window's start to the next. 0: half a window", "0"),
    "choices": Option(
        "FILE",
        "multiple-choice questions, one JSON object per line with prompt, choices and answer: the report shows how "
        "many each variant gets right, and how many answers flip against the reference's. none: ask nothing. "
        "Default: the embedded ones",
    ),
    "tasks": Option(
        "TASK[,TASK...]",
        "also run tasks of lm-evaluation-harness on every variant, and compare each answer with the reference's: names "
        "(arc_easy) or YAML files (my.yaml). Needs the extra [tasks]",
    ),
    "overhead": switch(
        "also run the tests that take llm_overhead: they measure what noting each token's time costs. That concerns "
        "this tool, not the model"
    ),
    "fit": Option(
        "SIZE",
        "memory to fit the model into, such as 24GB: the report says what fits, the largest batch and the longest "
        "context of each variant. Default: what is free on this machine",
    ),
    "threads": Option(
        "N[,N...]",
        "also run the tests that take llm_threads: each variant in these numbers of threads, next to its default. "
        "auto: 1, 2, 4, … and all cores",
    ),
    "seed": Option(
        "N",
        "seed of the dummy weights, of the sample of many --llm-prompts, and of the random times of requests to a "
        "server",
        "0",
    ),
    "report": Option("DIR", "folder for the report, its data and its plots", "llm-bench-report"),
    "resume": Option(
        "PATH",
        "continue an interrupted run: PATH is its report's folder or results.json, by default --llm-report, or the "
        "unfinished run before it if that measured more. Whole cases are kept. Nothing runs if the commit, the model, "
        "the libraries or an option that changes figures differ. Name the tests before it, or write "
        "--llm-resume=PATH",
        alone="true",
    ),
    "history": Option(
        "URL",
        "database to save the run to at its end, and to find the gate's baseline in: sqlite:///FILE or "
        "postgresql://[USER@]HOST/DATABASE, with the password in PGPASSWORD or ~/.pgpass. Needs the extra [sql]",
    ),
    "cache_dir": Option("DIR", "folder for exported and quantized models. Default: this user's cache folder"),
    # Read in answer/need.py.
    "need": Option(
        "LIMIT[,LIMIT...]",
        "what a variant must keep to be recommended, in quotes: 'tpot_s<=50ms, ttft_s<=0.5, memory<=4GB, "
        "top1_agreement>=99%'. latency, ttft, tpot, throughput, memory, ppl, kld and top1 are short names. Without a "
        "limit on quality, ppl_ratio<=1.01 is added (times the reference's); ppl_ratio<=any lifts it. Goodput "
        "under load counts requests within the bounds on ttft_s and tpot_s, without them 1 s and 0.1 s",
        "ppl_ratio<=1.01",
    ),
    "want": Option(
        "WHAT",
        "latency, throughput or memory: what the answer names first. For throughput, who meets --llm-need is judged at "
        "the largest batch, otherwise on one prompt",
        "latency",
    ),
    # Read by engines, each in its file of models/backends.
    "bnb_compute_dtype": Option(
        "DTYPE", "dtype in which bitsandbytes variants compute. Default: float32 on CPU, bfloat16 elsewhere"
    ),
    "bnb_double_quant": switch("quantize the scales of the 4-bit bitsandbytes variants too"),
    "gguf": Option(
        "FILE",
        "a GGUF file of --llm-model in 32 or 16 bits, from which the gguf variants are made instead of from the "
        "model's own files",
    ),
    "endpoint": Option(
        "[NAME=]URL[,...]",
        "also measure a server with OpenAI's interface, such as http://127.0.0.1:8000/v1, as the variant endpoint; "
        "several have a name each: a=URL,b=URL are endpoint-a and endpoint-b. A key is taken from "
        "LLM_BENCH_ENDPOINT_KEY in the environment, for endpoint-a from LLM_BENCH_ENDPOINT_KEY_A",
    ),
    "endpoint_model": Option(
        "[NAME=]MODEL[,...]",
        "the model to request from the server, by its name there. Default: the only one that it lists",
    ),
    "endpoint_timeout": Option(
        "SECONDS",
        "time limit for a whole request to a server; a request that exceeds it fails, or makes its row an error",
        "60",
    ),
    # Read by the gate, in gate/options.py.
    "gate": switch(
        "compare this run with a saved one, and fail if it is worse: with the newest complete run in "
        "pytest-benchmark's storage, or the one that --benchmark-compare or --llm-baseline names"
    ),
    "gate_rules": Option(
        "RULE[,RULE...]",
        "[SCENARIO/]METRIC:CHANGE, where METRIC may be a kind (timing, memory, quality, exact) and CHANGE is what may "
        "change for the worse: 5% relative, 0.5 in the metric's unit, 0 nothing, or blocking, advisory, off. Default: "
        "docs/reference/stored-gate.md",
    ),
    "gate_missing": Option(
        "WHAT[,WHAT...]",
        "what may be missing without failing the gate: baseline, new, vanished, skipped, errored or unreached (tests; "
        "unreached: --llm-time was too short for them), "
        "fingerprint (another machine, model, corpus or library set). pass: baseline and new. fail: nothing",
        "fail",
    ),
    "gate_summary": Option("FILE", "write the gate's verdict as Markdown, for a comment or a step summary"),
    "baseline": Option(
        "WHAT",
        "the saved run to compare with: branch:NAME (its newest), merge-base:REF (at the commit where this branch "
        "left REF, or the nearest before it), or a run's number, name or file",
    ),
}


def paths_that_stand_alone(arguments: Sequence[str], folder: Path) -> list[tuple[str, str]]:
    """Options with the argument after them, where that is a value without an equals sign, and a path seen from the
    folder: pytest takes it for a folder of tests. Switches have no value."""
    flags = {flag_of(name) for name, option in OPTIONS.items() if not option.is_switch}
    return [(flag, value) for flag, value in pairwise(arguments) if flag in flags and os.path.lexists(folder / value)]
