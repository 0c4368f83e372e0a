"""A result in words: only what moved is long."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_provenance, make_record, make_run, make_variant
from wcwidth import width as width_of

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import parse_allowed
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.differences import Finding, Measurand
from llm_bench_fixtures.paired.resolution import coarser_than, resolutions, resolutions_json, status_of
from llm_bench_fixtures.paired.result import Absence, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import judge_pairs
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.paired.trial import Trial
from llm_bench_fixtures.report.judged.pair import pair_json, pair_report, resolution_lines, resolution_warning
from llm_bench_fixtures.report.renderers.markdown import judged_markdown
from llm_bench_fixtures.report.renderers.terminal import judged_lines
from llm_bench_fixtures.results.storage import run_to_json

SLOWER = (0.1, 0.11, 0.12)
SAME = (0.0, 0.001, -0.001)
UNKNOWN = (0.3, -0.3, 0.2)
UNSURE = (0.02, 0.3, 0.11)
SLIGHTLY = (0.024, 0.027, 0.030)


def result_of(**differences: tuple[float, ...]) -> PairedResult:
    return result_with({}, **differences)


def result_with(variants: dict[str, str], **differences: tuple[float, ...]) -> PairedResult:
    known = {Measurand(test, "decode_tokens_per_s"): values for test, values in differences.items()}
    pairs = [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]
    found = judge_pairs(pairs, variants, 0.03, 0.05, 0.25)
    return PairedResult(
        base="commit 1234",
        head="folder /project",
        threshold=0.03,
        threads=1,
        cores=(1,),
        first_analysis=3,
        analyses=1,
        findings={one: finding for one, finding in found.items() if isinstance(one, Measurand)},
        groups={one: finding for one, finding in found.items() if isinstance(one, HypothesisGroup) and variants},
        variants=variants,
        differences=known,
        not_compared=(),
        runs=(),
        trials=(Trial(is_complete=True),) * 3,
        elapsed_s=12.0,
    )


def lines_of(result: PairedResult) -> str:
    return "\n".join(judged_lines(pair_report(result), 300))


def test_a_slowdown_is_a_row_with_the_metrics_own_sign() -> None:
    """A mean difference of 0.11 is exp(-0.11) of the throughput: -10.4 %."""
    text = lines_of(result_of(a=SLOWER, b=SAME))
    assert "Regressed (1 comparison)\n  a: decode throughput −10.4 % " in text
    assert "1 regressed, 1 unchanged of 2 comparisons." in text
    assert text.endswith("Exit status 20: something got worse")


def test_what_is_slightly_worse_has_a_row_and_a_status_of_its_own() -> None:
    """A mean of 0.027 is below log(1.03) = 0.0296, and its interval isn't."""
    text = lines_of(result_of(a=SLIGHTLY, b=SAME))
    assert "Slightly worse (1 comparison)\n  a: decode throughput −2.7 % " in text
    assert "1 slightly worse, 1 unchanged of 2 comparisons." in text
    assert text.endswith(
        "Exit status 27: something got worse by less than the threshold, though its interval reaches beyond it"
    )


def test_a_group_that_moved_is_one_row_and_not_one_for_each_test() -> None:
    """Also of a test that says nothing by itself."""
    variants = {**dict.fromkeys("abcd", "nf4"), "e": "fp32", "f": "fp32"}
    result = result_with(variants, a=SLOWER, b=SLOWER, c=SLOWER, d=UNSURE, e=SAME, f=SAME)
    text = lines_of(result)
    (row,) = [line for line in text.splitlines() if "−10.4 %" in line]
    assert row.strip().startswith("nf4: decode throughput −10.4 % ")
    assert row.endswith(" across 4 tests, 4 of them in the same direction")
    assert not [line for line in text.splitlines() if line.endswith((" a", " b", " c", " d"))]
    assert "1 of these verdicts is that of the test's group." in text
    assert "Groups of tests: 2 regressed, 1 unchanged of 3." in text
    assert "- nf4: decode throughput −10.4 % " in judged_markdown(pair_report(result))
    (of_nf4,) = [group for group in result.as_json()["groups"] if group["variant"] == "nf4"]
    assert of_nf4["verdict"] == "regressed"
    (cause,) = [cause for cause in pair_json(result)["causes"] if cause["name"] == "nf4"]
    assert (cause["verdict"], cause["tests"], cause["judged_tests"]) == ("regressed", ["a", "b", "c", "d"], 4)


def test_a_test_that_moved_without_its_group_has_a_row() -> None:
    variants = dict.fromkeys("abcd", "nf4")
    text = lines_of(result_with(variants, a=SLOWER, b=SAME, c=SAME, d=SAME))
    (row,) = [line for line in text.splitlines() if "−10.4 %" in line]
    assert row.endswith(" in a")
    assert text.endswith("Exit status 20: something got worse")


def test_a_group_alone_makes_it_red_and_an_open_one_does_not() -> None:
    group = HypothesisGroup("nf4", "tpot_s")
    for verdict, status in (
        (Verdict.REGRESSED, ExitStatus.REGRESSED),
        (Verdict.SLIGHTLY_WORSE, ExitStatus.SLIGHTLY_WORSE),
        (Verdict.INCONCLUSIVE, ExitStatus.PASSED),
    ):
        assert replace(result_of(a=SAME), groups={group: Finding(verdict, None)}).status is status


def test_what_is_unchanged_is_only_a_count() -> None:
    text = lines_of(result_of(a=SAME, b=SAME))
    assert "2 unchanged of 2 comparisons." in text
    assert "(2 comparisons)" not in text
    assert "3 pairs of processes, 1 thread on core 1, 12 s; threshold ±3 %" in text
    assert "Exit status 0" in text


def test_of_many_inconclusive_ones_the_worst_are_rows() -> None:
    """The one that may be worst comes first."""
    many = {f"t{number}": tuple(value * (1 + number) for value in UNKNOWN) for number in range(8)}
    text = lines_of(result_of(**many))
    rows = [line.split()[-1] for line in text.splitlines() if " in t" in line]
    assert rows == ["t7", "t6", "t5", "t4", "t3"]
    assert "3 more inconclusive comparisons only in --verbose and --json." in text
    assert "Exit status 25" in text


def test_a_threshold_finer_than_the_noise_is_warned_about_with_the_number() -> None:
    assert "A threshold of 3 % is below what 3 pairs detect here" in lines_of(result_of(a=UNKNOWN))
    assert "finer" not in lines_of(result_of(a=SAME))


def test_why_tests_were_not_compared() -> None:
    rows = [NotCompared(f"t{number}", Absence.SKIPPED, "HEAD", "no backend") for number in range(7)]
    result = replace(result_of(a=SAME), not_compared=(*rows, NotCompared("x", Absence.NEW, "HEAD")))
    text = lines_of(result)
    assert "Not compared, skipped (HEAD): t0, t1, t2, t3, t4 and 2 more: no backend" in text
    assert "Not compared, new (HEAD): x" in text


def test_lines_are_as_wide_as_their_characters() -> None:
    """漢 takes two cells of a terminal, so that ten of them fill 20 of 24."""
    name = "漢" * 10
    absent = tuple(NotCompared(name + end, Absence.NEW, "HEAD") for end in "abc")
    result = replace(result_of(a=SAME), base=name, head=name, not_compared=absent, failure=f"{name} {name}\n{name}")
    *lines, conclusion = judged_lines(pair_report(result), 24)
    assert max(map(width_of, lines)) <= 24
    assert "\n".join([name, f"  {name}", name]) in "\n".join(lines)
    assert conclusion.startswith("Exit status 26")


def test_markdown_escapes_what_comes_from_the_code_under_test() -> None:
    evil = "<script>|[x](e)"
    result = replace(
        result_of(**{evil: SLOWER}),
        failure="HEAD: <img src=x> http://e",
        not_compared=(NotCompared("t", Absence.FAILED, "HEAD", "<b>"),),
    )
    text = judged_markdown(pair_report(result))
    assert "<script>" not in text
    assert "<img" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;\\|\\[x\\](e)" in text
    assert "http:\u200b//e" in text
    assert "**Exit status 26" in text


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"interrupted": True, "failure": "x"}, ExitStatus.INTERRUPTED),
        ({"failure": "x"}, ExitStatus.WORKER_FAILED),
        ({"not_compared": (NotCompared("t", Absence.FAILED),)}, ExitStatus.WORKER_FAILED),
        ({"not_compared": (NotCompared("t", Absence.NEW),)}, ExitStatus.REGRESSED),
        ({"findings": {}}, ExitStatus.NOT_MEASURED),
    ],
)
def test_the_gravest_status_wins(changes: dict[str, object], status: ExitStatus) -> None:
    assert replace(result_of(a=SLOWER), **changes).status is status  # type: ignore[arg-type]


UNCHANGED_BUT = [
    ({}, "", ExitStatus.PASSED),
    ({"not_compared": (NotCompared("t", Absence.SKIPPED, "HEAD"),)}, "skipped", ExitStatus.COVERAGE),
    ({"not_compared": (NotCompared("t", Absence.SKIPPED, "BASE"),)}, "", ExitStatus.PASSED),
    ({"not_compared": (NotCompared("t", Absence.SKIPPED),)}, "", ExitStatus.PASSED),  # by both
    ({"not_compared": (NotCompared("t", Absence.NOT_TIMED, "HEAD"),)}, "skipped", ExitStatus.COVERAGE),
    ({"not_compared": (NotCompared("t", Absence.NOT_TIMED),)}, "", ExitStatus.PASSED),
    ({"not_compared": (NotCompared("t", Absence.NEW, "HEAD"),)}, "", ExitStatus.PASSED),
    ({"runs": ({"schema": "another"},) * 2}, "changed", ExitStatus.NOT_COMPARABLE),
    ({"runs": ({},)}, "changed", ExitStatus.NOT_COMPARABLE),
    ({"not_compared": (NotCompared("t", Absence.VANISHED, "BASE"),)}, "", ExitStatus.PASSED),
    ({"not_compared": (NotCompared("t", Absence.CHANGED),)}, "changed", ExitStatus.NOT_COMPARABLE),
    ({"findings": result_of(a=UNKNOWN).findings}, "inconclusive", ExitStatus.INCONCLUSIVE),
    ({"findings": result_of(a=SLIGHTLY).findings}, "slight", ExitStatus.SLIGHTLY_WORSE),
]


@pytest.mark.parametrize(("changes", "what", "status"), UNCHANGED_BUT)
def test_what_was_not_judged_is_red_unless_it_is_allowed(
    changes: dict[str, Any], what: str, status: ExitStatus
) -> None:
    result = replace(result_of(a=SAME), **changes)
    assert result.status is status
    if what:
        allowing = replace(result, allowed=parse_allowed(what))
        assert allowing.status is ExitStatus.PASSED
        assert lines_of(allowing).endswith(f"Exit status 0: nothing got worse; allowed: {what}")


@pytest.mark.parametrize(
    ("head", "what", "status"),
    [
        ({}, "", ExitStatus.PASSED),
        ({"variants": [make_variant(quality={})]}, "vanished", ExitStatus.COVERAGE),
        ({"provenance": make_provenance(model="another")}, "changed", ExitStatus.NOT_COMPARABLE),
    ],
)
def test_what_is_carried_along_and_cannot_be_judged_is_red_too(
    head: dict[str, Any], what: str, status: ExitStatus
) -> None:
    before = make_run([make_record()], [make_variant()])
    runs = tuple(run_to_json(run) for run in (before, replace(before, **head)))
    result = replace(result_of(a=SAME), runs=runs)
    assert result.status is status
    if what:
        assert replace(result, allowed=parse_allowed(what)).status is ExitStatus.PASSED


def test_the_json_holds_each_comparison_and_each_difference() -> None:
    data = result_of(a=SLOWER).as_json()
    (comparison,) = data["comparisons"]
    assert (comparison["test"], comparison["verdict"]) == ("a", "regressed")
    assert comparison["estimate"]["pairs"] == 3
    assert data["exit_status"] == 20


def test_the_resolution_pools_the_tests() -> None:
    """Deviations 0.01 and 0.02 between pairs pool to the root of their mean square, 0.0158."""
    found = resolutions(result_of(a=(0.0, 0.01, 0.02), b=(0.5, 0.52, 0.54)))
    assert [row.metric for row in found] == ["decode_tokens_per_s"]
    assert found[0].deviation == pytest.approx((0.00025) ** 0.5)
    assert found[0].deviation < found[0].half_width < found[0].resolvable


def test_the_resolution_in_words_and_as_json() -> None:
    result = result_of(a=SAME)
    found = resolutions(result)
    text = "\n".join(resolution_lines(found, result, 100))
    assert "commit 1234 against itself" in text
    assert "decode tokens/s" in text
    assert resolutions_json(found, result)["pairs"] == 3
    assert status_of(found, result) is ExitStatus.PASSED


def test_a_resolution_of_nothing_is_not_measured() -> None:
    result = result_of()
    assert status_of(resolutions(result), result) is ExitStatus.NOT_MEASURED


@pytest.mark.parametrize(
    ("threshold", "machine", "warns"),
    [(0.03, platform.node(), True), (0.5, platform.node(), False), (0.03, "x", False)],
)
def test_a_threshold_finer_than_the_kept_resolution_is_warned_about_at_once(
    tmp_path: Path, threshold: float, machine: str, *, warns: bool
) -> None:
    """Of 3 pairs with a standard deviation of 1 %: (9.925 + 2.920) × 0.01 / √3 is 0.0742, a ratio of 1.077."""
    result = result_of(a=(0.0, 0.01, 0.02))
    path = tmp_path / "floor.json"
    path.write_text(json.dumps({**resolutions_json(resolutions(result), result), "machine": machine}), encoding="utf-8")
    found = coarser_than(threshold, 3, 1, path)
    assert (found is not None) is warns
    if found is not None:
        text = resolution_warning(*found, threshold, 3)
        assert "what 3 pairs detect on this machine: 7.7 % for decode tokens/s" in text
    assert coarser_than(threshold, 300, 1, path) is coarser_than(threshold, 3, 2, path) is None


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_kept_resolution_that_cannot_be_read_is_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "floor.json").write_text(content, encoding="utf-8")
    assert coarser_than(0.03, 8, 1, tmp_path / "floor.json") is None


def test_a_threshold_is_not_warned_about_where_all_is_settled() -> None:
    settled = replace(result_of(a=UNKNOWN), findings=result_of(a=SAME).findings)
    assert "finer" not in lines_of(settled)
