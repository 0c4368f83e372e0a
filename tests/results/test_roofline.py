"""What a phase did and how long it took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import make_record, make_workload

from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.roofline import decode_work, prefill_work

WORK = Work(
    prompt_tokens=64,
    new_tokens=16,
    batches=1,
    forward_passes=16,
    prefill_flops=8000,
    decode_flops=3000,
    flops_reason="",
    weight_bytes_read=100,
    cache_bytes=10,
    cache_bytes_read=500,
    output_digest="",
)


def test_the_prefill_reads_the_weights_once_and_ends_with_the_first_token() -> None:
    """The first of 16 tokens comes after two fifths of the second: 8000 FLOP in 0.4 s, 80 for each of 100 bytes."""
    found = prefill_work(make_record(work=WORK))
    assert found is not None
    assert (found.bytes_read, found.seconds) == (100, pytest.approx(0.4))
    assert (found.intensity, found.flops_per_s) == (80, pytest.approx(20_000))


def test_the_decode_reads_the_weights_for_each_token_and_the_cache() -> None:
    """15 passes of 100 bytes and 500 of cache: 3000 FLOP over 2000 bytes, in 0.6 s."""
    found = decode_work(make_record(work=WORK))
    assert found is not None
    assert (found.bytes_read, found.seconds) == (2000, pytest.approx(0.6))
    assert (found.intensity, found.flops_per_s) == (1.5, pytest.approx(5000))


@pytest.mark.parametrize(("rows", "is_least"), [(1, False), (4, True)])
def test_rows_that_may_use_different_experts_read_at_least_what_is_counted(rows: int, is_least: bool) -> None:
    """The positions of a prompt always may."""
    record = make_record(
        work=replace(WORK, weight_bytes_most=900), workload=make_workload(prompts=rows, batch_size=rows)
    )
    prefill, decode = prefill_work(record), decode_work(record)
    assert prefill is not None
    assert decode is not None
    assert (prefill.bytes_read, prefill.is_least) == (100, True)
    assert (decode.bytes_read, decode.is_least) == (2000, is_least)


def test_what_was_not_counted_is_not_known() -> None:
    assert prefill_work(make_record()) is None
    assert decode_work(make_record()) is None
    uncounted = replace(WORK, prefill_flops=None, decode_flops=None)
    assert prefill_work(make_record(work=uncounted)) is None
    assert decode_work(make_record(work=uncounted)) is None
    assert prefill_work(make_record(work=WORK, tokens_s=())) is None
