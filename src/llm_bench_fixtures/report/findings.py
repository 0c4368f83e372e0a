"""What is said of a run, computed once, so that page, Markdown and terminal can't disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from llm_bench_fixtures.answer.agreement import Agreement, agreement_of
from llm_bench_fixtures.answer.evidence import Evidence, evidence_of
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need
from llm_bench_fixtures.answer.threads import InThreads, compare_threads
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.history.saved import has_raw_data
from llm_bench_fixtures.progress import about
from llm_bench_fixtures.report.agreement import agreement_sentence, agreement_warnings
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.tables.on_request import thread_sentences
from llm_bench_fixtures.report.words.answer import Answer, answer_of
from llm_bench_fixtures.report.words.flags import flags, noise_warning, variant_flags
from llm_bench_fixtures.report.words.measured import added_metrics, timing_costs
from llm_bench_fixtures.report.words.takeaways import decode_sentences, takeaways
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.metrics.tasks import with_tasks
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Run, Status

NO_RAW_DATA = (
    "Generated texts and the times of single tokens were not saved with this run, so what needs them is left out; "
    "--benchmark-save-data keeps them."
)
INSTALL = "pip install "  # with which the reasons of what isn't installed end
_Reason: TypeAlias = tuple[str, Status, str]  # variant, status and first line


@dataclass(frozen=True)
class SkippedOrFailed:
    """Benchmarks of a variant that were skipped, or that failed, for the same reason."""

    variant: str
    status: Status
    reason: str
    """First line of the reason."""
    benchmarks: int
    """How many."""

    @property
    def install(self) -> str:
        """The command that would help; empty where no installation does."""
        _, found, what = self.reason.partition(INSTALL)
        return f"{found}{what}"

    @property
    def cause(self) -> str:
        """The reason without that command."""
        return self.reason.removesuffix(self.install).rstrip(": ")


@dataclass(frozen=True)
class Findings(Evidence):
    """Everything that the report says of a run beyond its numbers."""

    metrics: Mapping[str, Metric]
    """The registry with the project's own, by name."""
    added: tuple[Metric, ...]
    """The project's own metrics that the run has values for."""
    header: str
    """Header: what was loaded, and where it ran."""
    decode: str
    """How near the reference's decode comes to the machine's limits; empty where that isn't known."""
    noisy: str
    """Meaning of a noisy machine for the answer, to be said before it; empty of a calm one."""
    warnings: tuple[str, ...]
    """Further warnings that a reader must not miss."""
    answer: Answer
    """Answer: what to use here, what it costs, and what is not worth using."""
    takeaways: tuple[str, ...]
    """Further conclusions from the records, the most useful first."""
    flags: Mapping[str, tuple[str, ...]]
    """Unusual things about a record, by its test."""
    variant_flags: Mapping[str, tuple[str, ...]]
    """Unusual things about a variant, by its id."""
    skipped_or_failed: tuple[SkippedOrFailed, ...]
    instrumentation: tuple[str, ...]
    """Costs of taking the tokens' times, a sentence a variant."""
    threads: tuple[InThreads, ...] = ()
    """The sweep over threads; `run` is without it."""
    changes: Changes | None = None
    """Changes of the run against another; None where it stands alone."""
    agreement: Agreement | None = None
    """How far the pooled runs agree; None for a single run."""
    so_far: str = ""
    """How far the run is that still goes on: "after 3 of 24 cases"; empty of one that has ended."""


def findings_of(
    run: Run, metrics: Mapping[str, Metric], need: Need = DEFAULT_NEED, changes: Changes | None = None, so_far: str = ""
) -> Findings:
    """metrics: the registry, with what a project added to it. need: what a recommended variant must keep.
    changes: what the run changed against another. so_far: as in `Findings`."""
    evidence = evidence_of(run)
    whole, run = run, evidence.run
    agreement = agreement_of(evidence)
    agreed = [agreement_sentence(agreement)] if agreement else []
    threads = compare_threads(whole, evidence.machine)
    return Findings(
        **vars(evidence),
        metrics=with_tasks(metrics, run.provenance.tasks),
        added=tuple(added_metrics(run, metrics)),
        header=_header(run),
        decode=next(decode_sentences(evidence), ""),
        noisy=noise_warning(evidence),
        warnings=(*_warnings(whole, so_far), *(agreement_warnings(agreement) if agreement else ())),
        answer=answer_of(evidence, need),
        takeaways=(*agreed, *thread_sentences(threads, run), *takeaways(evidence)),
        flags={record.test: tuple(flags(run, record)) for record in run.records},
        variant_flags={variant.id: tuple(variant_flags(variant)) for variant in run.variants},
        skipped_or_failed=tuple(_skipped_or_failed(whole)),
        instrumentation=tuple(timing_costs(run)),
        threads=threads,
        changes=changes,
        agreement=agreement,
        so_far=so_far,
    )


def _header(run: Run) -> str:
    """`Loaded: <model> | device=<device> | dtype=<dtype>`, the dtype being the reference's as it ran."""
    reference = next((variant for variant in run.loaded if variant.id == run.reference), next(iter(run.loaded), None))
    random = " (random weights)" if run.provenance.random_weights else ""
    dtype = reference.label if reference else "nothing loaded"
    chat = " | prompts=chats" if run.provenance.chat else ""
    pooled = f" | {len(run.runs)} runs pooled" if isinstance(run, PooledRun) else ""
    return f"Loaded: {run.provenance.model}{random} | device={run.provenance.device} | dtype={dtype}{chat}{pooled}"


def _warnings(run: Run, so_far: str) -> Iterator[str]:
    if so_far:
        yield f"Unfinished: this is the report so far, {so_far}, at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC."
    if not has_raw_data(run):
        yield NO_RAW_DATA
    if run.interrupted:
        which = "One of the runs" if isinstance(run, PooledRun) else "The run"
        how = "" if isinstance(run, PooledRun) else " --llm-resume goes on with it."
        yield f"{which} was interrupted; this is what had finished by then.{how}"
    if unreached := run.not_reached():
        yield _not_reached(run, len(unreached))
    for candidate in run.provenance.passed_over:
        yield f"Not used: {candidate}."
    if run.provenance.random_weights:
        yield "Random weights: speed and memory are real, the generated text is meaningless."
    if run.reference not in [variant.id for variant in run.variants]:
        yield f"The reference, {run.reference}, is not among --llm-variants, so there is nothing to compare with."
    if failed := [variant.id for variant in run.variants if variant.status is Status.ERROR]:
        yield f"Failed to load: {', '.join(failed)}."


def _not_reached(run: Run, unreached: int) -> str:
    """How much of what was to be measured was; of nothing, what there would have been time for."""
    measured = len(run.measured())
    within = f" in {about(run.time_limit_s)}" if run.time_limit_s else ""
    said = f"Not reached{within}: {measured} of {count(measured + unreached, 'benchmark')} measured"
    reasons = [variant.reason for variant in run.variants if variant.status is Status.NOT_REACHED]
    why = f" ({first_line(reasons[0])})" if reasons and not measured else ""
    return f"{said}{why}. A longer --llm-time reaches the others, and --llm-resume keeps these."


def _skipped_or_failed(run: Run) -> Iterator[SkippedOrFailed]:
    absent = [one for one in run.records if one.status in (Status.SKIPPED, Status.ERROR, Status.NOT_REACHED)]
    counts = Counter((one.variant, one.status, first_line(one.reason)) for one in absent)
    for (variant, status, reason), benchmarks in merge_prefixed_reasons(counts).items():
        yield SkippedOrFailed(variant, status, reason, benchmarks)


def merge_prefixed_reasons(counts: Mapping[_Reason, int]) -> Counter[_Reason]:
    """Count "no static cache: why" under "why"."""
    merged: Counter[_Reason] = Counter()
    for (variant, status, reason), benchmarks in counts.items():
        others = (other for their, state, other in counts if (their, state) == (variant, status) and other)
        shorter = (other for other in others if reason.endswith(f": {other}"))
        merged[variant, status, next(shorter, reason)] += benchmarks
    return merged
