"""Which saved run is compared with."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_factory import absent_variant, make_provenance, make_record, make_run, make_variant, skipped_record
from saved_factory import store

from llm_bench_fixtures.errors import GitFailed, InvalidSetting, RunNotFound
from llm_bench_fixtures.history import baseline as baselines
from llm_bench_fixtures.history.baseline import Baseline, Likeness
from llm_bench_fixtures.history.saved import bless, judged_run
from llm_bench_fixtures.history.storage import RunFolder
from llm_bench_fixtures.results.record import Record, Run, Status

SELECTION = ("benchmarks",)
LIKENESS = Likeness(("tiny",), random_weights=False, selection=SELECTION)


def run(hour: int, records: Sequence[Record] = (make_record(),), **changes: Any) -> Run:
    provenance = {name: changes.pop(name) for name in ("commit", "branch", "dirty", "model") if name in changes}
    started = f"2026-01-02T{hour:02}:00:00+00:00"
    whole = make_run(records, provenance=make_provenance(started=started, **provenance))
    return replace(whole, **{"selection": SELECTION} | changes)


def find_baseline(folder: Path | None, *what: Any, **how: Any) -> Baseline:
    return baselines.find_baseline(RunFolder(folder) if folder else None, *what, **how)


def stored(folder: Path, *runs: Run) -> Path:
    for number, one in enumerate(runs, start=1):
        store(one, folder / "machine" / f"{number:04}_run.json")
    return folder


def chosen(storage: Path | None, wanted: str = "", **how: Any) -> str:
    baseline = find_baseline(storage, wanted, LIKENESS, Path.cwd(), **how)
    return Path(baseline.run.source).name[:4] if baseline.run else f"none: {baseline.reason}"


def test_the_newest_run_is_taken_whatever_its_number(tmp_path: Path) -> None:
    assert chosen(stored(tmp_path, run(1), run(3), run(2))) == "0002"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"regressed": True}, "regressed"),
        ({"failed_tests": 1}, "failed"),
        ({"interrupted": True}, "interrupted"),
        ({"records": ()}, "not measured"),
    ],
)
def test_a_run_that_is_not_complete_is_passed_over(tmp_path: Path, changes: dict[str, Any], state: str) -> None:
    baseline = find_baseline(stored(tmp_path, run(1), run(2, **changes)), "", LIKENESS, tmp_path)
    assert baseline.run is not None
    assert Path(baseline.run.source).name == "0001_run.json"
    assert baseline.passed_over == (f"0002_run.json: {state}",)


def test_a_blessed_run_is_taken_whatever_became_of_it(tmp_path: Path) -> None:
    storage = stored(tmp_path, run(1), run(2, regressed=True))
    bless(storage / "machine" / "0002_run.json", "smaller weights")
    baseline = find_baseline(storage, "", LIKENESS, tmp_path)
    assert baseline.run is not None
    assert baseline.run.blessing is not None
    assert baseline.run.blessing.reason == "smaller weights"


def test_a_run_of_the_same_model_and_tests_comes_before_a_newer_one(tmp_path: Path) -> None:
    of_another_model = run(4, model="gpt2")
    of_fewer_tests = run(5, selection=("benchmarks/test_cache.py",))
    assert chosen(stored(tmp_path, run(1), run(2), of_another_model, of_fewer_tests)) == "0002"
    assert chosen(stored(tmp_path / "other", of_another_model, of_fewer_tests)) == "0002"


def test_a_file_that_can_not_be_read_is_passed_over_by_name(tmp_path: Path) -> None:
    storage = stored(tmp_path, run(1))
    broken = storage / "machine" / "0002_broken.json"
    broken.write_text("{", encoding="utf-8")
    baseline = find_baseline(storage, "", LIKENESS, tmp_path)
    assert baseline.run is not None
    (reason,) = baseline.passed_over
    assert str(broken) in reason


def test_of_files_that_can_not_be_read_the_newest_is_told_first(tmp_path: Path) -> None:
    """Bug: the oldest was called the newest."""
    storage = stored(tmp_path, run(1, failed_tests=1))
    (storage / "machine" / "0001_run.json").unlink()
    for number in (2, 3):
        (storage / "machine" / f"000{number}_broken.json").write_text("{", encoding="utf-8")
    baseline = find_baseline(storage, "", LIKENESS, tmp_path)
    assert all(f"000{number}_broken.json" in one for number, one in zip((3, 2), baseline.passed_over, strict=True))
    assert "2 passed over, the newest: " in baseline.reason
    assert "0003_broken.json" in baseline.reason


def test_without_any_run_the_reason_is_told(tmp_path: Path) -> None:
    assert chosen(None) == "none: no run is saved"
    failed = chosen(stored(tmp_path, run(1, failed_tests=1)))
    assert failed == "none: no complete run is saved; 1 passed over, the newest: 0001_run.json: failed"


def test_a_named_run_is_taken_and_its_state_told(tmp_path: Path) -> None:
    storage = stored(tmp_path, run(1, failed_tests=1), run(2))
    baseline = find_baseline(storage, "1", LIKENESS, tmp_path)
    assert baseline.run is not None
    assert not baseline.run.is_baseline
    with pytest.raises(RunNotFound):
        find_baseline(storage, "7", LIKENESS, tmp_path)


def test_of_a_branch_the_newest(tmp_path: Path) -> None:
    storage = stored(tmp_path, run(1, branch="main"), run(2, branch="topic"))
    assert chosen(storage, "branch:main") == "0001"
    assert chosen(storage, "branch:other").startswith("none: no complete run of branch other is saved; 2 passed over")
    with pytest.raises(InvalidSetting, match="after branch:"):
        find_baseline(storage, "branch:", LIKENESS, tmp_path)


def test_only_runs_that_started_before_the_one_to_be_judged(tmp_path: Path) -> None:
    """Bug: a report was judged by the copy of itself in the storage, and passed."""
    storage = stored(tmp_path, run(1), run(2), run(3))
    assert chosen(storage, judged=judged_run(run(2))) == "0001"
    assert chosen(storage, judged=judged_run(run(1))) == "none: no run is saved"
    with pytest.raises(InvalidSetting, match="is the run that is to be judged"):
        find_baseline(storage, "2", LIKENESS, tmp_path, judged_run(run(2)))


def test_a_run_that_turns_out_to_be_damaged_is_passed_over(tmp_path: Path) -> None:
    """Bug: one whose rounds took no time ended the gate in a traceback."""
    path = stored(tmp_path, run(1), run(2)) / "machine" / "0002_run.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"rounds_s": [', '"rounds_s": [0.0,'), encoding="utf-8")
    baseline = find_baseline(tmp_path, "", LIKENESS, tmp_path)
    assert baseline.run is not None
    assert Path(baseline.run.source).name == "0001_run.json"
    assert "rounds_s[0]: expected a number >= 1e-09" in baseline.passed_over[0]


ONE, TWO = make_record(), make_record(scenario="cache", case="off")
LATE = skipped_record("fp32", "20 min were over", status=Status.NOT_REACHED, scenario="cache", case="off")


def timed(hour: int, second_s: float | None, **changes: Any) -> Run:
    """A run of two tests; it had no time for the second where that has no seconds."""
    second = LATE if second_s is None else replace(TWO, rounds_s=(second_s,) * 3)
    return run(hour, **{"records": (ONE, second)} | changes)


def second_of(storage: Path, **how: Any) -> tuple[float, tuple[str, ...]]:
    """Seconds of the second test in the baseline, 0 where there are none, and the notes."""
    baseline = find_baseline(storage, "", LIKENESS, Path.cwd(), **how)
    assert baseline.run is not None
    found = next(one for one in baseline.run.records if one.test == TWO.test)
    return (found.median_s if found.rounds_s else 0.0), baseline.notes


def test_what_a_run_had_no_time_for_is_of_the_newest_run_that_has_it(tmp_path: Path) -> None:
    """Bug: a slow commit left no time for a test, and as the next commit's baseline hid that the test was slower."""
    storage = stored(tmp_path, timed(1, 1.0), timed(2, 2.0), timed(3, None), timed(4, None))
    assert second_of(storage) == (2.0, ("The baseline had no time for 1 test or variant: judged by 0002_run.json",))
    assert chosen(storage) == "0004"
    assert second_of(storage, judged=judged_run(timed(2, 2.0))) == (1.0, ())
    assert second_of(stored(tmp_path / "never", timed(3, None), timed(4, None))) == (0.0, ())


def test_what_stands_in_comes_last(tmp_path: Path) -> None:
    """Bug: it counted as measured in the newest run's process, whose memory was then judged as if it held it, too."""
    late, after = timed(2, None), make_record(scenario="padding", case="left")
    late = replace(late, records=(*late.records, after))
    baseline = find_baseline(stored(tmp_path, timed(1, 1.0), late), "", LIKENESS, tmp_path)
    assert baseline.run is not None
    assert [one.test for one in baseline.run.records] == [ONE.test, after.test, TWO.test]


def test_so_many_runs_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = stored(tmp_path, timed(1, 1.0), timed(2, None), timed(3, None))
    assert second_of(storage)[0] == 1.0
    monkeypatch.setattr(baselines, "MOST_TRIED", 1)
    assert second_of(storage)[0] == 0.0


def test_only_a_run_that_is_fit_and_of_the_same_conditions_stands_in(tmp_path: Path) -> None:
    elsewhere = timed(3, 3.0)
    elsewhere = replace(elsewhere, provenance=replace(elsewhere.provenance, hardware="another"))
    unfit = (timed(2, 2.0, regressed=True), elsewhere, timed(4, 4.0, model="gpt2"), timed(5, 5.0, reference="bf16"))
    assert second_of(stored(tmp_path, timed(1, 1.0), *unfit, timed(6, None)))[0] == 1.0


def test_a_blessing_accepts_what_the_run_lacks(tmp_path: Path) -> None:
    storage = stored(tmp_path, timed(1, 1.0), timed(2, None), timed(3, None))
    bless(storage / "machine" / "0002_run.json", "a larger model")
    assert second_of(storage) == (0.0, ())


def test_a_run_that_is_named_is_taken_as_it_is(tmp_path: Path) -> None:
    baseline = find_baseline(stored(tmp_path, timed(1, 1.0), timed(2, None)), "2", LIKENESS, tmp_path)
    assert baseline.run is not None
    assert [one.test for one in baseline.run.not_reached()] == [TWO.test]


def test_a_quality_that_there_was_no_time_for_is_of_the_newest_run_that_has_it(tmp_path: Path) -> None:
    """Unless the two runs scored the reference on samples of different sizes."""

    def scored(hour: int, tokens: float, **int8: Any) -> Run:
        variants = (make_variant(quality={"perplexity": 20.0, "scored_tokens": tokens}), make_variant("int8", **int8))
        return run(hour, variants=variants)

    def perplexity(name: str, *runs: Run) -> float | None:
        baseline = find_baseline(stored(tmp_path / name, *runs), "", LIKENESS, tmp_path)
        int8 = baseline.run.variant("int8") if baseline.run else None
        return int8.quality.get("perplexity") if int8 else None

    worse, better = {"perplexity": 21.0}, {"perplexity": 20.5}
    late: dict[str, Any] = {"quality": {}, "unscored": True}
    assert perplexity("a", scored(1, 2000, quality=worse), scored(2, 2000, **late)) == 21.0
    assert (
        perplexity("b", scored(1, 2000, quality=worse), scored(2, 1000, quality=better), scored(3, 2000, **late)) == 21
    )
    assert perplexity("c", scored(1, 2000, quality=worse), scored(2, 1000, **late)) is None
    unloaded = absent_variant("int8", "20 min were over", Status.NOT_REACHED)
    cut = scored(2, 2000)
    cut = replace(cut, variants=(cut.variants[0], unloaded))
    assert perplexity("d", scored(1, 2000, quality=worse), cut) == 21.0


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "commit", "--allow-empty", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, list[str]]:
    """Three commits on main, of which the second is where `topic` left, and one on `topic`, which is checked out."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    first, second = commit(folder, "one"), commit(folder, "two")
    git(folder, "switch", "-q", "-c", "topic")
    own = commit(folder, "own")
    git(folder, "switch", "-q", "main")
    third = commit(folder, "three")
    git(folder, "switch", "-q", "topic")
    return folder, [first, second, third, own]


def of_merge_base(folder: Path, storage: Path) -> Baseline:
    return find_baseline(storage, "merge-base:main", LIKENESS, folder)


def test_of_the_merge_base_or_the_nearest_commit_before_it(tmp_path: Path, history: tuple[Path, list[str]]) -> None:
    folder, (first, second, third, own) = history
    later = [run(7, commit=third), run(8, commit=own), run(9, commit=second, dirty=True)]
    at_base = of_merge_base(folder, stored(tmp_path / "a", run(1, commit=second), run(2, commit=first), *later))
    assert at_base.run is not None
    assert at_base.run.provenance.commit == second
    before = of_merge_base(folder, stored(tmp_path / "b", run(2, commit=first), *later))
    assert before.run is not None
    assert before.run.provenance.commit == first
    none = of_merge_base(folder, stored(tmp_path / "c", *later))
    assert none.run is None
    assert f"of commit {second[:12]} or one before it" in none.reason
    assert "with uncommitted changes" in none.reason


def test_a_ref_that_git_does_not_know_is_told(tmp_path: Path, history: tuple[Path, list[str]]) -> None:
    with pytest.raises(GitFailed, match="nowhere"):
        find_baseline(stored(tmp_path, run(1)), "merge-base:nowhere", LIKENESS, history[0])
