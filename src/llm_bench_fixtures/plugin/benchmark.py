"""One workload under pytest-benchmark: its timed rounds, and its record with what other plugins measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from llm_bench_fixtures.errors import MeasuredBefore
from llm_bench_fixtures.gate.rules import check_marks
from llm_bench_fixtures.measure.support import check_supported
from llm_bench_fixtures.measure.timing import Round, run_round
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.loading import translate_out_of_memory
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.plugin import internals
from llm_bench_fixtures.plugin.items import case_of, identify, own_case_of, variants_to_come
from llm_bench_fixtures.plugin.outcomes import as_outcomes, warn
from llm_bench_fixtures.plugin.own_hooks import computed_values, measured_by_hooks
from llm_bench_fixtures.plugin.stash import TURNS, metrics_of
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.measured_record import MeasuredRecord, with_metrics
from llm_bench_fixtures.results.record import Record, Status, VariantResult
from llm_bench_fixtures.session.case import Measured
from llm_bench_fixtures.session.own import OwnCase
from llm_bench_fixtures.session.recording import record_of, with_times
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.workloads import CacheKind, Padding, Prompts, TokenIds, Workload


def name_in_table(item: pytest.Item, benchmark: Any) -> None:
    """Have pytest-benchmark show the test among those of its scenario."""
    benchmark.group = benchmark.group or identify(item).scenario
    internals.name_parameters(benchmark, Variant, lambda variant: variant.id)
    internals.name_parameters(benchmark, (Padding, OwnCase), str)


class LlmBenchmark:
    """Runs one workload under pytest-benchmark and hands its record to the report."""

    def __init__(
        self, item: pytest.Item, benchmark: Any, model: ModelHandle, prompts: Prompts, session: BenchSession
    ) -> None:
        self._item = item
        self._benchmark = benchmark
        self._model = model
        self._prompts = prompts
        self._session = session
        self._has_measured = False

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that leaves the model room for --llm-new-tokens."""
        return self._model.facts.context_length - self._session.settings.new_tokens

    def __call__(
        self,
        prompts: str | TokenIds | Sequence[str | TokenIds],
        *,
        new_tokens: int | Sequence[int] | None = None,
        batch_size: int | None = None,
        padding: Padding | None = None,
        cache: CacheKind | str = "dynamic",
    ) -> MeasuredRecord:
        """Generate greedily from the prompts, several rounds, and return what was measured, once a test.

        prompts: one or more, each a text or a tuple of token ids. new_tokens: of all, or of each; default
        --llm-new-tokens. batch_size: prompts that run together; default all. padding: default left, to the longest.
        Skips the test where the model can't run the workload (no such cache, or longer than its context).
        """
        rows = self._encode(prompts)
        given = self._session.settings.new_tokens if new_tokens is None else new_tokens
        lengths = (given,) * len(rows) if isinstance(given, int) else tuple(given)
        workload = Workload(
            prompts=rows,
            new_tokens=max(lengths, default=0),
            batch_size=len(rows) if batch_size is None else batch_size,
            padding=padding or Padding(),
            cache=CacheKind(cache),
            lengths=() if len({*lengths}) == 1 and len(lengths) == len(rows) else lengths,
        )
        with as_outcomes("llm_gate: "):  # a marker that can't be used, before anything is measured
            check_marks(identify(self._item).gate, metrics_of(self._item.config))
        with as_outcomes():
            check_supported(self._model, workload)
            if self._has_measured:
                raise MeasuredBefore(identify(self._item).test)
            self._has_measured = True
            record = self._run(workload)
        return self._add(record)

    def _encode(self, prompts: str | TokenIds | Sequence[str | TokenIds]) -> tuple[TokenIds, ...]:
        if isinstance(prompts, str) or (prompts and all(isinstance(part, int) for part in prompts)):
            prompts = [prompts]  # type: ignore[list-item]  # one prompt
        return tuple(self._prompts.encode(part) if isinstance(part, str) else tuple(part) for part in prompts)  # type: ignore[arg-type]

    def _run(self, workload: Workload) -> Record:
        name_in_table(self._item, self._benchmark)
        with internals.as_used(self._benchmark), quiet_libraries(), translate_out_of_memory(self._model.variant.id):
            if TURNS in self._item.config.stash:
                return self._record(workload, self._take_turns(workload))
            if internals.is_timed(self._benchmark):
                return self._record(workload, self._measure(workload))
            with self._session.progress.counted(Phase.GENERATING):
                done = self._benchmark.pedantic(lambda: self._model.call(run_round, workload))
            return self._record(workload, Measured(None, ()), done.continuations)

    def _measure(self, workload: Workload) -> Measured:
        """Measure the test's whole case, unless an earlier test had that done, and show pytest-benchmark its part."""
        others = partial(variants_to_come, self._item)
        measured = self._session.measuring.measure(
            case_of(self._item), identify(self._item).scenario, self._model, workload, others, self._add_further
        )

        def profiled() -> None:
            with self._session.progress.counted(Phase.GENERATING):
                self._model.call(run_round, workload)

        internals.report_times(self._benchmark, [done.latency_s for done in measured.rounds], again=profiled)
        return measured

    def _take_turns(self, workload: Workload) -> Measured:
        """The rounds that another process has told this one to run, in one call of pytest-benchmark's."""
        turns = self._item.config.stash[TURNS]
        observation = self._model.call(observe, workload) if turns.observes else None
        rounds: list[Round] = []
        self._benchmark.pedantic(lambda: rounds.extend(turns.take(self._item.nodeid, self._model, workload)))
        return Measured(observation, tuple(rounds))

    def _record(self, workload: Workload, measured: Measured, continuations: Sequence[TokenIds] = ()) -> Record:
        blank, keeps = identify(self._item), self._session.settings.show_texts or own_case_of(self._item) is None
        of = self._session, blank, self._model, self._prompts, workload, measured, continuations
        return record_of(*of, keeps_texts=keeps)

    def _add(self, record: Record) -> MeasuredRecord:
        """Put the record, with what other plugins measure, into the report."""
        self._session.results.add_record(record)  # a hook that ends the test or the run leaves it there
        extra, missing = measured_by_hooks(self._item.config, self._model, record)
        reason = "; ".join(filter(None, (record.reason, *missing)))
        record = replace(record, extra={**record.extra, **extra}, reason=reason)
        self._session.results.add_record(record)
        for text in missing:
            warn(text)
        measured = self._add_computed(record)
        self._session.save_at_times()
        return measured

    def _add_computed(self, record: Record) -> MeasuredRecord:
        """Put the record, with what other plugins compute of its metrics, into the report."""
        session, metrics = self._session, metrics_of(self._item.config)

        def score() -> VariantResult:
            session.score(self._model)
            return session.results.variant(record.variant)

        is_due = session.scoring.is_due(record.variant) or record.variant in session.tasks.due
        variant = session.results.variant(record.variant)
        measured = with_metrics(record, variant, metrics, score if is_due else None)
        computed = computed_values(measured.known_metrics, metrics)
        session.results.add_record(replace(record, extra={**record.extra, **computed}))
        return measured

    def _add_further(self, measured: Measured) -> None:
        """Take further rounds, which were run after the test, into its record and into pytest-benchmark's table."""
        record = self._session.results.record(identify(self._item).test)
        if record.status is Status.MEASURED:
            self._add_computed(with_times(record, measured, is_remote=self._model.facts.is_remote))
            internals.replace_times(self._benchmark, [done.latency_s for done in measured.rounds])
            self._session.save_at_times()
