"""What a paired run carries along besides times: exact counts, memory and quality, seen once on each side.

They are judged as the stored gate judges them, with its defaults, except that peaks of memory are only told: between
two processes on one machine at one time nothing but the code differs.
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
        # Workers have an allocator that keeps what is freed, so that a peak depends on whether a piece was used again.
        NamedRule(Kind.MEMORY, Force.ADVISORY),
        NamedRule("weight_bytes", Force.BLOCKING),
    )
)


def compare_carried(runs: Sequence[Mapping[str, Any]]) -> Comparison | None:
    """runs: BASE's and HEAD's, as run_to_json gives them. None where there are not both, or not both of this schema."""
    if len(runs) != 2:
        return None
    try:
        base, head = (judged_run_from_json(run, side) for run, side in zip(runs, ("BASE", "HEAD"), strict=True))
    except UnreadableResults:
        return None
    return compare_runs(base, head, RULES, registry())
