"""Chooses the saved run to compare with: the newest that is fit for it, or the one that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llm_bench_fixtures.errors import InvalidSetting, UnreadableResults
from llm_bench_fixtures.history.git import git
from llm_bench_fixtures.history.headings import Heading, Unreadable, started_of
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import list_runs, select_run
from llm_bench_fixtures.results.record import Run

MERGE_BASE, BRANCH = "merge-base", "branch"
MOST_ANCESTORS = 1000


@dataclass(frozen=True)
class Likeness:
    """What is known of the run to be judged before it runs. A baseline that is like it is preferred."""

    models: tuple[str, ...]
    """The candidates for the model."""
    random_weights: bool
    selection: tuple[str, ...]
    """What of the command line narrows the tests, as in Run.selection."""

    def is_of_model(self, run: Heading) -> bool:
        """Whether the saved run measured one of the candidates, with weights of the same kind."""
        return run.provenance.model in self.models and run.provenance.random_weights == self.random_weights


@dataclass(frozen=True)
class Baseline:
    """The run to compare with, or why there is none."""

    run: Run | None
    reason: str = ""
    """Why there is no run; empty where there is one."""
    passed_over: tuple[str, ...] = ()
    """Newer files that are not fit, and files that can't be read, each with the reason."""


@dataclass(frozen=True)
class Origin:
    """Which runs may be the baseline: any, where neither field is given."""

    branch: str = ""
    """Only runs of this branch."""
    commits: tuple[str, ...] = ()
    """Only runs of these commits without uncommitted changes. The nearest commit comes first."""

    def refusal(self, run: Heading) -> str:
        """Why the run may not be the baseline; "" where it may."""
        if self.branch and run.provenance.branch != self.branch:
            return f"of branch {run.provenance.branch or 'none'}"
        if self.commits and run.provenance.commit not in self.commits:
            return f"of commit {run.provenance.commit[:12] or 'none'}"
        return "with uncommitted changes" if self.commits and run.provenance.dirty else ""

    def nearness(self, run: Heading) -> int:
        """0 for a run of the nearest commit, less for every commit farther away."""
        return -self.commits.index(run.provenance.commit) if self.commits else 0

    @property
    def words(self) -> str:
        """The origin in a message, behind "run"."""
        if self.branch:
            return f" of branch {self.branch}"
        return f" of commit {self.commits[0][:12]} or one before it" if self.commits else ""


def find_baseline(
    storage: Path | None, wanted: str, likeness: Likeness, root: Path, judged: Run | None = None
) -> Baseline:
    """The baseline that `wanted` names: `branch:NAME`, `merge-base:REF`, a run, or "" for the newest.

    root: a folder of the git repository. judged: the run to be judged, where it is saved already; the newest run is
    then sought among those that started before it. Raises GitFailed, and for a run that is named RunNotFound,
    AmbiguousRun and UnreadableResults, and InvalidSetting where that is the run to be judged itself.
    """
    kind, name = _split(wanted)
    if name and not kind:
        return _named(select_run(storage, name, Path(judged.source) if judged is not None else None), judged)
    if storage is None:
        return Baseline(None, "no run is saved")
    origin = Origin(branch=name) if kind == BRANCH else Origin(commits=_ancestors(root, name) if kind else ())
    unreadable: list[Unreadable] = []
    runs = list_runs(storage, unreadable.append)
    if judged is not None:
        runs = [run for run in runs if run.started < started_of(judged.provenance)]
    return choose_baseline(runs, likeness, origin, [one.reason for one in reversed(unreadable)])


def choose_baseline(
    oldest_first: Sequence[Heading], likeness: Likeness, origin: Origin = Origin(), unreadable: Sequence[str] = ()
) -> Baseline:
    """The best of the runs that are complete or blessed and of the origin.

    A run of the model is preferred to others; then one of a nearer commit, where the origin has commits; then one of
    the same selection of tests; then a newer one. A file that turns out to be damaged is passed over.
    """
    refusals = [_unfit(run) or origin.refusal(run) for run in oldest_first]
    ranks = {
        index: (likeness.is_of_model(run), origin.nearness(run), run.selection == likeness.selection, index)
        for index, run in enumerate(oldest_first)
        if not refusals[index]
    }
    for chosen in sorted(ranks, key=lambda index: ranks[index], reverse=True):
        try:
            run = read_saved_run(oldest_first[chosen].path)
        except UnreadableResults as error:
            refusals[chosen] = str(error)
            continue
        newer = _passed_over(oldest_first[chosen + 1 :], refusals[chosen + 1 :])
        return Baseline(run, passed_over=(*newer, *unreadable))
    passed_over = [*_passed_over(oldest_first, refusals), *unreadable]
    return Baseline(None, _nothing(origin, passed_over), tuple(passed_over))


def _passed_over(runs: Sequence[Heading], refusals: Sequence[str]) -> list[str]:
    """The files that were refused, the newest first, each with the reason."""
    pairs = zip(reversed(runs), reversed(refusals), strict=True)
    return [f"{run.path.name}: {refusal}" for run, refusal in pairs if refusal]


def _named(path: Path, judged: Run | None) -> Baseline:
    """The run that was asked for by name, whatever its state."""
    run = read_saved_run(path)
    if judged is not None and run.provenance.started == judged.provenance.started:
        raise InvalidSetting(f"{path} is the run that is to be judged: name another as its baseline")
    return Baseline(run)


def _unfit(run: Heading) -> str:
    """Why the run can't be a baseline unless it is named; "" where it can."""
    return "" if run.is_baseline else run.state.value


def _nothing(origin: Origin, passed_over: Sequence[str]) -> str:
    if not passed_over:
        return "no run is saved"
    return f"no complete run{origin.words} is saved; {len(passed_over)} passed over, the newest: {passed_over[0]}"


def _ancestors(folder: Path, ref: str) -> tuple[str, ...]:
    """The commit where the folder's HEAD left `ref`, then its first parents, nearest first. Raises GitFailed."""
    commit = git(folder, "merge-base", "HEAD", ref)
    return tuple(git(folder, "rev-list", "--first-parent", f"--max-count={MOST_ANCESTORS}", commit).split())


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
