"""Where a run's numbers come from: its facts, footnotes, and the commands that repeat it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.noise import cores_apart, drift_by_variant, in_turns_at_all, was_alone
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.measure.memory import MemoryMethod
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results.formatting import count, format_share, three_digits
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Record, Run, Session
from llm_bench_fixtures.results.speedup import disturbed_pairs
from llm_bench_fixtures.statistics.spread import exact_interval
from llm_bench_fixtures.text import printable

OWN = "llm-bench-fixtures"
BUILD = re.compile(r"cpu|xpu|cu\d+|rocm\d+(\.\d+)*")  # torch's builds; each names an index of PyTorch's own
TORCH_INDEX = "https://download.pytorch.org/whl/"
SHOWN_DRIFT = 0.05  # a calm machine shows less
NEVER_BOUND = "never"


def facts(run: Run) -> Iterator[tuple[str, str]]:
    """Where the run's numbers come from, by name."""
    provenance = run.provenance
    yield "Machine", f"{provenance.hardware}, {count(provenance.threads, 'thread')}; {provenance.platform}"
    yield "Libraries", ", ".join(f"{name} {version}" for name, version in provenance.libraries.items())
    yield "Python", provenance.python
    if provenance.read_bytes_per_s:
        found = provenance.matmul_flops_per_s.items()
        rates = ", ".join(f"{dtype} matrices {three_digits(rate / 1e9)} GFLOP/s" for dtype, rate in found)
        yield "Limits, measured", f"memory {three_digits(provenance.read_bytes_per_s / 1e9)} GB/s, {rates}"
    quality = "" if provenance.prompts else "; quality is of plain text"
    dirty = ", with uncommitted changes" if provenance.dirty else ""
    where_known = {
        "Energy": provenance.energy,
        "Isolation": "each variant in a process of its own" if provenance.isolated else "",
        "Attention": f"{provenance.attention}, as asked for" if provenance.attention else "",
        "Own prompts": provenance.prompts,
        "Prompts": f"turns in the model's chat template, whose tokens count{quality}" if provenance.chat else "",
        "Asked for": "; ".join(filter(None, (provenance.need, provenance.want))),
    }
    yield from ((name, fact) for name, fact in where_known.items() if fact)
    if provenance.commit:
        yield "Commit", f"{provenance.commit[:12]} on {provenance.branch or 'no branch'}{dirty}"
    if isinstance(run, PooledRun):
        yield "Runs", "; ".join(f"{one.source}, started {one.provenance.started}" for one in run.runs)
    elif run.earlier:
        same = f"the machine, model{', commit' * bool(provenance.commit)} and libraries are the same"
        yield "Sessions", f"{'; '.join(_sessions(run))}; {same}"
    else:
        yield "Started", provenance.started
    yield "Command", provenance.command


def _sessions(run: Run) -> Iterator[str]:
    """When each session of a resumed or merged run began, and how much of the run is its own."""
    measured = {record.test: record for record in run.measured()}
    earlier = {test for session in run.earlier for test in session.tests}
    own = Session(run.provenance.started, tuple(test for test in measured if test not in earlier))
    for session in (*run.earlier, own):
        found = [measured[test] for test in session.tests if test in measured]
        cases = {(record.scenario, record.case) for record in found}
        yield f"{session.started}: {count(len(found), 'benchmark')} of {count(len(cases), 'case')}"


def footnotes(findings: Findings) -> Iterator[str]:
    """How the numbers came to be, in sentences."""
    run = findings.run
    yield noise_footnote(findings)
    yield from speedup_footnotes(findings)
    yield "Latency includes the prefill. It is the median of the rounds ± half the distance between their quartiles."
    yield from findings.instrumentation
    if not run.provenance.random_weights:
        yield f"Quality is over the {run.provenance.corpus}."
        yield "A change of the perplexity is given ± its standard error, from paired differences of the tokens."
    yield from _choice_footnotes(run)
    if any(record.memory and record.memory.method == MemoryMethod.SAMPLED for record in run.records):
        yield f"The resident memory was {MemoryMethod.SAMPLED}: a shorter peak may have escaped."
    work = [record.work for record in run.records if record.work]
    for what, reasons in (
        ("FLOPs", [one.flops_reason for one in work]),
        ("Forward passes and the cache's bytes", [one.passes_reason for one in work]),
        ("The KV cache's bytes", [one.cache_reason for one in work]),
    ):
        yield from (f"{what} are not counted: {reason}." for reason in dict.fromkeys(reasons) if reason)
    for variant in run.variants:
        notes = [*variant.notes, *([variant.quality_note] if variant.quality_note and variant.quality else [])]
        if notes:
            yield f"{variant.id}: {'; '.join(notes)}."
    longest_first = sorted(run.phase_s.items(), key=lambda item: -item[1])
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in longest_first if seconds)
    yield f"The session{'s' * bool(run.earlier)} took {run.session_s:.0f} s: {phases}."


def speedup_footnotes(seen: Evidence) -> Iterator[str]:
    """How the speed-ups were measured, and how many comparisons the report makes with them."""
    run = seen.run
    if in_turns_at_all(run):
        yield (
            "Variants take turns in random order, always with the reference. A speed-up is the trimmed mean ratio of "
            "latencies from the same turns, with its 95 % interval."
        )
        yield from _pauses(run)
        yield from _bound(run)
        if left_out := sum(record.crowded_rounds for record in run.measured()):
            yield f"{count(left_out, 'more round')} left out, because other programs ran meanwhile."
        yield from _disturbed(run)
        yield from _apart(run)
        yield from _drifts(run)
    elif len({record.variant for record in run.measured()}) > 1:
        yield "Variants were not measured in turns: a speed-up is a ratio of medians measured at different times."
    if seen.comparisons > 1:
        yield (
            f"The {seen.comparisons} speed comparisons hold together with 95 % confidence: each is made at "
            f"{seen.confidence * 100:.4g} % (Bonferroni)."
        )
    if alone := dict.fromkeys(record.variant for record in run.records if was_alone(run, record)):
        yield f"Some benchmarks were measured alone, not in turns with the reference: those of {', '.join(alone)}."


def _pauses(run: Run) -> Iterator[str]:
    """How often rounds paused, what that does to their times, and which variants ran whole rounds."""
    records = [record for record in run.measured() if record.pauses]
    if not records:
        yield "No round paused: each turn was a whole round."
        return
    rounds, pauses = sum(len(record.rounds_s) for record in records), sum(record.pauses for record in records)
    paused = count(rounds, "round was", "rounds were")
    yield f"{paused} paused {count(pauses, 'time')} so that variants could alternate."
    if cold := sum(record.cold_steps for record in records):
        batches = chain.from_iterable(chain.from_iterable(record.tokens_s for record in records))
        steps = sum(len(tokens_s) - 1 for tokens_s in batches)
        of_all = f" of {steps:,}" if all(record.tokens_s for record in records) else ""
        yield (
            f"{cold:,}{of_all} decode steps followed a pause with cold caches: each counts as the mean of the steps "
            "after it."
        )
    whole = dict.fromkeys(record.variant for record in run.measured() if record.reference_s and not record.pauses)
    if others := [name for name in whole if all(record.variant != name for record in records)]:
        yield f"Turns of {', '.join(others)} were whole rounds."


def _bound(run: Run) -> Iterator[str]:
    """Whose computing threads had a core each in their turns; nothing where nobody's had."""
    by_variant = grouped((one for one in run.measured() if one.reference_s), lambda record: record.variant)
    ways = grouped(by_variant, lambda name: _how_often_bound(by_variant[name]))
    if ways.keys() - {NEVER_BOUND}:
        told = (f"{way} for {', '.join(names)}" for way, names in ways.items())
        yield f"Computing threads had a core each: {'; '.join(told)}."


def _how_often_bound(records: Iterable[Record]) -> str:
    free = sum(len(one.rounds_s) - one.bound_rounds for one in records)
    if not free:
        return "always"
    return "in some rounds" if any(one.bound_rounds for one in records) else NEVER_BOUND


def _disturbed(run: Run) -> Iterator[str]:
    """How many pairs of rounds were disturbed; nothing where the system doesn't tell."""
    others = [record for record in run.measured() if record.variant != run.reference]
    records = [record for record in others if record.waited_s or record.reference_waited_s]
    if rounds := sum(len(record.reference_s) for record in records):
        yield (
            f"Each round of a variant is paired with one of the reference. In {sum(map(disturbed_pairs, records))} of "
            f"{count(rounds, 'pair')}, a thread had to wait for a core."
        )


def _apart(run: Run) -> Iterator[str]:
    """In how many pairs data took long from core to core; nothing where it took long in none."""
    found = cores_apart(run)
    if found.pairs:
        yield (
            f"In {found.pairs} of {count(found.looked_at, 'pair')} the CPU cores exchanged data slowly, taking "
            f"{found.times:.2g} times as long as at best; the host may have moved them apart. That slows variants "
            "whose threads share work."
        )


def _drifts(run: Run) -> Iterator[str]:
    """How far variants' speed-ups drift between cases; nothing where none drifts far."""
    drifts = {variant: math.expm1(drift) for variant, drift in drift_by_variant(run).items()}
    by_variant = [f"{variant} {100 * drift:.0f} %" for variant, drift in drifts.items() if drift >= SHOWN_DRIFT]
    if by_variant:
        yield (
            f"Speed-ups varied between similar prompts by more than their rounds explain: {', '.join(by_variant)} "
            "(standard deviation). A machine's changing state slows some variants more than others. The intervals "
            "include this."
        )


def _choice_footnotes(run: Run) -> Iterator[str]:
    """What a flip is, and which shares of flips so few questions can't tell from none."""
    asked = [variant.quality for variant in run.variants if variant.quality.get("choice_items")]
    if any("flips" in quality for quality in asked):
        yield (
            "A flip is an answer that turned from right to wrong, or from wrong to right. Where the two cancel out, "
            "the share of right answers hides them. The interval is Clopper and Pearson's, for questions like these."
        )
        items = int(max(quality["choice_items"] for quality in asked))
        yield (
            f"No flip in {count(items, 'question')} rules out only shares above "
            f"{format_share(exact_interval(0, items)[1])}. Unsure answers flip easily, so flips say little about a "
            "model that does hardly better than guessing."
        )


def noise_footnote(findings: Findings) -> str:
    """How far apart identical work came out at different times."""
    floor = findings.noise
    differed = f"differed by up to {floor.percent:.0f} % ({floor.pairs} pairs, 95th percentile)"
    few = f"only {count(floor.pairs, 'pair')}" if floor.pairs else "no pairs"
    assumed = f"is assumed to differ by up to {floor.percent:.0f} %, as this run has {few} of it"
    how = differed if floor.pairs >= ENOUGH_PAIRS else assumed
    return f"Identical work measured at different times {how}. Smaller differences between cases are noise."


def repeat_command(run: Run) -> str:
    """A line for each step, for a shell: the commit, what was installed, and the run itself. Each word is quoted, as a
    saved run may come from anybody."""
    return "\n".join(_commands(run))


def _commands(run: Run) -> Iterator[str]:
    provenance = run.provenance
    if provenance.commit:
        yield shlex.join(["git", "switch", "--detach", printable(provenance.commit)])
        if provenance.dirty:
            yield "# and the changes that were not committed"
    libraries = dict(provenance.libraries)
    if provenance.commit and libraries.pop(OWN, ""):
        yield "pip install -e ."
    if libraries:
        yield shlex.join(["pip", "install", *map(printable, _requirements(libraries))])
    yield shlex.join(map(printable, _words(run)))


def _requirements(libraries: Mapping[str, str]) -> Iterator[str]:
    """Requirements, each at its version. No index has a local version (`+cpu`) but PyTorch's own, by the tag's name."""
    for name, version in libraries.items():
        public, _, tag = version.partition("+")
        yield f"{name}=={public}"
        if name == "torch" and BUILD.fullmatch(tag):
            yield from ("--extra-index-url", f"{TORCH_INDEX}{tag}")


def _words(run: Run) -> list[str]:
    """Words of the command line; of what it selected, where the line can't be read as a shell would."""
    try:
        return shlex.split(run.provenance.command)
    except ValueError:
        return ["pytest", *run.selection]
