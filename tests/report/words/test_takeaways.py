"""Sentences that follow from the numbers, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from run_factory import (
    BLOCKS_S,
    around,
    full_run,
    make_block_record,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
    token_times,
)

from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Record, Run


def takeaways(run: Run) -> list[str]:
    return list(findings_of(run, registry()).takeaways)


def only(sentences: list[str], word: str) -> str:
    """The one sentence that holds the word."""
    (sentence,) = [sentence for sentence in sentences if word in sentence]
    return sentence


def test_a_full_run_supports_three_to_five() -> None:
    assert 3 <= len(takeaways(full_run())) <= 5


def test_far_faster_tokens_come_first() -> None:
    """16 tokens over 0.6 of a round: 41.0 ms each in the median of rounds of 1.025 s, and a ninth of that."""
    quality = {"perplexity": 20.6, "ppl_ratio": 1.03, "ppl_ratio_error": 0.001}
    variants = [make_variant(), make_variant("int4", quality=quality), make_variant("int8")]
    records = [make_block_record(spread=0.0), make_block_record("int4", 9.0), make_block_record("int8", 2.0)]
    assert takeaways(make_run(records, variants))[0] == (
        "int4 decodes 9.00× as fast as fp32: 4.55 ms a token instead of 41.0 ms, perplexity +3.0 %."
    )


def faster_tokens(*records: Record) -> list[str]:
    return [sentence for sentence in takeaways(make_run(records)) if "a token instead of" in sentence]


@pytest.mark.parametrize(("speedup", "is_told"), [(1.4, False), (1.52, False), (1.6, True)])
def test_tokens_that_are_not_shown_to_be_far_faster_are_no_takeaway(speedup: float, is_told: bool) -> None:
    """The answer has them. 1.5 times as fast is far, and the interval reaches 3 % to either side."""
    assert bool(faster_tokens(make_block_record(spread=0.0), make_block_record("v0", speedup))) == is_told


def test_tokens_from_different_times_are_no_takeaway() -> None:
    """Bug: a quotient of two medians from different minutes."""
    assert not faster_tokens(make_record(), make_record("v0", 0.1))


def test_tokens_whose_rounds_disagree_are_no_takeaway() -> None:
    """Bug: a steady gain in latency stood for one in decode, of which the medians' quotient was told. Here the tokens
    of six rounds take a ninth of the reference's, those of four three times as long."""
    rounds_s = [seconds / (9 if index < 6 else 1 / 3) for index, seconds in enumerate(BLOCKS_S)]
    tokens_s = tuple((token_times(seconds, 16),) for seconds in rounds_s)
    assert not faster_tokens(make_block_record(spread=0.0), make_block_record("v0", 9.0, tokens_s=tokens_s))


@pytest.mark.parametrize("apart_s", [0.0, 1e-5], ids=["at once", "as fast as they are read"])
def test_tokens_that_came_in_a_burst_are_no_takeaway(apart_s: float) -> None:
    """Bug: a server behind a proxy that keeps its tokens back decoded thousands of times as fast."""
    at_once = tuple((tuple(0.01 + apart_s * token for token in range(16)),) for _ in BLOCKS_S)
    assert not faster_tokens(make_block_record(spread=0.0), make_block_record("v0", 9.0, tokens_s=at_once))


@pytest.mark.parametrize(("disturbed", "is_told"), [(5, True), (6, False)])
def test_tokens_of_disturbed_rounds_are_no_takeaway(disturbed: int, is_told: bool) -> None:
    """Bug: 83.6× as fast in decode was told without a word of doubt, of rounds in which the reference's threads had
    waited for a core."""
    waited_s = (0.5,) * disturbed + (0.0,) * (10 - disturbed)
    record = make_block_record("v0", 9.0, 0.0, reference_waited_s=waited_s)
    assert bool(faster_tokens(make_block_record(spread=0.0), record)) == is_told


def test_tokens_of_a_variant_that_was_settled_earlier_are_paired_with_the_rounds_beside_them() -> None:
    early = make_block_record("v0", 9.0, 0.0, BLOCKS_S[:4])
    (sentence,) = faster_tokens(make_block_record(spread=0.0), early)
    assert sentence.startswith("v0 decodes 9.00× as fast as fp32: ")


def test_tokens_of_a_variant_of_another_group_are_compared_through_the_latencies_of_its_blocks() -> None:
    """Bug: they were no takeaway, however fast. The reference's rounds take twice as long there, of which a token has
    the same share: 41 ms become 82, and the variant's are a ninth of that."""
    slow_s = tuple(2 * seconds for seconds in BLOCKS_S)
    (sentence,) = faster_tokens(make_block_record(spread=0.0), make_block_record("v0", 9.0, 0.0, slow_s))
    assert sentence.startswith("v0 decodes 9.00× as fast as fp32: 9.11 ms a token instead of 82.0 ms")


def test_tokens_of_a_variant_that_is_slower_as_a_whole_are_no_takeaway() -> None:
    """Its first token takes most of a round that is twice the reference's."""
    late = tuple((tuple(2 * seconds * (0.8 + 0.2 * token / 15) for token in range(16)),) for seconds in BLOCKS_S)
    assert not faster_tokens(make_block_record(spread=0.0), make_block_record("v0", 0.5, tokens_s=late))


def test_batching_names_its_cost_in_latency() -> None:
    """Alone a prompt takes 0.8 s / 4 = 0.2 s; in the batch of four it takes the batch's 0.4 s."""
    assert only(takeaways(full_run()), "batch 4") == (
        "On fp32, batch 4 gives 2.00× the throughput of batch 1, and each sample takes 2.00× as long (400 ms)."
    )


@pytest.mark.parametrize(
    ("waited_s", "reference_waited_s", "threads", "is_told"),
    [
        (0.3, 0.02, 2, True),
        (0.1, 0.02, 2, False),
        (0.3, 0.3, 2, False),
        (0.3, 0.02, 1, False),
    ],
)
def test_threads_that_hold_each_other_up(
    waited_s: float, reference_waited_s: float, threads: int, is_told: bool
) -> None:
    """Shares of a round's time, to a hundredth. Where the reference waits as well, it is for something else.

    Bug: it was also said of one thread."""
    own = make_block_record(spread=0.0, waited_s=tuple(reference_waited_s * seconds for seconds in BLOCKS_S))
    other = make_block_record("v0", spread=0.01, waited_s=tuple(waited_s * seconds for seconds in BLOCKS_S))
    run = make_run([own, other], provenance=make_provenance(threads=threads, isolated=True))
    told = [sentence for sentence in takeaways(run) if "OMP_WAIT_POLICY" in sentence]
    assert bool(told) == is_told
    assert all("(v0 30 % of the rounds' time; fp32 2 %)" in sentence for sentence in told)
    assert all(sentence.endswith("--llm-variants fp32,v0,v0-passive") for sentence in told)
    shared = replace(run, provenance=replace(run.provenance, isolated=False))
    assert not any("OMP_WAIT_POLICY" in sentence for sentence in takeaways(shared))
    asleep = replace(other, variant="v0-passive", test="v0-passive")
    known = make_run([own, other, asleep], provenance=run.provenance)
    known = replace(known, variants=tuple(replace(one, is_passive="-" in one.id) for one in known.variants))
    assert not any("OMP_WAIT_POLICY" in sentence for sentence in takeaways(known))


def without(run: Run, *scenarios: str) -> Run:
    return replace(run, records=tuple(record for record in run.records if record.scenario not in scenarios))


def test_the_cache() -> None:
    run = without(full_run(), "precision")
    assert only(takeaways(run), "KV cache") == (
        "The KV cache makes fp32 2.97× as fast as without it (one prompt of 64 tokens, 16 new)."  # 0.3 / 0.101
    )


def test_padding() -> None:
    run = without(full_run(), "precision", "batch", "cache")
    assert only(takeaways(run), "padding") == (
        "On fp32, one padded batch (left) is 1.60× as fast as the prompts one by one, though 50 % of the batch is "
        "padding."
    )


def test_prompt_length() -> None:
    run = without(full_run(), "precision", "batch", "cache", "padding")
    assert only(takeaways(run), "256") == "On fp32, 256 prompt tokens take 2.50× as long as 16."


@pytest.mark.parametrize(
    "make", [make_run, lambda: make_run([skipped_record("fp32", "why")])], ids=["empty", "skipped"]
)
def test_a_run_without_measurements_supports_none(make: Callable[[], Run]) -> None:
    run = make()
    assert takeaways(replace(run, variants=())) == []


def test_a_run_of_the_reference_alone_claims_nothing() -> None:
    assert takeaways(make_run([make_record()])) == []


def batch(size: int, *rounds_s: float) -> Record:
    workload = make_workload(f"batch {size}", "batch", prompts=4, batch_size=size, new_tokens=64)
    return make_record(scenario="batch", case=str(size), workload=workload, rounds_s=rounds_s)


def test_batching_that_does_not_help() -> None:
    run = make_run([batch(1, *around(1.0)), batch(4, *around(1.0))])
    (sentence,) = takeaways(run)
    assert sentence == "Batching: no gain in fp32's throughput beyond the noise of 15 %."


def test_batching_that_costs_throughput_says_so() -> None:
    """64 tokens in 2 s are half of 64 in 1 s."""
    run = make_run([batch(1, *around(1.0)), batch(4, *around(2.0)), batch(8, *around(3.0))])
    assert takeaways(run) == [
        "On fp32, batch 4 gives 0.500× the throughput of batch 1: batching costs throughput here."
    ]


@pytest.mark.parametrize("rounds_s", [(0.227, 0.227), (0.1, 0.227, 0.9)], ids=["two rounds", "rounds that scatter"])
def test_too_few_rounds_are_unknown_and_not_no(rounds_s: tuple[float, ...]) -> None:
    """Bug: "Batching did not raise fp32's throughput beyond the noise" stood beside 1,062 ms and 227 ms."""
    off = make_workload("off", cache="off")
    run = make_run(
        [
            batch(1, *(1.062, 1.0, 1.1)[: len(rounds_s)]),
            batch(4, *rounds_s),
            make_record(scenario="cache", case="dynamic", rounds_s=rounds_s),
            make_record(scenario="cache", case="off", workload=off, rounds_s=(1.062, 1.0, 1.1)[: len(rounds_s)]),
        ]
    )
    assert takeaways(run) == ["Too few rounds to show the effect of batching, the KV cache."]


def test_a_noisy_batch_size_does_not_hide_a_steady_one() -> None:
    """Bug: only the size of the best median was looked at. Where its rounds scattered, batching "did not" help, though
    another size halved the time without any doubt."""
    run = make_run([batch(1, *around(1.0)), batch(2, *around(0.5)), batch(4, 0.1, 0.2, 0.45, 4.0, 9.0)])
    assert takeaways(run)[0].startswith("On fp32, batch 2 gives 2.00× the throughput of batch 1")


def test_a_cache_that_does_not_help() -> None:
    off = make_workload("off", cache="off")
    run = make_run(
        [
            make_record(scenario="cache", case="dynamic"),
            make_record(scenario="cache", case="off", workload=off),
        ]
    )
    (sentence,) = takeaways(run)
    assert sentence.startswith("KV cache: no difference for fp32 beyond the noise of 15 %")


def test_a_cache_that_costs_time_is_not_said_to_make_no_difference() -> None:
    off = make_workload("off", cache="off")
    run = make_run(
        [
            make_record(scenario="cache", case="dynamic", median_s=2.0),
            make_record(scenario="cache", case="off", workload=off),
        ]
    )
    assert takeaways(run) == [
        "The KV cache makes fp32 slower: 0.500× as fast as without it (one prompt of 64 tokens, 16 new)."
    ]


def test_a_cache_that_is_not_there_is_not_spoken_of() -> None:
    """Bug: "the KV cache" of a model that keeps nothing but the states of recurrent layers."""
    off = make_workload("off", cache="off")
    states = replace(DECODE, cache_bytes=None, cache_bytes_read=None, state_bytes=500)
    run = make_run(
        [
            make_record(scenario="cache", case="dynamic", work=states),
            make_record(scenario="cache", case="off", workload=off, rounds_s=around(2.0)),
        ]
    )
    assert not [sentence for sentence in takeaways(run) if "KV cache" in sentence]


def test_cases_of_one_variant_keep_to_the_noise_floor() -> None:
    """Each was measured in blocks, but minutes apart. 10 % are less than the 15 % that are assumed."""
    off = make_workload("off", cache="off")
    slower = [1.1 * seconds for seconds in BLOCKS_S]
    records = [
        make_block_record(spread=0.0, scenario="cache", case="dynamic"),
        make_block_record(spread=0.0, scenario="cache", case="off", workload=off, reference_s=slower),
    ]
    (sentence,) = takeaways(make_run(records))
    assert sentence.startswith("KV cache: no difference for fp32 beyond the noise of 15 %")


DECODE = Work(
    prompt_tokens=64,
    new_tokens=16,
    batches=1,
    forward_passes=16,
    prefill_flops=None,
    decode_flops=None,
    flops_reason="not counted",
    weight_bytes_read=1000,
    cache_bytes=300,
    cache_bytes_read=3000,
    output_digest="",
)


def decoding(read_bytes_per_s: float, rows: int = 1, work: Work = DECODE) -> Run:
    """15 passes that read 18 000 bytes in 0.6 s: 30 000 a second."""
    record = make_record(workload=make_workload(prompts=rows, batch_size=rows, new_tokens=16 * rows), work=work)
    return make_run([record], [make_variant(read_bytes_per_s=read_bytes_per_s)])


@pytest.mark.parametrize(("rows", "per"), [(1, "a token"), (4, "a step")])
def test_a_decode_is_held_against_its_roofline(rows: int, per: str) -> None:
    """18 000 bytes at 60 000 a second take 0.3 s, 20 ms for each of 15 passes."""
    assert takeaways(decoding(60_000.0, rows)) == [
        f"Decode of fp32 runs at 50 % of this machine's memory bandwidth; the roofline is 20.0 ms {per}."
    ]


@pytest.mark.parametrize(("rows", "share"), [(1, "50 %"), (4, "no less than 50 %")])
def test_rows_of_a_mixture_of_experts_may_read_more_than_is_counted(rows: int, share: str) -> None:
    (sentence,) = takeaways(decoding(60_000.0, rows, replace(DECODE, weight_bytes_most=4000)))
    assert sentence.startswith(f"Decode of fp32 runs at {share} of this machine's memory bandwidth; the roofline is 20")


def test_a_decode_beyond_the_measured_limit_has_its_likely_causes() -> None:
    (sentence,) = takeaways(decoding(20_000.0))
    assert sentence.startswith("Decode of fp32 reads faster than this machine was measured to read memory: its weights")
    assert "when its limits were measured" in sentence
