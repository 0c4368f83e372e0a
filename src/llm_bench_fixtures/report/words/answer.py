"""The answer of a run: what to use here, by how much, at what cost, and what is not worth using."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import compared_records
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need, Reader
from llm_bench_fixtures.answer.noise import disturbance
from llm_bench_fixtures.answer.peaks import PEAKS, WEIGHTS, memory_metric, peaks_of
from llm_bench_fixtures.answer.picks import SMALL, Choice, Drawback, Outcome, Pick, drawbacks_of, picks_of, rivals_of
from llm_bench_fixtures.answer.standings import Meeting, Standings, meeting_of, standings_for
from llm_bench_fixtures.gate.rules import rule_in_words
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.report.tables.table import Cell
from llm_bench_fixtures.report.words import quality
from llm_bench_fixtures.report.words.measured import describe_prompts, headline_prompts, listed, times_words
from llm_bench_fixtures.results.formatting import format_bytes, format_seconds, format_share, three_digits, with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.statistics.ratio import Speedup

_SMALL = f"{SMALL * 100:.0f} %"
MOST_RUNS = 20  # that somebody may want to pool


@dataclass(frozen=True)
class _Phrases:
    """How a reader's gain is spoken of."""

    best: str
    verb: str
    better: str
    """Comparative to stand before "than fp32"."""
    more: str
    """Phrase for a gain by more than the share that the reference is kept within."""


_PHRASES = {
    Reader.LATENCY: _Phrases("is the fastest", "is", "faster", f"is more than {_SMALL} faster"),
    Reader.THROUGHPUT: _Phrases(
        "has the most throughput", "has", "more throughput", f"has over {_SMALL} more throughput"
    ),
    Reader.MEMORY: _Phrases("takes the least memory", "takes", "less memory", "takes measurably less memory"),
}


_Rival: TypeAlias = tuple[Pick, Choice]
"""A variant that would be better for the pick's reader, but isn't shown to keep the limits."""
_ByReader: TypeAlias = Mapping[Reader, Standings]
"""How variants stand to the limits, on the workload of each reader."""


@dataclass(frozen=True)
class Remark:
    """Something about one variant."""

    variant: str
    text: str
    """Text without the variant's id, and without a full stop."""


@dataclass(frozen=True)
class Recommendation:
    """Recommendation for one reader."""

    pick: Pick
    name: str
    """The variant, after "probably" where the run is undecided."""
    figure: str
    """The variant's latency, throughput or memory."""
    gain: str
    """Gain over the reference; a gain of time has its interval."""
    standing: str
    """How it stands to the reference, for a line of its own."""
    sentence: str
    """How sure that is, by how much it is better, and what it costs."""
    notes: tuple[str, ...]
    """Notes in sentences: what can't be told from it, and what would be better but for the limits."""


@dataclass(frozen=True)
class Answer:
    """What a run tells somebody who must choose."""

    lines: tuple[str, ...]
    """Who meets the need, where it is of more than quality or nobody does; then what to use, a line for each variant
    that some reader should use, with what is faster and isn't shown to keep the limits. Never empty."""
    brief: tuple[str, ...]
    """What to use, and what would be better but for the limits, in two sentences at most, without what it costs. Never
    empty."""
    need: Need
    """Need that a recommended variant keeps."""
    meeting: Meeting
    """Who meets it."""
    recommendations: tuple[Recommendation, ...]
    """Recommendations for the lowest latency, the most throughput and the least memory, what is wanted first, as far as
    the run can tell."""
    untold: tuple[str, ...]
    """Sentences on whom there is no recommendation for, and who is not compared, with the reasons."""
    lists: tuple[tuple[str, tuple[Remark, ...]], ...]
    """Lists of what is not worth using, what meets the need and what doesn't, each under its title; without those that
    are empty."""
    notes: tuple[str, ...]
    """How the limits were applied, and what the figures of quality can't tell; in sentences."""

    @property
    def sentence(self) -> str:
        """All lines as one."""
        return " ".join(self.lines)

    @property
    def remarks(self) -> tuple[str, ...]:
        """All that stands below the recommendations, in sentences."""
        said = [f"{title}: {'; '.join(f'{one.variant} {one.text}' for one in them)}." for title, them in self.lists]
        return (*self.untold, *said, *self.notes)


def answer_of(seen: Evidence, need: Need = DEFAULT_NEED) -> Answer:
    """need: what a variant must keep to be recommended, and what is wanted."""
    standings = {reader: standings_for(reader, seen, need) for reader in Reader}
    meeting, picks = meeting_of(seen, need), picks_of(seen, need)
    rivals = tuple(rivals_of(picks))
    recommendations = [_recommendation(pick, rivals, seen, standings[pick.reader]) for pick in picks if pick.choices]
    met = () if need.is_of_quality else meeting.meets
    lists = {
        _not_worth_title(seen): tuple(_remark(one, seen) for one in drawbacks_of(seen, picks)),
        f"Meet {need.title}, {need.want} first": tuple(Remark(name, ", ".join(_figures(name, seen))) for name in met),
        f"Not recommended under {need.title}": tuple(_not_recommended(standings[need.want])),
    }
    notes = [*(_limit_notes(standings[need.want]) if recommendations else ()), quality.near_lossless_sentence(seen.run)]
    is_unmet = any(pick.outcome is Outcome.UNMET for pick in picks)
    asked = [quality.need_sentence(meeting)] if is_unmet or not need.is_of_quality else []
    nothing = _why_nothing(seen)
    lines = (*filter(None, asked), *([nothing] if nothing else _lines(picks, rivals, seen, standings)))
    return Answer(
        lines=lines,
        brief=tuple([nothing] if nothing else _brief(picks, rivals, need, met)) or lines[:1],
        need=need,
        meeting=meeting,
        recommendations=tuple(recommendations),
        untold=tuple(_untold(picks, seen, need)),
        lists=tuple((title, remarks) for title, remarks in lists.items() if remarks),
        notes=tuple(filter(None, notes)),
    )


def figure_of(choice: Choice, pick: Pick) -> str:
    """The choice's latency, throughput or memory."""
    return with_unit(choice.value, METRIC_BY_NAME[pick.metric])


def gain_words(choice: Choice, pick: Pick, reference: str) -> str:
    """Gain of the reader: "1.38× (1.34–1.41) as fast as fp32", "2.00 MB of weights instead of 4.00 MB"."""
    times = times_words(choice.ratio, choice.low, choice.high)
    if pick.reader is Reader.LATENCY:
        return f"{times} as fast as {reference}"
    if pick.reader is Reader.THROUGHPUT:
        return f"{times} {reference}'s throughput at batch {pick.batch_size}"
    own = f" instead of {figure_of(pick.reference, pick)}" if pick.reference else ""
    return f"{figure_of(choice, pick)} of {'memory' if pick.metric in PEAKS else 'weights'}{own}"


def name_of(pick: Pick) -> str:
    """Name of what the reader should use, as far as the run can tell."""
    if pick.outcome is Outcome.UNDECIDED:
        return f"probably {pick.best.variant}" if pick.is_ahead else "undecided"
    return pick.best.variant


def _standing_words(pick: Pick, gain: str) -> str:
    if pick.outcome is Outcome.REFERENCE:
        return f"no other variant {_PHRASES[pick.reader].more}"
    if pick.outcome is Outcome.UNDECIDED:
        return f"undecided: {gain}"
    return f"{gain}{'; or ' if len(pick.alike) > 1 else ''}{', '.join(pick.alike[1:])}"


def _brief(picks: Sequence[Pick], rivals: Sequence[_Rival], need: Need, met: Sequence[str]) -> Iterator[str]:
    """What to use; and what would be better but for the limits. met: variants that meet a need of more than quality."""
    for_readers: dict[str, list[str]] = {}
    for pick in picks:
        if pick.outcome is Outcome.UNMET:
            for_readers.setdefault(f"nothing is shown to {need.verb} {need.title}", []).append(f"the {pick.reader}")
        elif pick.outcome is Outcome.REFERENCE or (pick.choices and not pick.is_ahead):
            use = f"keep {pick.best.variant}" if pick.outcome is Outcome.REFERENCE else "undecided"
            for_readers.setdefault(use, []).append(f"the {pick.reader}")
        elif pick.choices:
            use = f"{'use ' if pick.outcome is Outcome.WINNER else ''}{name_of(pick)}"
            for_readers.setdefault(use, []).append(f"the {pick.reader} ({_figure(pick.best, pick)})")
    told = "; ".join(f"{use} for {listed(readers, 'and')}" for use, readers in for_readers.items())
    meets = f"{', '.join(met)} {need.verb}{'s' * (len(met) == 1)} {need.title}; " if met else ""
    if told:
        yield f"{meets}{told}."
    others = [
        f"{one.variant} for the {pick.reader} ({'probably ' * one.is_unclear}{_figure(one, pick)})"
        for pick, one in rivals
    ]
    if others:
        yield f"Not shown to {need.verb} {need.title}: {', '.join(others)}."


def _lines(picks: Sequence[Pick], rivals: Sequence[_Rival], seen: Evidence, standings: _ByReader) -> Iterator[str]:
    """One for as many readers as have the same answer, in the readers' order, each with what is faster."""
    left = answered = [pick for pick in picks if pick.choices]
    while left:
        first, name = left[0], left[0].best.variant
        alike = [pick for pick in left if pick.outcome is first.outcome]
        if first.outcome is Outcome.WINNER:
            name = max(first.alike, key=lambda name: sum(name in pick.alike for pick in alike))
            served = [pick for pick in alike if name in pick.alike]
            line = _use(name, served, seen)
        else:
            served = [one for one in alike if one.best.variant == name and one.is_ahead is first.is_ahead]
            readers = "" if len(served) == len(answered) else _for_readers(served)
            is_kept = first.outcome is Outcome.REFERENCE
            line = _keep(served, readers, seen, standings) if is_kept else _undecided(served, readers, seen)
        by_variant = grouped((one for one in rivals if one[0] in served), lambda one: one[1].variant)
        yield " ".join([line, *(_rejection(them, standings[them[0][0].reader]) for them in by_variant.values())])
        left = [pick for pick in left if pick not in served]


def _why_nothing(seen: Evidence) -> str:
    """Why the run has no answer; empty where it has one."""
    measured = dict.fromkeys(record.variant for record in compared_records(seen.run))
    if not measured:
        return f"{'Only loads were' if seen.run.loads else 'Nothing was'} measured, so there is no answer."
    if len(measured) == 1:
        return f"Only {next(iter(measured))} was measured: there is nothing to choose between."
    if seen.reference is None:
        return f"{seen.run.reference}, the reference, was not measured on the others' prompts: nothing to compare with."
    return ""


def _for_readers(served: Sequence[Pick]) -> str:
    """Empty where it is all of them."""
    readers = " and ".join(f"the {pick.reader}" for pick in served)
    return "" if len(served) == len(Reader) else f" for {readers}"


def _use(name: str, served: Sequence[Pick], seen: Evidence) -> str:
    """The variant is shown to be better than the reference for each of these readers."""
    alike = [one for one in served[0].alike if one != name and all(one in pick.alike for pick in served)]
    others = f" As good for that: {', '.join(alike)}." if alike else ""
    return f"Use {name}{_for_readers(served)}: {', '.join(_in_short(name, served, seen))}.{others}"


def _undecided(served: Sequence[Pick], readers: str, seen: Evidence) -> str:
    words = ", ".join(_in_short(served[0].best.variant, served, seen))
    certain = (_certain(pick, seen.run.reference) for pick in served)
    return " ".join([f"Undecided{readers}: {_likely(served[0], seen)}, {words}.", *certain, *_to_decide(served)])


def _likely(pick: Pick, seen: Evidence) -> str:
    is_ahead, best = pick.is_ahead, pick.best.variant
    return f"probably {best}" if is_ahead else f"the best alternative to {seen.run.reference} is {best}"


def _certain(pick: Pick, reference: str) -> str:
    """Which variants are shown to be better than the reference; and why not others whose 95 % interval says so."""
    narrow = [one for one in pick.choices if one.low and one.low > 1 and one.variant not in pick.better]
    by = " (by intervals wide enough for all comparisons and the machine's noise)" if narrow else ""
    return f"Certainly {_PHRASES[pick.reader].better} than {reference}{by}: {', '.join(pick.better) or 'none'}."


def _to_decide(served: Sequence[Pick]) -> Iterator[str]:
    """How many runs would decide it, this one counted; nothing where that isn't known."""
    runs = [pick.runs_to_decide for pick in served]
    most = max((number or 0 for number in runs), default=0)
    if None in runs or not most:
        return
    if most > MOST_RUNS:
        yield f"Deciding would take more than {MOST_RUNS} pooled runs in all, fewer on a calmer machine."
    else:
        yield f"About {most} pooled runs in all would decide (llm-bench report RUN RUN ...)."


def _keep(served: Sequence[Pick], readers: str, seen: Evidence, standings: _ByReader) -> str:
    more = listed([_PHRASES[pick.reader].more for pick in served], "or")
    within = max((_admitted(standings[pick.reader]) for pick in served), key=len)
    return f"Keep {seen.run.reference}{readers}: no other variant{within} {more}."


def _admitted(standings: Standings) -> str:
    """Words on the variants among which the best is sought, where the limits exclude some."""
    measured = [variant for variant in standings.run.variants if variant.status is Status.MEASURED]
    return "" if all(map(standings.admits, measured)) else f" within {standings.need.title}"


def _in_short(name: str, served: Sequence[Pick], seen: Evidence) -> Iterator[str]:
    """What the readers gain, and what it costs: quality; for whom speed matters memory, else speed."""
    yield from (gain_words(pick.choice(name), pick, seen.run.reference) for pick in served)
    yield quality.quality_in_short(seen.run, name)
    readers = {pick.reader for pick in served}
    if served[0].reader is Reader.MEMORY and Reader.LATENCY not in readers:
        yield from _speed(name, seen)
    elif Reader.MEMORY not in readers:
        yield from (f"{times_words(own / other)} the {title}" for title, own, other in _sizes(name, served[0], seen))


def _recommendation(pick: Pick, rivals: Sequence[_Rival], seen: Evidence, standings: Standings) -> Recommendation:
    figure, gain = figure_of(pick.best, pick), gain_words(pick.best, pick, seen.run.reference)
    standing, notes = _standing_words(pick, gain), tuple(_notes(pick, rivals, seen, standings))
    return Recommendation(pick, name_of(pick), figure, gain, standing, _sentence(pick, seen, standings), notes)


def _sentence(pick: Pick, seen: Evidence, standings: Standings) -> str:
    best, phrases, within = pick.best.variant, _PHRASES[pick.reader], _admitted(standings)
    if pick.outcome is Outcome.REFERENCE:
        return f"No other variant{within} {phrases.more}."
    gain = f"{'; '.join([_gain_in_figures(pick, seen), *_costs(pick, seen)])}."
    if pick.outcome is Outcome.UNDECIDED:
        certain = _certain(pick, seen.run.reference)
        return " ".join([f"Undecided: {_likely(pick, seen)}, {gain}", certain, *_to_decide([pick])])
    return f"{best} {phrases.best if len(pick.choices) == 1 else 'is among the best'}{within}: {gain}"


def _gain_in_figures(pick: Pick, seen: Evidence) -> str:
    best, reference = pick.best, seen.run.reference
    own = figure_of(pick.reference, pick) if pick.reference else ""
    if pick.reader is Reader.MEMORY:
        what = "at its peak" if pick.metric in PEAKS else "of weights"
        return f"{figure_of(best, pick)} {what}, {format_share(best.ratio)} of {reference}'s {own}"
    where = ""
    if pick.reader is Reader.LATENCY:
        where, record = f" on {headline_prompts(seen)}", seen.common[best.variant]
        own = format_seconds(statistics.median(record.reference_s)) if record.reference_s else own  # in the same turns
        if len(seen.cases_of(record)) > 1:
            own += f" with {record.facts.prompt_tokens} tokens"
    return f"{gain_words(best, pick, reference)}{where} ({figure_of(best, pick)} instead of {own})"


def _costs(pick: Pick, seen: Evidence) -> Iterator[str]:
    name = pick.best.variant
    yield quality.quality_words(seen.run, name)
    if pick.reader is Reader.MEMORY:
        yield from _speed(name, seen)
    else:
        sizes = _sizes(name, pick, seen)
        yield from (f"{title} {format_bytes(own)} instead of {format_bytes(other)}" for title, own, other in sizes)


def _speed(name: str, seen: Evidence) -> Iterator[str]:
    found = Cell.headline_speedup(seen.common.get(name), seen)
    if found.value is not None and seen.reference is not None:  # one round has no interval
        yield f"{found.text()} as fast as {seen.run.reference}"


def _sizes(name: str, pick: Pick, seen: Evidence) -> Iterator[tuple[str, float, float]]:
    """The title and value of the variant's peak and the reference's on the workload of the pick, else of their weights;
    nothing where they are read as the same."""
    records = seen.common if pick.reader is Reader.LATENCY else seen.largest_batch
    variants = [one for one in map(seen.run.variant, (name, seen.run.reference)) if one is not None]
    for metric in map(METRIC_BY_NAME.__getitem__, (*PEAKS, WEIGHTS)):
        own, other = (metric.of(records[one.id], one) for one in variants)
        if own is not None and other is not None:
            if other and format_bytes(own) != format_bytes(other):
                yield metric.title_in_sentence, own, other
            return


def _notes(pick: Pick, rivals: Sequence[_Rival], seen: Evidence, standings: Standings) -> Iterator[str]:
    """Doubts, what can't be told from the best, what would be better but for the limits, and the smallest weights."""
    record = None if pick.reader is Reader.MEMORY else standings.records.get(pick.best.variant)
    if pick.outcome is not Outcome.REFERENCE and record and (found := disturbance(*seen.cases_of(record))):
        yield (
            f"{record.variant}'s speed-up for the {pick.reader} may be off: in {found[0]} of {found[1]} pairs of "
            "rounds, threads waited for a core."
        )
    others = ", ".join(f"{one.variant} ({_figure_in_short(one, pick)})" for one in pick.choices[1:])
    if others and pick.outcome is Outcome.UNDECIDED:
        yield f"Other candidates for the {pick.reader}: {others}."
    elif others:
        yield f"{_tie_words(pick)}: {pick.best.variant}, {others}."
    yield from (_rejection([(pick, one)], standings) for one in pick.beyond_limit if (pick, one) not in rivals)
    yield from _weights(pick, seen, standings)


def _tie_words(pick: Pick) -> str:
    """Why the choices aren't ranked. Memory may differ by less than its tolerance, or at some of its peaks alone."""
    if pick.metric in PEAKS:
        metric = METRIC_BY_NAME[pick.metric]
        return f"Too close in memory to rank, with peaks within {rule_in_words(metric.default_tolerance, metric)}"
    return f"No measurable difference in {pick.reader.quantity}"


def _figure(choice: Choice, pick: Pick) -> str:
    return figure_of(choice, pick) if pick.reader is Reader.MEMORY else times_words(choice.ratio)


def _figure_in_short(choice: Choice, pick: Pick) -> str:
    interval = f", {three_digits(choice.low)}–{three_digits(choice.high)}" if choice.low and choice.high else ""
    return f"{_figure(choice, pick)}{interval if choice.is_unclear and pick.reader is not Reader.MEMORY else ''}"


def _rejection(found: Sequence[_Rival], standings: Standings) -> str:
    """How much better a variant would be for these readers, and what keeps it from being recommended."""
    name, gains = found[0][1].variant, []
    for pick, rival in found:
        phrases, gain = _PHRASES[pick.reader], gain_words(rival, pick, standings.run.reference)
        gains.append(f"{phrases.verb} {f'probably {phrases.better}, ' if rival.is_unclear else ''}{gain}")
    variant = standings.run.variant(name)
    why = quality.not_admitted_words(variant, standings) if variant else ""
    return f"{name} {' and '.join(gains)}, {why}."


def _weights(pick: Pick, seen: Evidence, standings: Standings) -> Iterator[str]:
    """Next to the peaks, the smallest weights: they are exact, and weigh more in a larger model."""
    reference = seen.run.variant(seen.run.reference)
    compared = [one for one in seen.run.variants if one.id in seen.common and standings.admits(one)]
    own, sizes = reference and reference.weight_bytes, [(one.weight_bytes, one.id) for one in compared]
    size, name = min(((size, name) for size, name in sizes if size), default=(0, ""))
    if pick.metric in PEAKS and own and 0 < size < own:
        less = f"{format_bytes(size)}, {size / own * 100:.0f} % of {seen.run.reference}'s {format_bytes(own)}"
        yield f"{name} has the smallest weights: {less}."


def _untold(picks: Sequence[Pick], seen: Evidence, need: Need) -> Iterator[str]:
    """Readers without a choice, and variants that are not compared; none where the lines say why there is no answer."""
    if seen.reference is None or len(seen.common) < 2:
        return
    for pick in picks:
        if pick.outcome is Outcome.UNMET:
            where = f" at batch {pick.batch_size}" if pick.reader is Reader.THROUGHPUT else ""
            yield f"No answer for the {pick.reader}: no variant is shown to {need.verb} {need.title}{where}."
        elif not pick.choices:
            yield f"No answer for the {pick.reader}: {_why_untold(pick.reader, seen)}."
        elif pick.reader is Reader.THROUGHPUT and (
            others := [one for one in seen.common if one not in seen.largest_batch]
        ):
            yield f"Not compared in throughput, because not measured at batch {pick.batch_size}: {', '.join(others)}."
    if seen.elsewhere:
        yield f"Not compared, because not measured on {headline_prompts(seen)}: {', '.join(seen.elsewhere)}."


def _why_untold(reader: Reader, seen: Evidence) -> str:
    if reader is not Reader.THROUGHPUT:
        return "it was not measured on two variants"
    if not seen.largest_batch:
        return "no batch sizes were measured"
    if seen.run.reference not in seen.largest_batch:
        return f"{seen.run.reference} was not measured in batches"
    return f"only {seen.run.reference} was measured in batches"


def _limit_notes(standings: Standings) -> Iterator[str]:
    if standings.applied:
        limits = ", ".join(map(str, standings.applied))
        words = listed([limit.words(standings.run.reference) for limit in standings.applied], "and")
        yield f"Recommended: variants with {words} ({limits}; change it with --llm-need)."
    yield from quality.not_applied_sentences(standings)


def _figures(name: str, seen: Evidence) -> Iterator[str]:
    """Cost of meeting the need: latency, throughput, memory and quality of a variant, as far as they are known."""
    record, batched, peaks = seen.common.get(name), seen.largest_batch.get(name), peaks_of(seen, memory_metric(seen))
    if record is not None:
        yield f"{format_seconds(record.median_s)} on {describe_prompts(record)}"
    if name != seen.run.reference:
        yield from _speed(name, seen)
    if batched is not None and batched.tokens_per_s:
        yield f"{three_digits(batched.tokens_per_s)} tokens/s at batch {batched.facts.batch_size}"
    if name in peaks:
        yield f"{format_bytes(peaks[name].value)} of {'memory' if memory_metric(seen) in PEAKS else 'weights'}"
    if name != seen.run.reference:
        yield quality.quality_in_short(seen.run, name)


def _not_recommended(standings: Standings) -> Iterator[Remark]:
    for variant in standings.run.variants:
        if variant.status is Status.MEASURED and not standings.admits(variant):
            yield Remark(variant.id, quality.why_not_admitted(variant, standings, "it"))


def _not_worth_title(seen: Evidence) -> str:
    some = seen.reference or next(iter(seen.common.values()), None)
    return f"Not worth using on {headline_prompts(seen)}, batch {some.facts.batch_size}" if some else "Not worth using"


def _remark(one: Drawback, seen: Evidence) -> Remark:
    if one.found is None:
        return Remark(one.variant, f"is identical to {seen.run.reference} here")
    parts = [f"is {_percent(1 - one.found.ratio)} % slower than {one.slower_than}"]
    if isinstance(one.found, Speedup) and one.found.low < one.found.high:
        parts[0] += f" ({_percent(1 - one.found.high)} to {_percent(1 - one.found.low)} %)"
    if one.saved_bytes is not None:
        size = "same weight size" if one.saved_bytes == 0 else "larger weights"
        parts.append(f"saves {format_bytes(one.saved_bytes)} of weights" if one.saved_bytes > 0 else size)
    if one.in_batches is not None:
        parts.append("slower in batches, too" if one.in_batches.is_slower else "no gain shown in batches")
    return Remark(one.variant, ", ".join(parts))


def _percent(share: float) -> str:
    return f"{share * 100:.2g}"
