"""What is seen of a workload in a pass of its own, in which nothing is timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.memory import MemoryPeak, PeakMemory
from llm_bench_fixtures.measure.probe import drop_probe
from llm_bench_fixtures.measure.work import Observed, observe_round
from llm_bench_fixtures.processes.allocator import giving_freed_memory_back

if TYPE_CHECKING:
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.workloads import Workload


@dataclass(frozen=True)
class Observation:
    observed: Observed
    peak: MemoryPeak


def observe(model: Model, workload: Workload) -> Observation:
    """Run the workload once more, and watch its forward passes and its memory."""
    drop_probe(model)  # what it holds would be counted as the workload's
    model.forget_caches()  # and so would what an engine keeps of other, larger runs
    with giving_freed_memory_back(), PeakMemory(model.device) as memory:
        observed = observe_round(model, workload)
    return Observation(observed, memory.peak)
