"""Who meets a need, of runs whose truth is known."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from run_factory import asking, make_provenance, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import Reader, Standing
from llm_bench_fixtures.answer.standings import Meeting, meeting_of
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.pooled import pooled_run
from llm_bench_fixtures.results.record import MemoryFacts, Record, Run, VariantResult

NOISE = 0.02  # of a round's times, as a standard deviation of their logarithms
ROUNDS, TOKENS, BATCH = 12, 16, 8
BATCH_WORKLOAD = make_workload("batch 8", "batch", prompts=BATCH, batch_size=BATCH, new_tokens=BATCH * TOKENS)
ALONE = make_workload("16 tokens", prompt_tokens=16)


@dataclass(frozen=True)
class Truth:
    """What a variant really is like: of one prompt, and in a batch of BATCH."""

    ttft_s: float = 0.1
    tpot_s: float = 0.02
    batched_tpot_s: float = 0.06
    own_bytes: int = 100_000_000
    weight_bytes: int = 80_000_000
    ppl_ratio: float = 1.002
    agreement: float = 0.995


def simulated(truths: dict[str, Truth], seed: int = 0) -> Run:
    """Rounds scatter at random around the truth, and so does quality by its standard error."""
    chance = random.Random(seed)  # noqa: S311
    records = [record for name, truth in truths.items() for record in _records(name, truth, chance)]
    return make_run(records, [_variant(name, truth, chance) for name, truth in truths.items()])


def _records(name: str, truth: Truth, chance: random.Random) -> list[Record]:
    memory = MemoryFacts(truth.own_bytes)
    batch = {"scenario": "batch", "case": str(BATCH), "workload": BATCH_WORKLOAD, "memory": memory}
    return [
        _record(name, truth.ttft_s, truth.tpot_s, chance, workload=ALONE, memory=memory),
        _record(name, truth.ttft_s, truth.batched_tpot_s, chance, **batch),
    ]


def _record(name: str, ttft_s: float, tpot_s: float, chance: random.Random, **where: Any) -> Record:
    rounds = []
    for _ in range(ROUNDS):
        slow = math.exp(chance.gauss(0, NOISE))
        rounds.append(tuple(slow * (ttft_s + tpot_s * token) for token in range(TOKENS)))
    latencies = tuple(tokens[-1] for tokens in rounds)
    return make_record(name, rounds_s=latencies, tokens_s=tuple((tokens,) for tokens in rounds), **where)


def _variant(name: str, truth: Truth, chance: random.Random) -> VariantResult:
    if name == "fp32":
        return make_variant(name, weight_bytes=truth.weight_bytes)
    error = 0.001
    quality = {
        "perplexity": 20 * truth.ppl_ratio,
        "ppl_ratio": truth.ppl_ratio + chance.gauss(0, error),
        "ppl_ratio_error": error,
        "top1_agreement": truth.agreement,
        "scored_tokens": 50_000.0,
    }
    return make_variant(name, weight_bytes=truth.weight_bytes, quality=quality)


def meeting(run: Run, limits: str, want: Reader = Reader.LATENCY) -> Meeting:
    return meeting_of(evidence_of(run), asking(limits, want))


USUAL = Truth()
# Three of five variants miss a limit by a third or more, two keep all of them with as much to spare.
SETTINGS: dict[str, tuple[str, Reader, dict[str, Truth]]] = {
    "a token's time": (
        "tpot_s<=30ms",
        Reader.LATENCY,
        {
            "fp32": replace(USUAL, tpot_s=0.06),
            "a": USUAL,
            "b": replace(USUAL, tpot_s=0.022),
            "c": replace(USUAL, tpot_s=0.045),
            "d": replace(USUAL, tpot_s=0.04),
        },
    ),
    "the first token": (
        "ttft<=0.15s",
        Reader.LATENCY,
        {
            "fp32": replace(USUAL, ttft_s=0.3),
            "a": USUAL,
            "b": replace(USUAL, ttft_s=0.08),
            "c": replace(USUAL, ttft_s=0.2),
            "d": replace(USUAL, ttft_s=0.25),
        },
    ),
    "latency": (
        "latency_s<=600ms",
        Reader.LATENCY,
        {
            "fp32": replace(USUAL, tpot_s=0.06),
            "a": USUAL,
            "b": replace(USUAL, tpot_s=0.015),
            "c": replace(USUAL, ttft_s=0.9),
            "d": replace(USUAL, tpot_s=0.05),
        },
    ),
    "throughput": (
        "throughput>=100",
        Reader.THROUGHPUT,
        {
            "fp32": replace(USUAL, batched_tpot_s=0.2),
            "a": USUAL,
            "b": replace(USUAL, batched_tpot_s=0.05),
            "c": replace(USUAL, batched_tpot_s=0.15),
            "d": replace(USUAL, batched_tpot_s=0.12),
        },
    ),
    "memory": (
        "memory<=150MB",
        Reader.MEMORY,
        {
            "fp32": replace(USUAL, own_bytes=400_000_000),
            "a": USUAL,
            "b": replace(USUAL, own_bytes=144_000_000),
            "c": replace(USUAL, own_bytes=157_000_000),
            "d": replace(USUAL, own_bytes=200_000_000),
        },
    ),
    "weights": (
        "weight_bytes<=80MB",
        Reader.LATENCY,
        {
            "fp32": replace(USUAL, weight_bytes=320_000_000),
            "a": USUAL,
            "b": replace(USUAL, weight_bytes=40_000_000),
            "c": replace(USUAL, weight_bytes=80_000_001),
            "d": replace(USUAL, weight_bytes=160_000_000),
        },
    ),
    "quality": (
        "ppl_ratio<=1.01",
        Reader.LATENCY,
        {
            "fp32": USUAL,
            "a": USUAL,
            "b": replace(USUAL, ppl_ratio=1.02),
            "c": replace(USUAL, ppl_ratio=1.05),
            "d": replace(USUAL, ppl_ratio=1.3),
        },
    ),
    "agreement and memory": (
        "top1_agreement>=99%, memory<=150MB",
        Reader.LATENCY,
        {
            "fp32": replace(USUAL, own_bytes=400_000_000),
            "a": USUAL,
            "b": replace(USUAL, agreement=0.993),
            "c": replace(USUAL, agreement=0.98),
            "d": replace(USUAL, agreement=0.9, own_bytes=50_000_000),
        },
    ),
    "all of the four": (
        "tpot_s<=30ms, ttft_s<=0.15, ppl_ratio<=1.01, memory<=150MB",
        Reader.LATENCY,
        {
            "fp32": replace(USUAL, own_bytes=400_000_000),
            "a": USUAL,
            "b": replace(USUAL, tpot_s=0.022, ttft_s=0.11),
            "c": replace(USUAL, ppl_ratio=1.05),
            "d": replace(USUAL, ttft_s=0.25, tpot_s=0.015),
        },
    ),
    "a token's time in batches": (
        "tpot_s<=90ms, memory<=1GB",
        Reader.THROUGHPUT,
        {
            "fp32": replace(USUAL, batched_tpot_s=0.2, tpot_s=0.01),
            "a": USUAL,
            "b": replace(USUAL, batched_tpot_s=0.065, tpot_s=0.5),
            "c": replace(USUAL, batched_tpot_s=0.15, tpot_s=0.01),
            "d": replace(USUAL, ppl_ratio=1.1),
        },
    ),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_a_need_that_two_of_five_variants_meet_names_these_two(setting: str, seed: int) -> None:
    limits, want, truths = SETTINGS[setting]
    two = {"fp32", "a"} if setting == "quality" else {"a", "b"}
    found = meeting(simulated(truths, seed), limits, want)
    assert set(found.meets) == two
    assert (found.may, found.unknown, set(found.fails)) == ((), (), set(truths) - two)
    assert found.nearest is None


def test_there_are_ten_settings() -> None:
    assert len(SETTINGS) == 10


def test_who_is_at_a_limit_may_meet_it() -> None:
    """Whatever the rounds' median: it is above or below the truth by chance."""
    for seed in range(8):
        found = meeting(simulated({"fp32": USUAL, "a": replace(USUAL, tpot_s=0.01)}, seed), "tpot_s<=20ms")
        assert (found.meets, found.may) == (("a",), ("fp32",))


def test_times_have_the_noise_floor_within_their_interval() -> None:
    """A run without pairs of identical work takes it for 15 %: 10.4 % of one figure, exp(log(1.15) / sqrt(2)). Rounds
    without scatter add no more than the processes' 1.25 %, at 1.96: exp(hypot(0.0988, 0.0245)) is 1.107."""
    record = make_record("fp32", rounds_s=(1.0,) * 5)
    run = make_run([record, make_record("a", rounds_s=(0.5,) * 5)])
    for limits, standing in (("latency_s<=1.10", Standing.UNCLEAR), ("latency_s<=1.11", Standing.WITHIN)):
        found = meeting(run, limits).standings.judged["fp32"][0]
        assert found.standing is standing
        assert found.estimate is not None
        assert (found.value, found.estimate.high) == (1.0, pytest.approx(1.107, abs=2e-3))


def test_one_round_tells_nothing_of_a_limit() -> None:
    run = make_run([make_record("fp32", rounds_s=(1.0,)), make_record("a", rounds_s=(0.5,))])
    assert meeting(run, "latency_s<=100").may == ("a", "fp32")


def test_memory_has_the_range_of_the_same_work() -> None:
    """Two scenarios ran the same workload: 90 and 110 MB."""
    records = [
        make_record("fp32", memory=MemoryFacts(90_000_000)),
        make_record("fp32", scenario="cache", case="dynamic", memory=MemoryFacts(110_000_000)),
        make_record("a", memory=MemoryFacts(50_000_000)),
    ]
    for limits, names in (("memory<=89MB", ("a",)), ("memory<=109MB", ("a",)), ("memory<=110MB", ("a", "fp32"))):
        assert meeting(make_run(records), limits, Reader.MEMORY).meets == names
    assert meeting(make_run(records), "memory<=109MB").may == ("fp32",)


@pytest.mark.parametrize(
    ("limit", "standing"), [("104MB", "meets"), ("103MB", "may"), ("96MB", "may"), ("95MB", "fails")]
)
def test_a_single_peak_is_known_to_4_percent(limit: str, standing: str) -> None:
    """Bug: 149 MB met 150 MB for certain, though another process may well take 151."""
    run = make_run([make_record("fp32", memory=MemoryFacts(100_000_000))])
    assert getattr(meeting(run, f"memory<={limit}", Reader.MEMORY), standing) == ("fp32",)


def test_memory_is_that_of_the_accelerator_where_there_is_one() -> None:
    facts = MemoryFacts(2_000_000_000, cuda_allocated_bytes=500_000_000)
    records = [make_record(name, memory=facts) for name in ("fp32", "a")]
    assert meeting(make_run(records), "memory<=1GB").meets == ("fp32", "a")
    assert meeting(make_run(records), "own_memory_bytes<=1GB").meets == ()


def test_what_comes_nearest_misses_by_the_smallest_share_of_a_limit() -> None:
    """c misses its only limit by half; d misses two, by a third at most."""
    truths = {
        "fp32": replace(USUAL, tpot_s=0.1),
        "c": replace(USUAL, tpot_s=0.045),
        "d": replace(USUAL, tpot_s=0.04, own_bytes=200_000_000),
    }
    found = meeting(simulated(truths), "tpot_s<=30ms, memory<=150MB")
    assert (found.meets, found.may, found.nearest) == ((), (), "d")
    unscored = simulated(truths)
    unscored = replace(
        unscored, variants=tuple(replace(one, quality={}) if one.id == "d" else one for one in unscored.variants)
    )
    assert meeting(unscored, "tpot_s<=30ms, memory<=150MB").nearest == "d"


def test_other_batch_sizes_and_caches_that_meet_it_are_known() -> None:
    """At batch 8 a token takes too long; at batch 2 it doesn't on the variant a, nor without a batch on the cache's
    prompt. Prompt lengths are nobody's choice."""
    chance = random.Random(0)  # noqa: S311
    two = make_workload("batch 2", "batch", prompts=8, batch_size=2, new_tokens=8 * TOKENS)
    static = make_workload("static", cache="static")
    more = [
        _record("a", 0.1, 0.02, chance, scenario="batch", case="2", workload=two),
        _record("fp32", 0.1, 0.09, chance, scenario="batch", case="2", workload=two),
        _record("a", 0.1, 0.02, chance, scenario="cache", case="static", workload=static),
        _record("a", 0.1, 0.02, chance, scenario="prompt_length", case="7", workload=make_workload("7 tokens")),
    ]
    run = simulated({"fp32": USUAL, "a": USUAL})
    run = replace(run, records=(*run.records, *more))
    found = meeting(run, "tpot_s<=40ms", Reader.THROUGHPUT)
    assert (found.meets, set(found.fails)) == ((), {"fp32", "a"})
    assert [(one.variant, one.scenario, one.case) for one in found.elsewhere] == [
        ("a", "batch", "2"),
        ("a", "cache", "static"),
    ]
    assert meeting(run, "tpot_s<=40ms").elsewhere == ()  # on one prompt both meet it


def test_other_settings_are_in_the_order_of_what_is_wanted() -> None:
    """Bug: that with the highest throughput came first, also where memory is wanted. On one prompt neither meets it."""
    chance = random.Random(0)  # noqa: S311
    sizes = {2: 200_000_000, 4: 300_000_000}
    workloads = {
        size: make_workload(f"of {size}", "batch", prompts=8, batch_size=size, new_tokens=128) for size in sizes
    }
    more = [
        _record("a", 0.01, 0.002 / size, chance, scenario="batch", workload=workloads[size], memory=MemoryFacts(peak))
        for size, peak in sizes.items()
    ]
    run = simulated({"fp32": USUAL, "a": USUAL})
    run = replace(run, records=(*run.records, *more))
    found = {want: meeting(run, "tpot_s<=10ms", want).elsewhere for want in (Reader.LATENCY, Reader.MEMORY)}
    order = {want: [one.workload.batch_size for one in them if one.workload] for want, them in found.items()}
    assert order == {Reader.LATENCY: [4, 2], Reader.MEMORY: [2, 4]}


def test_with_prompts_of_ones_own_other_settings_are_those_of_these_prompts() -> None:
    chance = random.Random(0)  # noqa: S311
    alone, together = (
        make_workload(f"own {size}", "own", prompts=8, batch_size=size, new_tokens=8 * TOKENS) for size in (1, 8)
    )
    records = [
        _record(name, 0.1, tpot_s, chance, scenario="own", case=case, workload=workload)
        for name in ("fp32", "a")
        for tpot_s, case, workload in ((0.02, "one at a time", alone), (0.06, "batch of 8", together))
    ]
    others = simulated({"fp32": USUAL, "a": USUAL})
    run = make_run([*records, *others.records], others.variants, provenance=make_provenance(prompts="mine.jsonl"))
    found = meeting(run, "tpot_s<=40ms", Reader.THROUGHPUT)
    assert (found.meets, set(found.fails)) == ((), {"fp32", "a"})
    assert {(one.variant, one.scenario, one.case) for one in found.elsewhere} == {
        ("fp32", "own", "one at a time"),
        ("a", "own", "one at a time"),
    }


def test_the_latency_of_many_prompts_is_what_one_of_them_takes() -> None:
    """Four prompts, one after another: 0.1 s each, 0.4 s in all."""
    workload = make_workload("four", prompts=4, new_tokens=64)
    rounds = ((0.1,) * 4,) * 5
    record = make_record("fp32", rounds_s=(0.4,) * 5, batches_s=rounds, batch_rows=(1,) * 4, workload=workload)
    run = make_run([record, replace(record, variant="a", test="a")])
    assert set(meeting(run, "latency<=0.2s").meets) == {"fp32", "a"}
    assert set(meeting(run, "latency_s<=0.2").fails) == {"fp32", "a"}


def test_who_meets_it_stands_in_the_order_of_what_is_wanted() -> None:
    truths = {
        "fp32": USUAL,
        "fast": replace(USUAL, tpot_s=0.01, own_bytes=300_000_000, batched_tpot_s=0.07),
        "small": replace(USUAL, tpot_s=0.03, own_bytes=50_000_000, batched_tpot_s=0.05),
    }
    orders = {want: meeting(simulated(truths), "latency_s<=10", want).meets for want in Reader}
    assert orders == {
        Reader.LATENCY: ("fast", "fp32", "small"),
        Reader.THROUGHPUT: ("small", "fp32", "fast"),
        Reader.MEMORY: ("small", "fp32", "fast"),
    }


def test_who_was_not_measured_where_it_is_judged_is_not_known_to_meet_it() -> None:
    elsewhere = make_record("b", workload=make_workload("other"), case="other")
    run = make_run([make_record("fp32"), make_record("a"), elsewhere])
    found = meeting(run, "latency_s<=10")
    assert (found.meets, found.unknown) == (("fp32", "a"), ("b",))


def test_a_limit_that_nothing_has_a_figure_for_is_not_applied() -> None:
    found = meeting(simulated({"fp32": USUAL, "a": USUAL}), "energy_j<=5, latency_s<=10, ppl_ratio<=any")
    assert [str(one) for one in found.standings.not_applied] == ["energy_j ≤ 5 J"]
    assert set(found.meets) == {"fp32", "a"}


def test_a_ratio_to_the_reference_is_kept_by_itself() -> None:
    """It is 1 times as fast as itself, and has neither flips nor a divergence."""
    quality = {"perplexity": 20.0, "ppl_ratio": 1.0, "kld_mean": 0.5, "flips": 0.2}
    run = make_run([make_record("fp32"), make_record("a", 0.5)], [make_variant(), make_variant("a", quality=quality)])
    assert meeting(run, "kld_mean<=0.1, flips<=1%").meets == ("fp32",)
    assert meeting(run, "speedup>=1").standings.judged["fp32"][0].standing is Standing.WITHIN
    assert meeting(run, "speedup>=1.1").standings.judged["fp32"][0].standing is Standing.BEYOND


def test_a_perplexity_is_judged_as_it_is() -> None:
    """The reference's, too: it is of no other."""
    variants = [make_variant(), make_variant("a", quality={"perplexity": 30.0})]
    run = make_run([make_record("fp32"), make_record("a")], variants)
    assert meeting(run, "perplexity<=25").meets == ("fp32",)
    assert meeting(run, "perplexity<=19").meets == ()


def test_times_of_tokens_that_were_not_saved_scatter_as_the_latency() -> None:
    """Bug: one saved median for all rounds seemed to have no scatter at all."""
    wide = tuple(0.5 + 0.1 * step for step in range(10))
    bare = make_record("fp32", rounds_s=wide, batches_s=(), tokens_s=(), metrics={"tpot_s": 0.05})
    run = make_run([bare, replace(bare, variant="a", test="a")])
    found = meeting(run, "tpot_s<=50ms").standings.judged["fp32"][0]
    latency = meeting(run, "latency_s<=1").standings.judged["fp32"][0]
    assert found.estimate is not None
    assert latency.estimate is not None
    assert found.estimate.high / 0.05 == pytest.approx(
        latency.estimate.high / METRIC_BY_NAME["latency_s"].of(bare, make_variant())
    )


def test_pooled_runs_are_judged_by_all_their_rounds() -> None:
    truths = {"fp32": replace(USUAL, tpot_s=0.06), "a": USUAL}
    run = pooled_run([simulated(truths, seed) for seed in range(2)])
    assert meeting(run, "tpot_s<=30ms, memory<=150MB").meets == ("a",)
