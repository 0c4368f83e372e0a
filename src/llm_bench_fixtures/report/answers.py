"""The answer of a run: what to use here, what it costs, and what does not pay.

Nothing is claimed that the run can't show. The interval of a difference in speed, widened for all comparisons that the
report makes, excludes none (`Evidence.gain`); a difference in memory exceeds the tolerance of its metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.need import Need
from llm_bench_fixtures.answer.picks import Pick, Reader, picks_of
from llm_bench_fixtures.answer.standings import QualityStandings
from llm_bench_fixtures.options.quality_limit import DEFAULT_QUALITY_LIMIT, QualityLimit
from llm_bench_fixtures.report.answer_words import answer_sentence, pick_notes, pick_sentence
from llm_bench_fixtures.report.beyond_limit import why_not_admitted
from llm_bench_fixtures.report.cells import headline_prompts
from llm_bench_fixtures.report.not_worth_it import Remark, not_worth_it, scope_of
from llm_bench_fixtures.report.pick_words import figure_of
from llm_bench_fixtures.report.quality import limit_words, near_lossless_sentence
from llm_bench_fixtures.results.record import Status


@dataclass(frozen=True)
class Recommendation:
    """What one reader should use, and the sentence that says so."""

    pick: Pick
    figure: str
    """The best's latency, throughput or memory."""
    sentence: str
    """With the figure beside the reference's, the interval and what it costs."""
    notes: tuple[str, ...]
    """What can't be told from it, and what would be better but for the limit; in sentences."""


@dataclass(frozen=True)
class Answer:
    """What a run tells somebody who must choose."""

    sentence: str
    """The whole answer in one sentence; true of runs that measured nothing, too."""
    limit: QualityLimit
    """The quality that a recommended variant keeps."""
    limit_note: str
    """How the limit was applied, or why it wasn't."""
    recommendations: tuple[Recommendation, ...]
    """For the lowest latency, the most throughput and the least memory, in this order, as far as the run can tell."""
    untold: tuple[str, ...]
    """For whom there is no recommendation, and who is not compared, with the reasons; in sentences."""
    not_worth_it: tuple[Remark, ...]
    """Variants that don't pay on the workload of `scope`, each with the reason."""
    scope: str
    """On what was compared: "one prompt of 64 tokens, batch 1"; empty where nothing was."""
    beyond_limit: tuple[Remark, ...]
    """Variants that are not shown to keep the limit, each with its figure."""
    quality_note: str
    """The near-lossless variants in a sentence, and what the figures of quality can't tell; may be empty."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences beside the recommendations: what doesn't pay, what is not recommended, and on what they rest."""
        said = [f"{title}: {'; '.join(f'{one.variant} {one.text}' for one in them)}." for title, them in self.lists]
        return (*self.untold, *said, *self.quality_notes)

    @property
    def lists(self) -> tuple[tuple[str, tuple[Remark, ...]], ...]:
        """What doesn't pay, and what is beyond the limit, each under its title; without those that are empty."""
        beyond = "Not recommended under the quality limit"
        lists = ((self.not_worth_it_title, self.not_worth_it), (beyond, self.beyond_limit))
        return tuple((title, them) for title, them in lists if them)

    @property
    def quality_notes(self) -> tuple[str, ...]:
        """How the limit was applied to the recommendations, and what the figures of quality can't tell."""
        limit = [self.limit_note] if self.recommendations else []
        return (*limit, *([self.quality_note] if self.quality_note else []))

    @property
    def not_worth_it_title(self) -> str:
        return f"Does not pay on {self.scope}" if self.scope else "Does not pay here"


def answer_of(seen: Evidence, limit: QualityLimit = DEFAULT_QUALITY_LIMIT) -> Answer:
    """limit: what a variant must keep to be recommended."""
    standings = QualityStandings(seen.run, limit)
    picks = picks_of(seen, Need(limit))
    return Answer(
        sentence=answer_sentence(picks, seen, standings),
        limit=limit,
        limit_note=_limit_note(standings),
        recommendations=tuple(
            Recommendation(
                pick,
                figure_of(pick.choices[0], pick),
                pick_sentence(pick, seen, standings, _is_told(pick, picks[:index])),
                tuple(pick_notes(pick, seen, standings)),
            )
            for index, pick in enumerate(picks)
            if pick.choices
        ),
        untold=tuple(_untold(picks, seen)),
        not_worth_it=tuple(not_worth_it(seen, picks)),
        scope=scope_of(seen),
        beyond_limit=tuple(_beyond_limit(standings)),
        quality_note=near_lossless_sentence(seen.run),
    )


def _is_told(pick: Pick, before: Sequence[Pick]) -> bool:
    """Whether the same variant is recommended to an earlier reader."""
    return any(one.is_proven and one.variants[0] == pick.variants[0] for one in before)


def _untold(picks: Sequence[Pick], seen: Evidence) -> Iterator[str]:
    """Readers without a choice, and variants that are not compared; none where the whole answer says why there is
    none."""
    if seen.reference is None or len(seen.common) < 2:
        return
    for pick in picks:
        if not pick.choices:
            yield f"For the {pick.reader} this run has no answer: {_why_untold(pick.reader, seen)}."
    if seen.elsewhere:
        names = ", ".join(seen.elsewhere)
        prompts = headline_prompts(seen)
        yield f"Not compared with the others, because not measured on all the same prompts ({prompts}): {names}."


def _why_untold(reader: Reader, seen: Evidence) -> str:
    if reader is not Reader.THROUGHPUT:
        return "it was not measured on two variants"
    if not seen.largest_batch:
        return "no batch sizes were measured"
    if seen.run.reference not in seen.largest_batch:
        return f"{seen.run.reference} was not measured in batches"
    return f"only {seen.run.reference} was measured in batches"


def _limit_note(standings: QualityStandings) -> str:
    limit, run = standings.limit, standings.run
    if standings.is_applied:
        return f"Recommended are variants with {limit_words(standings)} ({limit}; --llm-quality-limit moves it)."
    notes = dict.fromkeys(variant.quality_note for variant in run.variants if variant.quality_note)
    why = f" ({'; '.join(notes)})" if notes else ""
    return f"The limit {limit} is not applied: no variant's quality was compared with {run.reference}'s{why}."


def _beyond_limit(standings: QualityStandings) -> Iterator[Remark]:
    for variant in standings.run.variants:
        if variant.status is Status.MEASURED and not standings.admits(variant):
            yield Remark(variant.id, why_not_admitted(variant, standings, "it"))
