"""The table of options: their names, defaults and help.

Each row of `OPTIONS` is at the same time the command-line flag `--llm-NAME` and the ini value `llm_NAME`. The command
line wins over the ini file, and that over the default. What its text means stands where it is read: in `Settings`, and
of the engines', the gate's and the answer's options in a `Setting`.

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


@dataclass(frozen=True)
class Option:
    """What one may type: its name, its default as one would type it, and what `--help` says."""

    name: str
    default: str
    metavar: str
    """Empty for a switch."""
    help: str
    alone: str = ""
    """Value that the flag without a value stands for, where it takes one or none."""

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def ini(self) -> str:
        return "llm_" + self.name

    @property
    def is_switch(self) -> bool:
        return not self.metavar

    @property
    def full_help(self) -> str:
        return self.help if self.is_switch or not self.default else f"{self.help}. Default: {self.default}"


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
        "embedded tokenizer (real cost, no download, meaningless text)",
    ),
    Option("trust_remote_code", "false", "", "let the model's repository run its own Python code"),
    Option("device", "auto", "DEVICE", "auto, cpu, cuda, cuda:N or mps"),
    Option(
        "device_map",
        "",
        "MAP",
        "auto: spread the layers of a model that is larger than one device over the CUDA devices (from that of "
        "--llm-device on), memory and disk, by accelerate. Or JSON that says which part lies where, such as "
        '\'{"": 0, "model.layers.9": "cpu"}\'. Only variants of torch and bitsandbytes run, one at a time. '
        "Default: one device",
    ),
    Option(
        "attention",
        "",
        "NAME",
        "attention implementation for variants that transformers runs on torch: eager, sdpa, flash_attention_2, "
        "flex_attention, … Default: the model's own choice",
    ),
    Option(
        "chat",
        "false",
        "",
        "wrap each prompt as a user's turn in the model's chat template, whose tokens count as prompt tokens. "
        "Quality is still measured on plain text, unless it is of answers in --llm-prompts",
    ),
    Option(
        "variants",
        "",
        "NAME[,NAME...]",
        "ways to run the model, such as fp32,bf16,bnb-nf4,ort-int8-dynamic; an engine's name (onnxruntime) stands "
        "for all of its variants, 'default' for the default: all of torch, onnxruntime and bitsandbytes, and of "
        "every other engine that is installed. Variants that can't run here are skipped with a reason",
    ),
    Option("reference", "fp32", "ID", "the variant that the others are compared with; it runs first"),
    Option(
        "time",
        "30m",
        "TIME",
        "time for the whole run, its report included, such as 20m, 90s or 1h30m; none: no limit. The run ends at most "
        "5% later. A benchmark that it didn't reach is a row that says so, and no error. The default is enough for the "
        "embedded model, and keeps a large one from running for hours. A longer time than a large one needs goes into "
        "further rounds",
    ),
    Option(
        "prompts",
        "",
        "FILE",
        "prompts of your own, which the answer then goes by: JSONL, JSON or CSV with prompt or messages, and where you "
        "have them output_tokens, answer and name; - is standard input. With answers, quality is measured on these",
    ),
    Option(
        "shape",
        "",
        "N/N[,N/N...]",
        "in place of prompts of your own their lengths and those of the answers in tokens, such as 512/128,2048/64",
    ),
    Option(
        "cache",
        "dynamic",
        "KIND[,KIND...]",
        "cache of keys and values that prompts of your own run with: dynamic, static or off. The answer goes by the "
        "first; the others show whether one of them would meet --llm-need",
    ),
    Option(
        "show_texts",
        "false",
        "",
        "keep what is generated from --llm-prompts in the results, and show it in the report",
    ),
    Option("new_tokens", "16", "N", "tokens to generate for each prompt"),
    Option(
        "rounds",
        "auto",
        "N",
        "least number of timed rounds of each benchmark. auto: 3, or 2 where a large model's further ones follow, or "
        "a round takes over 2 seconds and the interval is narrow enough by then",
    ),
    Option(
        "warmup_rounds",
        "1",
        "N",
        "untimed rounds before the timed ones; memory and work are measured in the first of them. For a model of 200M "
        "parameters or more, a few tokens replace it, and memory and work are measured in the first timed round",
    ),
    Option(
        "max_noise",
        "3%",
        "SHARE",
        "add timed rounds until the 95% interval of the speed-up over the reference (without one, of the latency) is "
        "within ±SHARE, such as 1%. Each benchmark gets 0.35 seconds for this on average; at 1% nine times as much. "
        "0: only --llm-rounds",
    ),
    Option(
        "probe",
        "false",
        "",
        "before each timed round, also time a fixed matrix product and a fixed read of memory; these milliseconds are "
        "in no latency. They show how much slower the machine itself was than in another run. Use it in both runs: it "
        "empties the caches before each round",
    ),
    Option(
        "in_process",
        "false",
        "",
        "run every variant in this process, one at a time, for debuggers and profilers. Speed-ups are then ratios of "
        "times measured minutes apart",
    ),
    Option(
        "memory_share",
        "60%",
        "SHARE",
        "share of the free memory that the loaded variants may take together. As many as fit are loaded, each in a "
        "process of its own, and take turns; 0: one at a time",
    ),
    Option(
        "limits_time",
        "2",
        "SECONDS",
        "time for measuring how fast this machine reads memory and multiplies matrices, the limits that speeds are "
        "compared with. 0: skip",
    ),
    Option("prompt_lengths", "16,64,128,256", "N[,N...]", "prompt lengths to sweep, in tokens"),
    Option("batch_sizes", "1,2,4,8", "N[,N...]", "batch sizes to sweep"),
    Option(
        "request_rates",
        "1,2,4",
        "N[,N...]",
        "requests per second to load a server with, at random times (a Poisson process), whether or not it keeps up",
    ),
    Option("load_time", "30", "SECONDS", "how long requests are sent at each of these rates"),
    Option(
        "corpus",
        "",
        "FILE",
        "text file, or folder of .txt files, to compute perplexity on. Default: the embedded corpus",
    ),
    Option(
        "windows",
        "strided",
        "SCHEME",
        "how the corpus is cut into windows for scoring. strided: as Hugging Face's perplexity; rolling: as "
        "lm-evaluation-harness; llama: as llama-perplexity",
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
        "multiple-choice questions, one JSON object per line with prompt, choices and answer: the report shows how "
        "many each variant gets right, and how many answers flip against the reference's. none: ask nothing. "
        "Default: the embedded ones",
    ),
    Option(
        "tasks",
        "",
        "TASK[,TASK...]",
        "also run tasks of lm-evaluation-harness on every variant, and compare each answer with the reference's: names "
        "(arc_easy) or YAML files (my.yaml). Needs the extra [tasks]",
    ),
    Option(
        "overhead",
        "false",
        "",
        "also run the tests that take llm_overhead: they measure what noting each token's time costs. That concerns "
        "this tool, not the model",
    ),
    Option(
        "fit",
        "",
        "SIZE",
        "memory to fit the model into, such as 24GB: the report says what fits, the largest batch and the longest "
        "context of each variant. Default: what is free on this machine",
    ),
    Option(
        "threads",
        "",
        "N[,N...]",
        "also run the tests that take llm_threads: each variant in these numbers of threads, next to its default. "
        "auto: 1, 2, 4, … and all cores",
    ),
    Option(
        "seed",
        "0",
        "N",
        "seed of the dummy weights, of the sample of many --llm-prompts, and of the random times of requests to a "
        "server",
    ),
    Option("report", "llm-bench-report", "DIR", "folder for the report, its data and its plots"),
    Option(
        "resume",
        "",
        "PATH",
        "continue an interrupted run: PATH is its report's folder or results.json, by default --llm-report, or the "
        "unfinished run before it if that measured more. Whole cases are kept. Nothing runs if the commit, the model, "
        "the libraries or an option that changes figures differ. Name the tests before it, or write "
        "--llm-resume=PATH",
        alone="true",
    ),
    Option(
        "history",
        "",
        "URL",
        "database to save the run to at its end, and to find the gate's baseline in: sqlite:///FILE or "
        "postgresql://[USER@]HOST/DATABASE, with the password in PGPASSWORD or ~/.pgpass. Needs the extra [sql]",
    ),
    Option("cache_dir", "", "DIR", "folder for exported and quantized models. Default: this user's cache folder"),
    # Read in answer/need.py.
    Option(
        "need",
        "ppl_ratio<=1.01",
        "LIMIT[,LIMIT...]",
        "what a variant must keep to be recommended, in quotes: 'tpot_s<=50ms, ttft_s<=0.5, memory<=4GB, "
        "top1_agreement>=99%'. latency, ttft, tpot, throughput, memory, ppl, kld and top1 are short names. Without a "
        "limit on quality, ppl_ratio<=1.01 is added (times the reference's); ppl_ratio<=any lifts it. Goodput "
        "under load counts requests within the bounds on ttft_s and tpot_s, without them 1 s and 0.1 s",
    ),
    Option(
        "want",
        "latency",
        "WHAT",
        "latency, throughput or memory: what the answer names first. For throughput, who meets --llm-need is judged at "
        "the largest batch, otherwise on one prompt",
    ),
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
        "a GGUF file of --llm-model in 32 or 16 bits, from which the gguf variants are made instead of from the "
        "model's own files",
    ),
    Option(
        "endpoint",
        "",
        "[NAME=]URL[,...]",
        "also measure a server with OpenAI's interface, such as http://127.0.0.1:8000/v1, as the variant endpoint; "
        "several have a name each: a=URL,b=URL are endpoint-a and endpoint-b. A key is taken from "
        "LLM_BENCH_ENDPOINT_KEY in the environment, for endpoint-a from LLM_BENCH_ENDPOINT_KEY_A",
    ),
    Option(
        "endpoint_model",
        "",
        "[NAME=]MODEL[,...]",
        "the model to request from the server, by its name there. Default: the only one that it lists",
    ),
    Option(
        "endpoint_timeout",
        "60",
        "SECONDS",
        "time limit for a whole request to a server; a request that exceeds it fails, or makes its row an error",
    ),
    # Read by the gate, in gate/options.py.
    Option(
        "gate",
        "false",
        "",
        "compare this run with a saved one, and fail if it is worse: with the newest complete run in "
        "pytest-benchmark's storage, or the one that --benchmark-compare or --llm-baseline names",
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
        "what may be missing without failing the gate: baseline, new, vanished, skipped, errored or unreached (tests; "
        "unreached: --llm-time was too short for them), "
        "fingerprint (another machine, model, corpus or library set). pass: baseline and new. fail: nothing",
    ),
    Option("gate_summary", "", "FILE", "write the gate's verdict as Markdown, for a comment or a step summary"),
    Option(
        "baseline",
        "",
        "WHAT",
        "the saved run to compare with: branch:NAME (its newest), merge-base:REF (at the commit where this branch "
        "left REF, or the nearest before it), or a run's number, name or file",
    ),
)


def paths_that_stand_alone(arguments: Sequence[str], folder: Path) -> list[tuple[str, str]]:
    """Options with the argument after them, where that is a value without an equals sign, and a path seen from the
    folder: pytest takes it for a folder of tests. Switches have no value."""
    flags = {option.flag for option in OPTIONS if not option.is_switch}
    return [(flag, value) for flag, value in pairwise(arguments) if flag in flags and os.path.lexists(folder / value)]
