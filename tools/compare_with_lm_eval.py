"""The rolling metrics beside lm-evaluation-harness's: the same model, text and windows, and the time that each takes.

Both get the embedded model in float32, the embedded corpus and windows of as many tokens, in batches of the same size.
The harness computes its log-likelihoods with `HFLM.loglikelihood_rolling`, and its metrics with the word and byte
counts of its wikitext task and its own aggregations. Prints both sides' figures, their relative difference, and the
median over the rounds of (its seconds / ours), the two taking turns to go first. Then both answer the embedded
questions of multiple choice, the harness by `HFLM.loglikelihood`, and it prints to how many they answer alike.

    pip install -e . "lm-eval==0.4.13" accelerate     # in an environment of its own: the package doesn't need it
    python tools/compare_with_lm_eval.py [WINDOW] [ROUNDS] [THREADS] 2>/dev/null     # without its progress bars
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from embedded import load_embedded
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import bits_per_byte, weighted_perplexity
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks.wikitext.preprocess_wikitext import process_results

from llm_bench_fixtures.measure.choices import ChoiceItem, choose, embedded_choices
from llm_bench_fixtures.measure.quality import BATCH_TOKENS, corpus_metrics, score_part
from llm_bench_fixtures.measure.windows import WindowPlan, WindowScheme
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Corpus, read_corpus

WINDOW = 512
ROUNDS = 7
THREADS = 2
AGGREGATIONS = {
    "bits_per_byte": bits_per_byte,
    "byte_perplexity": weighted_perplexity,
    "word_perplexity": weighted_perplexity,
}


def harness(model: TransformersModel, window: int) -> HFLM:
    return HFLM(
        pretrained=model.module,
        tokenizer=model.tokenizer,
        max_length=window,
        batch_size=max(BATCH_TOKENS // window, 1),
        device="cpu",
    )


def harness_metrics(evaluated: HFLM, corpus: Corpus) -> Mapping[str, float]:
    requests = [Instance("loglikelihood_rolling", {}, (text,), index) for index, text in enumerate(corpus.texts)]
    likelihoods = evaluated.loglikelihood_rolling(requests)
    items = [
        process_results({"page": text}, (likelihood,))
        for text, likelihood in zip(corpus.texts, likelihoods, strict=True)
    ]
    return {name: aggregate([item[name] for item in items]) for name, aggregate in AGGREGATIONS.items()}


def harness_answers(evaluated: HFLM, items: Sequence[ChoiceItem]) -> tuple[int, ...]:
    """Answers as the harness's tasks of multiple choice have them: the index of the largest log-likelihood, the
    delimiter a space."""
    pairs = [(item.prompt, f" {choice}") for item in items for choice in item.choices]
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]
    found = iter(evaluated.loglikelihood(requests))
    scores = [[next(found)[0] for _ in item.choices] for item in items]
    return tuple(one.index(max(one)) for one in scores)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compare_answers(model: TransformersModel, evaluated: HFLM) -> None:
    choices = embedded_choices()
    pairs = list(zip(choose(model, choices.items), harness_answers(evaluated, choices.items), strict=True))
    alike = sum(ours == theirs for ours, theirs in pairs)
    print(f"{choices.name}: {alike} of {len(pairs)} answers are lm-eval's")


def main(arguments: list[str]) -> None:
    window, rounds, threads = map(int, [*arguments, *(WINDOW, ROUNDS, THREADS)[len(arguments) :]])
    torch.set_num_threads(threads)
    model, corpus = load_embedded(), read_corpus(None)
    plan = WindowPlan(WindowScheme.ROLLING, window)
    evaluated = harness(model, window)
    ways: dict[str, Callable[[], Mapping[str, float]]] = {
        "ours": lambda: corpus_metrics(score_part(model, corpus, plan)),
        "theirs": lambda: harness_metrics(evaluated, corpus),
    }
    ours, theirs = (work() for work in ways.values())
    print(f"{corpus.name}, rolling windows of {window} tokens")
    for name, value in theirs.items():
        print(f"{name:16} ours {ours[name]:.8f}  lm-eval {value:.8f}  difference {ours[name] / value - 1:+.1e}")
    taken = []
    for index in range(rounds):
        order = list(ways)[:: 1 if index % 2 else -1]
        taken.append({way: seconds(ways[way]) for way in order})
    ratios = sorted(round_["theirs"] / round_["ours"] for round_ in taken)
    print(
        f"lm-eval's seconds / ours: median {statistics.median(ratios):.2f} "
        f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} in {rounds} rounds, {threads} threads)"
    )
    compare_answers(model, evaluated)


if __name__ == "__main__":
    main(sys.argv[1:])
