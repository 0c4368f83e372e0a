"""How near a record comes to what the machine can do: from its exact counts, its times and the machine's limits.

The limits are rates that were measured: bytes read and FLOPs per second. The roofline is the least time that work can
take within them, computing and reading at once. Of a mixture of experts the bytes of a pass are those that one
position reads; positions that run together may use different experts, so that what comes of the bytes is the least.
"""

from __future__ import annotations

from dataclasses import dataclass

from llm_bench_fixtures.measure.work import roofline_s
from llm_bench_fixtures.results.prefill_decode import decode_s, median_of_rounds, prefill_s
from llm_bench_fixtures.results.record import Record, VariantResult


@dataclass(frozen=True)
class PhaseWork:
    """Work and time of the prefill or the decode of one round."""

    flops: int
    bytes_read: int
    """Bytes read of weights and cache."""
    seconds: float
    is_least: bool = False
    """Whether more bytes may have been read, as positions that run together may use different experts of a mixture."""

    @property
    def intensity(self) -> float:
        """FLOPs for each byte read."""
        return self.flops / self.bytes_read

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.seconds


def prefill_work(record: Record) -> PhaseWork | None:
    """None where its FLOPs, its bytes or its seconds are not known."""
    work, seconds = record.work, median_of_rounds(record, prefill_s)
    if not work or not work.prefill_flops or not work.weight_bytes_read or not seconds:
        return None
    bytes_read = work.batches * work.weight_bytes_read
    return PhaseWork(work.prefill_flops, bytes_read, seconds, is_least=work.weight_bytes_most is not None)


def decode_work(record: Record) -> PhaseWork | None:
    """None where its FLOPs, its bytes or its seconds are not known."""
    seconds, bytes_read = median_of_rounds(record, decode_s), _decode_bytes(record)
    if not record.work or not record.work.decode_flops or not bytes_read or not seconds:
        return None
    return PhaseWork(record.work.decode_flops, bytes_read, seconds, is_least=decode_may_read_more(record))


def decode_may_read_more(record: Record) -> bool:
    """Whether the rows of a batch may use different experts of a mixture, so that more is read than is counted."""
    is_mixture = record.work is not None and record.work.weight_bytes_most is not None
    return is_mixture and max(record.batch_rows, default=1) > 1


def mbu(record: Record, variant: VariantResult) -> float | None:
    """Share of the memory bandwidth that the decode uses. None without a cache, where the decode doesn't stream."""
    seconds, bytes_read = median_of_rounds(record, decode_s), _decode_bytes(record)
    if not record.work or not (record.work.cache_bytes_read or record.work.state_bytes):
        return None
    if not bytes_read or not seconds or not variant.read_bytes_per_s:
        return None
    return bytes_read / seconds / variant.read_bytes_per_s


def mfu(record: Record, variant: VariantResult) -> float | None:
    """Share of the matrix-multiply rate that the prefill uses."""
    seconds = median_of_rounds(record, prefill_s)
    if not record.work or not record.work.prefill_flops or not seconds or not variant.matmul_flops_per_s:
        return None
    return record.work.prefill_flops / seconds / variant.matmul_flops_per_s


def roofline_ttft_s(record: Record, variant: VariantResult) -> float | None:
    """The roofline of the mean prefill, in seconds."""
    work, flops_per_s, bytes_per_s = record.work, variant.matmul_flops_per_s, variant.read_bytes_per_s
    if not work or not work.prefill_flops or not work.weight_bytes_read or not flops_per_s or not bytes_per_s:
        return None
    bytes_read = work.batches * work.weight_bytes_read
    return roofline_s(work.prefill_flops, bytes_read, flops_per_s, bytes_per_s) / work.batches


def roofline_tpot_s(record: Record, variant: VariantResult) -> float | None:
    """The roofline of the mean decode step, in seconds.

    Where the matrix-multiply rate or the FLOPs aren't known, as with integers, only reading bounds it.
    """
    work, bytes_read = record.work, _decode_bytes(record)
    if not work or not work.decode_passes or not bytes_read or not variant.read_bytes_per_s:
        return None
    flops = work.decode_flops if work.decode_flops and variant.matmul_flops_per_s else 0
    return roofline_s(flops, bytes_read, variant.matmul_flops_per_s or 1, variant.read_bytes_per_s) / work.decode_passes


def _decode_bytes(record: Record) -> int | None:
    """Bytes of weights, cache and recurrent states that the decode's forward passes of a round read."""
    work = record.work
    if not work or not work.weight_bytes_read or not work.decode_passes:
        return None
    states = (work.state_bytes or 0) * work.decode_passes
    return work.weight_bytes_read * work.decode_passes + (work.cache_bytes_read or 0) + states
