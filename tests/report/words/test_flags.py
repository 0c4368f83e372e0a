"""Remarks on what is unusual, with the likely cause."""

from __future__ import annotations

import pytest
from run_factory import make_block_record, make_record, make_run, make_workload, skipped_record

from llm_bench_fixtures.report.words.flags import flags
from llm_bench_fixtures.results.record import Record


def of_last(*records: Record) -> list[str]:
    return flags(make_run(records), records[-1])


def edge(case: str, median_s: float, tokens: int) -> Record:
    return make_record(
        "fp32", median_s, scenario="edge_prompts", case=case, workload=make_workload(case, prompt_tokens=tokens)
    )


def test_nothing_unusual_is_no_remark() -> None:
    assert of_last(make_record()) == []
    assert of_last(skipped_record("fp32", "why")) == []


def test_rounds_that_scatter_by_more_than_20_percent() -> None:
    """Mean 2, standard deviation 1: a coefficient of variation of 50 %."""
    assert of_last(make_record(rounds_s=(1.0, 2.0, 3.0))) == ["unstable (CV 50 %)"]


@pytest.mark.parametrize(("half_width", "remarks"), [(0.19, 0), (0.21, 1)])
def test_the_limit_is_20_percent(half_width: float, remarks: int) -> None:
    """Three rounds at 1 - w, 1, 1 + w have mean 1 and standard deviation w."""
    assert len(of_last(make_record(rounds_s=(1 - half_width, 1.0, 1 + half_width)))) == remarks


@pytest.mark.parametrize(("disturbed", "remarks"), [(5, []), (6, ["6 of 10 pairs of rounds disturbed"])])
def test_a_speedup_of_blocks_that_were_mostly_disturbed(disturbed: int, remarks: list[str]) -> None:
    waited_s = (0.5,) * disturbed + (0.0,) * (10 - disturbed)
    assert of_last(make_block_record("bf16", 2.0, waited_s=waited_s)) == remarks
    assert of_last(make_block_record("endpoint", 2.0, reference_waited_s=waited_s)) == remarks


def test_what_was_measured_alone_where_others_took_turns() -> None:
    assert of_last(make_block_record(), make_record("bf16")) == ["measured alone"]
    assert of_last(make_record("bf16"), make_block_record()) == []
    assert of_last(make_block_record(), skipped_record("bf16", "why")) == []


def test_one_round_is_not_unstable() -> None:
    assert of_last(make_record(rounds_s=(1.0,))) == []


def test_a_long_prompt_is_slow_for_its_prefill() -> None:
    remarks = of_last(edge("one token", 0.1, 1), edge("many lines", 0.1, 100), edge("longest", 0.4, 500))
    assert remarks == ["4.00× the usual latency: long prefill, 500 tokens"]


def test_a_short_prompt_that_is_slow_is_slow_for_another_reason() -> None:
    remarks = of_last(edge("one token", 0.1, 10), edge("many lines", 0.1, 10), edge("odd unicode", 0.2, 10))
    assert remarks == ["2.00× the usual latency: not the prompt's length"]


def test_a_little_slower_is_not_worth_a_remark() -> None:
    assert of_last(edge("one token", 0.1, 1), edge("longest", 0.14, 500)) == []


def test_only_edge_prompts_are_compared_with_each_other() -> None:
    fast, slow = edge("one token", 0.1, 1), make_record("fp32", 9.0, scenario="prompt_length")
    assert of_last(fast, slow) == []


def test_another_variants_edge_prompts_do_not_count() -> None:
    other = make_record("bf16", 0.1, scenario="edge_prompts", case="one token")
    assert of_last(other, edge("longest", 0.9, 500)) == []


def padded(case: str, side: str, *texts: str, batch_size: int = 2) -> Record:
    workload = make_workload(case, "same prompts", prompts=len(texts), batch_size=batch_size, padding_side=side)
    return make_record(scenario="padding", case=case, workload=workload, outputs=texts)


def test_right_padding_that_changes_the_text() -> None:
    remarks = of_last(
        padded("one by one", "left", "a", "b", batch_size=1),
        padded("left", "left", "a", "b"),
        padded("right", "right", "a", "x"),
    )
    assert remarks == ["1 of 2 texts differ from padding one by one; it continues from the padding"]


def test_left_padding_that_changes_the_text_is_not_blamed_on_the_padding() -> None:
    remarks = of_last(padded("one by one", "left", "a", "b", batch_size=1), padded("left", "left", "x", "y"))
    assert remarks == ["2 of 2 texts differ from padding one by one"]


def test_the_same_text_is_no_remark() -> None:
    assert of_last(padded("one by one", "left", "a", "b", batch_size=1), padded("right", "right", "a", "b")) == []


def test_the_plainest_way_is_never_said_to_differ() -> None:
    assert of_last(padded("right", "right", "x", "y"), padded("one by one", "left", "a", "b", batch_size=1)) == []


def cached(cache: str, text: str, prompts_digest: str = "same prompt") -> Record:
    workload = make_workload(cache, prompts_digest, cache=cache)
    return make_record(scenario="cache", case=cache, workload=workload, outputs=(text,))


def test_one_text_that_differs_with_another_cache() -> None:
    assert of_last(cached("dynamic", "a"), cached("off", "b")) == ["the text differs from cache dynamic"]


def test_other_prompts_may_have_other_texts() -> None:
    assert of_last(cached("dynamic", "a"), cached("off", "b", prompts_digest="another prompt")) == []


def test_other_variants_may_have_other_texts() -> None:
    remarks = of_last(make_record("fp32", outputs=("a",)), make_record("bf16", outputs=("b",)))
    assert remarks == []


def test_several_remarks_stand_together() -> None:
    other = cached("off", "b")
    unstable = make_record(
        scenario="cache", case="off", workload=other.workload, outputs=("b",), rounds_s=(1.0, 2.0, 3.0)
    )
    assert of_last(cached("dynamic", "a"), unstable) == ["the text differs from cache dynamic", "unstable (CV 50 %)"]
