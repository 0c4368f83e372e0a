"""What stands below the gate's report: what was not judged, and how sure a verdict on a time is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from llm_bench_fixtures.gate.comparison import SPEEDUP, Comparison
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.speedups import ALARMS
from llm_bench_fixtures.results.formatting import count, format_change, format_share
from llm_bench_fixtures.results.metrics import Kind
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS
from llm_bench_fixtures.text import printable


def footnotes(comparison: Comparison) -> Iterator[str]:
    """Sentences, the most important first."""
    for difference in comparison.differences:
        text = printable(str(difference))
        kinds = ", ".join(kind for kind in Kind if kind in difference.unjudged)
        yield f"{text[:1].upper()}{text[1:]}. Not judged: {kinds}."
    yield from (f"{printable(note)}." for note in comparison.notes)
    if not any(one.is_blocking for one in _absolute_timings(comparison)):
        yield "Timing is advisory between saved runs; llm-bench pair judges it."
    yield from _of_speedups(comparison)
    floor = comparison.floor
    known = f"differed by up to {floor.percent:.0f} % within one of these runs ({floor.pairs} pairs)"
    assumed = f"is assumed to differ by up to {floor.percent:.0f} %, as these runs repeat too little to tell"
    yield (
        f"Identical work {known if floor.pairs >= ENOUGH_PAIRS else assumed}: a timing that changed by less is not "
        "called changed. Runs at different hours differ by more."
    )
    finest = min(
        (one.rule.relative for one in _absolute_timings(comparison) if _is_fine(one, comparison)), default=None
    )
    if finest is not None:
        yield f"A rule of {format_share(finest)} is finer than that: what lies between is inconclusive, and passes."
    probed = [any(record.probe_s for record in run.records) for run in (comparison.base, comparison.head)]
    if probed[0] != probed[1]:
        yield (
            f"Only {'this run' if probed[1] else 'the baseline'} has the probe, which makes short rounds slower: "
            "compare runs that both have it, or both have not."
        )
    if comparison.slowdown is not None:
        yield (
            f"The probe, always the same work, differed by {format_change(comparison.slowdown)} from the baseline's. "
            "Timings are judged without that."
        )


def _absolute_timings(comparison: Comparison) -> Iterator[Judgement]:
    """All timings but the speed-ups, which have intervals of their own."""
    timings = (one for one in comparison.judgements if one.metric.kind is Kind.TIMING)
    return (one for one in timings if one.metric.name != SPEEDUP)


def _of_speedups(comparison: Comparison) -> Iterator[str]:
    """How sure a verdict on a speed-up is, and what it can't see."""
    tests, variants = comparison.speedups
    if tests:
        over = comparison.head.reference
        means = f" and the mean of {count(variants, 'variant')}" if variants else ""
        yield (
            f"Speed-ups over {over} were judged by their intervals: {count(tests, 'test')}{means}. Of comparisons of "
            f"equal versions at most {format_share(ALARMS)} call any of them changed. What slows {over} alike is not "
            "seen in them: there the exact counts and the probe speak."
        )


def _is_fine(one: Judgement, comparison: Comparison) -> bool:
    return one.is_blocking and not one.rule.absolute and math.log1p(one.rule.relative) < comparison.floor.log_ratio
