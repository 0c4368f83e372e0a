"""A run with everything that the page draws, written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from run_factory import (
    BLOCKS_S,
    absent_variant,
    make_block_record,
    make_provenance,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
)

from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import MemoryFacts, Record, Run, VariantResult

MISSING_LIBRARY = "bitsandbytes is not installed: pip install 'llm-bench-fixtures[bitsandbytes]'"
SPEEDUPS = {"fp32": 1.0, "bf16": 0.8, "ort-fp32": 1.3, "ort-int8": 1.5}
WEIGHTS = {"fp32": 4_000_000, "bf16": 2_000_000, "ort-fp32": 4_000_000, "ort-int8": 1_000_000}
PEAKS = {"fp32": 100e6, "bf16": 50e6, "ort-fp32": 200e6, "ort-int8": 150e6}
WIDE = (
    "fp32", "fp16", "bf16", "autocast-bf16", "ort-fp32", "ort-int8-dynamic", "ort-int8-static", "bnb-int8", "bnb-nf4",
    "bnb-fp4",
)  # fmt: skip
TEXTS = {"fp32": " Paris is", "bf16": " Paris is", "ort-fp32": " Paris was", "ort-int8": " Paris"}
READ_BYTES_PER_S = 10e9
FLOPS_PER_S = 100e9


def make_work(weight_bytes: int, **changes: Any) -> Work:
    """64 prompt tokens and 16 new ones: 15 decode steps, and two FLOPs a parameter of four bytes and token."""
    fields: dict[str, Any] = {
        "prompt_tokens": 64,
        "new_tokens": 16,
        "batches": 1,
        "forward_passes": 16,
        "prefill_flops": 64 * 2_000_000,
        "decode_flops": 15 * 2_000_000,
        "flops_reason": "",
        "weight_bytes_read": weight_bytes,
        "cache_bytes": 1000,
        "cache_bytes_read": 0,
        "output_digest": "",
    }
    return Work(**fields | changes)


def record(variant: str, factor: float = 1.0, **where: Any) -> Record:
    spread = 0.0 if variant == "fp32" else 0.01
    speedup = 1.0 if variant == "fp32" else SPEEDUPS[variant] * factor
    facts = {"memory": MemoryFacts(int(PEAKS[variant])), "work": make_work(WEIGHTS[variant])}
    return make_block_record(variant, speedup, spread, BLOCKS_S, **{**facts, **where})


def variant(identifier: str, backend: str, **quality: float) -> VariantResult:
    return make_variant(
        identifier,
        backend=backend,
        weight_bytes=WEIGHTS[identifier],
        quality={"perplexity": 20.0, **quality},
        matmul_flops_per_s=FLOPS_PER_S,
        read_bytes_per_s=READ_BYTES_PER_S,
    )


def chart_run(**changes: Any) -> Run:
    """Four variants of two backends in every scenario that the page draws, and one that isn't installed.

    bf16 is slower, needs half the memory and is near-lossless; ort-int8 is the fastest, and its perplexity 2 % higher.
    """
    variants = (
        variant("fp32", "torch"),
        variant("bf16", "torch", ppl_ratio=1.001, ppl_ratio_error=0.0005),
        variant("ort-fp32", "onnxruntime", ppl_ratio=1.0, ppl_ratio_error=0.0),
        variant("ort-int8", "onnxruntime", ppl_ratio=1.02, ppl_ratio_error=0.001),
        absent_variant("bnb-nf4", MISSING_LIBRARY),
    )
    limits = {"read_bytes_per_s": READ_BYTES_PER_S, "matmul_flops_per_s": {"float32": FLOPS_PER_S}}
    provenance = make_provenance(**{**limits, **changes.pop("provenance", {})})
    return make_run([*_records()], variants, provenance=provenance, **changes)


def _records() -> list[Record]:
    capital = make_workload("capital", prompt_tokens=6)
    records = [record(name) for name in SPEEDUPS]
    for name in SPEEDUPS:
        text = {"scenario": "quantization", "case": "The capital of France", "workload": capital}
        records.append(record(name, outputs=(TEXTS[name],), **text))
    for tokens in (16, 64, 256):
        workload = make_workload(f"{tokens} tokens", prompt_tokens=tokens)
        records += [record(name, scenario="prompt_length", case=str(tokens), workload=workload) for name in SPEEDUPS]
    for size in (1, 4):
        workload = make_workload(f"batch {size}", "batch", prompts=4, batch_size=size, new_tokens=64)
        records += [record(name, size, scenario="batch", case=str(size), workload=workload) for name in SPEEDUPS]
    return [*records, skipped_record("bnb-nf4", MISSING_LIBRARY)]


def chart_findings(**changes: Any) -> Findings:
    return findings_of(chart_run(**changes), registry())


def wide_run() -> Run:
    """All default variants that run on a CPU, with flips, as wide as a real run's: in each scenario of `chart_run`."""
    backends = {name: one.backend for one in CATALOGUE if (name := one.id) in WIDE}
    labels = {name: f"{backends[name]} {name}, computes in bfloat16 (float32 requested; AVX512-BF16)" for name in WIDE}
    run = chart_run()
    facts = {
        "loss": 4.8892, "perplexity": 132.85, "bits_per_byte": 2.2356, "word_perplexity": 3810.9,
        "byte_perplexity": 4.7096, "ppl_ratio": 1.0036, "ppl_ratio_error": 0.0008, "kld_mean": 0.00249,
        "kld_error": 0.0, "kld_p50": 0.00218, "kld_p99": 0.0075, "kld_p999": 0.0123, "kld_max": 0.0223,
        "top1_agreement": 0.943, "mean_dp": 2.5e-05, "rms_dp": 0.0072, "first_divergent_token": 14.24,
        "divergent_share": 0.0812, "scored_tokens": 2000.0, "flips": 3 / 190, "flips_low": 0.0033,
        "flips_high": 0.045, "flips_lost": 1.0, "flips_gained": 2.0, "choice_items": 190.0,
    }  # fmt: skip
    own = {name: facts if name != "fp32" else {"perplexity": 132.85} for name in WIDE}
    variants = [
        make_variant(name, backend=backends[name], weight_bytes=18_432_000, quality=own[name], label=labels[name])
        for name in WIDE
    ]
    of_one = [one for one in run.records if one.variant == "bf16"]
    records = [one for one in run.records if one.variant == "fp32"]
    records += [replace(one, variant=name, test=f"{one.test} {name}") for name in WIDE[1:] for one in of_one]
    return replace(run, variants=tuple(variants), records=tuple(records))
