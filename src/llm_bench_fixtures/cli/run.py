"""Measure every variant of a model that runs on this machine, and say which to use. The ready suite runs under pytest.

MODEL is a folder or the name of a repository on the Hugging Face hub; without one, the embedded model is measured.
Arguments after `--` go to pytest, whose options for this are listed by `pytest --help` under "llm-bench".

exit status: pytest's (0: all tests passed, 1: some failed, 2: interrupted), and the gate's where `--llm-gate` is given

Examples:
  llm-bench run --quick
  llm-bench run Qwen/Qwen2.5-0.5B -- --llm-variants fp32,bf16,ort-int8-dynamic
  llm-bench run ./my-model -- --llm-prompts mine.jsonl
  llm-bench run ./my-model -- -k "prompt_length or batch" --benchmark-autosave
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from llm_bench_fixtures.answer.headline import OWN, PROMPT_LENGTHS
from llm_bench_fixtures.suite import pytest_arguments

HELP = "run the ready suite on a model"
NO_CHOICES = "--llm-choices=none"
QUICK_LENGTH = 64
"""Tokens of the one prompt: that whose latency the whole suite's table shows."""
QUICK_HELP = (
    f"only find the fastest variant: one prompt of {QUICK_LENGTH} tokens, or your --llm-prompts; quality "
    "by perplexity alone"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL] [--quick] [-- pytest arguments]"
    parser.add_argument("model", metavar="MODEL", nargs="?", help="default: the embedded model")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)


def run(arguments: argparse.Namespace) -> int:
    """Becomes pytest, where the system lets one process become another: signals and the exit status are pytest's."""
    model = [f"--llm-model={arguments.model}"] if arguments.model else []
    suite = _quick_suite(arguments.passed_on) if arguments.quick else pytest_arguments()
    command = [sys.executable, "-m", "pytest", *suite, *model, *arguments.passed_on]
    if os.name == "posix":
        sys.stdout.flush()
        os.execv(command[0], command)  # noqa: S606  # this Python, with arguments of our own and the user's
    import subprocess

    return subprocess.call(command)  # noqa: S603


def _quick_suite(passed_on: Sequence[str]) -> list[str]:
    """What the answer for latency goes by. Files and no -k, of which pytest takes the last: that is the user's."""
    if any(one.startswith(("--llm-prompts", "--llm-shape")) for one in passed_on):
        return [*pytest_arguments(OWN), NO_CHOICES]
    return [*pytest_arguments(OWN, PROMPT_LENGTHS), NO_CHOICES, f"--llm-prompt-lengths={QUICK_LENGTH}"]
