"""Which threads a variant computes in, and whether they have a core each while it is measured.

Threads that are free wake on one core as often as on two, which no comparison can take away. Binding them is there to
measure and not to improve: what it makes faster or slower than a loop of its own runs free, and that is its figure.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median, stdev

from llm_bench_fixtures.measure.kept import KeptForModel
from llm_bench_fixtures.measure.timing import batches_of, kept_batches, run_round
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.processes.affinity import bind_threads, cores_to_bind, thread_seconds
from llm_bench_fixtures.workloads import CacheKind, Workload, pad_batch

COMPUTING_SHARE = 0.1  # share of the time: a thread that runs for less doesn't compute
TRIALS = 6
FEWEST_TRIALS = 3
TRIALS_S = 3.0  # where TRIALS take longer, there are fewer
TRIAL_TOKENS = 10
TRIAL_S = 0.03  # where TRIAL_TOKENS take longer, a trial has fewer, but some decode steps
FEWEST_TRIAL_TOKENS = 3
LONGEST_TRIAL_S = 2.0  # six of longer ones would take too long
AGREES = math.log(1.02)  # bound and free
SURE = 2.0  # standard errors by which they have to differ by more


@dataclass(frozen=True)
class Binding:
    """The threads that compute, none where that isn't known, and whether they have a core each."""

    threads: tuple[int, ...] = ()
    cores: tuple[int, ...] = ()
    """Cores that the threads are spread over; none: the threads are free."""

    @contextmanager
    def applied(self, draw: int) -> Iterator[None]:
        """Bind the threads inside the block. draw: the number of the way in which they are spread over the cores."""
        if not self.cores:
            yield
            return
        turn = draw % len(self.cores)
        spread = (*self.cores[turn:], *self.cores[:turn])
        bind_threads({thread: (core,) for thread, core in zip(self.threads, spread, strict=False)})
        try:
            yield
        finally:
            bind_threads(dict.fromkeys(self.threads, self.cores))


_BINDINGS: KeptForModel[Binding] = KeptForModel()
_AGREEING: KeptForModel[dict[int, bool]] = KeptForModel()  # by the number of threads
_COMPUTING: KeptForModel[tuple[int, ...]] = KeptForModel()


def binding_of(model: Model) -> Binding:
    """Binding that `settle_binding` has found last."""
    return _BINDINGS.get(model) or Binding()


@contextmanager
def finding_threads(model: Model) -> Iterator[None]:
    """Note, for `settle_binding`, which threads compute while the block generates. Python's others, as one that watches
    memory, do not."""
    others = {thread.native_id for thread in threading.enumerate()} - {threading.get_native_id()}
    before_s, began_s = thread_seconds(), time.perf_counter()
    yield
    after_s = {thread: at_s for thread, at_s in thread_seconds().items() if thread not in others}
    _COMPUTING.put(model, computing(before_s, after_s, time.perf_counter() - began_s))


def settle_binding(model: Model, workload: Workload, tokens: int | None = None) -> Binding:
    """Find whether the threads that compute the workload may be bound; kept for `binding_of`.

    They may where there is a core for each, nobody else has bound them, and a short generation takes as long bound as
    free: up to TRIALS of both in turn are compared, once for each number of threads. Each takes about TRIAL_S where
    that leaves some tokens. Where FEWEST_TRIAL_TOKENS of the first workload take over LONGEST_TRIAL_S, nothing is
    tried, and the threads are free.
    tokens: so many are generated to find the threads; None: `finding_threads` has found them.
    """
    if tokens is not None:
        with finding_threads(model):
            generate_some(model, workload, tokens)
    threads = _COMPUTING.get(model) or ()
    bound = Binding(threads, cores_to_bind(threads))
    agreeing = _AGREEING.get_or_make(model, dict)
    if bound.cores and len(threads) not in agreeing:
        agreeing[len(threads)] = _agrees_with_free(model, workload, bound)
    binding = bound if agreeing.get(len(threads)) else Binding(threads)
    _BINDINGS.put(model, binding)
    return binding


def computing(before_s: Mapping[int, float], after_s: Mapping[int, float], took_s: float) -> tuple[int, ...]:
    """The ids of the threads that computed meanwhile. The first two: by thread, the processor time that it has had."""
    least_s = COMPUTING_SHARE * took_s
    return tuple(sorted(thread for thread, at_s in after_s.items() if at_s - before_s.get(thread, 0.0) >= least_s))


def _agrees_with_free(model: Model, workload: Workload, bound: Binding) -> bool:
    """Whether binding the threads changes nothing; not known of what takes long."""
    least_s = _short_s(model, workload, FEWEST_TRIAL_TOKENS)
    if least_s > LONGEST_TRIAL_S:
        return False
    tokens = _within(math.ceil(FEWEST_TRIAL_TOKENS * TRIAL_S / least_s), FEWEST_TRIAL_TOKENS, TRIAL_TOKENS)
    trials = _within(math.floor(TRIALS_S / (2 * least_s)), FEWEST_TRIALS, TRIALS)
    return _agrees(_trial_ratios(model, workload, bound, trials, tokens))


def _within(number: int, least: int, most: int) -> int:
    return min(max(number, least), most)


def _trial_ratios(model: Model, workload: Workload, binding: Binding, trials: int, tokens: int) -> list[float]:
    """Log of bound time over free time of so many tokens, one per trial; which comes first alternates."""
    ratios = []
    for trial in range(trials):
        took_s = {}
        for bound in (True, False) if trial % 2 else (False, True):
            with binding.applied(trial) if bound else nullcontext():
                took_s[bound] = _short_s(model, workload, tokens)
        ratios.append(math.log(took_s[True] / took_s[False]))
    return ratios


def _agrees(ratios: Sequence[float]) -> bool:
    """Whether they don't differ from 0 by more than AGREES, as far as they can tell."""
    return abs(median(ratios)) <= AGREES + SURE * stdev(ratios) / math.sqrt(len(ratios))


def _short_s(model: Model, workload: Workload, tokens: int) -> float:
    began_s = time.perf_counter()
    generate_some(model, workload, tokens)
    return time.perf_counter() - began_s


def generate_some(model: Model, workload: Workload, tokens: int, *, is_warming: bool = False) -> None:
    """The first batch's first tokens, untimed; of a new workload the whole round, where a shorter one would leave a
    static cache that is too small.

    is_warming: they follow each prompt's last token alone, which reads what a decode step reads, in less time. Not of a
    new workload, for whose prompts an engine may have to make room, and not of a server, which may end such an answer.
    """
    is_new = kept_batches(model, workload) is None
    if is_new and workload.cache is CacheKind.STATIC:
        run_round(model, workload)
        return
    batch = batches_of(model, workload)[0]
    if is_warming and not is_new and not model.facts.is_remote:
        last = [row[-1:] for row in workload.groups[0]]
        batch = pad_batch(last, 1, workload.padding.side, model.tokenizer.pad_token_id, model.device.name)
    tokens = min(tokens, workload.new_tokens_by_batch[0])
    model.generate(batch.input_ids, batch.attention_mask, tokens, workload.cache)
