"""One round of a workload: every batch generated once, each on a fenced clock, each new token with its time.

A round may pause at whole tokens, in which others have their turn: what is timed stands still meanwhile.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import GenerationMismatch
from llm_bench_fixtures.measure.energy import energy_meter
from llm_bench_fixtures.measure.kept import KeptForModel
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.workloads import Batch, TokenIds, Workload, make_batches

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.model import Model

Meter = Callable[[], float]


class Pauses:
    """Where a round pauses. The sides that take turns within a round share whatever the machine is like meanwhile."""

    def __init__(self, pause: Callable[[], None], tokens: int) -> None:
        """pause: returns when the others' turns are over. tokens: after so many of this side's."""
        self._pause = pause
        self._tokens = tokens
        self._since = 0
        self._paused: dict[Meter, float] = {}  # by meter, what it read in pauses

    def hold(self, meter: Meter) -> Meter:
        """The meter, standing still in pauses. The one that is held last stops first and goes on last.

        meter: each is held once. What is returned can't be read after `release`.
        """
        self._paused[meter] = 0.0
        return lambda: meter() - self._paused[meter]

    def release(self) -> None:
        """Hold no meter any more: the round that read them is over, and the next one has its own."""
        self._paused.clear()

    def after_token(self, left: int, *, may_pause: bool = True) -> bool:
        """Pause, if so many tokens have come since the last pause; whether it paused.

        left: how many are still to come: what follows the last pause is no shorter than what follows the others.
        may_pause: whether this is a place to pause at; if not, a pause that is due comes after the next token.
        """
        self._since += 1
        if not may_pause or self._since < self._tokens or left < self._tokens:
            return False
        self._since = 0
        stopped_at = {meter: meter() for meter in reversed(self._paused)}
        self._pause()
        for meter in self._paused:
            self._paused[meter] += meter() - stopped_at[meter]
        return True


Clock = Callable[[], float]

# On an Intel Xeon the first step after a pause took 1.5 to 3 ms longer than one of a loop, those after it less and
# less, and one that began 10 ms after the pause hardly any.
COLD_S = 0.01
WAKING_S = 0.3e-3  # that threads wait for a core when their process is woken: no disturbance

_PREPARED: KeptForModel[tuple[Workload, list[Batch]]] = KeptForModel()


@dataclass(frozen=True)
class BatchTimes:
    """Seconds from a batch's start."""

    tokens_s: tuple[float, ...]
    """Seconds until each new token of its rows was ready."""

    end_s: float
    """Seconds until `generate` had returned."""

    paused_after: tuple[int, ...] = ()
    """The numbers of the tokens, from 0, after which the round paused: the step that follows began with cold caches."""

    began_s: float = 0.0
    """Seconds from the round's start."""


@dataclass(frozen=True)
class Round:
    """One timed run of a workload."""

    latency_s: float
    """Seconds from the first batch's start to the last one's end."""

    batches: tuple[BatchTimes, ...]

    continuations: tuple[TokenIds, ...]
    """Each prompt's new tokens."""

    energy_j: float | None = None
    """Joules that the machine's counters added meanwhile. None: it has none."""

    probe_s: tuple[float, float] | None = None
    """Seconds of the fixed probe that ran before it. None: there was none."""

    waited_s: float | None = None
    """Seconds that its threads waited for a core, summed. None: the system doesn't report it."""

    began_s: float = 0.0
    """The clock at the first batch's start."""

    preemptions: int = 0
    """How often its process was suspended wherever it was."""

    cold_steps: int = 0
    """How many decode steps count as the mean of those after them, as a pause had made them cold."""

    is_bound: bool = False
    """Whether the threads that computed it had a core each."""

    @property
    def pauses(self) -> int:
        """How often it paused, or was preempted."""
        return self.preemptions + sum(len(batch.paused_after) for batch in self.batches)

    @property
    def decode_steps_s(self) -> tuple[float, ...]:
        """Seconds from each token of a batch to its next, over all batches."""
        return tuple(later - earlier for batch in self.batches for earlier, later in pairwise(batch.tokens_s))


class TokenClock:
    """Notes when each token of one `generate` call was ready, without making the device wait.

    `tick` is called after each token was chosen. On a CPU, and on Apple's device once it is idle, it reads the clock.
    On CUDA it queues an event, and the events' distances are read when the call is over: they are the device's own
    times, counted from the event that `start` queues on the idle device.
    """

    def __init__(self, device: Device, clock: Clock) -> None:
        self._device = device
        self._clock = clock
        self._marks: list[Any] = []
        self.tick: Callable[[], None] = self._tick_host
        if device.kind is DeviceKind.CUDA:
            self.tick = self._tick_event
        elif device.kind is DeviceKind.MPS:
            self.tick = self._tick_idle

    def start(self) -> None:
        self.tick()

    def tokens_s(self) -> tuple[float, ...]:
        """Seconds from `start` to each later tick. The device has to be idle."""
        first, *later = self._marks
        if self._device.kind is DeviceKind.CUDA:
            return tuple(first.elapsed_time(mark) / 1000 for mark in later)
        return tuple(mark - first for mark in later)

    def _tick_host(self) -> None:
        self._marks.append(self._clock())

    def _tick_idle(self) -> None:
        self._device.synchronize()
        self._marks.append(self._clock())

    def _tick_event(self) -> None:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device.name))
        self._marks.append(event)


def run_round(
    model: Model, workload: Workload, clock: Clock = time.perf_counter, pauses: Pauses | None = None
) -> Round:
    """Generate each batch in turn. The device is idle when the first starts and when this returns.

    pauses: where the round pauses, after a batch's first token and later ones; its times are those without the pauses.
    Raises GenerationMismatch unless each prompt got its number of new tokens.
    """
    batches = batches_of(model, workload)
    new_tokens = workload.new_tokens_by_batch
    times = []
    outputs = []
    joules: Meter = energy_meter(model.device).read
    if pauses:
        joules, clock = pauses.hold(joules), pauses.hold(clock)
    model.device.synchronize()
    before_j = joules()
    started = clock()
    for number, batch in enumerate(batches):
        ticks = TokenClock(model.device, clock)
        tick = PausingTick(ticks.tick, pauses, sum(new_tokens[number:]), new_tokens[number]) if pauses else None
        batch_started = clock()
        ticks.start()
        output = model.generate(
            batch.input_ids, batch.attention_mask, new_tokens[number], workload.cache, on_token=tick or ticks.tick
        )
        model.device.synchronize()
        ended = clock()
        paused_after = tuple(tick.paused_after) if tick else ()
        times.append(BatchTimes(ticks.tokens_s(), ended - batch_started, paused_after, batch_started - started))
        outputs.append(output)
    energy_j = joules() - before_j
    texts = workload.answers(continuations(outputs, batches, new_tokens))
    check_times(times, new_tokens)
    joules_or_none = None if math.isnan(energy_j) else energy_j
    return Round(ended - started, tuple(times), texts, joules_or_none, began_s=started)


@dataclass
class PausingTick:
    """Notes the time of each token of a batch, and pauses after some.

    Not after the last one of several, as the next batch's prefill would then begin with cold caches.
    """

    tick: Callable[[], None]
    pauses: Pauses
    left: int
    """Tokens of this batch and the later ones that are still to come."""
    new_tokens: int
    """New tokens of the batch."""
    tokens: int = 0
    paused_after: list[int] = field(default_factory=list)

    def __call__(self) -> None:
        self.tick()
        self.left -= 1
        if self.pauses.after_token(self.left, may_pause=self.tokens + 1 < self.new_tokens or self.new_tokens == 1):
            self.paused_after.append(self.tokens)
        self.tokens += 1


def without_preemptions(done: Round, suspended: Sequence[tuple[float, float]]) -> Round:
    """The round without the times in which its process was suspended. The cold caches after each remain in it.

    suspended: beginning and end of each suspension, ascending, on the round's clock.
    """
    if not suspended:
        return done
    begins = [begin_s for begin_s, _ in suspended]
    before_s = [*accumulate((end_s - begin_s for begin_s, end_s in suspended), initial=0.0)]

    def running(at_s: float) -> float:
        """Seconds on the clock, without the suspensions so far."""
        number = bisect_right(begins, at_s)
        since_end_s = suspended[number - 1][1] - at_s if number else 0.0  # above 0 within one
        return at_s - before_s[number] + max(since_end_s, 0.0)

    def of_batch(batch: BatchTimes) -> BatchTimes:
        began_s = done.began_s + batch.began_s
        own_s = running(began_s)
        tokens_s = tuple(running(began_s + at_s) - own_s for at_s in batch.tokens_s)
        return replace(
            batch,
            tokens_s=tokens_s,
            end_s=running(began_s + batch.end_s) - own_s,
            began_s=own_s - running(done.began_s),
        )

    ended_s = done.began_s + done.latency_s
    within = bisect_right(begins, ended_s) - bisect_right(begins, done.began_s)
    return replace(
        done,
        latency_s=running(ended_s) - running(done.began_s),
        batches=tuple(map(of_batch, done.batches)),
        waited_s=None if done.waited_s is None else max(done.waited_s - WAKING_S * within, 0.0),
        preemptions=within,
    )


def without_cold_steps(done: Round) -> Round:
    """The round as it would have been without its pauses.

    After a pause the first decode steps are cold: others have emptied the caches, and the cores have slept. Those that
    begin within COLD_S count as the mean of the steps after them, up to the next pause. Where all begin within COLD_S,
    the last one stands for them.
    """
    batches, saved_s, cold_steps = [], 0.0, 0
    for before in done.batches:
        after, cold = _without_cold_steps(before)
        batches.append(replace(after, began_s=before.began_s - saved_s))
        saved_s += before.end_s - after.end_s
        cold_steps += cold
    return replace(done, latency_s=done.latency_s - saved_s, batches=tuple(batches), cold_steps=cold_steps)


def _without_cold_steps(batch: BatchTimes) -> tuple[BatchTimes, int]:
    """The batch, and how many of its steps were cold."""
    cold_steps = 0
    steps_s = [later - earlier for earlier, later in pairwise(batch.tokens_s)]
    for first, end in pairwise((*batch.paused_after, len(steps_s))):
        slice_s = steps_s[first:end]
        cold = sum(began_s < COLD_S for began_s in accumulate(slice_s[:-1], initial=0.0)) if slice_s else 0
        if warm := slice_s[cold:] or slice_s[-1:]:
            steps_s[first : first + cold] = [fmean(warm)] * cold
            cold_steps += min(cold, len(slice_s) - 1)  # the last one may stand for all
    tokens_s = tuple(accumulate((*batch.tokens_s[:1], *steps_s)))
    saved_s = batch.tokens_s[-1] - tokens_s[-1] if tokens_s else 0.0
    return replace(batch, tokens_s=tokens_s, end_s=batch.end_s - saved_s), cold_steps


def check_times(times: Sequence[BatchTimes], new_tokens: Sequence[int]) -> None:
    """Raise GenerationMismatch where the backend told of more tokens than came, or of fewer. new_tokens: by batch."""
    for batch, expected in zip(times, new_tokens, strict=True):
        if len(batch.tokens_s) != expected:
            raise GenerationMismatch(
                f"generate called on_token {len(batch.tokens_s)} times for {expected} new tokens: it has to be once "
                "for each"
            )


def batches_of(model: Model, workload: Workload) -> list[Batch]:
    """The workload's tensors on the model's device; the last workload's are kept, as its rounds follow each other.

    A new workload begins without the cache that the last one left.
    """
    batches = kept_batches(model, workload)
    if batches is None:
        forget_caches(model)
        batches = make_batches(workload, model.tokenizer.pad_token_id, model.device.name)
        _PREPARED.put(model, (workload, batches))
    return batches


def kept_batches(model: Model, workload: Workload) -> list[Batch] | None:
    """The workload's tensors, where `batches_of` made them last; None once the model's caches are forgotten."""
    prepared = _PREPARED.get(model)
    return prepared[1] if prepared and prepared[0] == workload else None


def forget_caches(model: Model) -> None:
    """Have the next round begin without the cache that the last one left."""
    model.forget_caches()
    _PREPARED.pop(model)


def continuations(
    outputs: Sequence[torch.Tensor], batches: Sequence[Batch], new_tokens: Sequence[int]
) -> tuple[TokenIds, ...]:
    """The new tokens of each prompt, in order; outputs: each batch's (B, T + new) int64. new_tokens: by batch.

    Raises GenerationMismatch unless each got as many as its batch.
    """
    rows: list[TokenIds] = []
    for batch, output, expected in zip(batches, outputs, new_tokens, strict=True):
        found = [tuple(row) for row in output[:, batch.input_ids.shape[1] :].tolist()]
        wrong = sorted({len(row) for row in found if len(row) != expected})
        if wrong:
            raise GenerationMismatch(f"generate returned {wrong} new tokens where {expected} were asked for")
        rows += found
    return tuple(rows)


def instrumentation_ratios(
    model: Model, workload: Workload, pairs: int, budget_s: float, clock: Clock = time.perf_counter
) -> tuple[float, ...]:
    """Ratios, one per pair: seconds of `generate` with its tokens' times taken / seconds without.

    The two run one after the other, either first by a seeded coin, so that a drift of the machine's speed falls on
    both. One pair before them isn't counted; after at least one that is, none begins once `budget_s` seconds are over.
    Only the workload's first batch runs.
    """
    batch = batches_of(model, workload)[0]
    coin = random.Random(0)  # noqa: S311  # an order, not a secret
    ratios: list[float] = []
    until = clock() + budget_s
    while len(ratios) <= pairs and (len(ratios) < 2 or clock() < until):
        order = coin.sample((True, False), 2)
        seconds = {timed: _generate_s(model, workload, batch, clock, timed=timed) for timed in order}
        ratios.append(seconds[True] / seconds[False])
    return tuple(ratios[1:])


def _generate_s(model: Model, workload: Workload, batch: Batch, clock: Clock, *, timed: bool) -> float:
    model.device.synchronize()
    started = clock()
    on_token = None
    if timed:
        ticks = TokenClock(model.device, clock)
        ticks.start()
        on_token = ticks.tick
    new_tokens = workload.new_tokens_by_batch[0]
    model.generate(batch.input_ids, batch.attention_mask, new_tokens, workload.cache, on_token=on_token)
    model.device.synchronize()
    return clock() - started
