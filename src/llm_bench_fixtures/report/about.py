"""Where a run's numbers come from: its facts, footnotes, and the commands that repeat it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from llm_bench_fixtures.measure.memory import MemoryMethod
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.words.measured import speedup_footnotes
from llm_bench_fixtures.results.formatting import count, format_share, three_digits
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Run, Session
from llm_bench_fixtures.statistics.spread import exact_interval
from llm_bench_fixtures.text import printable

OWN = "llm-bench-fixtures"
BUILD = re.compile(r"cpu|xpu|cu\d+|rocm\d+(\.\d+)*")  # torch's builds; each names an index of PyTorch's own
TORCH_INDEX = "https://download.pytorch.org/whl/"


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
