"""A scenario's speed-ups as one for each variant. They support the answer and don't decide it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llm_bench_fixtures.answer.headline import shared_by_most
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import mean_speedup, record_log_ratio
from llm_bench_fixtures.statistics.ratio import Speedup


@dataclass(frozen=True)
class ScenarioMean:
    """The mean speed-ups over the cases of a scenario that most of its variants ran in blocks."""

    scenario: str
    cases: int
    speedups: Mapping[str, Speedup]
    """By variant, without the reference."""


def scenario_means(run: Run) -> Iterator[ScenarioMean]:
    """Of the scenarios with several such cases."""
    scenarios: dict[str, dict[str, dict[str, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in run.measured():
        if record.variant != run.reference and record_log_ratio(record) is not None:
            scenarios[record.scenario][record.case][record.variant] = record
    for scenario, cases in scenarios.items():
        shared = shared_by_most(list(cases.values()))
        if len(shared) > 1:
            found = {name: mean_speedup([one[name] for one in shared]) for name in shared[0]}
            yield ScenarioMean(scenario, len(shared), {name: one for name, one in found.items() if one})
