"""What ran and how it was measured, in words.

Workloads, prompts, scenarios and speed-ups stand in tables and sentences alike. Footnotes and warnings are of the noise
and the turns, flags of what is unusual about a record, with its likely cause.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import Headline
from llm_bench_fixtures.answer.noise import cores_apart, disturbance, drift_by_variant, in_turns_at_all, was_alone
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict
from llm_bench_fixtures.report.tables.table import Cell
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, format_change, three_digits
from llm_bench_fixtures.results.metrics import METRICS, Metric
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status, VariantResult
from llm_bench_fixtures.results.speedup import disturbed_pairs
from llm_bench_fixtures.statistics.spread import UNSTABLE, coefficient_of_variation, interval, stability

NEXT_TO_EACH_OTHER, OF_ROUNDS = "compares rounds that ran next to each other", "medians of all rounds"
MOST_NAMED = 4  # rows, in a sentence
OWN_METRICS = frozenset(metric.name for metric in METRICS)
SLOW = 1.5  # times the median of the scenario's other cases on the same variant
SHOWN_DRIFT = 0.05  # a calm machine shows less
MANY_TOKENS = 4  # times their median prompt
NEVER_BOUND = "never"
RatioRow: TypeAlias = tuple[str, Cell, Cell, Cell]
"""A name with the reference's latency, the own one and the speed-up, which may differ from their ratio."""


def describe_workload(record: Record) -> str:
    """One line: prompts, tokens, batch and cache."""
    workload = record.facts
    prompts = "one prompt" if workload.prompts == 1 else f"{workload.prompts} prompts"
    tokens = f"{count(workload.prompt_tokens, 'prompt token')}, {count(workload.new_tokens, 'new token')}"
    return f"{prompts}, {tokens}, batch {workload.batch_size}, cache {workload.cache}"


def describe_headline(headline: Headline) -> str:
    """The workload whose figures are shown, and the prompts that speed-ups are pooled over; empty without any."""
    some = next(iter(headline.common.values()), None)
    if some is None:
        return ""
    lengths = pooled_lengths(headline)
    over = f"; speed-ups are means over prompts of {listed(lengths, 'and')} tokens" if lengths else ""
    return f"{describe_workload(some)}{over}"


def headline_sentence(seen: Evidence, end: str = ".") -> str:
    """The workload whose figures are shown, or that there is none; times of a benchmark whose test failed count for
    nothing."""
    if where := describe_headline(seen):
        return f"{where[:1].upper()}{where[1:]}{end}"
    has_failed = any(record.status is Status.ERROR for record in seen.run.records)
    return "No benchmark was timed whose test passed." if has_failed else "Nothing was timed."


def headline_prompts(headline: Headline) -> str:
    """The prompts alone, within a sentence: "one prompt of 16, 64 or 256 tokens"."""
    some = next(iter(headline.common.values()), None)
    if lengths := pooled_lengths(headline):
        return f"one prompt of {listed(lengths, 'or')} tokens"
    return describe_prompts(some) if some else MISSING


def pooled_lengths(headline: Headline) -> list[str]:
    """Prompt tokens of the cases that speed-ups are pooled over; empty where they are of one case."""
    cases = next(iter(headline.cases.values()), ())
    return [str(case.facts.prompt_tokens) for case in cases] if len(cases) > 1 else []


def listed(names: Sequence[str], word: str) -> str:
    """The names in a sentence: "a, b and c"."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def describe_prompts(record: Record) -> str:
    """The prompts alone, within a sentence."""
    workload = record.facts
    if workload.prompts == 1:
        return f"one prompt of {workload.prompt_tokens:,} tokens"
    alone = ", one at a time" if workload.batch_size == 1 else ""
    return f"{workload.prompts:,} prompts of {workload.prompt_tokens:,} tokens together{alone}"


def times_words(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio, with its interval if that has a width: "1.38× (1.34–1.41)"."""
    return Cell(value=ratio, low=low, high=high, notation=Notation.TIMES).text()


def timing_costs(run: Run) -> Iterator[str]:
    """Cost of taking the tokens' times, of each variant for which that was measured."""
    for variant, ratios in run.instrumentation_ratios.items():
        found = interval(ratios)
        if found is None:
            yield f"What taking each token's time costs {variant} is not known from {count(len(ratios), 'pair')}."
        else:
            change, low, high = map(format_change, (statistics.geometric_mean(ratios), found.low, found.high))
            sure = f"95 % interval {low} to {high}, {len(ratios)} alternated pairs"
            yield f"Recording token times changed {variant}'s latency by {change} ({sure})."


def odd_ratios(rows: Iterable[RatioRow], is_what: str = NEXT_TO_EACH_OTHER, are_what: str = OF_ROUNDS) -> Iterator[str]:
    """A clause on the speed-ups whose interval doesn't hold the ratio of the latencies that stand next to them.

    is_what: what the speed-up is. are_what: what the latencies are.
    """
    if odd := [name for name, *cells in rows if _is_odd(*cells)]:
        whose = ", ".join(odd) if len(odd) <= MOST_NAMED else f"{len(odd)} rows"
        yield f"{whose}: the speed-up {is_what}, the latencies are {are_what}, so their ratio differs"


def _is_odd(reference: Cell, own: Cell, found: Cell) -> bool:
    if not reference.value or not own.value or found.low is None or found.high is None or found.low == found.high:
        return False
    return not found.low <= reference.value / own.value <= found.high


def added_metrics(run: Run, metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics that a project added and that some record or variant has a value for."""
    present = {name for record in run.records for name in record.extra}
    present |= {name for variant in run.variants for name in variant.quality}
    return [metric for metric in metrics.values() if metric.name in present - OWN_METRICS]


def scenarios_of(run: Run) -> dict[str, Scenario]:
    """Scenarios by name: those that the run names, in its order; then any others that records are of."""
    named = {one.name: one for one in run.scenarios}
    return named | {one.scenario: Scenario(one.scenario) for one in run.records if one.scenario not in named}


def title_of(scenario: Scenario) -> str:
    """Title from the scenario's marker, else made of its name."""
    return scenario.title or scenario.name.replace("_", " ").capitalize()


def noise_warning(seen: Evidence) -> str:
    """What was seen of a noisy machine, what is safe to conclude all the same, and what to do; empty of a calm one."""
    noise, reference = seen.machine, seen.reference
    if not noise.is_noisy:
        return ""
    seen_of_it, todo = [], "Measure for longer (--llm-max-noise 1%)"
    if noise.differs:
        between = f"{three_digits(noise.least)} to {three_digits(noise.most)}"
        seen_of_it.append(f"identical work mostly came out {between} times as fast")
    if noise.drifts:
        drift = f"{100 * math.expm1(noise.drift):.0f} %"
        seen_of_it.append(f"{noise.drifting}'s speed-up varied by {drift} between similar prompts")
        todo = "Pool several runs (llm-bench report RUN RUN)"
    if noise.is_mostly_disturbed:
        seen_of_it.append(f"in {noise.disturbed} of {count(noise.pairs, 'pair')} of rounds, threads waited for a core")
        todo = "More rounds won't help: wait until it is calm"
    if (apart := cores_apart(seen.run)).is_often:
        pairs = f"{apart.pairs} of {count(apart.looked_at, 'pair')} of rounds"
        seen_of_it.append(f"in {pairs}, the CPU cores exchanged data slowly (the host may have moved them apart)")
    gains = {one.variant: seen.gain(one, reference) for one in seen.others} if reference else {}
    faster = [name for name, found in gains.items() if found.is_faster]
    slower = [name for name, found in gains.items() if found.is_slower]
    groups = [(", ".join(names), word, len(names)) for names, word in ((faster, "faster"), (slower, "slower")) if names]
    safe = [f"{names} {'is' if size == 1 else 'are'} {word} than {seen.run.reference}" for names, word, size in groups]
    return (
        f"Noisy machine: {'; '.join(seen_of_it)}. Still certain: {'; '.join(safe) or 'nothing about speed'}. Memory "
        f"and quality are unaffected. {todo}, stop other programs, or use another machine."
    )


def speedup_footnotes(seen: Evidence) -> Iterator[str]:
    """How the speed-ups were measured, and how many comparisons the report makes with them."""
    run = seen.run
    if in_turns_at_all(run):
        yield (
            "Variants take turns in random order, always with the reference. A speed-up is the trimmed mean ratio of "
            "latencies from the same turns, with its 95 % interval."
        )
        yield from _pauses(run)
        yield from _bound(run)
        if left_out := sum(record.crowded_rounds for record in run.measured()):
            yield f"{count(left_out, 'more round')} left out, because other programs ran meanwhile."
        yield from _disturbed(run)
        yield from _apart(run)
        yield from _drifts(run)
    elif len({record.variant for record in run.measured()}) > 1:
        yield "Variants were not measured in turns: a speed-up is a ratio of medians measured at different times."
    if seen.comparisons > 1:
        yield (
            f"The {seen.comparisons} speed comparisons hold together with 95 % confidence: each is made at "
            f"{seen.confidence * 100:.4g} % (Bonferroni)."
        )
    if alone := dict.fromkeys(record.variant for record in run.records if was_alone(run, record)):
        yield f"Some benchmarks were measured alone, not in turns with the reference: those of {', '.join(alone)}."


def _pauses(run: Run) -> Iterator[str]:
    """How often rounds paused, what that does to their times, and which variants ran whole rounds."""
    records = [record for record in run.measured() if record.pauses]
    if not records:
        yield "No round paused: each turn was a whole round."
        return
    rounds, pauses = sum(len(record.rounds_s) for record in records), sum(record.pauses for record in records)
    paused = count(rounds, "round was", "rounds were")
    yield f"{paused} paused {count(pauses, 'time')} so that variants could alternate."
    if cold := sum(record.cold_steps for record in records):
        batches = chain.from_iterable(chain.from_iterable(record.tokens_s for record in records))
        steps = sum(len(tokens_s) - 1 for tokens_s in batches)
        of_all = f" of {steps:,}" if all(record.tokens_s for record in records) else ""
        yield (
            f"{cold:,}{of_all} decode steps followed a pause with cold caches: each counts as the mean of the steps "
            "after it."
        )
    whole = dict.fromkeys(record.variant for record in run.measured() if record.reference_s and not record.pauses)
    if others := [name for name in whole if all(record.variant != name for record in records)]:
        yield f"Turns of {', '.join(others)} were whole rounds."


def _bound(run: Run) -> Iterator[str]:
    """Whose computing threads had a core each in their turns; nothing where nobody's had."""
    by_variant = grouped((one for one in run.measured() if one.reference_s), lambda record: record.variant)
    ways = grouped(by_variant, lambda name: _how_often_bound(by_variant[name]))
    if ways.keys() - {NEVER_BOUND}:
        told = (f"{way} for {', '.join(names)}" for way, names in ways.items())
        yield f"Computing threads had a core each: {'; '.join(told)}."


def _how_often_bound(records: Iterable[Record]) -> str:
    free = sum(len(one.rounds_s) - one.bound_rounds for one in records)
    if not free:
        return "always"
    return "in some rounds" if any(one.bound_rounds for one in records) else NEVER_BOUND


def _disturbed(run: Run) -> Iterator[str]:
    """How many pairs of rounds were disturbed; nothing where the system doesn't tell."""
    others = [record for record in run.measured() if record.variant != run.reference]
    records = [record for record in others if record.waited_s or record.reference_waited_s]
    if rounds := sum(len(record.reference_s) for record in records):
        yield (
            f"Each round of a variant is paired with one of the reference. In {sum(map(disturbed_pairs, records))} of "
            f"{count(rounds, 'pair')}, a thread had to wait for a core."
        )


def _apart(run: Run) -> Iterator[str]:
    """In how many pairs data took long from core to core; nothing where it took long in none."""
    found = cores_apart(run)
    if found.pairs:
        yield (
            f"In {found.pairs} of {count(found.looked_at, 'pair')} the CPU cores exchanged data slowly, taking "
            f"{found.times:.2g} times as long as at best; the host may have moved them apart. That slows variants "
            "whose threads share work."
        )


def _drifts(run: Run) -> Iterator[str]:
    """How far variants' speed-ups drift between cases; nothing where none drifts far."""
    drifts = {variant: math.expm1(drift) for variant, drift in drift_by_variant(run).items()}
    by_variant = [f"{variant} {100 * drift:.0f} %" for variant, drift in drifts.items() if drift >= SHOWN_DRIFT]
    if by_variant:
        yield (
            f"Speed-ups varied between similar prompts by more than their rounds explain: {', '.join(by_variant)} "
            "(standard deviation). A machine's changing state slows some variants more than others. The intervals "
            "include this."
        )


def flags(run: Run, record: Record) -> list[str]:
    """Short remarks for the record's row; none where nothing is unusual."""
    return [*_slow_edge(run, record), *_other_text(run, record), *_of_rounds(run, record)]


def variant_flags(variant: VariantResult) -> list[str]:
    """The execution modes that change what it answers beyond float error, or that its code fails in."""
    diverging = [found for found in variant.equivalence if found.verdict is EquivalenceVerdict.DIVERGES]
    failed = dict.fromkeys(one.mode for one in variant.equivalence if one.verdict is EquivalenceVerdict.FAILED)
    in_text = dict.fromkeys(found.mode for found in diverging if found.token is not None)
    in_probability = dict.fromkeys(found.mode for found in diverging if found.mode not in in_text)
    found = {"changes its text": in_text, "changes its probabilities": in_probability, "fails": failed}
    return [f"{mode} {what}" for what, modes in found.items() for mode in modes]


def _siblings(run: Run, record: Record) -> list[Record]:
    """Measured records of the same scenario on the same variant, this one included."""
    return [other for other in run.measured(record.scenario) if other.variant == record.variant and other.workload]


def _slow_edge(run: Run, record: Record) -> Iterator[str]:
    """An edge prompt that takes much longer than the others."""
    if record.scenario != "edge_prompts" or not record.workload or not record.rounds_s:
        return
    others = [other for other in _siblings(run, record) if other.test != record.test]
    if not others:
        return
    usual_s = statistics.median(other.median_s for other in others)
    usual_tokens = statistics.median(other.facts.prompt_tokens for other in others)
    ratio = record.median_s / usual_s
    if ratio > SLOW:
        long = record.workload.prompt_tokens > MANY_TOKENS * usual_tokens
        cause = f"long prefill, {record.workload.prompt_tokens} tokens" if long else "not the prompt's length"
        yield f"{three_digits(ratio)}× the usual latency: {cause}"


def _other_text(run: Run, record: Record) -> Iterator[str]:
    """Greedy text that differs from the same prompts' on the plainest way to run them.

    The plainest way is one by one, else the smallest batch; with the usual cache.
    """
    if not record.workload or not record.outputs:
        return
    prompts = record.workload.prompts_digest
    same_prompts = [one for one in _siblings(run, record) if one.outputs and one.facts.prompts_digest == prompts]
    plainest = min(same_prompts, key=_plainness, default=record)
    if different := sum(a != b for a, b in zip(record.outputs, plainest.outputs, strict=True)):
        cause = "; it continues from the padding" if record.workload.padding_side == "right" else ""
        count = f"{different} of {len(record.outputs)} texts differ" if len(record.outputs) > 1 else "the text differs"
        yield f"{count} from {plainest.scenario.replace('_', ' ')} {plainest.case}{cause}"


def _plainness(record: Record) -> tuple[int, bool, bool]:
    facts = record.facts
    return facts.batch_size, facts.cache != "dynamic", facts.padding_side != "left"


def _of_rounds(run: Run, record: Record) -> Iterator[str]:
    """Rounds that scatter widely; a speed-up from disturbed ones, or from no turns though others of the run took
    them."""
    variation = coefficient_of_variation(record.rounds_s)
    if variation is not None and stability(variation) == UNSTABLE:
        yield f"unstable (CV {variation * 100:.0f} %)"
    if found := disturbance(record):
        yield f"{found[0]} of {found[1]} pairs of rounds disturbed"
    if was_alone(run, record):
        yield "measured alone"
