"""What may be put together as one run: several runs that are pooled, shards of a run, the parts of a resumed one.

They must be of one version of everything that runs, on one machine, and ask for the same work. How long they measured,
and which of the tests, may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llm_bench_fixtures.history.fingerprint import differences, fingerprint_of, other_parts
from llm_bench_fixtures.models.backend import MEASURING
from llm_bench_fixtures.options.table import flag_of
from llm_bench_fixtures.results.formatting import count
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
    if other.prompts != first.prompts:
        yield f"other prompts: {other.prompts or 'none'}, not {first.prompts or 'none'}"
    if other.choices != first.choices:
        yield f"other questions: {other.choices or 'none'}, not {first.choices or 'none'}"
    tasks = ({one.name: (one.digest, one.of, one.harness) for one in origin.tasks} for origin in (first, other))
    if other_tasks := _unlike(*tasks):
        yield f"other items, prompts or code of the task {', '.join(other_tasks)}"
    if other.commit != first.commit:
        yield f"another commit: {other.commit[:12] or 'unknown'}, not {first.commit[:12] or 'unknown'}"
    elif first.changes != other.changes or ((first.dirty or other.dirty) and not first.changes):
        yield "uncommitted changes, which may differ"
    for name in sorted({*first.options, *other.options}):
        texts = [origin.options.get(name, "") or "its default" for origin in (other, first)]
        if texts[0] != texts[1]:
            yield f"another {flag_of(name)}: {texts[0]}, not {texts[1]}"


def why_runs_apart(first: Run, other: Run) -> Iterator[str]:
    """The same for whole runs, which also tell what was loaded and run."""
    yield from why_apart(first.provenance, other.provenance)
    if first.reference != other.reference:
        yield f"another reference: {other.reference}, not {first.reference}"
    configurations = [{one.id: one.configuration for one in run.variants if one.label} for run in (first, other)]
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


def _apart(first: Run, other: Run) -> bool:
    return any(True for _ in why_runs_apart(first, other))


def grouped(runs: Sequence[Run]) -> list[list[int]]:
    """Which of the runs may be put together, by their places; each in the first group whose runs it may all join."""
    groups: list[list[int]] = []
    for place, run in enumerate(runs):
        found = next((group for group in groups if not any(_apart(runs[one], run) for one in group)), None)
        if found is None:
            groups.append([place])
        else:
            found.append(place)
    return groups
