"""Rounds among those of other processes, which wait meanwhile: whole, or in slices, in turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.binding import binding_of, generate_some
from llm_bench_fixtures.measure.limits import run_probe
from llm_bench_fixtures.measure.timing import Pauses, PausingTick, run_round, without_cold_steps
from llm_bench_fixtures.processes.calm import fall_asleep, threads_waited_s, waited_s

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.workloads import Workload

# Some 20 ms of a small model: with 2 tokens a round took 2 to 6 % longer than in a loop. A round that pauses has cold
# steps anyway: after 2 tokens it took 0.985 ± 0.020 times as long as after 10 (± is a standard error; the embedded
# model's variants of torch and bitsandbytes on an Intel Xeon). They follow the prompts' last tokens alone: its first
# token then took 0.1 ± 0.4 % less time than a later round's, and 0.4 ± 0.8 % more where they followed whole prompts of
# 64 tokens, in 44 % more time. After one token alone it took 3.6 ± 0.8 % more, and 16 % after none (AMD EPYC).
WARMING_TOKENS = 10
WARMING_TOKENS_WITH_PAUSES = 2


def take_turns(
    model: Model,
    pause: Callable[[], None],
    workload: Workload,
    *,
    rounds: int = 1,
    slice_tokens: int = 0,
    draw: int | None = None,
    warms: bool = False,
    probes: bool = False,
    is_preempted: bool = False,
) -> tuple[Round, ...]:
    """Run rounds, with the threads bound as `settle_binding` has found.

    pause: returns when the others' turns are over. slice_tokens: pause after so many, and count what the steps after a
    pause would take without it (`without_cold_steps`); 0: run whole rounds. is_preempted: this process is suspended
    wherever it is while others have their turn; a process that isn't, and doesn't pause, returns once no other thread
    of it runs any more. draw: the number of the way in which the threads are bound; None: they are free. warms:
    generate some tokens beforehand, untimed: the others' turns have emptied the caches, and this process' threads
    sleep. probes: time the fixed probe before each round, which empties the caches anyway.
    """
    pauses = Pauses(pause, slice_tokens) if slice_tokens else None
    does_pause = 0 < 2 * slice_tokens <= sum(workload.new_tokens_by_batch)
    binding = binding_of(model)
    is_bound = draw is not None and bool(binding.cores)
    done: list[Round] = []
    with binding.applied(draw) if draw is not None else nullcontext():
        if warms:
            tokens = WARMING_TOKENS_WITH_PAUSES if does_pause else WARMING_TOKENS
            generate_some(model, workload, tokens, is_warming=True)
        for _ in range(rounds):
            probe_s = run_probe(model) if probes else None
            one = _watched_round(model, workload, pauses, binding.threads, in_turns=is_preempted or pauses is not None)
            if pauses:
                one = without_cold_steps(one)
                pauses.release()
            done.append(replace(one, probe_s=probe_s, is_bound=is_bound))
        if not pauses and not is_preempted:
            fall_asleep()
    return tuple(done)


def turns_of(new_tokens: Sequence[int], rounds: int, slice_tokens: int) -> int:
    """How many turns `take_turns` makes of so many rounds, which are its pauses and one more. new_tokens: by batch."""
    if not slice_tokens:
        return 1
    paused: list[None] = []
    pauses = Pauses(lambda: paused.append(None), slice_tokens)
    for _ in range(rounds):
        for number, tokens in enumerate(new_tokens):
            tick = PausingTick(lambda: None, pauses, sum(new_tokens[number:]), tokens)
            for _ in range(tokens):
                tick()
    return len(paused) + 1


def _watched_round(
    model: Model, workload: Workload, pauses: Pauses | None, threads: Collection[int], *, in_turns: bool
) -> Round:
    """A round, with how long its threads waited for a core, and what a hypervisor took.

    in_turns: others have their slices meanwhile, on which what a hypervisor takes may have fallen. Then it is how long
    the threads that compute waited.
    """
    read = partial(threads_waited_s, threads) if in_turns else waited_s
    is_seen = in_turns or not model.facts.is_remote  # a server's threads can't be seen
    if not is_seen or read() is None:
        return run_round(model, workload, pauses=pauses)

    def meter() -> float:
        return read() or 0.0

    held = meter if pauses is None else pauses.hold(meter)
    before_s = held()
    done = run_round(model, workload, pauses=pauses)
    return replace(done, waited_s=max(held() - before_s, 0.0))
