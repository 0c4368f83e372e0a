"""The quality over the corpus in words, near-lossless variants together and in no order; who meets a need, and by which
figure others don't."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from llm_bench_fixtures.answer.need import QualityMeasure, Reader, Standing
from llm_bench_fixtures.answer.standings import NEAR, Judged, Meeting, Standings, is_near_lossless, near_lossless
from llm_bench_fixtures.report.tables.table import Cell
from llm_bench_fixtures.report.words.measured import describe_prompts
from llm_bench_fixtures.results.formatting import (
    count,
    five_digits,
    format_change,
    format_share,
    three_digits,
    with_unit,
)
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.workloads import CacheKind

NOT_MEASURED = "quality not measured"


def near_lossless_sentence(run: Run) -> str:
    """The group with what else is known of its quality, and what the figures can't tell; empty for nobody."""
    variants = [one for one in map(run.variant, near_lossless(run)) if one]
    if not variants:
        return ""
    order, whose = (", in no order", "their") if len(variants) > 1 else ("", "its")
    group = f"{', '.join(map(_with_agreement, variants))}{_flips_of_all(variants)}"
    return (
        f"Near-lossless by perplexity{order}: {group}. The whole 95 % interval of {whose} perplexity is within "
        f"±{NEAR * 100:g} % of {run.reference}'s. Such differences are too small to rank variants; test your "
        "own task."
    )


def _with_agreement(variant: VariantResult) -> str:
    share = variant.quality.get(QualityMeasure.TOP1_AGREEMENT)
    return variant.id if share is None else f"{variant.id} (top-1 {format_share(share)})"


def _flips_of_all(variants: Sequence[VariantResult]) -> str:
    """The least and the most of the variants that were asked."""
    cells = [Cell.flips(one) for one in variants]
    found = [round(cell.value) for cell in cells if cell.value is not None]
    if not found:
        return ""
    low, high, items = min(found), max(found), next(cell.of for cell in cells if cell.of)
    flip = "flips" if low == high == 1 else "flip"
    return f"; {low if low == high else f'{low} to {high}'} of {count(items, 'answer')} {flip}"


def _next_to_perplexity(variant: VariantResult) -> Iterator[str]:
    """Further measures against the reference: the agreement on the likeliest token, and answers that flip."""
    if QualityMeasure.TOP1_AGREEMENT in variant.quality:
        yield f"top-1 {format_share(variant.quality[QualityMeasure.TOP1_AGREEMENT])}"
    flips = Cell.flips(variant)
    if not flips.is_missing:
        yield f"flips {flips.figure()}"


def quality_in_short(run: Run, identifier: str) -> str:
    """The cost in quality without its error: "near-lossless", "perplexity +1.0 %"."""
    variant = run.variant(identifier)
    if variant is None or "perplexity" not in variant.quality:
        return NOT_MEASURED
    if is_near_lossless(variant):
        return "near-lossless"
    ratio = variant.quality.get("ppl_ratio")
    return quality_words(run, identifier) if ratio is None else f"perplexity {format_change(ratio)}"


def quality_words(run: Run, identifier: str) -> str:
    """The change of the variant's perplexity and what else is known of its quality, or why nothing is."""
    variant, reference = run.variant(identifier), run.variant(run.reference)
    own, other = (one.quality.get("perplexity") if one else None for one in (variant, reference))
    if variant is None or own is None:
        note = f" ({variant.quality_note})" if variant and variant.quality_note else ""
        return f"{NOT_MEASURED}{note}"
    if other is None:
        return f"perplexity {five_digits(own)}, and the reference has none"
    change = Cell.perplexity_change(variant).text() if "ppl_ratio" in variant.quality else format_change(own / other)
    words = ", ".join([f"perplexity {change}", *_next_to_perplexity(variant)])
    return f"near-lossless ({words})" if is_near_lossless(variant) else words


def need_sentence(meeting: Meeting) -> str:
    """Who meets the need, who may, or what comes nearest; with which other settings it is met, and what of it couldn't
    be judged. Empty where no variant ran."""
    return " ".join(_need_sentences(meeting)) if meeting.ran else ""


def _need_sentences(meeting: Meeting) -> Iterator[str]:
    standings = meeting.standings
    yield f"{_who(meeting)}."
    if meeting.nearest is not None:
        missed = [one for one in standings.judged[meeting.nearest] if one.standing is Standing.BEYOND]
        variant = standings.run.variant(meeting.nearest)
        figures = (f"{_figure(one, variant)}{_missed_by(one)}" for one in missed if variant)
        yield f"{meeting.nearest} comes nearest: {'; '.join(figures)}."
    if meeting.elsewhere:
        yield f"Other settings {standings.need.verb} it: {', '.join(map(_setting, meeting.elsewhere))}."
    if standings.not_applied:
        yield f"Not judged, because not measured: {', '.join(map(str, standings.not_applied))}."


def _who(meeting: Meeting) -> str:
    standings, need = meeting.standings, meeting.standings.need
    asked = f"{need.title} ({', '.join(map(str, standings.applied)) or need}){_where(standings)}"
    may = f"; {', '.join(meeting.may)} may {need.verb} it" if meeting.may else ""
    may += f"; not known of {', '.join(meeting.unknown)}" if meeting.unknown else ""
    if meeting.meets:
        who = f"{len(meeting.meets)} of {count(len(meeting.ran), 'variant')}"
        return f"{who} {need.verb}{'s' * (len(meeting.meets) == 1)} {asked}: {', '.join(meeting.meets)}{may}"
    return f"No variant is shown to {need.verb} {asked}{may}" if may else f"No variant {need.verb}s {asked}"


def _where(standings: Standings) -> str:
    """The workload on which the limits are judged."""
    some = next(iter(standings.records.values()), None)
    if some is None:
        return ""
    is_batched = standings.need.want is Reader.THROUGHPUT
    return f" at batch {some.facts.batch_size}" if is_batched else f" on {describe_prompts(some)}"


def _missed_by(one: Judged) -> str:
    if not math.isfinite(one.miss):
        return ""
    return f", missed by {format_share(one.miss) if one.miss < 1 else f'a factor of {three_digits(1 + one.miss)}'}"


def _setting(record: Record) -> str:
    facts = record.facts
    other = " without a cache" if facts.cache == "off" else f" with a {facts.cache} cache"
    cache = "" if facts.cache == CacheKind.DYNAMIC else other
    speed = f" ({three_digits(record.tokens_per_s)} tokens/s)" if record.tokens_per_s else ""
    return f"{record.variant} at batch {facts.batch_size}{cache}{speed}"


def not_applied_sentences(standings: Standings) -> Iterator[str]:
    """Why a limit isn't."""
    notes = dict.fromkeys(variant.quality_note for variant in standings.run.variants if variant.quality_note)
    why = f" ({'; '.join(notes)})" if notes else ""
    for limit in standings.not_applied:
        of_quality = f"no variant's quality was compared with {standings.run.reference}'s{why}"
        reason = of_quality if limit.is_of_quality else "no variant has a figure for it"
        yield f"The limit {limit} is not applied: {reason}."


def not_admitted_words(variant: VariantResult, standings: Standings) -> str:
    """Reasons that keep the variant from being recommended, to stand behind its gain and a comma."""
    if "perplexity" not in variant.quality and _lacks_quality(variant, standings):
        return ": ".join(filter(None, (NOT_MEASURED, variant.quality_note)))
    return f"but {why_not_admitted(variant, standings, standings.need.title)}"


def why_not_admitted(variant: VariantResult, standings: Standings, title: str) -> str:
    """The figures that keep the variant from being recommended. title: what to call the limits."""
    standing, verb = standings.of(variant), standings.need.verb
    decisive = [one for one in standings.judged[variant.id] if one.standing is standing]
    if _lacks_quality(variant, standings):
        note = f" ({variant.quality_note})" if variant.quality_note else ""
        return f"has no quality figure to compare with {standings.run.reference}'s{note}"
    if standing is Standing.UNKNOWN:
        return f"has no figure here of {', '.join(one.metric.title_in_sentence for one in decisive)}"
    figures = "; ".join(_figure(one, variant) for one in decisive)
    if standing is Standing.UNCLEAR:
        return f"may or may not {verb} {title} (not decided: {figures})"
    return f"does not {verb} {title} ({figures})"


def _lacks_quality(variant: VariantResult, standings: Standings) -> bool:
    """Whether that is what keeps it from being recommended."""
    unknown = (one.limit for one in standings.judged[variant.id] if one.standing is Standing.UNKNOWN)
    return standings.of(variant) is Standing.UNKNOWN and any(limit.is_of_quality for limit in unknown)


def _figure(one: Judged, variant: VariantResult) -> str:
    """The figure, with its error and the limit."""
    if one.metric.name == QualityMeasure.PPL_RATIO:
        return f"perplexity {Cell.perplexity_change(variant).text()}, limit {one.limit.change_in_words}"
    if one.metric.name == QualityMeasure.TOP1_AGREEMENT:
        return f"top-1 agreement {format_share(one.value or 0.0)}, limit {one.limit.bound_in_words}"
    words = f"{one.metric.title_in_sentence} {with_unit(one.value, one.metric)}"
    if one.spread:
        words += f" ({with_unit(one.spread.low, one.metric)} to {with_unit(one.spread.high, one.metric)})"
    return f"{words}, limit {one.limit.bound_in_words}"
