"""One benchmark session: what it measures with, what it keeps of the reference, how it loads, and its results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.standings import standings_for
from llm_bench_fixtures.errors import UnwritableFile, first_line, named
from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.models.backends import set_environment
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.folder import Tracebacks
from llm_bench_fixtures.results.provenance import Commit
from llm_bench_fixtures.results.record import Run, Status
from llm_bench_fixtures.results.storage import RESULTS_FILE, write_run
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.measuring import SideBySide
from llm_bench_fixtures.session.provenance import completed_by, foreseen, provenance_of
from llm_bench_fixtures.session.reference import KeptReference
from llm_bench_fixtures.session.samples import Samples
from llm_bench_fixtures.session.scoring import Scorer, Scoring
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.session.tasks import TaskScores

SAVE_EVERY_S = 10.0


class BenchSession:
    """Objects that a run's tests share.

    commit: tells the commit that is measured, once it is asked. keeps_report: whether this process writes the report.
    scores_late: whether a variant is scored after its headline is measured, in place of when it is loaded.
    """

    def __init__(
        self,
        setup: Setup,
        reference: str,
        score: Scorer,
        commit: Callable[[], Commit],
        *,
        keeps_report: bool = True,
        scores_late: bool = True,
    ) -> None:
        set_environment()
        self.setup = setup
        self.settings = setup.settings
        self.need = setup.need
        self.progress = setup.progress
        self.deadline = setup.deadline
        self.progress.cut_at_s = self.deadline.at_s
        self.progress.run_left_s = self._left_s
        self.reference = KeptReference(reference)
        self.results = RunBuilder(reference)
        tracebacks = Tracebacks(self.settings.report if keeps_report else None)
        self.loader = VariantLoader(self.setup, self.results, tracebacks.keep)
        self.scoring = Scoring(self.setup, self.results, self.loader, score)
        self.samples = Samples(self.setup, self.loader, self.reference)
        self.tasks = TaskScores(self.setup, self.loader, self.results, self.scoring.is_scored, self.end_stage)
        self.loader.before_closing = self._score_leaving
        self.measuring = SideBySide(self.setup, self.loader, reference, self._kept)
        self.keeps_report = keeps_report
        self._scores_late = scores_late
        self._commit = cache(commit)
        self._started = datetime.now(UTC)
        self._saved_at = -math.inf
        self._before: Run | None = None

    def go_on_with(self, before: Run, variants: Collection[str]) -> None:
        """Begin with what an earlier session measured, which may be put together with what this one measures.

        variants: ids of those that have tests in this session.
        """
        self._before = before
        self.results.go_on_with(before)
        self.loader.restored = frozenset(one.id for one in self.results.variants if one.status is Status.MEASURED)
        self.scoring.go_on_with(variants, self.samples.is_final)
        self.tasks.go_on_with(before, variants)

    def foreseen(self, before: Run) -> Run:
        """The earlier run, with what is known of this one before its model is looked for."""
        return replace(before, provenance=foreseen(before.provenance, self.settings, self._commit()))

    def load(self, variant: Variant) -> ModelHandle:
        """The loaded variant. Raises what its load raised, also when it is asked for again."""
        model = self.loader.load(variant)
        if not self._scores_late:
            self.scoring.score(model)
            self.tasks.ask()
        return model

    def own_score(self, model: ModelHandle) -> CorpusScore:
        """The metrics of the plugin's own."""
        score = self.samples.score(model)
        self.samples.retell(self.results, but=model.variant.id)
        return score

    def score(self, model: ModelHandle) -> None:
        """Score a variant now, on as much as it needs. Raises as `Scoring.score`."""
        self.scoring.score(model)
        self._grow(self.samples.grow)

    def score_loaded(self) -> None:
        """Score the variants that are loaded, each on as much as it needs."""
        self.scoring.score_loaded()
        self._grow(self.samples.grow)

    def score_the_rest(self, after_rounds: Callable[[], object] | None = None) -> None:
        """Score all that are due. As far as the run has time, run further rounds, and score more of the variants whose
        quality isn't decided.

        after_rounds: is called after each block of further rounds; None: run none.
        """
        self.scoring.score_the_rest()
        self._grow(self.samples.ask_more)
        if after_rounds is not None:
            self.measuring.further.run(after_rounds)
            for name, error in self.measuring.further.failures.items():
                known, note = self.results.variant(name), f"no further rounds: {first_line(named(error))}"
                self.results.add_variant(replace(known, notes=(*known.notes, note)))
        self.measuring.further.forget()
        self._grow(self.samples.go_on)
        self.tasks.ask_the_rest()

    def _score_leaving(self, variants: Collection[str]) -> None:
        self.scoring.score_leaving(variants)
        is_last = not self.deadline.is_limited and not self.scoring.to_come.issuperset(variants)
        self._grow(self.samples.go_on if is_last else self.samples.grow)

    def _grow(self, grow: Callable[[], None]) -> None:
        grow()
        self.samples.retell(self.results)
        self.tasks.ask()

    @property
    def due(self) -> frozenset[str]:
        """The variants that are measured, and have yet to be scored or asked a task."""
        return self.scoring.due | self.tasks.due

    @property
    def failures(self) -> Mapping[str, Exception]:
        """Reasons by variant why it can't be scored, or asked its tasks; without those that there was no time for."""
        return {**self.tasks.failures, **self.scoring.failures}

    def run(self, *, interrupted: bool = False) -> Run:
        """The results so far."""
        provenance = provenance_of(self.setup, self._started, self._commit(), self.loader.windows)
        provenance = replace(provenance, tasks=self.tasks.facts)
        if self._before is not None:
            provenance = completed_by(provenance, self._before.provenance)
        run = self.results.build(provenance, self.progress.phase_s, interrupted=interrupted)
        return replace(run, time_limit_s=self.deadline.limit_s) if self.deadline.is_limited else run

    def _left_s(self) -> float | None:
        """Seconds that the run still takes, as expected, which a limit may cut."""
        left_s = self.setup.forecast.left_s
        return None if left_s is None else min(left_s, self.deadline.left_s)

    def _kept(self) -> frozenset[str]:
        """The variants that keep the limits of a winner, and those that may: because they have yet to be scored, or
        because that takes more rounds."""
        found = standings_for(self.need.want, evidence_of(self.run()), self.need)
        return found.in_the_race | self.scoring.due

    def save(self) -> None:
        """Write the results so far, so that they outlast a process that is killed. Raises UnwritableFile."""
        write_run(self.run(interrupted=True), self.settings.report / RESULTS_FILE, follows=False)

    def end_stage(self) -> None:
        """The group of variants that is loaded has been through a stage of the plan."""
        self._saved_at = -math.inf  # results so far are kept at once
        self.save_at_times()

    def save_at_times(self) -> None:
        """`save`, if the last time is a while ago; not in a process that writes no report.

        A folder that can't be written to fails no benchmark: the end of the run says so.
        """
        if self.keeps_report and time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            with suppress(UnwritableFile):
                self.save()
            self._saved_at = time.monotonic()

    def close(self) -> None:
        """End the models' processes, and remove the session's temporary files."""
        self.loader.close()
        self.setup.close()
        self.reference.close()
