"""Conditions for two runs' numbers to be comparable, the parts in which runs differ, and what may be put together as
one run: several runs that are pooled, shards of a run, the parts of a resumed one.

These must be of one version of everything that runs, on one machine, and ask for the same work. How long they measured,
and which of the tests, may differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import chain

from llm_bench_fixtures.models.attention import attention_in_words
from llm_bench_fixtures.models.backend import MEASURING
from llm_bench_fixtures.models.backends import LIBRARIES
from llm_bench_fixtures.options.table import flag_of
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Kind
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Run


def why_apart(first: Provenance, other: Provenance) -> Iterator[str]:
    """The differences that forbid it, each in words. None: the two may be put together."""
    for one in differences(fingerprint_of(first), fingerprint_of(other)):
        yield f"another {one.part}: {one.head}, not {one.base}"
    for name in MEASURING:
        versions = [origin.libraries.get(name, "none") for origin in (other, first)]
        if versions[0] != versions[1]:
            yield f"another version of {name}: {versions[0]}, not {versions[1]}"
    if other_files := other_parts(first, other):
        yield f"other files of the model: {other_files}"
    for what, now, was in (("prompts", other.prompts, first.prompts), ("questions", other.choices, first.choices)):
        if now != was:
            yield f"other {what}: {now or 'none'}, not {was or 'none'}"
    tasks = ({one.name: (one.digest, one.of, one.harness) for one in origin.tasks} for origin in (first, other))
    if other_tasks := _unlike(*tasks):
        yield f"other items, prompts or code of the task {', '.join(other_tasks)}"
    if other.commit != first.commit:
        yield f"another commit: {other.commit[:12] or 'unknown'}, not {first.commit[:12] or 'unknown'}"
    elif first.changes != other.changes or ((first.dirty or other.dirty) and not first.changes):
        yield "their uncommitted changes differ, or are unknown"
    for name in sorted({*first.options, *other.options}):
        texts = [origin.options.get(name, "") or "its default" for origin in (other, first)]
        if texts[0] != texts[1]:
            yield f"another {flag_of(name)}: {texts[0]}, not {texts[1]}"


def why_runs_apart(first: Run, other: Run) -> Iterator[str]:
    """Reasons that keep whole runs apart: provenance, and what was loaded and run."""
    yield from why_apart(first.provenance, other.provenance)
    if first.reference != other.reference:
        yield f"another reference: {other.reference}, not {first.reference}"
    configurations = [{one.id: one.configuration for one in run.loaded} for run in (first, other)]
    if names := _unlike(*configurations):
        yield f"{', '.join(names)} ran as something else"
    digests = [{one.test: one.workload.digest for one in run.records if one.workload} for run in (first, other)]
    if tests := _unlike(*digests):
        yield f"other prompts or settings in {count(len(tests), 'test')}"


def _unlike(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """The names whose values differ."""
    return [name for name in one if name in other and one[name] != other[name]]


def is_same_run(one: Run, other: Run) -> bool:
    """Whether both hold rounds of one run, as two copies of it do, or a resumed run and its first part: no two runs
    have the same times in any test."""
    rounds = [{record.test: record.rounds_s for record in run.measured()} for run in (one, other)]
    return any(times and rounds[1].get(test) == times for test, times in rounds[0].items())


def pools_of(runs: Sequence[Run]) -> list[list[int]]:
    """Which of the runs may be put together, by their places; each in the first group whose runs it may all join."""
    groups: list[list[int]] = []
    for place, run in enumerate(runs):
        found = next((group for group in groups if _may_join(run, [runs[one] for one in group])), None)
        if found is None:
            groups.append([place])
        else:
            found.append(place)
    return groups


def _may_join(run: Run, others: Sequence[Run]) -> bool:
    return all(next(why_runs_apart(other, run), None) is None for other in others)


@dataclass(frozen=True)
class Fingerprint:
    """Each field holds texts for people. Two runs agree in a part where they have the same texts."""

    machine: tuple[str, ...]
    """The processor, the number of threads and the operating system."""
    process: tuple[str, ...]
    """The device, whether each variant had a process of its own, and the attention implementation, if one was asked
    for."""
    libraries: tuple[str, ...]
    """The versions of Python and of LIBRARIES."""
    model: tuple[str, ...]
    """The model, and whether its weights are random."""
    corpus: tuple[str, ...]
    prompts: tuple[str, ...]
    """Whether they are plain text or chats."""

    @property
    def parts(self) -> list[str]:
        """All its texts."""
        return [*chain.from_iterable(astuple(self))]

    @property
    def digest(self) -> str:
        """A short name for the fingerprint: eight hex digits."""
        return hashlib.sha256("\0".join(map(", ".join, astuple(self))).encode(errors="surrogatepass")).hexdigest()[:8]


def fingerprint_of(provenance: Provenance) -> Fingerprint:
    """The fingerprint of a run."""
    versions = {**provenance.libraries, "python": provenance.python}
    return Fingerprint(
        machine=(*provenance.hardware.split(", "), count(provenance.threads, "thread"), provenance.platform),
        process=tuple(filter(None, _process(provenance))),
        libraries=tuple(f"{name} {versions[name]}" for name in _running(versions)),
        model=(provenance.model, *(["random weights"] if provenance.random_weights else [])),
        corpus=tuple(provenance.corpus.split(", ")),
        prompts=("chats", "in the model's template") if provenance.chat else ("plain text",),
    )


def _process(provenance: Provenance) -> Iterator[str]:
    yield "on CPU" if provenance.device == "cpu" else f"on {provenance.device}"
    yield "one process per variant" if provenance.isolated else "one process for all variants"
    yield attention_in_words(provenance.attention)
    if placed := provenance.options.get("device_map"):
        yield f"layers placed by {placed}"


def _running(versions: Collection[str]) -> list[str]:
    """Libraries of the named that run models, the package's backends' first; a project's own backend has others.

    llm-bench-fixtures is not among them: a commit that changes it is to be judged too.
    """
    known = ("python", *LIBRARIES)
    return [name for name in known if name in versions] + sorted(set(versions) - {*known, *MEASURING})


@dataclass(frozen=True)
class Difference:
    """A part of the fingerprint in which two runs differ."""

    part: str
    """The part's name in a sentence."""
    base: str
    """The baseline's text."""
    head: str
    """The text of the run that is compared with it."""
    unjudged: frozenset[Kind]
    """The kinds of metrics that the difference makes incomparable."""

    def __str__(self) -> str:
        return f"another {self.part}: {self.head}; the baseline's: {self.base}"


_PARTS: Mapping[str, tuple[str, frozenset[Kind]]] = {  # by the fingerprint's fields
    "machine": ("machine", frozenset({Kind.TIMING})),
    "process": ("process", frozenset({Kind.TIMING, Kind.MEMORY})),
    "libraries": ("set of libraries", frozenset({Kind.TIMING})),
    "model": ("model", frozenset(Kind)),
    "corpus": ("corpus", frozenset({Kind.QUALITY})),
    "prompts": ("kind of prompts", frozenset({Kind.TIMING, Kind.EXACT})),
}


def differences(base: Fingerprint, head: Fingerprint) -> Iterator[Difference]:
    """The parts that differ. Of the libraries, a difference names only those whose versions differ."""
    for field, (part, unjudged) in _PARTS.items():
        ours, theirs = getattr(head, field), getattr(base, field)
        if ours != theirs:
            if field == "libraries":
                ours, theirs = _only_in(ours, theirs), _only_in(theirs, ours)
            yield Difference(part, ", ".join(theirs), ", ".join(ours), unjudged)


def other_parts(base: Provenance, head: Provenance) -> str:
    """Which of weights, tokenizer and config are others than the baseline's, in a model of the same name; "" where none
    are, or where one of the runs doesn't tell."""
    if base.model != head.model:
        return ""
    shared = base.model_digests.keys() & head.model_digests.keys()
    other = sorted(part for part in shared if base.model_digests[part] != head.model_digests[part])
    return " and ".join(reversed(other))


def _only_in(own: Sequence[str], others: Sequence[str]) -> list[str]:
    return [one for one in own if one not in others] or ["none of the others"]
