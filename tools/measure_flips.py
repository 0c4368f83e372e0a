"""What the embedded model answers to the embedded questions of multiple choice, and how long asking takes.

For each variant: the share of right answers, its flips against the first one's with their interval, and the seconds
of processor time that asking a second time takes, in one thread where the engine lets itself be told.

    python tools/measure_flips.py [VARIANT ...]     # default: fp32 bf16 bnb-int8 bnb-nf4 bnb-fp4 ort-int8-dynamic
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import torch
from embedded import load_embedded

from llm_bench_fixtures.measure.choices import AnswerIndex, accuracy_metrics, choose, embedded_choices, flip_metrics

VARIANTS = ("fp32", "bf16", "bnb-int8", "bnb-nf4", "bnb-fp4", "ort-int8-dynamic")


def ask(variant: str) -> tuple[tuple[AnswerIndex, ...], float]:
    """The variant's answers, and the processor's seconds of the second time."""
    model, items = load_embedded(variant), embedded_choices().items
    choose(model, items)
    started = time.process_time()
    return choose(model, items), time.process_time() - started


def main(variants: Sequence[str]) -> None:
    torch.set_num_threads(1)
    choices = embedded_choices()
    print(choices.description)
    was: tuple[AnswerIndex, ...] = ()
    for variant in variants:
        answers, seconds = ask(variant)
        was = was or answers
        right = accuracy_metrics(choices.items, answers)["choice_accuracy"]
        found = flip_metrics(choices.items, answers, was)
        print(
            f"{variant:17} right {right:.1%}  flips {found['flips']:.1%} ({found['flips_low']:.1%} to "
            f"{found['flips_high']:.1%}): {found['flips_lost']} lost, {found['flips_gained']} gained  {seconds:.2f} s"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or VARIANTS)
