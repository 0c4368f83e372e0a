"""What scoring a corpus costs beside the forward passes that it can't do without.

In each round the embedded model, in float32, runs over the embedded corpus: bare forward passes on tensors made
beforehand; the loss alone; the loss with the distributions kept as the reference; and compared with those. The order
changes from round to round. As in a session, the reference is kept in new files; removing them is not timed. Prints,
for each of the last three, the median over the rounds of (bare seconds / its seconds), which is the share of the bare
passes' tokens per second, with a 95 % interval. Beside it the same of the processor's seconds, which other work on
the machine disturbs less; with several threads their waiting is in them.

    python tools/measure_scoring.py [ROUNDS] [THREADS]
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from embedded import load_embedded
from scipy import stats

from llm_bench_fixtures.measure.quality import BATCH_ELEMENTS, BATCH_TOKENS, group_windows, score_part
from llm_bench_fixtures.measure.windows import WindowPlan, cut_corpus
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Batch, Corpus, Side, pad_batch, read_corpus

ROUNDS = 21
THREADS = 2
PLAN = WindowPlan()


def scored_batches(model: TransformersModel, corpus: Corpus) -> list[Batch]:
    """The tensors that scoring gives the model."""
    windows = cut_corpus(corpus, model.tokenizer, PLAN.resolved(model.facts.context_length)).windows
    groups = group_windows(windows, min(BATCH_TOKENS, BATCH_ELEMENTS // model.facts.vocabulary))
    rows = [[windows[index].fed for index in group] for group in groups]
    return [pad_batch(group, max(map(len, group)), Side.RIGHT, 0, model.device.name) for group in rows]


def bare(model: TransformersModel, batches: list[Batch]) -> None:
    for batch in batches:
        model.logits(batch.input_ids, batch.attention_mask)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds."""
    started, started_cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - started_cpu


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """The median, and its 95 % interval between two order statistics."""
    ordered = np.sort(values)
    low = int(stats.binom.ppf(0.025, len(ordered), 0.5)) - 1
    return float(np.median(ordered)), float(ordered[max(low, 0)]), float(ordered[min(-1 - low, -1)])


def main(arguments: list[str]) -> None:
    rounds = int(arguments[0]) if arguments else ROUNDS
    threads = int(arguments[1]) if len(arguments) > 1 else THREADS
    corpus = read_corpus(None)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = load_embedded()
        batches = scored_batches(model, corpus)
        ways: dict[str, Callable[[], object]] = {
            "bare": lambda: bare(model, batches),
            "loss only": lambda: score_part(model, corpus, PLAN),
            "keeping the reference": lambda: score_part(model, corpus, PLAN, keep=folder / "round"),
            "compared with it": lambda: score_part(model, corpus, PLAN, compare_with=folder / "kept"),
        }
        score_part(model, corpus, PLAN, keep=folder / "kept")
        for work in ways.values():
            work()
        taken = []
        orders = itertools.cycle(itertools.permutations(ways))
        for order in itertools.islice(orders, 0, 5 * rounds, 5):
            shutil.rmtree(folder / "round")
            taken.append({way: seconds(ways[way]) for way in order})
    bare_s = float(np.median([round_["bare"][0] for round_ in taken]))
    tokens = sum(int(batch.attention_mask.sum()) for batch in batches)
    print(f"bare forward passes: {tokens / bare_s:,.0f} tokens/s; threads: {threads}; rounds: {rounds}")
    for way in list(ways)[1:]:
        print(f"{way:22}", end="")
        for clock, name in enumerate(("wall", "processor")):
            median, low, high = median_interval([round_["bare"][clock] / round_[way][clock] for round_ in taken])
            print(f" {name} {median:.1%} (95 % interval {low:.1%} to {high:.1%})", end="")
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
