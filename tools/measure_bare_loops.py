"""A round's time per output token against a plain loop of the engine's own API, in the same process.

Runs pytest on a file made for the purpose. In each variant's process, a round as benchmarks time it alternates with a
loop as a user of that engine would write it, over the same prompt. A seeded coin says which of a pair comes first. Each
follows an untimed one of its own kind, and begins once no other thread of the process runs any more. Both have to give
the same text. Prints for each variant the median over the pairs of (time per output token of the round / of the
engine's own loop), with a 95 % interval.

    python tools/measure_bare_loops.py [PAIRS] [any option of pytest]

With --llm-prompts it is done on each of these prompts, by the latency of the whole answer, which the engine's loop
gives without a streamer, and the median over the prompts of each one's median ratio is printed. The variants are those
of --llm-variants, by default all that run here. A server has no loop of its own.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from suites import leading_number, run_written
from transformers.generation.streamers import BaseStreamer

from llm_bench_fixtures.errors import GenerationMismatch
from llm_bench_fixtures.measure.timing import TokenClock, batches_of, run_round
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.processes.calm import fall_asleep
from llm_bench_fixtures.workloads import TokenIds, Workload

PAIRS = 25
PROMPT_TOKENS = 64
NEW_TOKENS = 16
# Further calls on Python's stack, drawn for each pair. Python keeps frames in chunks of 16 KiB, and where a loop's
# calls lie around the end of one, each asks for a chunk and gives it back: bitsandbytes' rounds took 15 % longer 24 to
# 31 calls deeper, and its own loop 5 % longer at 40 to 47. So many calls fill a whole chunk.
DEEPEST = 85
SUITE = """
import random
import sys

import pytest
from measure_bare_loops import DEEPEST, LOOPS, NEW_TOKENS, PROMPT_TOKENS, measure_pair_at

FOUND = {{}}

def test_pairs(llm_model, {fixture}):
    name, backend = llm_model.variant.id, llm_model.variant.backend
    if backend not in LOOPS:
        pytest.skip(f"{{backend}} has no loop of its own here")
    coin = random.Random(0)
    rows = {rows}
    found = [[] for _ in rows]
    for number in range({pairs} + 1):
        for (prompt, new_tokens), pairs in zip(rows, found):
            depth, is_round_first = coin.randrange(DEEPEST), coin.random() < 0.5
            pairs.append(llm_model.call(measure_pair_at, depth, prompt, new_tokens, is_round_first, {is_by_token}))
        print(f"\\r{{name}}: {{number}} of {pairs} pairs", end="", file=sys.stderr, flush=True)
    FOUND[name] = [pairs[1:] for pairs in found]  # the first pair warms up
    print(file=sys.stderr)
"""
ONE_PROMPT = {
    "fixture": "llm_prompts",
    "rows": "[(llm_prompts.exact(PROMPT_TOKENS), NEW_TOKENS)]",
    "is_by_token": True,
}
OWN_PROMPTS = {"fixture": "llm_own", "rows": "[*zip(llm_own.prompts, llm_own.new_tokens)]", "is_by_token": False}


class Pair(NamedTuple):
    """Seconds for each output token after the first, or for the whole answer."""

    round_s: float
    own_s: float


class OwnClock(TokenClock):
    """Times a loop: from when its input is ready until each token, or until the whole answer is there."""

    def __init__(self, model: Model, is_by_token: bool) -> None:
        super().__init__(model.device, time.perf_counter)
        self.is_by_token = is_by_token

    def start(self) -> None:
        self._device.synchronize()
        super().start()

    def note(self) -> None:
        """A new token is there."""
        if self.is_by_token:
            self.tick()

    def end(self) -> None:
        self._device.synchronize()
        if not self.is_by_token:
            self.tick()


Loop = Callable[[Any, TokenIds, int, OwnClock], list[int]]
"""Takes the model, a prompt, how many new tokens it gets, and what times it; gives the new tokens."""


class Noting(BaseStreamer):  # type: ignore[misc]  # transformers' are untyped here
    """Calls `note` for each new token. transformers hands over the prompt first."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note
        self._is_prompt = True

    def put(self, _: torch.Tensor) -> None:
        if not self._is_prompt:
            self._note()
        self._is_prompt = False

    def end(self) -> None:
        """Nothing to flush."""


def generate(model: Any, prompt: TokenIds, new_tokens: int, clock: OwnClock, **how: Any) -> list[int]:
    """`generate` of transformers, with a streamer if tokens are noted: of torch's own models, and Optimum's of ONNX
    Runtime and OpenVINO."""
    (batch,) = batches_of(model, workload_of(prompt, new_tokens))
    if clock.is_by_token:
        how["streamer"] = Noting(clock.note)
    clock.start()
    with torch.inference_mode(), model.running():
        output = model.module.generate(
            batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=new_tokens, **how
        )
    clock.end()
    new: list[int] = output[0, len(prompt) :].tolist()
    return new


def generate_compiled(model: Any, prompt: TokenIds, new_tokens: int, clock: OwnClock) -> list[int]:
    how = {"cache_implementation": "static", "compile_config": model.compile_config, "disable_compile": False}
    return generate(model, prompt, new_tokens, clock, **how)


def ctranslate2_loop(model: Any, prompt: TokenIds, new_tokens: int, clock: OwnClock) -> list[int]:
    """CTranslate2's `generate_batch`, which runs the loop itself, with a callback."""

    def take(_: object) -> bool:
        clock.note()
        return False

    clock.start()
    (result,) = model.engine.generate_batch(
        [[str(token) for token in prompt]],
        max_length=new_tokens,
        end_token=[],
        include_prompt_in_result=False,
        callback=take,
    )
    clock.end()
    new: list[int] = result.sequences_ids[0]
    return new


def genai_loop(model: Any, prompt: TokenIds, new_tokens: int, clock: OwnClock) -> list[int]:
    """onnxruntime-genai's `Generator`, until it says that it is done."""
    import onnxruntime_genai

    clock.start()
    parameters = onnxruntime_genai.GeneratorParams(model.engine)
    parameters.set_search_options(do_sample=False, max_length=len(prompt) + new_tokens)
    generator = onnxruntime_genai.Generator(model.engine, parameters)
    generator.append_tokens([*prompt])
    new = []
    while not generator.is_done():
        generator.generate_next_token()
        clock.note()
        new.append(int(generator.get_next_tokens()[0]))
    clock.end()
    return new


def llama_cpp_loop(model: Any, prompt: TokenIds, new_tokens: int, clock: OwnClock) -> list[int]:
    """llama.cpp's decode and sample, as in cyllama's examples, in a context of its own with the backend's settings."""
    from cyllama.llama import llama_cpp

    from llm_bench_fixtures.models.backends.llamacpp import Room, open_context

    clock.start()
    room = Room(1, len(prompt) + new_tokens, len(prompt))
    context = open_context(model.engine, room, is_float32=model.variant.quantization is None)
    sampler = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
    sampler.add_greedy()
    new: list[int] = []
    batch = llama_cpp.llama_batch_get_one([*prompt], 0)
    while len(new) < new_tokens:
        context.decode(batch)
        new.append(sampler.sample(context, -1))
        clock.note()
        batch = llama_cpp.llama_batch_get_one(new[-1:], len(prompt) + len(new) - 1)
    clock.end()
    context.close()
    return new


LOOPS: Mapping[str, Loop] = {
    "torch": generate,
    "onnxruntime": generate,
    "bitsandbytes": generate,
    "compiled": generate_compiled,
    "torchao": generate,
    "checkpoint": generate,
    "openvino": generate,
    "ctranslate2": ctranslate2_loop,
    "onnxruntime_genai": genai_loop,
    "llamacpp": llama_cpp_loop,
}
"""Loops by backend."""


def measure_pair_at(
    model: Model, depth: int, prompt: TokenIds, new_tokens: int, is_round_first: bool, is_by_token: bool
) -> Pair:
    """`measure_pair` with so many further calls on Python's stack."""
    if depth:
        return measure_pair_at(model, depth - 1, prompt, new_tokens, is_round_first, is_by_token)
    return measure_pair(model, prompt, new_tokens, is_round_first, is_by_token)


def measure_pair(model: Model, prompt: TokenIds, new_tokens: int, is_round_first: bool, is_by_token: bool) -> Pair:
    """is_by_token: compare the time per output token, else the latency of the whole answer.

    Raises GenerationMismatch where the two texts differ: they were not the same work.
    """
    texts: dict[str, list[int]] = {}
    seconds: dict[str, float] = {}
    for way in ("round", "own")[:: 1 if is_round_first else -1]:
        time_way = time_round if way == "round" else time_own
        for _ in range(2):  # each is warmed up by its own kind: bitsandbytes' loop was 2.5 % faster after a round
            texts[way], times_s = time_way(model, prompt, new_tokens, is_by_token)
            fall_asleep()
        seconds[way] = tpot_s(times_s) if is_by_token else times_s[-1]
    if texts["round"] != texts["own"]:
        raise GenerationMismatch(f"the round generated {texts['round']}, the engine's own loop {texts['own']}")
    return Pair(seconds["round"], seconds["own"])


def time_round(model: Model, prompt: TokenIds, new_tokens: int, is_by_token: bool) -> tuple[list[int], Sequence[float]]:
    """The text, and seconds until each of its tokens, or until the engine gave the whole of it back."""
    done = run_round(model, workload_of(prompt, new_tokens))
    return [*done.continuations[0]], done.batches[0].tokens_s if is_by_token else [done.latency_s]


def time_own(model: Model, prompt: TokenIds, new_tokens: int, is_by_token: bool) -> tuple[list[int], Sequence[float]]:
    """The text, and seconds until each of its tokens, or until the engine gave the whole of it back."""
    clock = OwnClock(model, is_by_token)
    text = LOOPS[model.variant.backend](model, prompt, new_tokens, clock)
    return text, clock.tokens_s()


def workload_of(prompt: TokenIds, new_tokens: int) -> Workload:
    return Workload((prompt,), new_tokens, batch_size=1)


def tpot_s(tokens_s: Sequence[float]) -> float:
    """Seconds per token after the first. Raises GenerationMismatch where the text ended with it."""
    if len(tokens_s) < 2:
        raise GenerationMismatch(f"{len(tokens_s)} new tokens have no time between them: the text ended")
    return (tokens_s[-1] - tokens_s[0]) / (len(tokens_s) - 1)


def main(arguments: list[str]) -> None:
    pairs = leading_number(arguments, PAIRS)
    is_own = any(argument.startswith("--llm-prompts") for argument in arguments)
    text = SUITE.format(pairs=pairs, **(OWN_PROMPTS if is_own else ONE_PROMPT))
    found = run_written("test_bare_loops.py", text, "--llm-batch-sizes=1", "-s", *arguments)
    print(*found.skips, sep="\n", file=sys.stderr)
    for variant, prompts in found.by_variant.items():
        print(f"{variant:17s} {describe_prompts(prompts) if is_own else describe(prompts[0])}")
    found.check()


def describe(pairs: Sequence[Pair]) -> str:
    from measure_scoring import median_interval  # here: no variant's process needs it

    median, low, high = median_interval([pair.round_s / pair.own_s for pair in pairs])
    own_ms = sorted(pair.own_s * 1000 for pair in pairs)
    return (
        f"round / own loop: {median:.3f} (95 % interval {low:.3f} to {high:.3f}), {len(pairs)} pairs; "
        f"own loop {own_ms[0]:.2f} / {statistics.median(own_ms):.2f} / {own_ms[-1]:.2f} ms a token"
    )


def describe_prompts(prompts: Sequence[Sequence[Pair]]) -> str:
    """prompts: the pairs of each."""
    ratios = [statistics.median(pair.round_s / pair.own_s for pair in pairs) for pairs in prompts]
    low, median, high = statistics.quantiles(ratios, n=4)
    return (
        f"latency of the round / of the own loop: {median:.3f}, median over {len(ratios)} prompts (quartiles {low:.3f} "
        f"to {high:.3f}) of {len(prompts[0])} pairs each"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
