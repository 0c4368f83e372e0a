"""Hand-written runs, and a pair, that have as much to show as possible: this folder keeps what is shown of them.

Seconds are whole microseconds, so that no digit depends on the machine that computes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from page_runs import MISSING_LIBRARY, make_work
from run_factory import (
    FALLBACK,
    absent_variant,
    full_run,
    make_block_record,
    make_provenance,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
    token_times,
)

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.measure.equivalence import Equivalence, EquivalenceVerdict, ExecutionMode
from llm_bench_fixtures.measure.open_loop import Request
from llm_bench_fixtures.models.needs import LayerCache, Parts, Taken
from llm_bench_fixtures.paired.differences import Measurand
from llm_bench_fixtures.paired.protocol import Ended, Times
from llm_bench_fixtures.paired.result import Absence, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import judge_pairs
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.paired.trial import Trial
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.metrics import Direction, Kind, Metric, Unit
from llm_bench_fixtures.results.record import MemoryFacts, Record, Run, Status, VariantResult, WorkloadFacts
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate

OWN_METRIC = Metric(
    "answer_score", "Score of the answers", "score", Unit.NONE, Direction.HIGHER_IS_BETTER, Kind.QUALITY, "own"
)
REFERENCE_S = (1.0, 1.1, 0.9, 1.062, 1.01, 1.2)  # no shown figure of theirs ends in the middle of two
NEW_TOKENS = 3
SPEEDUPS = {"fp32": 1.0, "fp16": 1.0, "bf16": 0.8, "ort-fp32": 1.3, "ort-int8": 1.5}
WEIGHT_BYTES = {"fp32": 4_000_000, "fp16": 4_000_000, "bf16": 2_000_000, "ort-fp32": 4_000_000, "ort-int8": 1_000_000}
PEAK_BYTES = {
    "fp32": 100_000_000,
    "fp16": 101_000_000,
    "bf16": 50_000_000,
    "ort-fp32": 200_000_000,
    "ort-int8": 150_000_000,
}
FITS = Parts(
    120_000_000, 4_000_000, 0, 0, is_known=True, kept=(LayerCache(8192),), taken=Taken(16_384, 0, 20_480, 0), logits=0
)
PARTS = {"fp32": FITS, "bf16": replace(FITS, weights=2_000_000), "ort-int8": replace(FITS, is_known=False)}
TEXTS = {"fp32": " Paris is", "bf16": " Paris is", "ort-fp32": " Paris was", "ort-int8": " Paris"}
FLIPS = {"flips": 0.0158, "flips_low": 0.00327, "flips_high": 0.0455, "flips_lost": 2.0, "flips_gained": 1.0}
EXACT = {
    "loss": 2.9957,
    "perplexity": 20.0,
    "bits_per_byte": 1.5,
    "choice_accuracy": 0.5,
    "choice_items": 190.0,
    "scored_tokens": 2000.0,
}
LIMITS = {"read_bytes_per_s": 10e9, "matmul_flops_per_s": {"float32": 100e9, "bfloat16": 200e9}}


def whole() -> Run:
    """Complete, in blocks: a variant of every fate, and every scenario and metric that the report has a place for."""
    provenance = make_provenance(
        **LIMITS,
        dirty=True,
        isolated=True,
        choices="embedded questions",
        energy="RAPL package-0",
        model_digests={"config": "c0ffee", "tokenizer": "decade", "weights": "facade"},
        libraries={"llm-bench-fixtures": "0.1.0", "torch": "2.6.0+cpu", "transformers": "4.56.0"},
        memory_bytes=2_000_000_000,
    )
    return make_run(
        [*_records()],
        [replace(one, parts=PARTS.get(one.id)) for one in _variants()],
        provenance=provenance,
        instrumentation_ratios={"fp32": (1.01, 1.02, 1.015), "bf16": (1.2, 1.21, 1.19)},
    )


def _variants() -> Iterator[VariantResult]:
    yield _variant(
        "fp32",
        "torch",
        quality={**EXACT, "answer_score": 0.75},
        first_generate_s=0.25,
        resident_before_load_bytes=300_000_000,
        equivalence=(
            Equivalence(ExecutionMode.CACHE, EquivalenceVerdict.EQUAL),
            Equivalence(ExecutionMode.LEFT_PADDING, EquivalenceVerdict.TIE, 0, 3, 0.0001, 0.001),
            Equivalence(ExecutionMode.BATCH, EquivalenceVerdict.DIVERGES, 1, 2, 0.5, 0.001, "positions not shifted"),
            Equivalence(ExecutionMode.STATIC_CACHE, EquivalenceVerdict.NOT_SUPPORTED, reason="no static cache"),
        ),
    )
    yield _variant("fp16", "torch", label=FALLBACK, configuration="configuration of fp32", quality=EXACT)
    near = {
        **EXACT,
        **FLIPS,
        "perplexity": 20.01,
        "ppl_ratio": 1.0005,
        "ppl_ratio_error": 0.0002,
        "kld_mean": 1e-4,
        "top1_agreement": 0.995,
    }
    yield _variant("bf16", "torch", label="bfloat16", quality=near, notes=("its norms stay in float32",))
    scored = {name: value for name, value in EXACT.items() if not name.startswith("choice")}
    same = {**scored, "ppl_ratio": 1.0, "ppl_ratio_error": 0.0, "kld_mean": 0.0, "top1_agreement": 1.0}
    yield _variant(
        "ort-fp32",
        "onnxruntime",
        quality=same,
        quality_note="its answers to questions of multiple choice were not scored",
        conversion_s=3.0,
        compile_s=1.5,
    )
    worse = {
        **EXACT,
        "perplexity": 20.4,
        "loss": 3.0155,
        **FLIPS,
        "ppl_ratio": 1.02,
        "ppl_ratio_error": 0.001,
        "kld_mean": 0.0025,
        "kld_error": 0.0001,
        "kld_p99": 0.0075,
        "kld_max": 0.0223,
        "top1_agreement": 0.943,
        "mean_dp": 2.5e-05,
        "rms_dp": 0.0072,
        "first_divergent_token": 14.24,
        "divergent_share": 0.0812,
    }
    yield _variant(
        "ort-int8",
        "onnxruntime",
        label="int8 weights, computes in float32",
        quality=worse,
        base="ort-fp32",
        quantized=True,
        quantized_share=0.97,
    )
    yield absent_variant("bnb-nf4", MISSING_LIBRARY)
    yield absent_variant("autocast-fp16", "float16 autocast needs an accelerator; on CPU use autocast-bf16")
    yield absent_variant("torchao-int4", "OutOfMemory: 512 bytes asked for", Status.ERROR)


def _variant(name: str, backend: str, **facts: Any) -> VariantResult:
    roof = {"matmul_flops_per_s": 100e9, "read_bytes_per_s": 10e9}
    return make_variant(name, backend=backend, weight_bytes=WEIGHT_BYTES[name], **{**roof, **facts})


def _records() -> Iterator[Record]:
    for name in SPEEDUPS:
        waited_s = (0.5,) * 4 + (0.0,) * 2 if name == "bf16" else (0.0,) * 6
        yield _record(name, waited_s=waited_s, energy_j=(2.0, 2.1, 1.9, 2.0, 2.0, 2.2), pauses=12)
    for name, text in TEXTS.items():
        facts = _workload("capital", prompt_tokens=6)
        yield _record(name, scenario="quantization", case="The capital of France", workload=facts, outputs=(text,))
    for tokens, factor in ((16, 0.5), (256, 4.0)):
        for name in ("fp32", "bf16", "ort-int8"):
            facts = _workload(f"{tokens} tokens", prompt_tokens=tokens)
            yield _record(name, factor, scenario="prompt_length", case=str(tokens), workload=facts)
    for size, factor in ((1, 4.0), (4, 1.5)):
        for name in ("fp32", "ort-fp32"):
            facts = _workload(f"batch {size}", "batch", prompts=4, batch_size=size, prompt_tokens=256)
            yield _record(name, factor, scenario="batch", case=str(size), workload=facts)
    for cache, factor in (("dynamic", 1.0), ("off", 3.0)):
        facts = _workload(cache, "one prompt", cache=cache)
        yield _record("fp32", factor, scenario="cache", case=cache, workload=facts, extra={"answer_score": 0.5})
    for case, size, padded in (("one by one", 1, 0), ("left", 4, 100)):
        facts = _workload(case, "padding", prompts=4, batch_size=size, prompt_tokens=100, padded_tokens=padded)
        yield _record("fp32", 2.0 / size, scenario="padding", case=case, workload=facts)
    for case, tokens, factor in (("empty", 1, 0.7), ("longest", 500, 2.5)):
        facts = _workload(case, prompt_tokens=tokens)
        yield _record("fp32", factor, scenario="edge_prompts", case=case, workload=facts, spread_share=0.2)
    for scenario in ("precision", "quantization"):
        yield skipped_record("bnb-nf4", MISSING_LIBRARY, scenario=scenario)
        yield skipped_record("torchao-int4", "OutOfMemory: 512 bytes", status=Status.ERROR, scenario=scenario)
    yield skipped_record("autocast-fp16", "float16 autocast needs an accelerator; on CPU use autocast-bf16")
    yield skipped_record("ort-int8", "no static cache: the engine has its own", scenario="cache", case="static")


def _workload(digest: str, prompts_digest: str = "", **facts: Any) -> WorkloadFacts:
    return make_workload(digest, prompts_digest, **{"new_tokens": NEW_TOKENS * facts.get("prompts", 1), **facts})


def _record(variant: str, factor: float = 1.0, *, spread_share: float = 0.0, **where: Any) -> Record:
    """factor: how many times the reference's usual seconds."""
    workload = where.pop("workload", None) or _workload("one prompt")
    reference_s = _reference_s(factor)
    facts: dict[str, Any] = {
        "memory": MemoryFacts(PEAK_BYTES[variant], method="peaks", library_bytes=10_000_000),
        "work": make_work(WEIGHT_BYTES[variant], new_tokens=workload.new_tokens, output_digest=f"{variant} wrote"),
        "probe_s": () if "scenario" in where else ((0.01, 0.02),) * len(reference_s),
        **where,
    }
    spread = 0.0 if variant == "fp32" else 0.01
    made = make_block_record(variant, SPEEDUPS[variant], spread, reference_s, workload=workload, **facts)
    return _rounded(replace(made, expected_variance=VarianceEstimate(0.0002, 8.0)), spread_share)


def _reference_s(factor: float) -> tuple[float, ...]:
    return tuple(round(seconds * factor * 0.1, 6) for seconds in REFERENCE_S)


def _rounded(record: Record, spread_share: float = 0.0) -> Record:
    """Rounds in whole microseconds, with few tokens. spread_share: how far the first and the last round are off."""
    assert record.workload is not None
    off = (-spread_share, *[0.0] * (len(record.rounds_s) - 2), spread_share)
    rounds_s = tuple(round(seconds * (1 + more), 6) for seconds, more in zip(record.rounds_s, off, strict=True))
    workload = replace(record.workload, new_tokens=NEW_TOKENS * record.workload.prompts)
    batches = workload.prompts // workload.batch_size
    batches_s = tuple((round(seconds / batches, 6),) * batches for seconds in rounds_s)
    return replace(
        record,
        workload=workload,
        rounds_s=rounds_s,
        reference_s=rounds_s if record.variant == "fp32" and record.reference_s else record.reference_s,
        batches_s=batches_s,
        batch_rows=(workload.batch_size,) * batches,
        tokens_s=tuple(
            tuple(tuple(round(time_s, 6) for time_s in token_times(seconds, NEW_TOKENS)) for seconds in of_round)
            for of_round in batches_s
        ),
    )


def interrupted() -> Run:
    """A run cut short, of a model with random weights."""
    run = cut_short()
    passed_over = ("gpt2: not in the local cache, and no network",)
    return replace(run, provenance=replace(run.provenance, random_weights=True, passed_over=passed_over))


def cut_short() -> Run:
    """Stopped by Ctrl-C in the third scenario; a test had failed by then, and one was not timed."""
    run = whole()
    first = list(run.records[:8])
    first[2] = replace(first[2], status=Status.ERROR, reason="AssertionError: another text than before")
    first[7] = replace(first[7], status=Status.NOT_MEASURED, rounds_s=(), reference_s=(), batches_s=(), tokens_s=())
    provenance = replace(run.provenance, command="pytest benchmarks/ -k 'not batch'")
    return replace(
        run,
        records=tuple(first),
        variants=run.variants[:5],
        provenance=provenance,
        interrupted=True,
        failed_tests=1,
        selection=("benchmarks/", "-k", "not batch"),
    )


def without_blocks() -> Run:
    """Each variant measured by itself, as --llm-in-process does: no record has rounds of the reference."""
    run = full_run()
    return replace(run, records=tuple(_rounded(one) if one.rounds_s else one for one in run.records))


def with_server() -> Run:
    """A server beside the reference in blocks and under loads, and another one that can't be reached."""
    note = "the server gives no likelihoods of a prompt's tokens (echo: 400 Bad Request)"
    server = make_variant(
        "endpoint-near",
        backend="endpoint",
        label="tiny at 127.0.0.1:8000 (llamacpp)",
        load_s=None,
        weight_bytes=None,
        quality={},
        quality_note=note,
        notes=("the server tells no token ids: its texts are cut into tokens anew to be compared",),
    )
    unreachable = "EndpointFailed: http://127.0.0.1:8001/v1 can't be reached: connection refused"
    away = replace(absent_variant("endpoint-far", unreachable, Status.ERROR), backend="endpoint")
    records = []
    cases = (("precision", "", 64, 10.0), ("prompt_length", "16", 16, 8.0), ("prompt_length", "256", 256, 20.0))
    for scenario, case, tokens, factor in cases:
        facts = _workload(f"{tokens} tokens", prompt_tokens=tokens)
        where = {"scenario": scenario, "case": case, "workload": facts}
        beside = _rounded(make_block_record("endpoint-near", 2.0, 0.01, _reference_s(factor), **where))
        waited_s = (0.5,) * 4 + (0.0,) * 2 if tokens == 256 else (0.0,) * 6
        uncounted = make_work(
            0,
            new_tokens=NEW_TOKENS,
            forward_passes=None,
            prefill_flops=None,
            decode_flops=None,
            weight_bytes_read=None,
            cache_bytes=None,
            cache_bytes_read=None,
            flops_reason="a server's work can't be seen",
            passes_reason="a server's work can't be seen",
        )
        records += [
            _record("fp32", factor, **where),
            replace(beside, reference_waited_s=waited_s, work=uncounted, expected_variance=VarianceEstimate(2e-4, 8.0)),
            skipped_record("endpoint-far", unreachable, status=Status.ERROR, scenario=scenario, case=case),
        ]
    provenance = make_provenance(**LIMITS, choices="embedded questions")
    variants = [next(_variants()), server, away]
    return make_run(records, variants, loads=tuple(_loads()), provenance=provenance)


def _loads() -> Iterator[LoadPoint]:
    """A rate that is sustained, one that is not, and one for which the client was late."""
    test = "benchmarks/test_load.py::test_load[endpoint-near-{:g}]"
    for rate, ttft_s, lag_s in ((1.0, 0.25, 0.0), (2.0, 3.0, 0.0), (4.0, 0.125, 0.05)):
        requests = tuple(_request(float(number), ttft_s, lag_s) for number in range(10))
        failed = (Request(10.0, 10.0, failure="429 Too Many Requests"),) if rate > 1 else ()
        early = (Request(11.0, 11.0, 11.25, 11.5, 4, 64, 32),) if rate == 2 else ()
        yield LoadPoint(
            test.format(rate), "endpoint-near", rate, 12.0, 64, 11, 1.0, 0.1, (*requests, *failed, *early), seed=1
        )


def _request(planned_s: float, ttft_s: float, lag_s: float) -> Request:
    """Eleven tokens, 20 ms apart."""
    first_s = planned_s + ttft_s
    return Request(planned_s, planned_s + lag_s, first_s, first_s + 0.2, 11, 64, 16)


def changed() -> Run:
    """`whole` after a change: something got better, something worse, and there are other tests than before."""
    run = whole()
    weights = {"bf16": 2_500_000, "ort-int8": 500_000}
    quality = {"bf16": {"perplexity": 21.0, "ppl_ratio": 1.05}, "ort-int8": {"perplexity": 20.2, "ppl_ratio": 1.01}}
    variants = tuple(
        replace(
            one,
            weight_bytes=weights.get(one.id, one.weight_bytes),
            quality={**one.quality, **quality.get(one.id, {})},
        )
        for one in run.variants
    )
    provenance = replace(
        run.provenance, started="2026-01-03T03:04:05+00:00", commit="fedcba9876543210", branch="faster", dirty=False
    )
    skipped = skipped_record("fp32", "needs a longer context", scenario="edge_prompts", case="longest")
    kept = [one for one in map(_changed, run.records) if one.test != skipped.test]
    added = _record("fp32", 1.0, scenario="cache", case="static", workload=_workload("static", cache="static"))
    return replace(run, variants=variants, records=(*kept, skipped, added), provenance=provenance)


def _changed(record: Record) -> Record:
    """ort-fp32 lost a fifth of its speed, the long prompts take twice as long, bf16 needs more memory."""
    slower = 1.25 if record.variant == "ort-fp32" else 1.0
    factor = 2.0 if record.case == "256" else 1.0
    rounds_s = tuple(seconds * slower * factor for seconds in record.rounds_s)
    if not rounds_s:
        return record
    reference_s = tuple(round(seconds * factor, 6) for seconds in record.reference_s)
    made = _rounded(replace(record, rounds_s=rounds_s, reference_s=reference_s))
    if record.variant == "bf16":
        return replace(made, memory=MemoryFacts(90_000_000, method="peaks", library_bytes=10_000_000))
    if record.variant == "ort-int8":
        return replace(made, work=make_work(500_000, new_tokens=NEW_TOKENS, forward_passes=20), outputs=(" Rome",))
    return made


def other_machine() -> Run:
    run = whole()
    return replace(run, provenance=replace(run.provenance, hardware="another processor, 8 cores", threads=8))


def pair() -> PairedResult:
    """Three pairs in two variants: something slower, faster, slightly worse, the same, open, and not compared."""
    differences = {
        "test_a[bf16]": (0.1, 0.11, 0.12),
        "test_b[bf16]": (-0.2, -0.22, -0.21),
        "test_c[fp32]": (0.024, 0.027, 0.030),
        "test_d[fp32]": (0.0, 0.001, -0.001),
        "test_e[fp32]": (0.3, -0.3, 0.2),
    }
    known = {
        Measurand(test, metric): values for metric in ("latency_s", "ttft_s") for test, values in differences.items()
    }
    variants = {test: test.partition("[")[2].removesuffix("]") for test in differences}
    pairs = [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]
    found = judge_pairs(pairs, variants, 0.03, 0.05, 0.25)
    of_tests = {one: finding for one, finding in found.items() if isinstance(one, Measurand)}
    assert {finding.verdict for finding in of_tests.values()} >= {Verdict.REGRESSED, Verdict.IMPROVED}
    times = Times(1.0, 0.4, 0.05, 20.0, (0.4,), (0.05, 0.06))
    trial = Trial(
        collected=[(*differences, "test_new[fp32]"), (*differences, "test_gone[fp32]")],
        rounds={"test_a[bf16]": [(times, Times(1.1, 0.5, None, None))]},
        prefills={"test_a[bf16]": [(times, times)]},
        variants=variants,
        endings={"test_a[bf16]": [Ended("test_a[bf16]", Status.MEASURED), Ended("test_a[bf16]", Status.ERROR, "why")]},
        workloads={"test_a[bf16]": ["digest", "digest"]},
        total_s=4.0,
        is_complete=True,
    )
    return PairedResult(
        base="commit 1234",
        head="folder /project",
        threshold=0.03,
        threads=1,
        cores=(0, 1),
        first_analysis=3,
        analyses=2,
        findings=of_tests,
        groups={one: finding for one, finding in found.items() if isinstance(one, HypothesisGroup)},
        variants=variants,
        differences=known,
        not_compared=(
            NotCompared("test_new[fp32]", Absence.NEW, "HEAD"),
            NotCompared("test_gone[fp32]", Absence.VANISHED, "BASE"),
            NotCompared("test_f[fp32]", Absence.SKIPPED, "HEAD", "no backend"),
            NotCompared("test_g[fp32]", Absence.FAILED, "HEAD", "AssertionError: no"),
            NotCompared("test_h[fp32]", Absence.CHANGED),
        ),
        runs=(),
        trials=(trial, replace(trial, total_s=5.0), replace(trial, is_complete=True)),
        elapsed_s=12.0,
        at_once=2,
    )
