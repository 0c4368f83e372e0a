"""The metric registry: every quantity that is reported, with its unit, direction, kind, formula and source.

Tables, plots, takeaways and docs read it, and nothing else says whether higher is better.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results import phases, probe
from llm_bench_fixtures.results import roofline as limits
from llm_bench_fixtures.results.record import MemoryFacts, Record, VariantResult, WorkloadFacts
from llm_bench_fixtures.results.spread import Interval, coefficient_of_variation, interval, percentile


class Direction(StrEnum):
    """Which way a metric is better."""

    HIGHER_IS_BETTER = "higher is better"
    LOWER_IS_BETTER = "lower is better"
    NEITHER = "neither"


class Kind(StrEnum):
    """What a metric is a figure of, by which the gate judges it."""

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
    JOULES = "J"
    TOKENS_PER_JOULE = "tokens/J"
    FLOPS = "FLOP"
    SHARE = "share"
    COUNT = "count"
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


def _bound(which: Callable[[Interval], float]) -> Value:
    def value(record: Record, _: VariantResult) -> float | None:
        found = interval(record.rounds_s)
        return which(found) if found else None

    return value


def _phase(of_round: Callable[[Record, Sequence[phases.Tokens]], float | None]) -> Value:
    median = phases.median_of_rounds(of_round)
    return lambda record, _: median(record)


def _gap_percentile(share: float) -> Value:
    return lambda record, _: percentile(phases.gaps_s(record), share)


def _per_prefill_second(count: Callable[[WorkloadFacts], int]) -> Value:
    median = phases.median_of_rounds(phases.prefill_s)

    def value(record: Record, _: VariantResult) -> float | None:
        seconds = median(record)
        return count(record.workload) / seconds if record.workload and seconds else None

    return value


def _energy(record: Record, _: VariantResult) -> float | None:
    return statistics.fmean(record.energy_j) if record.energy_j else None


def _tokens_per_joule(record: Record, variant: VariantResult) -> float | None:
    joules = _energy(record, variant)
    return record.workload.new_tokens / joules if record.workload and joules else None


def _probe_median(part: int) -> Value:
    def value(record: Record, _: VariantResult) -> float | None:
        medians = probe.medians_s(record.probe_s)
        return medians[part] if medians else None

    return value


def _of_work(value: Callable[[Work], float | None]) -> Value:
    """None for a backend whose model doesn't run through `forward`: nothing of it was seen."""
    return lambda record, _: value(record.work) if record.work and record.work.forward_passes else None


def _of_memory(value: Callable[[MemoryFacts], float | None]) -> Value:
    return lambda record, _: value(record.memory) if record.memory else None


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
        "latency_cv",
        "Latency, coefficient of variation",
        "CV",
        Unit.SHARE,
        LOWER,
        Kind.TIMING,
        "standard deviation / mean of the rounds' latencies; below 5 % excellent, 10 % good, 20 % fair, else unstable",
        "aiperf's bands",
        lambda record, _: coefficient_of_variation(record.rounds_s),
    ),
    Metric(
        "latency_low_s",
        "Latency, lower bound",
        "from",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "lower end of Student's 95 % interval of the rounds' geometric mean; at least three rounds",
        "",
        _bound(lambda found: found.low),
    ),
    Metric(
        "latency_high_s",
        "Latency, upper bound",
        "to",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "upper end of that interval",
        "",
        _bound(lambda found: found.high),
    ),
    Metric(
        "rounds",
        "Timed rounds",
        "rounds",
        Unit.COUNT,
        NEITHER,
        Kind.TIMING,
        "number of timed rounds",
        "",
        lambda record, _: len(record.rounds_s) or None,
    ),
    Metric(
        "ttft_s",
        "Time to first token",
        "TTFT",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "start of a prompt's batch to its first new token; mean over the prompts, median over the rounds",
        "MLPerf, vLLM",
        _phase(phases.ttft_s),
    ),
    Metric(
        "tpot_s",
        "Time per output token",
        "TPOT",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "(last token - first token) / (new tokens - 1) of a prompt; mean over the prompts, median over the rounds; "
        "none for one token",
        "vLLM",
        _phase(phases.tpot_s),
    ),
    *(
        Metric(
            f"itl_p{percent}_s",
            f"Inter-token latency, {percent}th percentile",
            f"ITL p{percent}",
            Unit.SECONDS,
            LOWER,
            Kind.TIMING,
            f"{percent}th percentile of the gaps between tokens, over all batches and rounds; none for fewer than "
            f"{100 // (100 - percent)} gaps",
            "vLLM",
            _gap_percentile(percent / 100),
        )
        for percent in (50, 90, 99)
    ),
    Metric(
        "prefill_tokens_per_s",
        "Prefill throughput",
        "prefill tokens/s",
        Unit.TOKENS_PER_SECOND,
        HIGHER,
        Kind.TIMING,
        "prompt tokens, padding not counted / summed seconds of the batches up to their first token",
        "llama-bench's pp",
        _per_prefill_second(lambda workload: workload.prompt_tokens),
    ),
    Metric(
        "prefill_positions_per_s",
        "Prefill throughput with padding",
        "prefill positions/s",
        Unit.TOKENS_PER_SECOND,
        HIGHER,
        Kind.TIMING,
        "prompt tokens and padding / the same seconds: what the machine did, useful or not",
        "",
        _per_prefill_second(lambda workload: workload.prompt_tokens + workload.padded_tokens),
    ),
    Metric(
        "decode_tokens_per_s",
        "Decode throughput",
        "decode tokens/s",
        Unit.TOKENS_PER_SECOND,
        HIGHER,
        Kind.TIMING,
        "tokens after the first of all prompts / summed seconds of the batches from their first to their last token",
        "optimum-benchmark",
        _phase(phases.decode_tokens_per_s),
    ),
    Metric(
        "mbu",
        "Model bandwidth utilization",
        "MBU",
        Unit.SHARE,
        HIGHER,
        Kind.TIMING,
        "bytes of weights and cache that the decode reads / its seconds / this machine's measured read bandwidth; "
        "only with a cache",
        "Databricks, LLM inference performance engineering, 2023",
        limits.mbu,
    ),
    Metric(
        "mfu",
        "Model FLOPs utilization",
        "MFU",
        Unit.SHARE,
        HIGHER,
        Kind.TIMING,
        "FLOPs of the prefill, padding included / its seconds / this machine's measured matrix-multiply rate in the "
        "variant's dtype",
        "after PaLM",
        limits.mfu,
    ),
    Metric(
        "roofline_ttft_s",
        "Perfect time to first token",
        "perfect TTFT",
        Unit.SECONDS,
        NEITHER,
        Kind.TIMING,
        "max(FLOPs / matrix-multiply rate, bytes / read bandwidth) of the mean prefill",
        "Williams et al. 2009, roofline",
        limits.roofline_ttft_s,
    ),
    Metric(
        "roofline_tpot_s",
        "Perfect time per output token",
        "perfect TPOT",
        Unit.SECONDS,
        NEITHER,
        Kind.TIMING,
        "max(FLOPs / matrix-multiply rate, bytes / read bandwidth) of the mean decode step",
        "Williams et al. 2009, roofline",
        limits.roofline_tpot_s,
    ),
    Metric(
        "energy_j",
        "Energy",
        "energy",
        Unit.JOULES,
        LOWER,
        Kind.TIMING,
        "mean over the rounds of the joules that the machine's own counters add during a round, all that runs on it "
        "included. A mean, because a GPU's counter moves in steps of up to 0.1 s: a short round may see none or two",
        "RAPL, NVML",
        _energy,
    ),
    Metric(
        "tokens_per_joule",
        "Tokens per joule",
        "tokens/J",
        Unit.TOKENS_PER_JOULE,
        HIGHER,
        Kind.TIMING,
        "new tokens / energy_j",
        "",
        _tokens_per_joule,
    ),
    Metric(
        "probe_matmul_s",
        "Matrix product of the probe",
        "probe matmul",
        Unit.SECONDS,
        NEITHER,
        Kind.TIMING,
        "median over the rounds of a fixed float32 matrix product, run before each; only with --llm-probe",
        "own",
        _probe_median(0),
    ),
    Metric(
        "probe_read_s",
        "Memory read of the probe",
        "probe read",
        Unit.SECONDS,
        NEITHER,
        Kind.TIMING,
        "median over the rounds of a fixed read of memory, run before each; only with --llm-probe",
        "own",
        _probe_median(1),
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
        Unit.SHARE,
        LOWER,
        Kind.EXACT,
        "padded_tokens / (padded_tokens + prompt_tokens)",
        "",
        _padding_share,
    ),
    Metric(
        "forward_passes",
        "Forward passes",
        "forward passes",
        Unit.COUNT,
        LOWER,
        Kind.EXACT,
        "calls of the model in a round, counted in a pass of its own",
        "",
        _of_work(lambda work: work.forward_passes),
    ),
    Metric(
        "prefill_flops",
        "FLOPs of the prefill",
        "prefill FLOPs",
        Unit.FLOPS,
        LOWER,
        Kind.EXACT,
        "floating-point operations of the architecture's matrix multiplications, padding and masked positions included",
        "torch.utils.flop_counter",
        _of_work(lambda work: work.prefill_flops),
    ),
    Metric(
        "decode_flops",
        "FLOPs of the decode",
        "decode FLOPs",
        Unit.FLOPS,
        LOWER,
        Kind.EXACT,
        "the same for all forward passes after the first of each batch",
        "torch.utils.flop_counter",
        _of_work(lambda work: work.decode_flops),
    ),
    Metric(
        "weight_bytes_read",
        "Weights read",
        "weights read",
        Unit.BYTES,
        LOWER,
        Kind.EXACT,
        "bytes of the weights that each forward pass reads: of all but the tables that are only looked up",
        "",
        _of_work(lambda work: work.weight_bytes_read),
    ),
    Metric(
        "cache_bytes_read",
        "Cache read",
        "cache read",
        Unit.BYTES,
        LOWER,
        Kind.EXACT,
        "bytes of keys and values that the decode's forward passes read",
        "",
        _of_work(lambda work: work.cache_bytes_read),
    ),
    Metric(
        "cache_bytes",
        "KV cache",
        "KV cache",
        Unit.BYTES,
        LOWER,
        Kind.EXACT,
        "bytes of the keys and values at the end of the largest batch",
        "",
        _of_work(lambda work: work.cache_bytes),
    ),
    Metric(
        "peak_rss_bytes",
        "Peak memory",
        "peak memory",
        Unit.BYTES,
        LOWER,
        Kind.MEMORY,
        "highest resident memory of the process during a round, as a rise over before the load; in a pass of its own",
        "optimum-benchmark's max_ram",
        _of_memory(lambda memory: memory.peak_resident_bytes),
    ),
    Metric(
        "cuda_max_allocated_bytes",
        "Peak of CUDA memory, allocated",
        "CUDA allocated",
        Unit.BYTES,
        LOWER,
        Kind.MEMORY,
        "torch.cuda.max_memory_allocated during a round, in a pass of its own",
        "optimum-benchmark's max_allocated",
        _of_memory(lambda memory: memory.cuda_allocated_bytes),
    ),
    Metric(
        "cuda_max_reserved_bytes",
        "Peak of CUDA memory, reserved",
        "CUDA reserved",
        Unit.BYTES,
        LOWER,
        Kind.MEMORY,
        "torch.cuda.max_memory_reserved during a round, in a pass of its own",
        "optimum-benchmark's max_reserved",
        _of_memory(lambda memory: memory.cuda_reserved_bytes),
    ),
    Metric(
        "first_generate_s",
        "First generate",
        "first generate",
        Unit.SECONDS,
        LOWER,
        Kind.TIMING,
        "the truly first generate of a fresh process, of one prompt; only with --llm-isolate",
        "",
        lambda _, variant: variant.first_generate_s,
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
        "bits_per_byte",
        "Bits per byte",
        "bits/byte",
        Unit.NONE,
        LOWER,
        Kind.QUALITY,
        "summed negative log-likelihood / ln 2 / UTF-8 bytes of the text that the scored tokens make up",
        "lm-evaluation-harness",
    ),
    Metric(
        "word_perplexity",
        "Word perplexity",
        "word perplexity",
        Unit.NONE,
        LOWER,
        Kind.QUALITY,
        "exp(summed negative log-likelihood / words, split at whitespace, of the text that the scored tokens make up)",
        "lm-evaluation-harness",
    ),
    Metric(
        "byte_perplexity",
        "Byte perplexity",
        "byte perplexity",
        Unit.NONE,
        LOWER,
        Kind.QUALITY,
        "exp(summed negative log-likelihood / UTF-8 bytes of the text that the scored tokens make up)",
        "lm-evaluation-harness",
    ),
    Metric(
        "ppl_ratio",
        "Perplexity against the reference's",
        "ppl ratio",
        Unit.NONE,
        LOWER,
        Kind.QUALITY,
        "perplexity / the reference's, over the same tokens",
        "llama-perplexity",
    ),
    Metric(
        "ppl_ratio_error",
        "Standard error of the perplexity ratio",
        "ppl ratio ±",
        Unit.NONE,
        NEITHER,
        Kind.QUALITY,
        "ppl_ratio x standard error of the mean of the tokens' paired differences of log-likelihood",
        "llama-perplexity",
    ),
    Metric(
        "kld_mean",
        "Mean divergence from the reference",
        "KLD",
        Unit.NATS_PER_TOKEN,
        LOWER,
        Kind.QUALITY,
        "mean over the scored tokens of sum p ln(p / q): Kullback-Leibler divergence from the reference's p",
        "llama-perplexity",
    ),
    Metric(
        "kld_error",
        "Error of the mean divergence",
        "KLD ±",
        Unit.NATS_PER_TOKEN,
        NEITHER,
        Kind.QUALITY,
        "half-width of a 95 % interval of kld_mean where the reference's p were sampled; 0 where all were kept",
        "own",
    ),
    Metric(
        "kld_p50",
        "Median divergence",
        "KLD p50",
        Unit.NATS_PER_TOKEN,
        LOWER,
        Kind.QUALITY,
        "median of the tokens' divergences",
        "llama-perplexity",
    ),
    Metric(
        "kld_p99",
        "99th percentile of the divergence",
        "KLD p99",
        Unit.NATS_PER_TOKEN,
        LOWER,
        Kind.QUALITY,
        "their 99th percentile; none below 100 tokens",
        "llama-perplexity",
    ),
    Metric(
        "kld_p999",
        "99.9th percentile of the divergence",
        "KLD p99.9",
        Unit.NATS_PER_TOKEN,
        LOWER,
        Kind.QUALITY,
        "their 99.9th percentile; none below 1000 tokens",
        "llama-perplexity",
    ),
    Metric(
        "kld_max",
        "Largest divergence",
        "KLD max",
        Unit.NATS_PER_TOKEN,
        LOWER,
        Kind.QUALITY,
        "the largest of them",
        "llama-perplexity",
    ),
    *(
        Metric(
            f"{name}_error",
            f"Error of the {what} divergence",
            f"{column} ±",
            Unit.NATS_PER_TOKEN,
            NEITHER,
            Kind.QUALITY,
            f"half-width of a 95 % interval of {name}, where the reference's p were sampled",
            "own",
        )
        for name, what, column in (
            ("kld_p50", "median", "KLD p50"),
            ("kld_p99", "99th percentile of the", "KLD p99"),
            ("kld_p999", "99.9th percentile of the", "KLD p99.9"),
            ("kld_max", "largest", "KLD max"),
        )
    ),
    Metric(
        "top1_agreement",
        "Agreement on the most likely token",
        "top-1",
        Unit.SHARE,
        HIGHER,
        Kind.QUALITY,
        "share of the scored tokens where none is likelier than the reference's most likely one",
        "llama-perplexity's same top p",
    ),
    Metric(
        "mean_dp",
        "Mean change of the true token's probability",
        "mean Δp",
        Unit.NONE,
        NEITHER,
        Kind.QUALITY,
        "mean over the scored tokens of their probability less that under the reference",
        "llama-perplexity",
    ),
    Metric(
        "rms_dp",
        "Root mean square change of the true token's probability",
        "RMS Δp",
        Unit.NONE,
        LOWER,
        Kind.QUALITY,
        "square root of the mean square of the same difference",
        "llama-perplexity",
    ),
    Metric(
        "first_divergent_token",
        "First divergent token",
        "first divergent",
        Unit.NONE,
        HIGHER,
        Kind.QUALITY,
        "mean over the prompts of the index of the first new token that differs from the reference's on the same "
        "workload; the number of new tokens where none does",
        "OpenVINO's who-what-benchmark, FDT",
    ),
    Metric(
        "divergent_share",
        "Divergent share",
        "divergent",
        Unit.SHARE,
        LOWER,
        Kind.QUALITY,
        "share of the new tokens that differ from the reference's at the same place",
        "after OpenVINO's who-what-benchmark, SDT norm",
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
