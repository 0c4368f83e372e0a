"""Runs written by hand, for the tests of what follows from a run.

A plain module: pytest puts this folder on sys.path, because there is a conftest.py in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llm_bench_fixtures.answer.need import Need, Reader, parse_limits
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import (
    MemoryFacts,
    Record,
    Run,
    Scenario,
    Status,
    VariantResult,
    WorkloadFacts,
)

# As in benchmarks/, with columns where a test looks at them.
SCENARIOS = (
    Scenario("precision", "Precision", ("output_tokens_per_s", "perplexity")),
    Scenario("quantization"),
    Scenario("cache", "KV cache"),
    Scenario("padding", "", ("output_tokens_per_s", "prompt_tokens", "padded_tokens", "padding_share")),
    Scenario("batch", "Batch size"),
    Scenario("prompt_length"),
    Scenario("edge_prompts"),
)
FALLBACK = "float32 (float16 requested; CPU)"
WORKLOAD: dict[str, Any] = {
    "prompts": 1,
    "batch_size": 1,
    "prompt_tokens": 64,
    "padded_tokens": 0,
    "new_tokens": 16,
    "cache": "dynamic",
    "padding_side": "left",
}


QUALITY = {
    "loss": 3.0,
    "perplexity": 20.2,
    "ppl_ratio": 1.01,
    "ppl_ratio_error": 0.002,
    "kld_mean": 0.01,
    "top1_agreement": 0.985,
}


def around(median_s: float, spread: float = 0.01) -> tuple[float, ...]:
    """Five rounds: the median, and two to either side of it at one and two spreads."""
    return tuple(median_s * (1 + step * spread) for step in (-2, -1, 0, 1, 2))


def token_times(seconds: float, tokens: int) -> tuple[float, ...]:
    """The first after two fifths of the time, the last at its end."""
    if tokens < 2:
        return (seconds,)
    return tuple(seconds * (0.4 + 0.6 * index / (tokens - 1)) for index in range(tokens))


def asking(limits: str, want: Reader = Reader.LATENCY) -> Need:
    """As it is typed."""
    return Need(parse_limits(limits), want)


def make_workload(digest: str = "one prompt", prompts_digest: str = "", **facts: Any) -> WorkloadFacts:
    return WorkloadFacts(digest=digest, prompts_digest=prompts_digest or digest, **WORKLOAD | facts)


def make_record(
    variant: str = "fp32",
    median_s: float = 1.0,
    *,
    scenario: str = "precision",
    case: str = "",
    workload: WorkloadFacts | None = None,
    **changes: Any,
) -> Record:
    """A measured record of five rounds `around` the median, each of one batch of all its prompts.

    The first token of a batch comes after two fifths of its time, the others evenly over the rest. With `reference_s`
    it was measured in blocks.
    """
    workload = workload or make_workload()
    rounds_s = changes.pop("rounds_s", around(median_s))
    batches_s = changes.pop("batches_s", tuple((seconds,) for seconds in rounds_s))
    steps = workload.new_tokens // workload.prompts
    fields: dict[str, Any] = {
        "status": Status.MEASURED,
        "workload": workload,
        "rounds_s": rounds_s,
        "batches_s": batches_s,
        "tokens_s": tuple(tuple(token_times(seconds, steps) for seconds in batches) for batches in batches_s),
        "batch_rows": (workload.prompts,),
        "outputs": ("and so on",) * workload.prompts,
    }
    test = f"benchmarks/test_{scenario}.py::test_{scenario}[{case}-{variant}]"
    return Record(test, scenario, case, variant, **fields | changes)


BLOCKS_S = (1.0, 1.1, 0.9, 1.05, 0.95, 1.2, 0.8, 1.15, 0.85, 1.25)  # the reference's rounds


def make_block_record(
    variant: str = "fp32",
    speedup: float = 1.0,
    spread: float = 0.01,
    reference_s: Sequence[float] = BLOCKS_S,
    **changes: Any,
) -> Record:
    """A record measured in blocks with the reference, whose own it is if `speedup` is 1 and `spread` is 0.

    The ratios are the speed-up, one spread above and below it in turn (in logarithms).
    """
    factors = [math.exp(spread * (-1) ** index) / speedup for index in range(len(reference_s))]
    rounds_s = tuple(seconds * factor for seconds, factor in zip(reference_s, factors, strict=True))
    return make_record(variant, rounds_s=rounds_s, reference_s=tuple(reference_s), **changes)


def skipped_record(variant: str, reason: str, *, status: Status = Status.SKIPPED, **where: Any) -> Record:
    return make_record(variant, status=status, reason=reason, **where, rounds_s=(), batch_rows=(), outputs=())


def make_variant(identifier: str = "fp32", **changes: Any) -> VariantResult:
    """A variant that loaded: 4 MB of weights, perplexity 20."""
    fields: dict[str, Any] = {
        "description": f"what {identifier} is",
        "backend": "torch",
        "status": Status.MEASURED,
        "label": "float32",
        "configuration": f"configuration of {identifier}",
        "load_s": 0.5,
        "weight_bytes": 4_000_000,
        "quality": {"loss": 2.9957, "perplexity": 20.0},
    }
    return VariantResult(identifier, **fields | changes)


def absent_variant(identifier: str, reason: str, status: Status = Status.SKIPPED) -> VariantResult:
    return VariantResult(identifier, f"what {identifier} is", "torch", status, reason)


def make_provenance(**changes: Any) -> Provenance:
    fields: dict[str, Any] = {
        "started": "2026-01-02T03:04:05+00:00",
        "model": "tiny",
        "random_weights": False,
        "device": "cpu",
        "hardware": "a processor, 2 cores",
        "threads": 2,
        "platform": "Linux",
        "python": "3.11.7",
        "libraries": {"torch": "2.6.0"},
        "commit": "0123456789abcdef",
        "branch": "main",
        "corpus": "embedded corpus",
        "command": "pytest benchmarks/",
    }
    return Provenance(**fields | changes)


def make_run(records: Sequence[Record] = (), variants: Sequence[VariantResult] | None = None, **changes: Any) -> Run:
    """A run of the tiny model; `variants` default to one for each that the records name."""
    if variants is None:
        variants = [make_variant(name) for name in dict.fromkeys(record.variant for record in records)]
    fields: dict[str, Any] = {
        "provenance": make_provenance(),
        "reference": "fp32",
        "session_s": 12.0,
        "phase_s": {"loading": 2.0, "generating": 9.0},
        "scenarios": SCENARIOS,
    }
    return Run(variants=tuple(variants), records=tuple(records), **fields | changes)


def full_run(**changes: Any) -> Run:
    """A run like the suite's: every scenario, and a variant of every fate.

    bf16 is 1.25 times as fast as fp32, bnb-nf4 takes twice as long and a third of the memory, fp16 fell back to
    float32, autocast-fp16 was skipped, ort-fp32 failed.
    """
    variants = (
        make_variant(),
        make_variant("fp16", label=FALLBACK, configuration="configuration of fp32"),
        make_variant("bf16", label="bfloat16", weight_bytes=2_000_000, quality=QUALITY),
        make_variant(
            "bnb-nf4",
            backend="bitsandbytes",
            label="bitsandbytes nf4, computes in float32",
            base="fp32",
            quantized=True,
            weight_bytes=1_320_000,
            quality={"loss": 3.091, "perplexity": 22.0},
        ),
        absent_variant("autocast-fp16", "float16 autocast needs an accelerator; on CPU use autocast-bf16"),
        absent_variant("ort-fp32", "OutOfMemory: 512 bytes asked for", Status.ERROR),
    )
    capital = make_workload("capital", prompt_tokens=6)
    records = [
        make_record("fp32", 0.1),
        make_record("fp16", 0.102),
        make_record("bf16", 0.08, memory=MemoryFacts(12_000_000)),
        make_record("bnb-nf4", 0.2, scenario="cache", case="dynamic"),
        make_record("fp32", 0.101, scenario="cache", case="dynamic"),
        make_record(
            "fp32", 0.3, scenario="cache", case="off", workload=make_workload("off", "one prompt", cache="off")
        ),
        make_record("fp32", 0.09, scenario="quantization", case="capital", workload=capital, outputs=(" Paris",)),
        make_record("bnb-nf4", 0.18, scenario="quantization", case="capital", workload=capital, outputs=(" Rome",)),
        *(_batch(size, median_s) for size, median_s in ((1, 0.8), (2, 0.5), (4, 0.4))),
        *(_padding(case, size, padded) for case, size, padded in (("one by one", 1, 0), ("left", 4, 100))),
        *(_prompt_length(tokens, median_s) for tokens, median_s in ((16, 0.08), (256, 0.2))),
        make_record("fp32", 0.07, scenario="edge_prompts", case="empty", workload=make_workload("e", prompt_tokens=1)),
        skipped_record("autocast-fp16", "float16 autocast needs an accelerator"),
        skipped_record("ort-fp32", "OutOfMemory: 512 bytes asked for", status=Status.ERROR),
    ]
    return make_run(records, variants, **changes)


def _batch(size: int, median_s: float) -> Record:
    workload = make_workload(f"batch {size}", "batch", prompts=4, batch_size=size, prompt_tokens=80, new_tokens=64)
    batches = 4 // size
    return make_record(
        "fp32",
        median_s,
        scenario="batch",
        case=str(size),
        workload=workload,
        batches_s=tuple((seconds / batches,) * batches for seconds in around(median_s)),
        batch_rows=(size,) * batches,
    )


def _padding(case: str, size: int, padded: int) -> Record:
    workload = make_workload(
        case, "padding", prompts=4, batch_size=size, prompt_tokens=100, padded_tokens=padded, new_tokens=64
    )
    return make_record("fp32", 0.8 if size == 1 else 0.5, scenario="padding", case=case, workload=workload)


def _prompt_length(tokens: int, median_s: float) -> Record:
    workload = make_workload(f"{tokens} tokens", prompt_tokens=tokens)
    return make_record("fp32", median_s, scenario="prompt_length", case=str(tokens), workload=workload)


def whole_suite() -> Run:
    """As large as the default suite, and with all that it measures of quality: ten variants that ran and one that
    didn't, in 28 cases of seven scenarios."""
    flips = {"flips": 0.0158, "flips_low": 0.00327, "flips_high": 0.0455, "flips_lost": 2, "flips_gained": 1}
    near = {
        "perplexity": 132.87,
        "ppl_ratio": 1.0001,
        "ppl_ratio_error": 0.0001,
        "kld_mean": 1e-4,
        "top1_agreement": 0.9934,
        "choice_items": 190,
        **flips,
    }
    label = "bitsandbytes nf4, computes in bfloat16 (float32 requested; AVX512-BF16)"
    names = ["fp32", *(f"ort-int8-dynamic-{index}" for index in range(9))]
    variants = [make_variant(name, label=label, quality=near) for name in names]
    records = []
    for scenario in ("precision", "quantization", "cache", "padding", "batch", "prompt_length", "edge_prompts"):
        for number in range(4):
            workload = make_workload(f"{scenario} {number}", scenario, batch_size=2**number)
            for index, name in enumerate(names):
                speedup, spread = (1.0, 0.0) if name == "fp32" else (0.5 + index / 5, 0.01)
                where = {"scenario": scenario, "case": f"case {number} of some", "workload": workload}
                memory = MemoryFacts(100_000_000 + index)
                records.append(make_block_record(name, speedup, spread, memory=memory, **where))
    skipped = [skipped_record("autocast-fp16", "needs an accelerator", case=str(number)) for number in range(9)]
    provenance = make_provenance(
        hardware="Intel(R) Xeon(R) Processor, 2 cores",
        platform="Linux-6.18.44-fc-v669-x86_64-with-glibc2.36",
        libraries={f"a-library-of-this-length-{number}": "1.2.3+cpu" for number in range(9)},
        read_bytes_per_s=30e9,
        matmul_flops_per_s={"float32": 335e9, "bfloat16": 2088e9},
        energy="not measured: no energy counter of the processor: /sys/class/powercap shows no package",
    )
    absent = make_variant("autocast-fp16", label="", reason="float16 autocast needs an accelerator")
    return make_run([*records, *skipped], [*variants, absent], provenance=provenance)
