"""What two runs must share for their numbers to be comparable, and the parts in which they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass

from llm_bench_fixtures.models.attention import in_words
from llm_bench_fixtures.models.backend import MEASURING
from llm_bench_fixtures.models.backends import LIBRARIES
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Kind
from llm_bench_fixtures.results.provenance import Provenance


@dataclass(frozen=True)
class Fingerprint:
    """Each field is a text for people. Two runs agree in a part where they have the same text."""

    machine: str
    """The processor, the number of threads and the operating system."""
    process: str
    """The device, whether each variant had a process of its own, and the attention implementation, if one was asked
    for."""
    libraries: str
    """The versions of Python and of LIBRARIES."""
    model: str
    """The model, and whether its weights are random."""
    corpus: str
    prompts: str
    """Whether they are plain text or chats."""

    @property
    def digest(self) -> str:
        """A short name for the fingerprint: eight hex digits."""
        return hashlib.sha256("\0".join(astuple(self)).encode(errors="surrogatepass")).hexdigest()[:8]


def fingerprint_of(provenance: Provenance) -> Fingerprint:
    """The fingerprint of a run."""
    versions = {**provenance.libraries, "python": provenance.python}
    return Fingerprint(
        machine=f"{provenance.hardware}, {count(provenance.threads, 'thread')}, {provenance.platform}",
        process=", ".join(filter(None, _process(provenance))),
        libraries=", ".join(f"{name} {versions[name]}" for name in _running(versions)),
        model=f"{provenance.model}, random weights" if provenance.random_weights else provenance.model,
        corpus=provenance.corpus,
        prompts="chats, in the model's template" if provenance.chat else "plain text",
    )


def _process(provenance: Provenance) -> Iterator[str]:
    yield f"on {provenance.device}"
    yield "each variant apart" if provenance.isolated else "all in one process"
    yield in_words(provenance.attention)


def _running(versions: Collection[str]) -> list[str]:
    """Those of the named that run models, the package's backends' first; a project's own backend has others.

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


_UNJUDGED = {
    "machine": frozenset({Kind.TIMING}),
    "process": frozenset({Kind.TIMING, Kind.MEMORY}),
    "set of libraries": frozenset({Kind.TIMING}),
    "model": frozenset(Kind),
    "corpus": frozenset({Kind.QUALITY}),
    "kind of prompts": frozenset({Kind.TIMING, Kind.EXACT}),
}


def differences(base: Fingerprint, head: Fingerprint) -> Iterator[Difference]:
    """The parts that differ. Of the libraries, a difference names only those whose versions differ."""
    for part, unjudged in _UNJUDGED.items():
        attribute = part.rpartition(" ")[2]
        ours, theirs = getattr(head, attribute), getattr(base, attribute)
        if ours != theirs:
            if attribute == "libraries":
                ours, theirs = _only_what_differs(ours, theirs)
            yield Difference(part, theirs, ours, unjudged)


def other_parts(base: Provenance, head: Provenance) -> str:
    """Which of weights, tokenizer and config are others than the baseline's, in a model of the same name; "" where none
    are, or where one of the runs doesn't tell."""
    if base.model != head.model:
        return ""
    shared = base.model_digests.keys() & head.model_digests.keys()
    other = sorted(part for part in shared if base.model_digests[part] != head.model_digests[part])
    return " and ".join(reversed(other))


def _only_what_differs(ours: str, theirs: str) -> tuple[str, str]:
    mine, others = ours.split(", "), theirs.split(", ")
    kept = [", ".join(name for name in one if name not in other) for one, other in ((mine, others), (others, mine))]
    return kept[0] or "none of the others", kept[1] or "none of the others"
