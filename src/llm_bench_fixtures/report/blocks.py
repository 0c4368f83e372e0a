"""What the report says of how speed-ups were measured: in blocks, disturbed, or taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.report.renderers.figures import text
from llm_bench_fixtures.report.tables.values import headline_speedup
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.record import Record, Run, Status
from llm_bench_fixtures.results.speedup import disturbed_pairs


def in_blocks_at_all(run: Run) -> bool:
    """Whether any benchmark of the run was measured in blocks."""
    return any(record.reference_s for record in run.measured())


def is_taken_apart(run: Run, record: Record) -> bool:
    """Whether it was not measured in blocks, though others of the run were."""
    return record.status is Status.MEASURED and not record.reference_s and in_blocks_at_all(run)


def disturbance(*records: Record) -> str:
    """How many of their pairs of rounds were disturbed, where these are most; else empty."""
    disturbed, pairs = sum(map(disturbed_pairs, records)), sum(len(record.reference_s) for record in records)
    return f"{disturbed} of {pairs} pairs of rounds disturbed" if disturbed > pairs / 2 else ""


def speedup_or_ratio(record: Record | None, seen: Evidence) -> str:
    """The speed-up over the reference, in words."""
    return text(headline_speedup(record, seen))


def speedup_footnotes(seen: Evidence) -> Iterator[str]:
    """How the speed-ups were measured, and how many comparisons the report makes with them."""
    run = seen.run
    if in_blocks_at_all(run):
        yield (
            "Speed-ups are measured in blocks: rounds of each variant, the reference among them, in turns. "
            "A speed-up, with its 95 % interval, is the trimmed mean ratio of the rounds' latencies, in pairs of the "
            "same block."
        )
        yield from _pauses(run)
        yield from _crowded(run)
        yield from _disturbed(run)
    elif len({record.variant for record in run.measured()}) > 1:
        yield "The variants were taken apart: a speed-up is a ratio of medians from different minutes."
    if seen.comparisons:
        yield (
            f"The report makes {count(seen.comparisons, 'comparison')} of speed-ups at once, each with "
            f"{seen.confidence * 100:.4g} % confidence, so that all hold with 95 % (Bonferroni)."
        )
    apart = dict.fromkeys(record.variant for record in run.records if is_taken_apart(run, record))
    if apart:
        yield f"Some benchmarks were taken apart, not measured in blocks: those of {', '.join(apart)}."


def _pauses(run: Run) -> Iterator[str]:
    """How often rounds paused, and what that does to their times."""
    records = [record for record in run.measured() if record.pauses]
    if not records:
        yield "No round paused: each turn was a whole round."
        return
    rounds, pauses = sum(len(record.rounds_s) for record in records), sum(record.pauses for record in records)
    yield (
        f"{count(rounds, 'round')} paused {count(pauses, 'time')}, while others had their turn. The first decode steps "
        "after a pause, which are slower, count as the mean of those after them, up to the next pause."
    )


def _crowded(run: Run) -> Iterator[str]:
    """How many rounds were left out; nothing where none was."""
    if left_out := sum(record.crowded_rounds for record in run.measured()):
        yield f"{count(left_out, 'further round')} left out, because other programs ran in their blocks."


def _disturbed(run: Run) -> Iterator[str]:
    """How many pairs of rounds were disturbed; nothing where the system doesn't tell."""
    others = [record for record in run.measured() if record.variant != run.reference]
    records = [record for record in others if record.waited_s or record.reference_waited_s]
    rounds = sum(len(record.reference_s) for record in records)
    if rounds:
        yield (
            f"A round of a variant is paired with one of the reference. In {sum(map(disturbed_pairs, records))} of "
            f"{count(rounds, 'pair')} a thread waited for a core."
        )
