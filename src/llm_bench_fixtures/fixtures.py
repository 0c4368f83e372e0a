"""The fixtures that a benchmark is written with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, WorkloadUnsupported
from llm_bench_fixtures.identity import identify, variant_of
from llm_bench_fixtures.state import SETTINGS, bench_session

if TYPE_CHECKING:
    from llm_bench_fixtures.device import Device
    from llm_bench_fixtures.models import LoadedModel
    from llm_bench_fixtures.results.record import Record
    from llm_bench_fixtures.session import BenchSession
    from llm_bench_fixtures.workloads import Batch, CacheKind, Corpus, Padding, Prompts, TokenIds, Workload


@pytest.fixture(scope="session")
def llm_session(request: pytest.FixtureRequest) -> BenchSession:
    """What the run's benchmarks share. Where no model can be found, a run of nothing but benchmarks ends."""
    session = bench_session(request.config)
    try:
        _ = session.device, session.source, session.corpus
    except LlmBenchError as error:
        if all(variant_of(item) for item in request.session.items):
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
        pytest.fail(str(error), pytrace=False)  # there are tests that need no model
    return session


@pytest.fixture(scope="session")
def llm_device(llm_session: BenchSession) -> Device:
    """The device that the models run on."""
    return llm_session.device


@pytest.fixture(scope="session")
def llm_prompts(llm_session: BenchSession) -> Prompts:
    """Prompts in the model's tokens: of exact lengths, of varying lengths, the standard ones, the unusual ones."""
    return llm_session.prompts


@pytest.fixture(scope="session")
def llm_corpus(llm_session: BenchSession) -> Corpus:
    """The texts that quality is measured on."""
    return llm_session.corpus


@pytest.fixture(scope="session")
def llm_batch_sizes(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """All values of --llm-batch-sizes; `llm_batch_size` is one of them."""
    return request.config.stash[SETTINGS].batch_sizes


@pytest.fixture(scope="session")
def llm_model(request: pytest.FixtureRequest, llm_session: BenchSession) -> Iterator[LoadedModel]:
    """The model in one variant, loaded once a session. A test that takes it runs once for each variant."""
    try:
        model = llm_session.load(request.param)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    except LlmBenchError as error:
        pytest.fail(str(error), pytrace=False)
    yield model
    model.close()
    if not hasattr(request.config, "workerinput"):  # pytest-xdist's workers measure nothing
        llm_session.save()


@pytest.fixture
def llm_benchmark(
    request: pytest.FixtureRequest,
    benchmark: Any,
    llm_model: LoadedModel,
    llm_prompts: Prompts,
    llm_session: BenchSession,
) -> LlmBenchmark:
    """Call it with a prompt, or several, to benchmark their generation by `llm_model`."""
    return LlmBenchmark(request.node, benchmark, llm_model, llm_prompts, llm_session)


class LlmBenchmark:
    """Runs one workload under pytest-benchmark and hands its record to the report."""

    def __init__(
        self, item: pytest.Item, benchmark: Any, model: LoadedModel, prompts: Prompts, session: BenchSession
    ) -> None:
        self._item = item
        self._benchmark = benchmark
        self._model = model
        self._prompts = prompts
        self._session = session

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that leaves the model room for --llm-new-tokens."""
        return self._model.context_length - self._session.settings.new_tokens

    def __call__(
        self,
        prompts: str | TokenIds | Sequence[str | TokenIds],
        *,
        new_tokens: int | None = None,
        batch_size: int | None = None,
        padding: Padding | None = None,
        cache: CacheKind | str = "dynamic",
    ) -> Record:
        """Generate greedily from the prompts, several rounds, and return what was measured.

        prompts: one or more, each a text or a tuple of token ids. new_tokens: default --llm-new-tokens.
        batch_size: prompts that run together; default all. padding: default left, to the longest.
        Skips the test where the model can't run the workload (no such cache, or longer than its context).
        """
        from llm_bench_fixtures.workloads import CacheKind, Padding, Workload

        rows = self._encode(prompts)
        workload = Workload(
            prompts=rows,
            new_tokens=new_tokens or self._session.settings.new_tokens,
            batch_size=batch_size or len(rows),
            padding=padding or Padding(),
            cache=CacheKind(cache),
        )
        try:
            check_supported(self._model, workload)
        except WorkloadUnsupported as error:
            pytest.skip(str(error))
        try:
            record = self._run(workload)
        except LlmBenchError as error:
            pytest.fail(str(error), pytrace=False)
        return self._add(record)

    def _encode(self, prompts: str | TokenIds | Sequence[str | TokenIds]) -> tuple[TokenIds, ...]:
        if isinstance(prompts, str) or (prompts and all(isinstance(part, int) for part in prompts)):
            prompts = [prompts]  # type: ignore[list-item]  # one prompt
        return tuple(self._prompts.encode(part) if isinstance(part, str) else tuple(part) for part in prompts)  # type: ignore[arg-type]

    def _run(self, workload: Workload) -> Record:
        from llm_bench_fixtures.backends import translate_out_of_memory
        from llm_bench_fixtures.measure.timing import Round, continuations, run_round
        from llm_bench_fixtures.progress import Phase
        from llm_bench_fixtures.quiet import quiet_libraries
        from llm_bench_fixtures.workloads import make_batches

        model, settings = self._model, self._session.settings
        batches = make_batches(workload, model.tokenizer.pad_token_id, model.device.name)
        rounds: list[Round] = []
        outputs: list[TokenIds] = []

        def generate() -> None:
            rounds.append(run_round(model, batches, workload.new_tokens, workload.cache))

        def check() -> None:
            outputs[:] = continuations(rounds[-1], batches, workload.new_tokens)

        self._benchmark.group = self._benchmark.group or identify(self._item).scenario
        with (
            quiet_libraries(),
            translate_out_of_memory(model.variant.id),
            self._session.progress.counted(Phase.GENERATING),
        ):
            self._benchmark.pedantic(
                generate, teardown=check, rounds=settings.rounds, warmup_rounds=settings.warmup_rounds
            )
            check()  # under --benchmark-disable pedantic calls no teardown
        return self._record(workload, batches, rounds, outputs)

    def _record(
        self, workload: Workload, batches: Sequence[Batch], rounds: Sequence[Any], outputs: Sequence[TokenIds]
    ) -> Record:
        from llm_bench_fixtures.results.record import Status, WorkloadFacts

        stats = self._benchmark.stats  # None under --benchmark-disable
        rounds_s = tuple(stats.stats.data) if stats else ()
        first = self._session.settings.warmup_rounds
        timed = rounds[first : first + len(rounds_s)]
        return replace(
            identify(self._item).record(Status.MEASURED if stats else Status.NOT_MEASURED),
            reason="" if stats else "--benchmark-disable",
            workload=WorkloadFacts(
                digest=workload.digest,
                prompts_digest=workload.prompts_digest,
                prompts=len(workload.prompts),
                batch_size=workload.batch_size,
                prompt_tokens=workload.prompt_tokens,
                padded_tokens=workload.padded_tokens,
                new_tokens=workload.new_tokens * len(workload.prompts),
                cache=workload.cache.value,
                padding_side=workload.padding.side.value,
            ),
            rounds_s=rounds_s,
            batches_s=tuple(done.batch_s for done in timed),
            batch_rows=tuple(batch.input_ids.shape[0] for batch in batches),
            outputs=tuple(self._prompts.decode(ids) for ids in outputs),
        )

    def _add(self, record: Record) -> Record:
        """Put the record, with what other plugins measure, into the report and into pytest-benchmark's JSON."""
        from llm_bench_fixtures.results.storage import record_to_json, variant_to_json

        config = self._item.config
        added = config.hook.pytest_llm_bench_measure(config=config, model=self._model, record=record)
        extra = {name: float(value) for part in added for name, value in part.items() if math.isfinite(value)}
        record = replace(record, extra=extra)
        self._session.results.add_record(record)
        variant = self._session.results.variant(record.variant)
        self._benchmark.extra_info["llm_bench"] = {
            **record_to_json(record, variant),
            "variant_result": variant_to_json(variant),
        }
        return record


def check_supported(model: LoadedModel, workload: Workload) -> None:
    """Raise WorkloadUnsupported where the model has no such cache, or too short a context."""
    if workload.cache not in model.cache_kinds:
        raise WorkloadUnsupported(f"{model.variant.id} can't generate with cache {workload.cache}")
    if workload.longest_sequence > model.context_length:
        raise WorkloadUnsupported(
            f"{workload.longest_sequence} tokens, padding and new ones included, don't fit the model's context of "
            f"{model.context_length}"
        )
