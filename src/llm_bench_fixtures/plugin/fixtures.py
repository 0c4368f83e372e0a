"""The fixtures that a benchmark is written with. Every pytest run loads this; what they need is imported in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.handle import ModelHandle
    from llm_bench_fixtures.plugin.benchmark import LlmBenchmark
    from llm_bench_fixtures.plugin.checks import LlmEquivalence, LlmLoad, LlmOverhead
    from llm_bench_fixtures.session.own import OwnWork
    from llm_bench_fixtures.session.session import BenchSession
    from llm_bench_fixtures.workloads import Corpus, Prompts

SWEEPS = {  # further fixtures, which are each of a setting's values
    "llm_batch_size": "batch_sizes",
    "llm_prompt_length": "prompt_lengths",
    "llm_request_rate": "request_rates",
}


@pytest.fixture(scope="session")
def llm_session(request: pytest.FixtureRequest) -> BenchSession:
    """What the run's benchmarks share. Where no model can be found, a run of nothing but benchmarks ends."""
    from llm_bench_fixtures.errors import LlmBenchError
    from llm_bench_fixtures.plugin.items import variant_of
    from llm_bench_fixtures.plugin.outcomes import as_outcomes
    from llm_bench_fixtures.plugin.stash import bench_session

    session = bench_session(request.config)
    with as_outcomes():
        try:
            session.setup.check()
        except LlmBenchError as error:
            if all(variant_of(item) for item in request.session.items):
                pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
            raise  # there are tests that need no model
    return session


@pytest.fixture(scope="session")
def llm_device(llm_session: BenchSession) -> Device:
    """The device that the models run on."""
    return llm_session.setup.device


@pytest.fixture(scope="session")
def llm_prompts(request: pytest.FixtureRequest, llm_session: BenchSession) -> Prompts:
    """Prompts in the model's tokens: of exact lengths, of varying lengths, the standard ones, the unusual ones.

    In the tokens of the test's own `llm_model`, where it takes that; else in those of --llm-model.
    """
    if not hasattr(request, "param"):
        return llm_session.setup.prompts
    from llm_bench_fixtures.plugin.outcomes import as_outcomes

    with as_outcomes():
        return llm_session.setup.prompts_of(request.getfixturevalue("llm_model"))


@pytest.fixture(scope="session")
def llm_corpus(llm_session: BenchSession) -> Corpus:
    """The texts that quality is measured on."""
    return llm_session.setup.corpus


@pytest.fixture(scope="session")
def llm_model(request: pytest.FixtureRequest, llm_session: BenchSession) -> ModelHandle:
    """The model in one variant, loaded once a session. A test that takes it runs once for each variant."""
    from llm_bench_fixtures.plugin.outcomes import as_outcomes

    with as_outcomes():
        return llm_session.load(request.param)


@pytest.fixture(scope="session")
def llm_threads(llm_model: ModelHandle, llm_session: BenchSession) -> int:
    """The number of threads that `llm_model` computes in. A test that takes it runs with --llm-threads only, on each
    variant by default and in each of these numbers."""
    return llm_model.variant.threads or llm_session.setup.threads


@pytest.fixture(scope="session")
def llm_equivalence(llm_model: ModelHandle, llm_session: BenchSession) -> LlmEquivalence:
    """Call it with prompts and an execution mode, to check that `llm_model` answers as in the plain one."""
    from llm_bench_fixtures.plugin.checks import LlmEquivalence

    return LlmEquivalence(llm_model, llm_session)


@pytest.fixture
def llm_own(request: pytest.FixtureRequest, llm_prompts: Prompts, llm_session: BenchSession) -> OwnWork:
    """The user's own prompts, or shapes, one at a time or in batches: `prompts`, `new_tokens` of each, `batch_size`. A
    test that takes it runs with --llm-prompts or --llm-shape only."""
    from llm_bench_fixtures.plugin.internals import skipped
    from llm_bench_fixtures.plugin.items import OWN_NEEDS, note_left_out
    from llm_bench_fixtures.plugin.outcomes import as_outcomes

    own = llm_session.setup.own
    if own is None:  # where a test asks for it by `getfixturevalue`
        raise skipped(OWN_NEEDS)
    with as_outcomes():
        work = own.work(request.param, llm_prompts)
    note_left_out(request.node, own.left_out, llm_session.results)
    return work


@pytest.fixture
def llm_benchmark(
    request: pytest.FixtureRequest,
    benchmark: Any,
    llm_model: ModelHandle,
    llm_prompts: Prompts,
    llm_session: BenchSession,
) -> LlmBenchmark:
    """Call it with a prompt, or several, to benchmark their generation by `llm_model`."""
    from llm_bench_fixtures.plugin.benchmark import LlmBenchmark

    return LlmBenchmark(request.node, benchmark, llm_model, llm_prompts, llm_session)


@pytest.fixture
def llm_overhead(request: pytest.FixtureRequest, llm_model: ModelHandle, llm_session: BenchSession) -> LlmOverhead:
    """Call it with a prompt to measure what taking each token's time costs; the report tells the result."""
    from llm_bench_fixtures.plugin.checks import LlmOverhead
    from llm_bench_fixtures.plugin.internals import skipped
    from llm_bench_fixtures.plugin.stash import is_timing

    if not is_timing(request.config):
        raise skipped("nothing is timed in this run")
    return LlmOverhead(llm_model, llm_session)


@pytest.fixture
def llm_load(
    request: pytest.FixtureRequest, llm_model: ModelHandle, llm_prompts: Prompts, llm_session: BenchSession
) -> LlmLoad:
    """Call it with a rate to load the server behind `llm_model` with requests. A test that takes it runs on the
    servers of --llm-endpoint only, and not where there are none."""
    from llm_bench_fixtures.plugin.checks import LlmLoad
    from llm_bench_fixtures.plugin.internals import skipped
    from llm_bench_fixtures.plugin.stash import TURNS, is_timing

    if not is_timing(request.config) or TURNS in request.config.stash:
        raise skipped("no load is measured in this run")
    return LlmLoad(request.node.nodeid, llm_model, llm_prompts, llm_session)
