"""What a paired run carries along besides times: exact counts, memory and quality, measured once on each side.

The stored gate judges them with its default rules, except that a higher peak of memory is only reported. Only the code
differs between two processes that run on one machine at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.gate.comparison import Comparison, compare_runs
from llm_bench_fixtures.gate.rules import NamedRule, Rules
from llm_bench_fixtures.history.saved import judged_run_from_json
from llm_bench_fixtures.results.metrics import Force, Kind, registry

RULES = Rules(
    (
        NamedRule(Kind.TIMING, Force.OFF),  # times have their own verdicts
        # The allocator of a worker keeps freed memory, so a peak depends on which pieces it happens to use again.
        NamedRule(Kind.MEMORY, Force.ADVISORY),
        NamedRule("weight_bytes", Force.BLOCKING),
    )
)


def compare_carried(runs: Sequence[Mapping[str, Any]]) -> Comparison | None:
    """runs: BASE's and HEAD's, as run_to_json returns them. None unless there are both and both have this schema."""
    if len(runs) != 2:
        return None
    try:
        base, head = (judged_run_from_json(run, side) for run, side in zip(runs, ("BASE", "HEAD"), strict=True))
    except UnreadableResults:
        return None
    return compare_runs(base, head, RULES, registry())
