"""Exact counts of a workload and of its forward passes: the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.metrics.metric import Direction, Kind, Metric, ReportTable, Unit, Value
from llm_bench_fixtures.results.record import Record, VariantResult, WorkloadFacts


def _of_workload(value: Callable[[WorkloadFacts], float | None]) -> Value:
    return lambda record, _: value(record.workload) if record.workload else None


def _of_work(value: Callable[[Work], float | None]) -> Value:
    """None for a backend whose model doesn't run through transformers' `generate`: nothing of it was seen."""
    return lambda record, _: value(record.work) if record.work and record.work.forward_passes else None


def _padding_share(record: Record, _: VariantResult) -> float | None:
    if not record.workload:
        return None
    return record.workload.padded_tokens / (record.workload.padded_tokens + record.workload.prompt_tokens)


# What a row does not say.
_row = partial(Metric, unit=Unit.BYTES, direction=Direction.LOWER_IS_BETTER, kind=Kind.EXACT)
_flops = partial(_row, unit=Unit.FLOPS, source="torch.utils.flop_counter")
_tokens = partial(_row, unit=Unit.TOKENS)

EXACT: tuple[Metric, ...] = (
    _tokens(
        name="new_tokens",
        title="New tokens",
        column="new tokens",
        direction=Direction.NEITHER,
        formula="tokens generated in a round, over all prompts",
        value=_of_workload(lambda workload: workload.new_tokens),
        tables={ReportTable.SCENARIO: 50},
    ),
    _tokens(
        name="prompt_tokens",
        title="Prompt tokens",
        column="prompt tokens",
        direction=Direction.NEITHER,
        formula="tokens of the prompts of a round, padding not counted",
        value=_of_workload(lambda workload: workload.prompt_tokens),
        tables={ReportTable.SCENARIO: 40},
    ),
    _tokens(
        name="padded_tokens",
        title="Padding tokens",
        column="padding tokens",
        formula="positions of a round's batches that hold padding",
        value=_of_workload(lambda workload: workload.padded_tokens),
    ),
    _row(
        name="padding_share",
        title="Share of padding",
        column="padding share",
        unit=Unit.SHARE,
        formula="padded_tokens / (padded_tokens + prompt_tokens)",
        value=_padding_share,
    ),
    _row(
        name="forward_passes",
        title="Forward passes",
        column="forward passes",
        unit=Unit.COUNT,
        formula="calls of the model in a round, counted in a pass of its own",
        value=_of_work(lambda work: work.forward_passes),
        tables={ReportTable.MEMORY: 80},
    ),
    _flops(
        name="prefill_flops",
        title="FLOPs of the prefill",
        column="prefill FLOPs",
        formula=(
            "floating-point operations of the architecture's matrix multiplications, "
            "padding and masked positions included; for a mixture of experts, those of the experts that a position uses"
        ),
        value=_of_work(lambda work: work.prefill_flops),
        tables={ReportTable.MEMORY: 90},
    ),
    _flops(
        name="decode_flops",
        title="FLOPs of the decode",
        column="decode FLOPs",
        formula="prefill_flops' count, for all forward passes after the first of each batch",
        value=_of_work(lambda work: work.decode_flops),
        tables={ReportTable.MEMORY: 100},
    ),
    _row(
        name="weight_bytes_read",
        title="Weights read",
        column="weights read",
        formula=(
            "bytes of the weights that each forward pass reads, without tables that are only looked up; for a mixture "
            "of experts, what one position reads, and positions that run together may read more"
        ),
        value=_of_work(lambda work: work.weight_bytes_read),
        tables={ReportTable.MEMORY: 20},
    ),
    _row(
        name="cache_bytes_read",
        title="Cache read",
        column="cache read",
        formula="bytes of keys and values that the decode's forward passes read; none where the model keeps none",
        value=_of_work(lambda work: work.cache_bytes_read),
        tables={ReportTable.MEMORY: 40},
    ),
    _row(
        name="cache_bytes",
        title="KV cache",
        column="KV cache",
        formula=(
            "most bytes of keys and values that a batch keeps for its next step; a sliding window's are those in the "
            "window; none where the model keeps none"
        ),
        value=_of_work(lambda work: work.cache_bytes),
        tables={ReportTable.MEMORY: 30},
    ),
    _row(
        name="state_bytes",
        title="Recurrent state",
        column="state",
        formula=(
            "most bytes of recurrent layers' states (state spaces, convolutions) that a batch keeps for its next step, "
            "which reads them whole, however long the text is; none where the model has no such layers"
        ),
        value=_of_work(lambda work: work.state_bytes or None),
        tables={ReportTable.MEMORY: 35},
    ),
)
