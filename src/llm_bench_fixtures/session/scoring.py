"""The quality of a loaded variant: over the corpus, and by its answers; by itself, and against the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from llm_bench_fixtures.errors import NotReached, first_line, named
from llm_bench_fixtures.measure.quality import CorpusScore
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Status, VariantResult
from llm_bench_fixtures.session.forecast import WorkKind
from llm_bench_fixtures.session.loader import NOT_YET, VariantLoader
from llm_bench_fixtures.session.samples import OF_A_SAMPLE
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import Corpus

Scorer = Callable[[ModelHandle, Corpus], Sequence[CorpusScore | Mapping[str, float]]]


def gather(scores: Sequence[CorpusScore | Mapping[str, float]]) -> tuple[CorpusScore, str]:
    """The scores of several hooks as one, and which values are left out as they are not finite; "" for none."""
    parts = [score if isinstance(score, CorpusScore) else CorpusScore(score, ()) for score in scores]
    values = {name: value for part in parts for name, value in part.metrics.items()}
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    lost = sorted(values.keys() - finite.keys())
    blocks = next((part.loss_blocks for part in parts if part.loss_blocks), ())
    known_blocks = blocks if all(map(math.isfinite, blocks)) else ()
    notes = tuple(note for part in parts for note in part.notes)
    return CorpusScore(finite, known_blocks, notes), f"not finite: {', '.join(lost)}" if lost else ""


@dataclass(eq=False)
class Scoring:
    """Scores the variants that are loaded, each once and the reference first, and tells the results."""

    _setup: Setup
    _results: RunBuilder
    _loader: VariantLoader
    _score: Scorer
    """Gives the quality of a loaded model over a corpus, from as many sources as there are."""

    def __post_init__(self) -> None:
        self._scored: set[str] = set()
        self._errors: dict[str, Exception] = {}  # what scoring raised, by variant
        self.to_come: frozenset[str] = frozenset()
        """The variants that have further tests, which load them again where they are closed before."""

    def go_on_with(self, variants: Collection[str], is_final: Callable[[VariantResult], bool]) -> None:
        """Begin with the quality that an earlier session measured of the variants in the results, as far as it is
        final; what it had begun is scored anew. variants: ids of those that have tests in this session. is_final: tells
        of a variant that is measured."""
        measured = [one for one in self._results.variants if one.status is Status.MEASURED]
        no_scores = self._setup.source.random_weights
        self._scored = {one.id for one in measured} if no_scores else done_before(self._results, variants, is_final)
        for one in measured:
            if one.id not in self._scored:
                self._results.add_variant(_without_quality(one))

    def is_scored(self, variant: str) -> bool:
        return variant in self._scored

    def is_due(self, variant: str) -> bool:
        """Whether the variant is measured and has yet to be scored."""
        if self._setup.source.random_weights or self._results.same_but_for_threads(variant) is not None:
            return False
        return variant not in self._scored and self._results.variant(variant).status is Status.MEASURED

    @property
    def due(self) -> frozenset[str]:
        """The variants that are measured, have yet to be scored, and may be."""
        measured = (variant.id for variant in self._results.variants)
        return frozenset(name for name in measured if self.is_due(name) and name not in self._errors)

    @property
    def failures(self) -> Mapping[str, Exception]:
        """Reasons by variant why it can't be scored; without those that there was no time for."""
        return {name: error for name, error in self._errors.items() if not isinstance(error, NotReached)}

    def score_loaded(self) -> None:
        """Score all that are loaded. What one fails at is its reason to have no quality, and costs nothing else."""
        for model in self._loader.loaded:
            self._try_to_score(model)

    def score_leaving(self, variants: Collection[str]) -> None:
        """Score those that are about to be closed and don't come again, and the reference, which the others need."""
        due = (set(variants) - self.to_come) | (set(variants) & {self._results.reference})
        for model in self._loader.loaded:
            if model.variant.id in due:
                self._try_to_score(model)

    def score_the_rest(self) -> None:
        """Score all that are due: those that are loaded, then the others, as far as the run has time to load them."""
        self.score_loaded()
        for variant in self._loader.known:
            if variant.id in self.due:
                try:
                    self.score(self._loader.load(variant))
                except Exception as error:  # raised by the second load, or by scoring
                    self._keep_error(variant.id, error)

    def _keep_error(self, variant: str, error: Exception) -> None:
        """Keep why the variant can't be scored, or that there was no time for it."""
        self._errors[variant] = error
        is_late = isinstance(error, NotReached)
        why = str(error) if is_late else first_line(named(error))
        known = self._results.variant(variant)
        self._results.add_variant(replace(known, quality_note=why, unscored=is_late))

    def _try_to_score(self, model: ModelHandle) -> None:
        with suppress(Exception):  # kept in `_errors`
            self.score(model)

    def score(self, model: ModelHandle) -> None:
        """Score a variant, unless it is scored, and before it the reference.

        Raises what that raises, or raised, and NotReached where the run has no time for it.
        """
        identifier = model.variant.id
        if identifier in self._errors:
            raise self._errors[identifier]
        if not self.is_due(identifier):
            return
        if identifier != self._results.reference:
            for reference in (one for one in self._loader.loaded if one.variant.id == self._results.reference):
                self._try_to_score(reference)
        try:
            with self._setup.working(Phase.SCORING, f"scoring {identifier}", WorkKind.QUALITY, identifier):
                quality, missing = gather(self._score(model, self._setup.corpus))
        except Exception as error:
            self._keep_error(identifier, error)
            raise
        self._scored.add(identifier)
        known = self._results.variant(identifier)
        notes = tuple(dict.fromkeys((*known.notes, *quality.notes)))
        scored = replace(known, quality=quality.metrics, loss_blocks=quality.loss_blocks, notes=notes)
        self._results.add_variant(replace(scored, quality_note=missing))


def done_before(results: RunBuilder, variants: Collection[str], is_done: Callable[[VariantResult], bool]) -> set[str]:
    """Ids of the measured variants of which an earlier session's scores, or answers, are kept. variants: ids of those
    that have tests in this session. is_done: tells of such a variant that is measured.

    While any of them has yet to be done, the reference is done again, since they are compared with what is kept of it.
    """
    measured = {one.id: one for one in results.variants if one.status is Status.MEASURED}
    done = {name for name, one in measured.items() if name not in variants or is_done(one)}
    others = {one.id for one in results.variants} - measured.keys() | {results.reference}
    if set(variants) - done - others:
        done.discard(results.reference)
    return done


def _without_quality(variant: VariantResult) -> VariantResult:
    """Variant as it was before it was scored."""
    notes = tuple(note for note in variant.notes if not note.startswith(OF_A_SAMPLE))
    emptied = replace(variant, quality={}, loss_blocks=(), item_blocks={}, notes=notes)
    return replace(emptied, quality_note=NOT_YET, unscored=False)
