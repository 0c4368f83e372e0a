"""Chooses the saved run to compare with: the newest that is fit for it, or the one that was asked for.

The newest may have had no time for some tests (--llm-time). It is a baseline for what it has. An earlier run that has
the rest stands in for it, or a slow commit would hide what it did to the tests that it left no time for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from llm_bench_fixtures.errors import InvalidSetting, StorageNotFound, UnreadableResults
from llm_bench_fixtures.history.git import git
from llm_bench_fixtures.history.headings import Heading, Unreadable, started_of
from llm_bench_fixtures.history.saved import SavedAt, read_run_of, read_saved_run, saved_at
from llm_bench_fixtures.history.storage import Storage, select_run
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.pooled import OF_QUALITY
from llm_bench_fixtures.results.record import RecordHead, Run, Status, VariantResult

MERGE_BASE, BRANCH = "merge-base", "branch"
MOST_ANCESTORS = 1000
MOST_TRIED = 20  # runs that are asked for what the newest had no time for


@dataclass(frozen=True)
class Likeness:
    """Facts of the run to be judged that are known before it runs. A baseline that is like it is preferred."""

    models: tuple[str, ...]
    """The candidates for the model."""
    random_weights: bool
    selection: tuple[str, ...]
    """Parts of the command line that narrow the tests, as in Run.selection."""


@dataclass(frozen=True)
class Baseline:
    """The run to compare with, or why there is none."""

    run: Run | None
    """Run with what it had no time for as earlier runs have it, unless it was named."""
    reason: str = ""
    """Why there is no run; empty where there is one."""
    passed_over: tuple[str, ...] = ()
    """Newer files that are not fit, and files that can't be read, each with the reason."""
    notes: tuple[str, ...] = ()
    """Which earlier runs stand in for it, and for how much; without a full stop."""


@dataclass(frozen=True)
class Origin:
    """Which runs may be the baseline: any, where neither field is given."""

    branch: str = ""
    """Only runs of this branch."""
    commits: Mapping[str, int] = field(default_factory=dict)
    """Only runs of these commits without uncommitted changes: how far away each is, the nearest first. The storage is
    asked for no others."""

    def refusal(self, run: Heading) -> str:
        """Why the run may not be the baseline; "" where it may."""
        if not run.is_baseline:
            return run.state.value
        if self.branch and run.provenance.branch != self.branch:
            return f"of branch {run.provenance.branch or 'none'}"
        return "with uncommitted changes" if self.commits and run.provenance.dirty else ""

    @property
    def words(self) -> str:
        """The origin in a message, behind "run"."""
        if self.branch:
            return f" of branch {self.branch}"
        return f" of commit {next(iter(self.commits))[:12]} or one before it" if self.commits else ""


def find_baseline(
    storage: Storage | None, wanted: str, likeness: Likeness, root: Path, judged: Run | None = None
) -> Baseline:
    """The baseline that `wanted` names: `branch:NAME`, `merge-base:REF`, a run, or "" for the newest.

    root: a folder of the git repository. judged: the run to be judged, where it is saved already; the newest run is
    then sought among those that started before it. Raises GitFailed, and for a run that is named RunNotFound,
    AmbiguousRun and UnreadableResults, and InvalidSetting where that is the run to be judged itself.
    """
    kind, name = _split(wanted)
    if name and not kind:
        other_than = saved_at(judged.source) if judged is not None else None
        return _named(storage.select(name, other_than) if storage else select_run(None, name), judged)
    if storage is None:
        return Baseline(None, "no run is saved")
    origin = Origin(branch=name) if kind == BRANCH else Origin(commits=_ancestors(root, name) if kind else {})
    unreadable: list[Unreadable] = []
    before = started_of(judged.provenance) if judged else None
    newest_first = storage.newest_first(unreadable.append, before, origin.commits)
    try:
        runs = list(_as_many_as_matter(newest_first, likeness, origin))
    except StorageNotFound:  # a database that is there holds none yet
        runs = []
    return _choose(runs, likeness, origin, [one.reason for one in reversed(unreadable)])


def _as_many_as_matter(newest_first: Iterable[Heading], likeness: Likeness, origin: Origin) -> Iterator[Heading]:
    """The runs up to the last one that can be chosen, or can stand in for what the chosen one lacks: no older run is
    better than those of the best rank."""
    best = (True, 0, True)
    found = 0
    for run in newest_first:
        yield run
        found += not origin.refusal(run) and _rank(run, likeness, origin) == best
        if found > MOST_TRIED:
            return


def _rank(run: Heading, likeness: Likeness, origin: Origin) -> tuple[bool, int, bool]:
    """A run of the model is preferred to others; then one of a nearer commit, where the origin has commits; then one of
    the same selection of tests."""
    model, random_weights = run.provenance.model, run.provenance.random_weights
    is_of_model = model in likeness.models and random_weights == likeness.random_weights
    nearness = -origin.commits[run.provenance.commit] if origin.commits else 0
    return is_of_model, nearness, run.selection == likeness.selection


def _choose(newest_first: Sequence[Heading], likeness: Likeness, origin: Origin, unreadable: Sequence[str]) -> Baseline:
    """The newest run of the best rank. A file that turns out to be damaged is passed over."""
    refusals = {run.place: refusal for run in newest_first if (refusal := origin.refusal(run))}
    fit = [run for run in newest_first if run.place not in refusals]
    best_first = sorted(fit, key=lambda run: _rank(run, likeness, origin), reverse=True)
    for place, chosen in enumerate(best_first, start=1):
        try:
            run = read_saved_run(chosen.place)
        except UnreadableResults as error:
            refusals[chosen.place] = str(error)
            continue
        newer = _passed_over(newest_first[: newest_first.index(chosen)], refusals)
        whole, notes = _completed(run, best_first[place:])
        return Baseline(whole, passed_over=(*newer, *unreadable), notes=notes)
    passed_over = (*_passed_over(newest_first, refusals), *unreadable)
    return Baseline(None, _nothing(origin, passed_over), passed_over)


def _passed_over(runs: Iterable[Heading], refusals: Mapping[SavedAt, str]) -> list[str]:
    """Those of the runs that were refused, each with the reason."""
    return [f"{run.place.name}: {refusals[run.place]}" for run in runs if run.place in refusals]


def _completed(run: Run, others: Iterable[Heading]) -> tuple[Run, tuple[str, ...]]:
    """The run, with what it had no time for as the first of the others has it that was measured under the same
    conditions; and notes on which these are.

    A blessing ends the search: whoever accepted a run accepted what it lacks. So do MOST_TRIED runs.
    """
    whole, notes, blessing = run, list[str](), run.blessing
    for heading in islice(others, MOST_TRIED):
        lacking = _lacking(whole)
        if not lacking or blessing is not None:
            break
        blessing = heading.blessing
        if fingerprint_of(heading.provenance) != fingerprint_of(run.provenance):
            continue
        try:
            if lacking.isdisjoint(_offered(read_run_of(heading.place, RecordHead))):
                continue
            whole = _filled(whole, read_saved_run(heading.place))
        except UnreadableResults:
            continue
        if found := len(lacking - _lacking(whole)):
            what = count(found, "test or variant", "tests and variants")
            notes.append(f"The baseline had no time for {what}: judged by {heading.place.name}")
    return whole, tuple(notes)


def _lacking(run: Run[RecordHead]) -> set[str]:
    """The tests that the run had no time for, and the variants that it had no time to load or to score."""
    late = {one.id for one in run.variants if one.status is Status.NOT_REACHED or one.unscored}
    return late | {one.test for one in run.not_reached()}


def _offered(run: Run[RecordHead]) -> set[str]:
    measured = {one.id for one in run.variants if one.status is Status.MEASURED and not one.unscored}
    return {one.test for one in run.measured()} | measured


def _filled(run: Run, other: Run) -> Run:
    """The run, with what it had no time for as the other has it: those records come last, for the tests that were
    measured before one tell what the memory of its process held."""
    if run.reference != other.reference:
        return run
    measured = {one.test: one for one in other.measured()}
    found = [measured[one.test] for one in run.not_reached() if one.test in measured]
    own = (one for one in run.records if one.status is not Status.NOT_REACHED or one.test not in measured)
    tokens = _reference_tokens(run)
    is_scored_alike = tokens is None or tokens == _reference_tokens(other)
    variants = (_filled_variant(one, other.variant(one.id), is_scored_alike) for one in run.variants)
    return replace(run, records=(*own, *found), variants=tuple(variants))


def _filled_variant(variant: VariantResult, other: VariantResult | None, is_scored_alike: bool) -> VariantResult:
    """is_scored_alike: whether both runs scored the reference on the same sample of the corpus."""
    if other is None or other.status is not Status.MEASURED:
        return variant
    if variant.status is Status.NOT_REACHED:
        return other if is_scored_alike else replace(other, quality={}, loss_blocks=(), item_blocks={}, unscored=True)
    if not (variant.unscored and is_scored_alike and other.quality):
        return variant
    return replace(variant, **{name: getattr(other, name) for name in OF_QUALITY}, unscored=False)


def _reference_tokens(run: Run) -> float | None:
    """How many tokens of the corpus the reference was scored on; None where it was not."""
    reference = run.variant(run.reference)
    return reference.quality.get("scored_tokens") if reference else None


def _named(place: SavedAt, judged: Run | None) -> Baseline:
    """The run that was asked for by name, whatever its state."""
    run = read_saved_run(place)
    if judged is not None and run.provenance.started == judged.provenance.started:
        raise InvalidSetting(f"{place} is the run that is to be judged: name another as its baseline")
    return Baseline(run)


def _nothing(origin: Origin, passed_over: Sequence[str]) -> str:
    if not passed_over:
        return f"no run{origin.words} is saved"
    return f"no complete run{origin.words} is saved; {len(passed_over)} passed over, the newest: {passed_over[0]}"


def _ancestors(folder: Path, ref: str) -> dict[str, int]:
    """The commit where the folder's HEAD left `ref`, then its first parents, nearest first. Raises GitFailed."""
    commit = git(folder, "merge-base", "HEAD", ref)
    found = git(folder, "rev-list", "--first-parent", f"--max-count={MOST_ANCESTORS}", commit).split()
    return {commit: distance for distance, commit in enumerate(found)}


def _split(text: str) -> tuple[str, str]:
    """The two parts of `merge-base:main` or `branch:main`. Another text names a run; its first part is empty.

    Raises InvalidSetting where the second part is missing.
    """
    kind, separator, name = text.partition(":")
    if not separator or kind not in (MERGE_BASE, BRANCH):
        return "", text
    if not name or name.startswith("-"):
        raise InvalidSetting(f"--llm-baseline: expected a branch or commit after {kind}:, got {text!r}")
    return kind, name
