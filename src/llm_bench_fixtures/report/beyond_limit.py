"""What is better than the recommended variants but not shown to keep the quality limit: the win beside its cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_bench_fixtures.answer.picks import Pick, Reader
from llm_bench_fixtures.answer.standings import QualityStandings, Standing
from llm_bench_fixtures.options.quality_limit import QualityMeasure
from llm_bench_fixtures.report.pick_words import gain_words
from llm_bench_fixtures.report.quality import change_cell
from llm_bench_fixtures.results.formatting import format_share
from llm_bench_fixtures.results.record import VariantResult

MUCH = 1.5  # times as fast as what is recommended: then the answer itself names it


def wins_beyond_limit(picks: Sequence[Pick], standings: QualityStandings) -> Iterator[str]:
    """Clauses of the answer: the fastest of those that are faster by far, each once, with what it costs."""
    told = set()
    for pick in picks:
        rival = next(iter(pick.better_beyond_limit), None)
        variant = standings.run.variant(rival.variant) if rival else None
        if pick.reader is Reader.MEMORY or rival is None or variant is None or rival.variant in told:
            continue
        if (rival.ratio or 0.0) >= MUCH * (pick.choices[0].ratio or 1.0):
            told.add(rival.variant)
            verb = "is" if pick.reader is Reader.LATENCY else "gives"
            cost = why_not_admitted(variant, standings, "the quality limit")
            yield f"{rival.variant} {verb} {gain_words(rival, pick, standings.run.reference)}, but {cost}"


def rejected(pick: Pick, standings: QualityStandings) -> Iterator[str]:
    """Sentences: who would be better by how much but for the limit."""
    better = "takes less" if pick.reader is Reader.MEMORY else "is faster"
    for choice in pick.better_beyond_limit:
        variant = standings.run.variant(choice.variant)
        if variant is not None:
            gain = gain_words(choice, pick, standings.run.reference)
            yield f"{variant.id} {better} ({gain}), but {why_not_admitted(variant, standings, 'the quality limit')}."


def why_not_admitted(variant: VariantResult, standings: QualityStandings, limit: str) -> str:
    """The figure that keeps the variant from being recommended. limit: what to call it."""
    standing = standings.of(variant)
    if standing is Standing.UNKNOWN:
        note = f" ({variant.quality_note})" if variant.quality_note else ""
        return f"has no quality beside {standings.run.reference}'s{note}"
    if standings.limit.measure is QualityMeasure.PPL_RATIO:
        figure = f"perplexity {change_cell(variant)}"
    else:
        figure = f"top-1 agreement {format_share(variant.quality[standings.limit.measure])}"
    is_unclear = standing is Standing.UNCLEAR
    return f"{'is not shown to keep' if is_unclear else 'does not keep'} {limit} ({figure})"
