"""What tests call besides benchmarks: whether answers depend on how a model is run, what a server does under a load,
and what the measuring costs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.open_loop import Request, poisson_times, run_open_loop
from llm_bench_fixtures.measure.support import check_supported
from llm_bench_fixtures.measure.timing import instrumentation_ratios
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.loading import translate_out_of_memory
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.plugin.internals import skipped
from llm_bench_fixtures.plugin.outcomes import as_outcomes, warn
from llm_bench_fixtures.progress import Left, Phase
from llm_bench_fixtures.report.tables.on_request import invalid_sentence
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.session.forecast import WorkKind
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.workloads import Prompts, TokenIds, Workload

TTFT_LIMIT_S, TPOT_LIMIT_S = 1.0, 0.1  # limits of a good request, where --llm-need says no other


@contextmanager
def _in_time(session: BenchSession, model: ModelHandle) -> Iterator[None]:
    """Keep libraries quiet in the block. Raises NotReached where the run has no time for it."""
    with session.deadline.reaching(), quiet_libraries(), translate_out_of_memory(model.variant.id):
        session.deadline.check()
        yield


class LlmEquivalence:
    """Compares execution modes of one model, and hands each result to the report."""

    def __init__(self, model: ModelHandle, session: BenchSession) -> None:
        self._model = model
        self._session = session
        self._found: dict[tuple[tuple[TokenIds, ...], int], dict[ExecutionMode, Equivalence]] = {}

    def __call__(self, prompts: Sequence[TokenIds], mode: ExecutionMode | str, *, new_tokens: int = 4) -> Equivalence:
        """Fails the test where the mode changes the answers beyond float error; skips it where the model can't run so.

        prompts: token ids of each; of unequal lengths, so that a batch of them is padded.
        """
        with as_outcomes():
            found = self._compare(tuple(prompts), new_tokens)[ExecutionMode(mode)]
        self._session.results.add_equivalence(self._model.variant.id, found)
        if found.verdict is EquivalenceVerdict.NOT_SUPPORTED:
            raise skipped(found.sentence)
        if found.verdict in (EquivalenceVerdict.DIVERGES, EquivalenceVerdict.FAILED):
            pytest.fail(found.sentence, pytrace=False)
        return found

    def _compare(self, prompts: tuple[TokenIds, ...], new_tokens: int) -> dict[ExecutionMode, Equivalence]:
        """Every mode, once for the same prompts."""
        name = self._model.variant.id
        if (prompts, new_tokens) not in self._found:
            with (
                _in_time(self._session, self._model),
                self._session.progress.activity(Phase.CHECKING, f"comparing execution modes of {name}"),
                self._session.setup.forecast.doing(WorkKind.CHECKS, name),
            ):
                found = self._model.call(check_equivalence, prompts, new_tokens)
            self._found[prompts, new_tokens] = {one.mode: one for one in found}
        return self._found[prompts, new_tokens]


class LlmOverhead:
    """Compares `generate` with and without noting each token's time, and hands the result to the report."""

    def __init__(self, model: ModelHandle, session: BenchSession) -> None:
        self._model = model
        self._session = session

    def __call__(self, prompt: TokenIds, *, pairs: int = 150, budget_s: float = 20.0) -> tuple[float, ...]:
        """Ratios of alternated pairs: seconds of `generate` with the times taken / without.

        pairs: at most; once `budget_s` seconds are spent no more begin.
        """
        workload = Workload((prompt,), self._session.settings.new_tokens, batch_size=1)
        text = "comparing generate with and without its tokens' times"
        with as_outcomes():
            check_supported(self._model, workload)
            with (
                _in_time(self._session, self._model),
                self._session.progress.stepped(Phase.GENERATING, text, at_once=True) as step,
            ):
                step(left=Left(budget_s, is_most=True))
                ratios = self._model.call(instrumentation_ratios, workload, pairs, budget_s)
        self._session.results.add_instrumentation(self._model.variant.id, ratios)
        return ratios


class LlmLoad:
    """Sends requests at a rate, whether or not the server keeps up, and hands what became of them to the report."""

    def __init__(self, test: str, model: ModelHandle, prompts: Prompts, session: BenchSession) -> None:
        """test: the node id."""
        self._test = test
        self._model = model
        self._prompts = prompts
        self._session = session

    def __call__(self, rate_per_s: float, *, prompt_tokens: int = 64, new_tokens: int | None = None) -> LoadPoint:
        """Load the server for --llm-load-time, each prompt unlike all others, and wait for the last answer.

        new_tokens: of each request, default --llm-new-tokens. Warns where this client was too slow for its plan.
        Fails where no request was answered.
        """
        settings, need = self._session.settings, self._session.need
        tokens = settings.new_tokens if new_tokens is None else new_tokens
        with as_outcomes():
            if not self._session.deadline.fits(settings.load_time):
                raise self._session.deadline.too_long(f"{rate_per_s:g} requests/s", settings.load_time)
            planned_s = poisson_times(rate_per_s, settings.load_time, settings.seed)
            requests = self._send(planned_s, prompt_tokens, tokens, f"{rate_per_s:g} requests/s")
        point = LoadPoint(
            test=self._test,
            variant=self._model.variant.id,
            rate_per_s=rate_per_s,
            window_s=settings.load_time,
            prompt_tokens=prompt_tokens,
            new_tokens=tokens,
            ttft_limit_s=need.bound_of("ttft_s", TTFT_LIMIT_S),
            tpot_limit_s=need.bound_of("tpot_s", TPOT_LIMIT_S),
            requests=requests,
            seed=settings.seed,
        )
        self._session.results.add_load(point)
        self._session.save_at_times()
        if not point.is_valid:
            warn(f"{self._test}: {invalid_sentence(point)}")
        if all(one.failure for one in requests):
            asked, reason = count(len(requests), "request"), next(iter(point.failures))
            pytest.fail(f"none of {asked} was answered; most: {reason}", pytrace=False)
        return point

    def _send(self, planned_s: Sequence[float], prompt_tokens: int, new_tokens: int, what: str) -> tuple[Request, ...]:
        facts, name = self._model.facts, self._model.variant.id
        if prompt_tokens + new_tokens > facts.context_length:
            needed = f"{prompt_tokens} + {new_tokens} tokens"
            raise WorkloadUnsupported(f"{needed} don't fit the model's context of {facts.context_length}")
        if not planned_s:
            raise InvalidSetting(f"--llm-load-time: no request comes within it at {what}")
        numbers = range(len(planned_s) + 1)
        first, *prompts = (self._prompts.unlike(prompt_tokens, number, secrets.token_hex(64)) for number in numbers)
        with self._session.progress.activity(Phase.GENERATING, f"{what} to {name}"), quiet_libraries():
            self._model.call(run_open_loop, (0.0,), (first,), new_tokens)  # what the server makes first
            return self._model.call(run_open_loop, planned_s, prompts, new_tokens)
