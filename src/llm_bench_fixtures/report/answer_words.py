"""The answer in sentences."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from llm_bench_fixtures.answer.evidence import Evidence, in_blocks
from llm_bench_fixtures.answer.headline import compared_records
from llm_bench_fixtures.answer.peaks import PEAKS, WEIGHTS
from llm_bench_fixtures.answer.picks import Choice, Pick, Reader
from llm_bench_fixtures.answer.standings import QualityStandings
from llm_bench_fixtures.report.beyond_limit import rejected, wins_beyond_limit
from llm_bench_fixtures.report.blocks import disturbance, speedup_or_ratio
from llm_bench_fixtures.report.cells import headline_prompts, times_cell
from llm_bench_fixtures.report.pick_words import against, figure_of, gain_words
from llm_bench_fixtures.report.quality import limit_words, quality_in_short, quality_words
from llm_bench_fixtures.results.formatting import format_bytes, format_seconds, format_share
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Status

WITHIN = "within the quality limit"


def answer_sentence(picks: Sequence[Pick], seen: Evidence, standings: QualityStandings) -> str:
    """What to use, in one sentence."""
    run = seen.run
    measured = dict.fromkeys(record.variant for record in compared_records(run))
    if not measured:
        only = "Only loads were" if run.loads else "Nothing was"
        return f"{only} measured, so there is no answer."
    if len(measured) == 1:
        return f"Only {next(iter(measured))} was measured: there is nothing to choose between."
    if seen.reference is None:
        return f"The reference {run.reference} was not measured on what the others ran, so nothing can be recommended."
    is_some_proven = any(pick.is_proven for pick in picks)
    answer = _use(picks, seen, standings) if is_some_proven else _keep(picks, seen, standings)
    return f"{'; '.join([answer, *wins_beyond_limit(picks, standings)])}."


def _keep(picks: Sequence[Pick], seen: Evidence, standings: QualityStandings) -> str:
    who = f"no other variant with {limit_words(standings)}" if _excludes(standings) else "no other variant"
    if any(pick.is_unclear for pick in picks):
        return (
            f"Too few rounds to tell what to use: {who} is shown to be faster than {seen.run.reference} or to take "
            "less memory (--llm-rounds runs more)"
        )
    return (
        f"Keep {seen.run.reference}: {who} is faster or takes less memory here by a difference that this run can show"
    )


def _use(picks: Sequence[Pick], seen: Evidence, standings: QualityStandings) -> str:
    """One variant for as many readers as it serves, then one for each other reader; at last whom none serves.

    Every name is shown to be better than the reference for each reader that it is said to serve.
    """
    parts: list[str] = []
    left = [pick for pick in picks if pick.is_proven]
    while left:
        name = max(left[0].level, key=lambda name: sum(name in pick.level for pick in left))
        served = [pick for pick in left if name in pick.level]
        left = [pick for pick in left if pick not in served]
        parts.append(_part(name, served, seen, standings))
    sentence = "; ".join([*parts, *_unserved(picks, seen)])
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _unserved(picks: Sequence[Pick], seen: Evidence) -> Iterator[str]:
    """The readers for whom nothing is shown to be better than the reference."""
    unproven = [pick for pick in picks if pick.choices and not pick.is_proven]
    kept = [f"the {pick.reader}" for pick in unproven if not pick.is_unclear]
    unclear = [f"the {pick.reader}" for pick in unproven if pick.is_unclear]
    if kept:
        yield f"keep {seen.run.reference} for {' and '.join(kept)}"
    if unclear:
        yield f"too few rounds to tell for {' and '.join(unclear)}"


def _part(name: str, served: Sequence[Pick], seen: Evidence, standings: QualityStandings) -> str:
    gains = [gain_words(choice, pick, seen.run.reference) for pick in served if (choice := pick.choice(name))]
    is_for_all = len(served) == len(Reader)
    readers = "" if is_for_all else f" for {' and '.join(f'the {pick.reader}' for pick in served)}"
    alike = [one for one in served[0].level if one != name and all(one in pick.level for pick in served)]
    others = f" (or {', '.join(alike)})" if alike else ""
    costs = [quality_in_short(seen.run, name), *_other_cost(name, served, seen)]
    has_rivals = any(pick.has_rivals_beyond_limit for pick in served)
    those = f" of those with {limit_words(standings)}" if has_rivals else ""
    return f"use {name}{others}{readers}{those}: {', '.join([*gains, *costs])}"


def _other_cost(name: str, served: Sequence[Pick], seen: Evidence) -> Iterator[str]:
    """What is no gain of these readers: memory for whom speed matters, speed for whom memory matters."""
    readers = {pick.reader for pick in served}
    if Reader.MEMORY not in readers:
        yield from _memory_in_short(name, served[0], seen)
    elif readers == {Reader.MEMORY}:
        yield from _speed_beside(name, seen)


def _of_those(pick: Pick) -> str:
    """Among whom the best is the best, where a variant beyond the limit may be better."""
    return f" of those {WITHIN}" if pick.has_rivals_beyond_limit else ""


def _of_memory(pick: Pick) -> str:
    return "at its peak" if pick.metric in PEAKS else "of weights"


def pick_sentence(pick: Pick, seen: Evidence, standings: QualityStandings, is_quality_told: bool = False) -> str:
    """For one reader: the best, how sure that is, and what it costs.

    is_quality_told: whether a sentence before this one has the quality of the same variant.
    """
    return _proven(pick, seen, is_quality_told) if pick.is_proven else _unproven(pick, seen, standings)


def pick_notes(pick: Pick, seen: Evidence, standings: QualityStandings) -> Iterator[str]:
    """Whether its rounds were disturbed, what this run can't tell from the best, what would be better but for the
    limit, and the smallest weights."""
    yield from _disturbed(pick, seen)
    yield from _ties(pick, seen)
    yield from rejected(pick, standings)
    yield from _weights(pick, seen, standings)


def _proven(pick: Pick, seen: Evidence, is_quality_told: bool) -> str:
    best, own, run = pick.choices[0], pick.reference, seen.run
    beside, figure = figure_of(own, pick) if own else "", figure_of(best, pick)
    costs = "".join(f"; {cost}" for cost in _costs(best, pick, seen, is_quality_told))
    tied = bool(pick.tied)
    those = _of_those(pick)
    if pick.reader is Reader.LATENCY:
        rank = "is among the fastest" if tied else "is the fastest"
        return (
            f"{best.variant} {rank}{those} on {headline_prompts(seen)}: {against(best)} as fast as {run.reference} "
            f"({figure} against {_reference_beside(best, pick, seen)}{_shown(seen)}{_apart(best, seen)}){costs}."
        )
    if pick.reader is Reader.THROUGHPUT:
        return (
            f"{best.variant} gives {'among the most' if tied else 'the most'} tokens per second{those}, "
            f"{figure} at batch {pick.batch_size}: {against(best)} {run.reference}'s {beside}{_apart(best, seen)}"
            f"{costs}."
        )
    return (
        f"{best.variant} takes {'among the least' if tied else 'the least'} memory{those}: "
        f"{figure} {_of_memory(pick)}, "
        f"{format_share(best.ratio or 0.0)} of {run.reference}'s {beside}{costs}."
    )


def _reference_beside(choice: Choice, pick: Pick, seen: Evidence) -> str:
    """The reference's latency: of its own test, or if that was timed apart, of its rounds next to the variant's."""
    record = seen.common[choice.variant]
    if record.reference_s and seen.reference is not None and not seen.reference.reference_s:
        return format_seconds(statistics.median(record.reference_s))
    return figure_of(pick.reference, pick) if pick.reference else ""


def _shown(seen: Evidence) -> str:
    """Which prompt the latencies are of, where the speed-up is pooled over several."""
    shown, are_pooled = seen.reference, any(len(cases) > 1 for cases in seen.cases.values())
    return f" with {shown.workload.prompt_tokens} tokens" if are_pooled and shown and shown.workload else ""


def _apart(choice: Choice, seen: Evidence) -> str:
    """A ratio without an interval is of two that were taken apart."""
    return f", taken apart: beyond the noise of {seen.noise.percent:.0f} %" if choice.low is None else ""


def _unproven(pick: Pick, seen: Evidence, standings: QualityStandings) -> str:
    who = f"No variant {WITHIN}" if _excludes(standings) else "No variant"
    own, figure = pick.choices[0], figure_of(pick.choices[0], pick)
    prompts, batch = headline_prompts(seen), f"{figure} at batch {pick.batch_size}"
    if pick.reader is Reader.MEMORY:
        what = f"took less memory than {own.variant} ({figure} {_of_memory(pick)})"
        return f"{who} {what} by a difference that this run can show."
    if pick.is_unclear:
        is_better = "is faster" if pick.reader is Reader.LATENCY else "gives more tokens per second"
        where = prompts if pick.reader is Reader.LATENCY else batch
        which = f"a variant {WITHIN}" if _excludes(standings) else "a variant"
        return f"Too few rounds to tell whether {which} {is_better} than {own.variant} ({where})."
    what = f"was faster than {own.variant} on {prompts}"
    if pick.reader is Reader.THROUGHPUT:
        what = f"gave more tokens per second than {own.variant} ({batch})"
    return f"{who} {what}{_beyond(pick, seen)}."


def _beyond(pick: Pick, seen: Evidence) -> str:
    """What a faster variant would have had to exceed."""
    records = seen.common if pick.reader is Reader.LATENCY else seen.largest_batch
    others = [record for name, record in records.items() if name != seen.run.reference]
    if others and in_blocks(*others):
        return " by a difference that this run can show"
    return f" beyond the noise ({seen.noise.percent:.0f} %)"


def _disturbed(pick: Pick, seen: Evidence) -> Iterator[str]:
    """Most pairs of rounds behind a proven speed-up were disturbed, in the variant or in the reference."""
    records = {Reader.LATENCY: seen.common, Reader.THROUGHPUT: seen.largest_batch}.get(pick.reader, {})
    record = records.get(pick.choices[0].variant)
    if pick.is_proven and record is not None and (disturbed := disturbance(*seen.cases_of(record))):
        yield f"{record.variant}'s speed-up is doubtful: {disturbed} (threads waited for a core)."


def _ties(pick: Pick, seen: Evidence) -> Iterator[str]:
    """Those that can't be told from the best: where more rounds might tell, it is said."""
    quantity = pick.reader.quantity
    none, unknown = f"No difference in {quantity} that this run can show", f"Too few rounds to tell apart in {quantity}"
    for what, is_unclear in ((none, False), (unknown, True)):
        tied = [one for one in pick.tied if one.is_unclear is is_unclear]
        names = [f"{one.variant} ({_beside_best(one, pick)})" for one in tied]
        if names:
            yield f"{what}{_widened(pick, tied, seen)}: {pick.choices[0].variant}, {', '.join(names)}."


def _widened(pick: Pick, tied: Sequence[Choice], seen: Evidence) -> str:
    """Why the 95 % intervals that are shown may lie apart all the same."""
    is_by_blocks = pick.reader is not Reader.MEMORY and any(one.low is not None for one in tied)
    return f" (intervals widened for {seen.comparisons} comparisons)" if is_by_blocks and seen.comparisons > 1 else ""


def _beside_best(choice: Choice, pick: Pick) -> str:
    return figure_of(choice, pick) if pick.reader is Reader.MEMORY else times_cell(choice.ratio)


def _excludes(standings: QualityStandings) -> bool:
    measured = [variant for variant in standings.run.variants if variant.status is Status.MEASURED]
    return not all(standings.admits(variant) for variant in measured)


def _costs(choice: Choice, pick: Pick, seen: Evidence, is_quality_told: bool) -> Iterator[str]:
    """Quality; and for whom speed matters the memory, for whom memory matters the speed."""
    if not is_quality_told:
        yield quality_words(seen.run, choice.variant)
    if pick.reader is not Reader.MEMORY:
        yield from _memory_beside(choice.variant, pick, seen)
    else:
        yield from _speed_beside(choice.variant, seen)


def _speed_beside(name: str, seen: Evidence) -> Iterator[str]:
    record = seen.common.get(name)
    if record is not None and seen.reference is not None:
        yield f"{speedup_or_ratio(record, seen)} as fast as {seen.run.reference}"


def _memory_beside(name: str, pick: Pick, seen: Evidence) -> Iterator[str]:
    for title, own, other in _both_sizes(name, pick, seen):
        yield f"{title} {format_bytes(own)} against {format_bytes(other)}"


def _memory_in_short(name: str, pick: Pick, seen: Evidence) -> Iterator[str]:
    """The same as a multiple of the reference's."""
    for title, own, other in _both_sizes(name, pick, seen):
        yield f"{times_cell(own / other)} {seen.run.reference}'s {title}"


def _both_sizes(name: str, pick: Pick, seen: Evidence) -> Iterator[tuple[str, float, float]]:
    """The title and value of the variant's peak and the reference's on the workload of the pick, else of their weights;
    nothing where they are read as the same."""
    records = seen.common if pick.reader is Reader.LATENCY else seen.largest_batch
    variants = [one for one in map(seen.run.variant, (name, seen.run.reference)) if one is not None]
    for metric in (*PEAKS, WEIGHTS):
        values = [METRIC_BY_NAME[metric].of(records[one.id], one) for one in variants]
        own, other = values if len(values) == 2 else (None, None)
        if own is not None and other is not None:
            title = METRIC_BY_NAME[metric].title
            if other and format_bytes(own) != format_bytes(other):
                yield f"{title[:1].lower()}{title[1:]}", own, other
            return


def _weights(pick: Pick, seen: Evidence, standings: QualityStandings) -> Iterator[str]:
    """Beside the peaks, the smallest weights: they are exact, and weigh more in a larger model."""
    run = seen.run
    if pick.reader is not Reader.MEMORY or pick.metric not in PEAKS:
        return
    sized = [one for one in run.variants if one.id in seen.common and one.weight_bytes and standings.admits(one)]
    reference = run.variant(run.reference)
    smallest = min(sized, key=lambda one: one.weight_bytes or 0, default=None)
    if smallest is None or reference is None or not smallest.weight_bytes or not reference.weight_bytes:
        return
    if smallest.weight_bytes < reference.weight_bytes:
        share = smallest.weight_bytes / reference.weight_bytes
        yield (
            f"{smallest.id} has the smallest weights: {format_bytes(smallest.weight_bytes)}, {share * 100:.0f} % of "
            f"{run.reference}'s {format_bytes(reference.weight_bytes)}."
        )
