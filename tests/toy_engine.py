"""A suite whose backend does as its variants say, and takes no time: for what happens around the rounds."""

from __future__ import annotations

ENGINE = """
import os, signal, time
import torch
from llm_bench_fixtures import Backend, Model, ModelFacts

class Toy(Model):
    def __init__(self, request):
        self.variant, self.device, self.eights = request.variant, request.device, 0
        if self.variant.quantization == "breaks":
            raise LookupError("its file is torn")
        self.tokenizer = request.source.load_tokenizer()
        self.facts = ModelFacts(label="toy", weight_bytes=8, context_length=512, vocabulary=4096, runs_source=True)

    def logits(self, input_ids, attention_mask):
        return torch.zeros(*input_ids.shape, 4096)

    def generate(self, input_ids, attention_mask, new_tokens, cache, on_token=None):
        self.eights += input_ids.shape[1] == 8
        if self.variant.quantization == "dies" and self.eights == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
        for _ in range(new_tokens):
            input_ids = torch.cat([input_ids, torch.full((len(input_ids), 1), 300)], dim=1)
            if on_token is not None:
                on_token()
        return input_ids

BACKEND = Backend(Toy)
"""
MISSING_ENGINE = """
from llm_bench_fixtures import Backend
BACKEND = Backend(None, modules=("no_such_engine",))
"""
CONFTEST = """
import pytest
from llm_bench_fixtures import Variant

def pytest_collection_finish():
    from llm_bench_fixtures.session import budget
    budget.BENCHMARK_S = 0.001  # no long wait for other tests to end

def pytest_unconfigure():
    from llm_bench_fixtures.session import budget
    budget.BENCHMARK_S = 0.35  # where it runs in the process of the test that tests it

def pytest_llm_bench_variants():
    return [
        Variant("toy", "engine", "the reference"),
        Variant("half", "engine", "another"),
        Variant("third", "engine", "a third"),
        Variant("dies", "engine", "killed by its third prompt of 8 tokens", quantization="dies", base="toy"),
        Variant("breaks", "engine", "not to be loaded", quantization="breaks", base="toy"),
        Variant("missing", "missing_engine", "not installed"),
    ]

def pytest_llm_bench_measure(model, record):
    if "test_hook" in record.test and model.variant.id == "half":
        raise ValueError("a hook that raises")
    return {}

def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "test_marked[half]":
            item.add_marker(pytest.mark.skip(reason="marked"))
"""
SIZES = """
import pytest

@pytest.mark.parametrize("size", [4, 8])
def test_size(llm_benchmark, llm_prompts, size):
    llm_benchmark(llm_prompts.exact(size))
"""
SUITE = (
    SIZES
    + """
def test_twice(llm_benchmark):
    first, second = llm_benchmark("one"), llm_benchmark("two")
    assert len(first.rounds_s) == len(second.rounds_s) == 3

def test_its_own(llm_benchmark, llm_model, llm_prompts):
    llm_benchmark(llm_prompts.exact(6 + len(llm_model.variant.id)))

def test_marked(llm_benchmark):
    llm_benchmark("Hello")

def test_skips(llm_benchmark, llm_model):
    if llm_model.variant.id == "half":
        pytest.skip("not today")
    llm_benchmark("Hello")

def test_before(llm_benchmark, llm_model):
    assert llm_model.variant.id != "toy", "fails before"
    llm_benchmark("Hello")

def test_after(llm_benchmark, llm_model):
    llm_benchmark("Hello")
    assert llm_model.variant.id != "half", "fails after"

def test_hook(llm_benchmark):
    llm_benchmark("Hello")
"""
)
FILES = {"engine": ENGINE, "missing_engine": MISSING_ENGINE, "conftest": CONFTEST}
