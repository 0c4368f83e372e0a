"""One round or several among those of other processes, which wait meanwhile: a turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.probe import run_probe
from llm_bench_fixtures.measure.timing import batches_of, run_round
from llm_bench_fixtures.processes.affinity import begin_on
from llm_bench_fixtures.processes.calm import fall_asleep, waited_s
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.workloads import Workload


WARMING_TOKENS = 10  # some 20 ms of a small model; with 2 a round still took 2 to 6 % longer than in a loop


def warm(model: Model, workload: Workload) -> None:
    """Begin the workload, untimed: the others' turns have emptied the caches, and this process' threads sleep."""
    if workload.cache is CacheKind.STATIC or workload.new_tokens <= WARMING_TOKENS:
        run_round(model, workload)  # a shorter one would leave a static cache that is too small
        return
    first = batches_of(model, workload)[0]
    model.generate(first.input_ids, first.attention_mask, WARMING_TOKENS, workload.cache)


def take_turn(
    model: Model,
    workload: Workload,
    *,
    rounds: int = 1,
    core: int | None = None,
    warms: bool = False,
    probes: bool = False,
) -> tuple[Round, ...]:
    """Run so many rounds, and return once no other thread of this process runs any more.

    core: begin on the one of this number (`begin_on`). warms: whether to begin with `warm`. probes: time the fixed
    probe before each, which empties the caches anyway.
    """
    if core is not None:
        begin_on(core)
    if warms:
        warm(model, workload)
    done = tuple(_watched_round(model, workload, probes) for _ in range(rounds))
    fall_asleep()
    return done


def _watched_round(model: Model, workload: Workload, probes: bool) -> Round:
    """A round, with how long its threads waited for a core."""
    probe_s = run_probe(model) if probes else None
    before_s = waited_s()
    done = run_round(model, workload)
    after_s = waited_s()
    is_unknown = model.facts.is_remote  # here are the client's threads only
    waited = None if is_unknown or before_s is None or after_s is None else max(after_s - before_s, 0.0)
    return replace(done, probe_s=probe_s, waited_s=waited)
