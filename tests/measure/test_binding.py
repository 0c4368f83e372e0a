"""Which threads are bound: found from figures that are given, and once for real."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from llm_bench_fixtures.measure import binding
from llm_bench_fixtures.measure.binding import (
    FEWEST_TRIAL_TOKENS,
    FEWEST_TRIALS,
    TRIAL_TOKENS,
    TRIALS,
    Binding,
    binding_of,
    computing,
    finding_threads,
    generate_some,
    settle_binding,
)
from llm_bench_fixtures.measure.timing import forget_caches, run_round
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.processes.affinity import cores_to_bind, thread_seconds
from llm_bench_fixtures.workloads import CacheKind, Padding, Prompts, Side, Workload


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, tuple[int, ...]]]:
    """What threads are told in turn."""
    told: list[dict[int, tuple[int, ...]]] = []
    monkeypatch.setattr(binding, "bind_threads", lambda cores: told.append(dict(cores)))
    return told


@pytest.fixture
def workload(prompts: Prompts) -> Workload:
    return Workload((prompts.exact(6),), new_tokens=4, batch_size=1)


@pytest.mark.parametrize(
    ("draw", "cores"),
    [(0, {7: (0,), 8: (2,)}), (1, {7: (2,), 8: (3,)}), (2, {7: (3,), 8: (0,)}), (3, {7: (0,), 8: (2,)})],
)
def test_each_thread_has_a_core_within_and_all_of_them_afterwards(
    draw: int, cores: dict[int, tuple[int, ...]], bound: list[dict[int, tuple[int, ...]]]
) -> None:
    """A thread that is started later takes over the cores of the one that starts it."""
    with Binding((7, 8), (0, 2, 3)).applied(draw):
        assert bound == [cores]
    assert bound[1:] == [{7: (0, 2, 3), 8: (0, 2, 3)}]


def test_where_all_are_free_none_is_bound(bound: list[dict[int, tuple[int, ...]]]) -> None:
    with Binding((7, 8)).applied(5):
        pass
    assert bound == []


def test_a_thread_computes_that_runs_for_a_tenth_of_the_time() -> None:
    """One ran before, one has begun meanwhile, and one has ended."""
    before_s = {1: 5.0, 2: 5.0, 3: 5.0, 4: 9.0}
    after_s = {1: 5.875, 2: 5.125, 3: 5.0625, 5: 0.25}
    assert computing(before_s, after_s, took_s=1.0) == (1, 2, 5)


@pytest.mark.usefixtures("fresh")
def test_a_thread_of_pythons_beside_does_not_compute(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that samples the memory. The caller of the engine is one of Python's, too, and computes."""
    is_over = threading.Event()
    sampler = threading.Thread(target=is_over.wait)
    sampler.start()
    own, pool = threading.get_native_id(), 1  # the latter is of no thread that Python knows
    seconds = iter([{}, {sampler.native_id: 9.0, own: 9.0, pool: 9.0}])
    monkeypatch.setattr(binding, "thread_seconds", seconds.__next__)
    monkeypatch.setattr(binding, "cores_to_bind", lambda _: ())
    with finding_threads(tiny_fp32):
        pass
    is_over.set()
    assert settle_binding(tiny_fp32, workload).threads == tuple(sorted((own, pool)))


class Trials:
    """A model's short generations, of which those that are bound take so many times as long as those that are free."""

    def __init__(self, ratios: list[float], free_s: float) -> None:
        self.ratios = iter(ratios)
        self.free_s = free_s
        self.is_bound = False
        self.asked: list[int] = []
        """Tokens of each."""

    def short_s(self, _model: object, _workload: object, tokens: int) -> float:
        self.asked.append(tokens)
        return self.free_s * (next(self.ratios) if self.is_bound else 1.0)

    def tell(self, cores: dict[int, tuple[int, ...]]) -> None:
        self.is_bound = any(len(own) == 1 for own in cores.values())


def settle(
    ratios: list[float],
    threads: int,
    tiny: TransformersModel,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    free_s: float = 0.1,
    tokens: int | None = TRIAL_TOKENS,
) -> tuple[Binding, list[int]]:
    """What is found where the model computes in so many threads and there are two cores; and the tokens of what was
    timed in turn.

    free_s: how long a short generation takes free; its threads compute all that time.
    """
    trials = Trials(ratios, free_s)
    monkeypatch.setattr(binding, "_short_s", trials.short_s)
    monkeypatch.setattr(binding, "bind_threads", trials.tell)
    monkeypatch.setattr(binding, "thread_seconds", iter([{}, dict.fromkeys(range(threads), 1e9)]).__next__)
    monkeypatch.setattr(binding, "cores_to_bind", lambda threads: (0, 1) if 0 < len(threads) <= 2 else ())
    if tokens is None:
        with finding_threads(tiny):
            pass
    found = settle_binding(tiny, workload, tokens)
    assert binding_of(tiny) == found
    return found, trials.asked


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been found yet of any model."""
    for kept in ("_BINDINGS", "_AGREEING", "_COMPUTING"):
        monkeypatch.setattr(binding, kept, type(getattr(binding, kept))())


NOISY = [0.7, 1.4, 0.8, 1.25, 0.75, 1.5]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("ratios", "is_bound"),
    [
        ([1.0] * TRIALS, True),
        ([1.019] * TRIALS, True),
        ([1.021] * TRIALS, False),
        ([1 / 1.021] * TRIALS, False),
        (NOISY, True),
        ([3 * ratio for ratio in NOISY], False),
        ([1.0] * (TRIALS - 1) + [5.0], True),
    ],
    ids=["equal", "nearly", "slower", "faster", "can't be told", "slower beyond doubt", "one is disturbed"],
)
def test_threads_are_bound_where_that_changes_nothing(
    ratios: list[float],
    is_bound: bool,
    tiny_fp32: TransformersModel,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2 % are nothing, and what the trials can't tell."""
    found, asked = settle(ratios, 2, tiny_fp32, workload, monkeypatch)
    assert found == Binding((0, 1), (0, 1) if is_bound else ())
    assert len(asked) == 1 + 2 * TRIALS


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("threads", [0, 3], ids=["that computes elsewhere", "with more threads than cores"])
def test_of_a_model_that_has_no_core_for_each_thread_all_are_free(
    threads: int, tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settle([], threads, tiny_fp32, workload, monkeypatch) == (Binding(tuple(range(threads))), [])


@pytest.mark.usefixtures("fresh")
def test_what_takes_long_is_not_tried(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least six times 2.1 s, for each variant. Its threads are known all the same, and it isn't asked again."""
    found = settle([], 2, tiny_fp32, workload, monkeypatch, free_s=2.1)
    assert found == (Binding((0, 1)), [FEWEST_TRIAL_TOKENS])
    assert settle([], 2, tiny_fp32, workload, monkeypatch, free_s=2.1) == (Binding((0, 1)), [])


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("free_s", "tokens", "trials"),
    [(0.005, TRIAL_TOKENS, TRIALS), (0.02, 5, TRIALS), (0.25, 3, TRIALS), (0.375, 3, 4), (1.9, 3, FEWEST_TRIALS)],
)
def test_trials_of_longer_tokens_are_fewer_and_have_fewer_but_never_the_prefill_alone(
    free_s: float,
    tokens: int,
    trials: int,
    tiny_fp32: TransformersModel,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """free_s: what three tokens take. A trial takes 30 ms, or three tokens; all of them 3 s, or three trials."""
    found = settle([1.0] * trials, 2, tiny_fp32, workload, monkeypatch, free_s=free_s)
    assert found == (Binding((0, 1), (0, 1)), [FEWEST_TRIAL_TOKENS] + [tokens] * 2 * trials)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("ratios", "is_bound"), [([1.05, 1.3, 1.2], False), ([0.9, 1.0, 1.15], True)])
def test_three_trials_are_enough_to_see_that_a_large_model_is_slower_bound(
    ratios: list[float],
    is_bound: bool,
    tiny_fp32: TransformersModel,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: of two trials, 1.05 and 1.3 agreed with 1. Of the three, the median's logarithm is 0.18, and two standard
    errors are 0.12."""
    found, _ = settle(ratios, 2, tiny_fp32, workload, monkeypatch, free_s=1.0)
    assert found == Binding((0, 1), (0, 1) if is_bound else ())


@pytest.mark.usefixtures("fresh")
def test_it_is_tried_once_for_each_number_of_threads(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another workload may be computed in one thread, or in two others. Where an observed round has told, nothing is
    generated."""
    assert len(settle([1.0] * TRIALS, 2, tiny_fp32, workload, monkeypatch, tokens=None)[1]) == 1 + 2 * TRIALS
    assert settle([], 2, tiny_fp32, workload, monkeypatch) == (Binding((0, 1), (0, 1)), [])
    assert settle([], 2, tiny_fp32, workload, monkeypatch, tokens=None) == (Binding((0, 1), (0, 1)), [])
    found, asked = settle([2.0] * TRIALS, 1, tiny_fp32, workload, monkeypatch)
    assert found == Binding((0,))
    assert len(asked) == 1 + 2 * TRIALS
    assert settle([], 2, tiny_fp32, workload, monkeypatch)[0] == Binding((0, 1), (0, 1))


@pytest.mark.usefixtures("fresh")
@pytest.mark.skipif(
    not cores_to_bind((threading.get_native_id(),)) or not thread_seconds(),
    reason="needs threads that can be seen and bound",
)
def test_the_threads_of_a_model_are_found(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """Those that compute are of this process, and no more than torch's pool and its caller have."""
    workload = Workload((prompts.exact(64),), new_tokens=16, batch_size=1)
    observe(tiny_fp32, workload)
    found = settle_binding(tiny_fp32, workload)
    assert found.threads
    assert len(found.threads) <= torch.get_num_threads()
    assert set(found.threads) <= set(thread_seconds())


@pytest.mark.parametrize(
    ("cache", "new_tokens", "generated"),
    [(CacheKind.DYNAMIC, 8, 3), (CacheKind.DYNAMIC, 2, 2), (CacheKind.STATIC, 8, 8)],
    ids=["the first tokens", "of a short round all", "a static cache has to fit the round"],
)
def test_the_first_tokens_of_the_first_batch_are_generated(
    cache: CacheKind,
    new_tokens: int,
    generated: int,
    tiny_fp32: TransformersModel,
    prompts: Prompts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = _noting_generate(monkeypatch)
    generate_some(tiny_fp32, Workload((prompts.exact(6),), new_tokens, batch_size=1, cache=cache), 3)
    assert asked == [((1, 6), generated)]


@pytest.mark.parametrize("cache", [CacheKind.DYNAMIC, CacheKind.STATIC])
def test_tokens_that_warm_caches_follow_the_prompts_last_ones_alone(
    cache: CacheKind, tiny_fp32: TransformersModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of 6 and 4 tokens, of which the shorter one ends before its row. The round before has made the cache."""
    long, short = prompts.exact(6), prompts.exact(4)
    workload = Workload((long, short), 8, batch_size=2, padding=Padding(Side.RIGHT), cache=cache)
    run_round(tiny_fp32, workload)
    kept = vars(tiny_fp32.module).get("_cache")
    shown: list[torch.Tensor] = []
    asked = _noting_generate(monkeypatch, shown)
    generate_some(tiny_fp32, workload, 3, is_warming=True)
    assert asked == [((2, 1), 3)]
    assert shown[0].tolist() == [[long[-1]], [short[-1]]]
    assert vars(tiny_fp32.module).get("_cache") is kept


@pytest.mark.parametrize(("cache", "tokens"), [(CacheKind.DYNAMIC, 3), (CacheKind.STATIC, 8)])
def test_whole_prompts_warm_caches_once_the_last_rounds_cache_is_forgotten(
    cache: CacheKind, tokens: int, tiny_fp32: TransformersModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next round, which is timed, would have to make room for them: after texts were scored, say."""
    workload = Workload((prompts.exact(6),), 8, batch_size=1, cache=cache)
    run_round(tiny_fp32, workload)
    forget_caches(tiny_fp32)
    asked = _noting_generate(monkeypatch)
    generate_some(tiny_fp32, workload, 3, is_warming=True)
    assert asked == [((1, 6), tokens)]


def test_whole_prompts_warm_a_server(
    tiny_fp32: TransformersModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that can't be told to go on may end the answer to a single token early."""
    workload = Workload((prompts.exact(6),), 8, batch_size=1)
    run_round(tiny_fp32, workload)
    monkeypatch.setattr(tiny_fp32, "facts", replace(tiny_fp32.facts, is_remote=True))
    asked = _noting_generate(monkeypatch)
    generate_some(tiny_fp32, workload, 3, is_warming=True)
    assert asked == [((1, 6), 3)]


def _noting_generate(monkeypatch: pytest.MonkeyPatch, shown: list[torch.Tensor] | None = None) -> list[object]:
    """Where each call's rows and columns, and its number of new tokens, will be. shown: takes the prompts."""
    asked: list[object] = []
    generate = TransformersModel.generate

    def noting(model: TransformersModel, input_ids: torch.Tensor, *args: object, **more: object) -> object:
        asked.append((tuple(input_ids.shape), args[1]))
        if shown is not None:
            shown.append(input_ids)
        return generate(model, input_ids, *args, **more)

    monkeypatch.setattr(TransformersModel, "generate", noting)
    return asked
