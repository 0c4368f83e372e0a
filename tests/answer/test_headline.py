"""The workloads that the answer goes by, and what a variant has that ran none of them."""

from __future__ import annotations

from typing import Any

import pytest
from run_factory import (
    BLOCKS_S,
    make_block_record,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
)

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.headline import compared_records, headline_of, in_shared_rounds
from llm_bench_fixtures.results.record import Record, Run, Status


def common_workload(run: Run) -> list[Record]:
    return list(headline_of(run).common.values())


def digests(*records: tuple[str, str]) -> list[str]:
    """Variant and digest of each record of the common workload of a run with these records."""
    run = make_run([make_record(variant, workload=make_workload(digest), case=digest) for variant, digest in records])
    return [f"{record.variant} {record.workload.digest}" for record in common_workload(run) if record.workload]


def test_the_common_workload_is_the_one_that_most_variants_ran() -> None:
    chosen = digests(("fp32", "a"), ("fp32", "b"), ("bf16", "b"), ("fp16", "b"), ("bf16", "a"))
    assert chosen == ["fp32 b", "bf16 b", "fp16 b"]


def test_repeats_on_one_variant_count_once() -> None:
    run = make_run(
        [
            *(make_record("fp32", case=str(number), workload=make_workload("a")) for number in range(5)),
            make_record("fp32", workload=make_workload("b")),
            make_record("bf16", workload=make_workload("b")),
        ]
    )
    assert [record.variant for record in common_workload(run)] == ["fp32", "bf16"]


def test_among_equals_it_is_the_one_of_fewest_prompts() -> None:
    run = make_run(
        [
            make_record(workload=make_workload("batch", prompts=8)),
            make_record(case="one", workload=make_workload("one", prompts=1)),
        ]
    )
    assert [record.case for record in common_workload(run)] == ["one"]


def test_among_equals_otherwise_it_is_the_earliest() -> None:
    assert digests(("fp32", "first"), ("fp32", "second")) == ["fp32 first"]


def test_of_a_variants_records_the_one_beside_most_other_variants_counts() -> None:
    """Both cases ran the same workload; only the second on two variants, side by side."""
    run = make_run([make_record("fp32", case="first"), make_record("fp32", case="b"), make_record("bf16", case="b")])
    assert [record.case for record in common_workload(run)] == ["b", "b"]


def test_it_is_in_the_order_of_the_variants() -> None:
    run = make_run([make_record("bf16"), make_record("fp32")], [make_variant("fp32"), make_variant("bf16")])
    assert [record.variant for record in common_workload(run)] == ["fp32", "bf16"]


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.ERROR, Status.NOT_MEASURED])
def test_only_what_was_measured_counts(status: Status) -> None:
    assert common_workload(make_run([skipped_record("fp32", "why", status=status)])) == []


def test_the_reference_has_a_record_from_its_longest_turns_next_to_others() -> None:
    """Its own test was not selected; v1 was settled after three of the ten rounds."""
    records = [make_block_record("v0", 2.0), make_block_record("v1", 2.0, reference_s=BLOCKS_S[:3])]
    run = make_run(records, [make_variant(), make_variant("v0"), make_variant("v1")])
    reference, *others = map(headline_of(run).all_rounds, common_workload(run))
    assert others == records
    assert (reference.variant, reference.rounds_s, reference.memory) == ("fp32", BLOCKS_S, None)
    assert (reference.scenario, reference.case, reference.workload) == ("precision", "", make_workload())


def test_times_are_of_the_rounds_that_all_variants_shared() -> None:
    """The machine was twice as fast in the last seven rounds, when v1 was settled. Bug: fp32 stood there with 0.5 s and
    v1, which is as fast, with 1 s."""
    reference_s = (1.0, 1.01, 1.02, *(0.5 + number / 100 for number in range(7)))
    fp32 = make_block_record("fp32", spread=0.0, reference_s=reference_s)
    v0 = make_block_record("v0", 2.0, 0.0, reference_s=reference_s, waited_s=tuple(range(10)), core_to_core=(1.5,) * 10)
    v1 = make_block_record("v1", 1.0, 0.0, reference_s=reference_s[:3])
    shown = in_shared_rounds({one.variant: one for one in (fp32, v0, v1)})
    assert [shown[name].rounds_s for name in ("fp32", "v1")] == [reference_s[:3]] * 2
    assert shown["v0"].rounds_s == pytest.approx((0.5, 0.505, 0.51))
    assert (shown["v0"].waited_s, shown["v0"].core_to_core, shown["v0"].energy_j) == ((0, 1, 2), (1.5,) * 3, ())
    found = evidence_of(make_run([fp32, v0, v1]))
    assert found.common["v0"].rounds_s == shown["v0"].rounds_s
    assert found.cases_of(found.common["v0"]) == (v0,)  # speed-ups are of all


@pytest.mark.parametrize("reference_s", [(1.0, 2.0, 3.0), (1.0, 2.0, BLOCKS_S[0])], ids=["of none", "of one round"])
def test_where_they_share_too_few_each_has_its_own(reference_s: tuple[float, ...]) -> None:
    case = {"fp32": make_block_record(spread=0.0), "v0": make_block_record("v0", reference_s=reference_s)}
    assert in_shared_rounds(case) == case


def test_what_took_no_turns_keeps_its_rounds() -> None:
    case = {
        "fp32": make_block_record(spread=0.0),
        "v0": make_block_record("v0", reference_s=BLOCKS_S[:3]),
        "v1": make_record("v1"),
    }
    assert [len(one.rounds_s) for one in in_shared_rounds(case).values()] == [3, 3, len(make_record("v1").rounds_s)]


def test_the_references_own_record_of_a_case_counts_where_it_has_one() -> None:
    run = make_run([make_record("fp32", 3.0), make_block_record("v0", 2.0)])
    assert compared_records(run) == list(run.records)


def test_no_reference_that_never_loaded_is_made_up() -> None:
    run = make_run([make_block_record("v0")])
    assert compared_records(run) == list(run.records)


def length(variant: str, tokens: int, speedup: float = 1.0, cache: str = "dynamic", **where: str) -> Record:
    """One prompt of so many tokens, in blocks with the reference."""
    workload = make_workload(f"{tokens} tokens, cache {cache}", prompt_tokens=tokens, cache=cache)
    spread = 0.0 if variant == "fp32" else 0.01
    return make_block_record(
        variant, speedup, spread, case=str(tokens), workload=workload, **{"scenario": "prompt_length", **where}
    )


def cases_of(*records: Record) -> dict[str, list[str]]:
    """By variant, the prompt tokens of the cases that are pooled."""
    found = headline_of(make_run(records)).cases
    return {name: [one.case for one in cases] for name, cases in found.items()}


def test_one_prompt_is_every_length_with_the_default_cache() -> None:
    """The middle one is shown, the shorter of two; whatever else more variants ran."""
    records = [length(name, tokens) for name in ("fp32", "v0") for tokens in (256, 16, 64, 128)]
    others = [make_block_record(name) for name in ("fp32", "v0", "v1")]
    off = [length(name, 32, cache="off") for name in ("fp32", "v0")]
    headline = headline_of(make_run([*others, *off, *records]))
    assert [one.case for one in headline.cases["v0"]] == ["16", "64", "128", "256"]
    assert {name: one.case for name, one in headline.common.items()} == {"fp32": "64", "v0": "64"}
    assert list(headline.elsewhere) == ["v1"]


@pytest.mark.parametrize("status", [Status.NOT_REACHED, None])
def test_what_a_variant_has_not_reached_leaves_it_in(status: Status | None) -> None:
    """Bug: of two groups of variants, the second went on to all lengths, and the first, with the fastest, was gone from
    the answer. Here v1 was measured on one length of four when the run's time was over, or goes on."""
    lengths = (16, 64, 128, 256)
    records = [length(name, tokens) for name in ("fp32", "v0") for tokens in lengths]
    records.append(length("v1", 64))
    if status is not None:
        late = [length("v1", tokens) for tokens in (16, 128, 256)]
        records += [skipped_record("v1", "late", scenario=r.scenario, case=r.case, status=status) for r in late]
    assert cases_of(*records) == {"fp32": ["64"], "v0": ["64"], "v1": ["64"]}


def test_the_same_work_of_another_scenario_counts() -> None:
    """fp16 was measured in the precision scenario only, whose prompt is one of two lengths."""
    records = [length(name, tokens) for name in ("fp32", "v0") for tokens in (16, 64)]
    found = cases_of(*records, length("fp16", 64, scenario="precision"))
    assert found == {"fp32": ["64"], "v0": ["64"], "fp16": ["64"]}


def test_lengths_that_a_compared_variant_lacks_are_not_pooled() -> None:
    records = [length(name, tokens) for name in ("fp32", "v0") for tokens in (16, 64, 256)]
    assert cases_of(*records, length("v1", 16), length("v1", 64))["v0"] == ["16", "64"]


def test_who_can_run_less_than_half_of_the_lengths_does_not_decide_for_the_others() -> None:
    records = [length(name, tokens) for name in ("fp32", "v0") for tokens in (16, 64, 256)]
    unable = [skipped_record("v1", "too long", scenario="prompt_length", case=case) for case in ("64", "256")]
    headline = headline_of(make_run([*records, length("v1", 16), *unable]))
    assert {name: len(cases) for name, cases in headline.cases.items()} == {"fp32": 3, "v0": 3}
    assert {name: one.case for name, one in headline.elsewhere.items()} == {"v1": "16"}


def test_what_was_taken_apart_is_not_pooled() -> None:
    records = [
        make_record(
            name, scenario="prompt_length", case=str(tokens), workload=make_workload(f"{tokens}", prompt_tokens=tokens)
        )
        for name in ("fp32", "v0")
        for tokens in (16, 64, 256)
    ]
    assert cases_of(*records) == {"fp32": ["64"], "v0": ["64"]}


def test_lengths_of_one_variant_are_no_headline() -> None:
    records = [*(length("fp32", tokens) for tokens in (16, 64)), make_block_record(), make_block_record("v0", 2.0)]
    assert cases_of(*records) == {"fp32": [""], "v0": [""]}


@pytest.mark.parametrize("scenario", ["edge_prompts", "padding"])
def test_odd_prompts_and_padding_decide_only_where_there_is_nothing_else(scenario: str) -> None:
    odd = make_workload("odd", prompt_tokens=1)
    records = [make_block_record(name, scenario=scenario, workload=odd) for name in ("fp32", "v0", "v1")]
    usual = [make_block_record(name) for name in ("fp32", "v0")]
    assert list(headline_of(make_run([*records, *usual])).common) == ["fp32", "v0"]
    assert list(headline_of(make_run([*records, *usual])).elsewhere) == ["v1"]
    assert list(headline_of(make_run(records)).common) == ["fp32", "v0", "v1"]


def test_who_was_measured_elsewhere_has_its_record_of_what_most_others_ran() -> None:
    records = [
        *(make_block_record(name, case="capital", workload=make_workload("capital")) for name in ("fp32", "v0", "v1")),
        make_block_record("bf16", case="alone", workload=make_workload("alone")),
        *(make_block_record(name, case="shared", workload=make_workload("shared")) for name in ("fp32", "v0", "bf16")),
    ]
    assert {name: one.case for name, one in headline_of(make_run(records)).elsewhere.items()} == {"bf16": "shared"}


def batch(variant: str, size: int, prompts: str = "prompts", **where: str) -> Record:
    workload = make_workload(f"{prompts} {size}", prompts, prompts=4, batch_size=size)
    return make_record(variant, case=str(size), workload=workload, **{"scenario": "batch", **where})


def largest_batch_of(sizes: dict[str, tuple[int, ...]], *others: Record) -> dict[str, str]:
    """By variant, the batch size of its record. sizes: by variant, those that it ran."""
    records = [batch(name, size) for name, them in sizes.items() for size in them]
    return {name: one.case for name, one in headline_of(make_run([*others, *records])).largest_batch.items()}


def test_the_largest_batch_is_the_largest_that_half_of_the_variants_ran() -> None:
    """v1 ran out of memory at 8, and v2 at 4. Each size may have prompts of its own."""
    sizes = {"fp32": (1, 4, 8), "v0": (1, 4, 8), "v1": (1, 4), "v2": (1,)}
    others = batch("fp32", 2, prompts="others"), batch("fp32", 16, scenario="padding")
    assert largest_batch_of(sizes, *others) == {"fp32": "8", "v0": "8"}
    assert largest_batch_of(sizes | {"v0": (1, 4)}) == {"fp32": "4", "v0": "4", "v1": "4"}
    assert largest_batch_of({}) == {}


def test_where_no_batch_size_has_half_of_the_variants_it_is_the_one_that_most_ran() -> None:
    assert largest_batch_of({"fp32": (1,), "v0": (1,), "v1": (2,), "v2": (4,), "v3": (8,)}) == {"fp32": "1", "v0": "1"}


def own(variant: str, case: str, batch_size: int = 1, speedup: float = 2.0, tokens: int = 300, **facts: Any) -> Record:
    """Four prompts of the user's."""
    facts |= {"batch_size": batch_size, "prompt_tokens": tokens}
    workload = make_workload(f"own {case}", prompts=4, new_tokens=99, **facts)
    spread = 0.0 if variant == "fp32" else 0.01
    return make_block_record(variant, speedup, spread, scenario="own", case=case, workload=workload)


def test_the_users_own_prompts_take_the_place_of_lengths_and_batches() -> None:
    others = [length(name, tokens) for name in ("fp32", "v0") for tokens in (16, 64)]
    batches = [batch(name, 8) for name in ("fp32", "v0")]
    records = [own(name, *case) for name in ("fp32", "v0") for case in (("one at a time", 1), ("batch of 4", 4))]
    run = make_run([*others, *batches, *records], provenance=make_provenance(prompts="mine.jsonl (d1), 4 prompts"))
    headline = headline_of(run)
    assert {name: one.case for name, one in headline.common.items()} == dict.fromkeys(("fp32", "v0"), "one at a time")
    assert [one.case for one in headline.cases["v0"]] == ["one at a time"]
    assert {name: one.case for name, one in headline.largest_batch.items()} == dict.fromkeys(
        ("fp32", "v0"), "batch of 4"
    )
    assert headline.elsewhere == {}


def test_of_their_batches_the_largest_counts_whichever_prompts_it_has() -> None:
    """Each size has a sample of its own; v1 ran out of memory at batch 8."""
    cases = (("batch of 8", 8), ("batch of 4", 4))
    records = [own(name, *case) for name in ("fp32", "v0", "v1") for case in cases if (name, case[1]) != ("v1", 8)]
    run = make_run(records, provenance=make_provenance(prompts="mine.jsonl"))
    assert {name: one.case for name, one in headline_of(run).largest_batch.items()} == dict.fromkeys(
        ("fp32", "v0"), "batch of 8"
    )


def test_their_shapes_are_pooled_as_prompt_lengths_are() -> None:
    """The largest batch is of all shapes together."""
    shapes = (("64/8", 64), ("16/4", 16))
    records = [own(name, case, tokens=tokens) for name in ("fp32", "v0") for case, tokens in shapes]
    run = make_run(records, provenance=make_provenance(prompts="16/4, 64/8"))
    assert [one.case for one in headline_of(run).cases["v0"]] == ["16/4", "64/8"]
    assert headline_of(run).common["v0"].case == "16/4"


def test_the_first_cache_that_they_ran_with_decides() -> None:
    cases = (("static", "one at a time, cache static", 1), ("static", "batch of 4, cache static", 4))
    cases += (("dynamic", "one at a time", 1), ("dynamic", "batch of 8", 8))
    records = [own(name, case, size, cache=cache) for cache, case, size in cases for name in ("fp32", "v0")]
    headline = headline_of(make_run(records, provenance=make_provenance(prompts="mine.jsonl")))
    assert [one.case for one in headline.cases["v0"]] == ["one at a time, cache static"]
    assert headline.largest_batch["v0"].case == "batch of 4, cache static"


def test_a_cache_that_only_the_reference_can_run_with_decides_nothing() -> None:
    """Bug: the answer went by the suite's prompts where ONNX Runtime has no static cache."""
    records = [own("fp32", "one at a time, cache static", cache="static")]
    records += [own(name, "one at a time") for name in ("fp32", "v0")]
    headline = headline_of(make_run(records, provenance=make_provenance(prompts="mine.jsonl")))
    assert [one.case for one in headline.cases["v0"]] == ["one at a time"]


def test_a_scenario_that_is_called_own_decides_nothing_by_its_name() -> None:
    lengths = [length(name, tokens) for name in ("fp32", "v0") for tokens in (16, 64)]
    records = [own(name, "mine") for name in ("fp32", "v0")]
    assert [one.case for one in headline_of(make_run([*lengths, *records])).cases["v0"]] == ["16", "64"]
