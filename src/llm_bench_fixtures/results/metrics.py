"""The metric registry: every quantity that is reported, with its unit, direction, kind, formula and source.

Tables, plots, takeaways and docs read it, and nothing else says whether higher is better.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.results.record import Record, VariantResult


class Direction(StrEnum):
    HIGHER_IS_BETTER = "higher is better"
    LOWER_IS_BETTER = "lower is better"
    NEITHER = "neither"


class Kind(StrEnum):
    TIMING = "timing"
    MEMORY = "memory"
    QUALITY = "quality"
    EXACT = "exact"


class Unit(StrEnum):
    """Base units. How they are shown is the formatter's business."""

    SECONDS = "s"
    MILLISECONDS_PER_TOKEN = "ms/token"
    TOKENS_PER_SECOND = "tokens/s"
    TOKENS = "tokens"
    BYTES = "bytes"
    NATS_PER_TOKEN = "nats/token"
    NONE = ""


Value: TypeAlias = Callable[[Record, VariantResult], float | None]


@dataclass(frozen=True)
class Metric:
    """One reported quantity.

    column: its short title in tables. value: computes it from what was stored; None means that it is looked up by
    name in the record's extra values, then in the variant's quality values.
    """

    name: str
    title: str
    column: str
    unit: Unit
    direction: Direction
    kind: Kind
    formula: str
    source: str = ""
    value: Value | None = None

    def of(self, record: Record, variant: VariantResult) -> float | None:
        if self.value is not None:
            return self.value(record, variant)
        return record.extra.get(self.name, variant.quality.get(self.name))


def _of_rounds(summary: Callable[[tuple[float, ...]], float], least: int = 1) -> Value:
    return lambda record, _: summary(record.rounds_s) if len(record.rounds_s) >= least else None


def _interquartile_range(record: Record, _: VariantResult) -> float | None:
    if len(record.rounds_s) < 2:
        return None
    low, _median, high = record.quartiles_s
    return high - low


def _new_tokens(record: Record, _: VariantResult) -> float | None:
    return record.workload.new_tokens if record.workload else None


def _tokens_per_s(record: Record, _: VariantResult) -> float | None:
    if not record.workload or not record.rounds_s:
        return None
    return record.workload.new_tokens / record.median_s


def _ms_per_token(record: Record, _: VariantResult) -> float | None:
    if not record.workload or not record.rounds_s:
        return None
    return record.median_s / record.workload.new_tokens * 1000


def _per_sample_latency(record: Record, _: VariantResult) -> float | None:
    if not record.batches_s:
        return None
    rows = sum(record.batch_rows)
    per_round = [
        sum(seconds * count for seconds, count in zip(batches, record.batch_rows, strict=True)) / rows
        for batches in record.batches_s
    ]
    return statistics.median(per_round)


def _padding_share(record: Record, _: VariantResult) -> float | None:
    if not record.workload:
        return None
    return record.workload.padded_tokens / (record.workload.padded_tokens + record.workload.prompt_tokens)


LOWER, HIGHER, NEITHER = Direction.LOWER_IS_BETTER, Direction.HIGHER_IS_BETTER, Direction.NEITHER

METRICS: tuple[Metric, ...] = (
    Metric(
        "latency_s",
        "Latency",
        "latency",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "median over the rounds of: start of the first batch to the last token of the last",
        "all common tools",
        _of_rounds(statistics.median),
    ),
    Metric(
        "latency_mean_s",
        "Mean latency",
        "mean",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "mean of the rounds' latencies",
        "pytest-benchmark",
        _of_rounds(statistics.fmean),
    ),
    Metric(
        "latency_stddev_s",
        "Latency, standard deviation",
        "std. dev.",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "sample standard deviation of the rounds' latencies; none for one round",
        "pytest-benchmark",
        _of_rounds(statistics.stdev, least=2),
    ),
    Metric(
        "latency_iqr_s",
        "Latency, interquartile range",
        "IQR",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "upper minus lower quartile of the rounds' latencies; none for one round",
        "pytest-benchmark",
        _interquartile_range,
    ),
    Metric(
        "per_sample_latency_s",
        "Latency per sample",
        "per sample",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "mean over the prompts of the latency of the batch that each was in; waiting for earlier batches not counted",
        "own; MLPerf's per-sample latency without the queue",
        _per_sample_latency,
    ),
    Metric(
        "output_tokens_per_s",
        "Output throughput",
        "tokens/s",
        Unit.TOKENS_PER_SECOND,
        HIGHER,
        Kind.TIMING,
        "new tokens of all prompts / latency_s; the prefill's time is in it",
        "vLLM's output throughput",
        _tokens_per_s,
    ),
    Metric(
        "ms_per_token",
        "Time per new token",
        "ms/token",
        Unit.MILLISECONDS_PER_TOKEN,
        LOWER,
        Kind.TIMING,
        "latency_s / new tokens of all prompts x 1000; the prefill's time is in it, so this is not TPOT",
        "average latency per token of common tutorials",
        _ms_per_token,
    ),
    Metric(
        "new_tokens",
        "New tokens",
        "new tokens",
        Unit.TOKENS,
        NEITHER,
        Kind.EXACT,
        "tokens generated in a round, over all prompts",
        "",
        _new_tokens,
    ),
    Metric(
        "prompt_tokens",
        "Prompt tokens",
        "prompt tokens",
        Unit.TOKENS,
        NEITHER,
        Kind.EXACT,
        "tokens of the prompts of a round, padding not counted",
        "",
        lambda record, _: record.workload.prompt_tokens if record.workload else None,
    ),
    Metric(
        "padded_tokens",
        "Padding tokens",
        "padding tokens",
        Unit.TOKENS,
        LOWER,
        Kind.EXACT,
        "positions of a round's batches that hold padding",
        "",
        lambda record, _: record.workload.padded_tokens if record.workload else None,
    ),
    Metric(
        "padding_share",
        "Share of padding",
        "padding share",
        Unit.NONE,
        LOWER,
        Kind.EXACT,
        "padded_tokens / (padded_tokens + prompt_tokens)",
        "",
        _padding_share,
    ),
    Metric(
        "load_s",
        "Load time",
        "load",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "from files on disk to a model that can run; exporting and quantizing to a cache not counted",
        "optimum-benchmark",
        lambda _, variant: variant.load_s,
    ),
    Metric(
        "weight_bytes",
        "Weights",
        "weights",
        Unit.BYTES,
        LOWER,
        Kind.MEMORY,
        "bytes of parameters, buffers and quantization scales, shared storage counted once; for ONNX, of its files",
        "llama-bench's model_size",
        lambda _, variant: variant.weight_bytes,
    ),
    Metric(
        "loss",
        "Loss",
        "loss",
        Unit.NATS_PER_TOKEN,
        LOWER,
        Kind.QUALITY,
        "summed negative log-likelihood over the corpus / scored tokens",
        "Hugging Face, perplexity of fixed-length models",
    ),
    Metric(
        "perplexity",
        "Perplexity",
        "perplexity",
        Unit.NONE,
        LOWER,
        Kind.QUALITY,
        "exp(loss)",
        "Hugging Face, perplexity of fixed-length models",
    ),
    Metric(
        "scored_tokens",
        "Scored tokens",
        "scored tokens",
        Unit.TOKENS,
        NEITHER,
        Kind.EXACT,
        "tokens of the corpus that the loss is over",
    ),
)


def registry(added: Iterable[Metric] = ()) -> dict[str, Metric]:
    """Metrics by name, a project's own after ours. Raises InvalidSetting where a name is taken."""
    metrics = {metric.name: metric for metric in METRICS}
    for metric in added:
        if metric.name in metrics:
            raise InvalidSetting(f"a metric named {metric.name!r} is there already")
        metrics[metric.name] = metric
    return metrics
