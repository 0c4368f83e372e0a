"""What a run changed against another: each value once, by the gate's own judgement, in words and colours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_factory import make_block_record, make_provenance, make_record, make_run, make_variant, make_workload

from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.rules import Rules, parse_rules
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.report.judged.causes import TONES
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.tables.table import Tone
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Force, Kind, registry
from llm_bench_fixtures.results.record import MemoryFacts, Run


def changes(base: Run, head: Run, rules: str = "") -> Changes:
    found = compare_runs(judged_run(base, "0001_a.json"), judged_run(head), Rules(parse_rules(rules)), registry())
    return Changes(found)


def two(**head: Any) -> Changes:
    """One test of fp32; `head`: what differs about the variant in the second run."""
    base = make_run([make_record()], [make_variant()])
    return changes(base, make_run([make_record()], [make_variant(**head)]))


def test_a_value_that_got_worse_has_both_values_the_change_and_a_tone() -> None:
    (one,) = two(weight_bytes=5_000_000).moved
    assert one.text == "fp32: weights 4.00 MB → 5.00 MB, +25.0 %"
    row = one.first
    assert (row.variant, row.benchmark, row.metric.name) == ("fp32", "", "weight_bytes")
    assert (row.before, row.after, row.change, row.change_in_full) == ("4.00 MB", "5.00 MB", "+25.0 %", "+25.0 %")
    assert (row.verdict, TONES[row.verdict], row.is_advisory) == (Verdict.REGRESSED, Tone.WORSE, False)


def test_a_value_that_got_better_has_the_other_tone() -> None:
    (one,) = two(weight_bytes=2_000_000).moved
    assert (one.first.change, TONES[one.verdict]) == ("−50.0 %", Tone.BETTER)


def test_the_sentence_names_what_moved_by_cause() -> None:
    assert two(weight_bytes=5_000_000).sentence == "Worse than 0001_a: fp32: weights 4.00 MB → 5.00 MB, +25.0 %."


def test_the_sentence_names_three_causes_and_counts_the_others() -> None:
    names = ("fp32", "bf16", "fp16", "nf4", "fp4")
    base = make_run([], [make_variant(name) for name in names])
    head = [make_variant(name, weight_bytes=(5 + place) * 10**6) for place, name in enumerate(names[1:])]
    sentence = changes(base, make_run([], [make_variant(), *head])).sentence
    assert sentence.startswith("Worse than 0001_a: fp4: weights 4.00 MB → 8.00 MB, +100.0 %; nf4: ")
    assert sentence.endswith("; and 1 more.")


def test_where_nothing_moved_the_sentence_says_so() -> None:
    found = two()
    assert found.sentence == "Nothing changed beyond the noise, compared with 0001_a."
    assert found.moved == []
    told = [one for one in found.comparison.judgements if one.rule.force is not Force.OFF]
    assert len(found.rows) == len(told)
    assert {one.first.verdict for one in found.still} <= {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}


def test_a_slower_run_is_one_cause_and_advisory() -> None:
    """The median's multiples moved with it: the latency stands for them. Of other timings no noise is known."""
    found = changes(make_run([make_record()]), make_run([make_record(median_s=2.0)]))
    (one,) = found.moved
    assert one.title.startswith("latency and ")
    assert (one.first.benchmark, one.first.change, one.first.is_advisory) == ("Precision", "+100.0 %", True)
    assert found.sentence == (
        "Nothing that can fail a gate changed, compared with 0001_a. 1 of 1 latency increased (advisory)."
    )


def outliers(seed: int) -> Run:
    """Twelve tests of three rounds about 130 ms. Each run has an outlier of 0.6 s in another test."""
    steps = (0.0, 0.01, 0.02)
    rounds = [[0.13 * (1 + step + 0.001 * (seed + number)) for step in steps] for number in range(12)]
    rounds[seed][2] = 0.6
    records = [make_record(rounds_s=tuple(of), scenario=f"s{number}") for number, of in enumerate(rounds)]
    return make_run(records, [make_variant(load_s=1.0 + seed, first_generate_s=0.2 + seed)])


@pytest.mark.parametrize(("base", "head"), [(0, 1), (1, 0), (2, 7), (7, 2)])
def test_runs_of_the_same_code_that_differ_by_noise_raise_no_alarm(base: int, head: int) -> None:
    """Bug: means, percentiles and first calls were judged by the noise of the medians, with its interval."""
    found = changes(outliers(base), outliers(head))
    assert found.sentence == "Nothing changed beyond the noise, compared with 0001_a."
    assert found.moved == []
    open_ones = [row for row in found.rows if row.verdict is Verdict.INCONCLUSIVE]
    assert all(row.change_in_full == row.change for row in open_ones)
    assert "Mean latency" in {row.metric.title for row in open_ones}


def test_thousands_are_written_alike_in_words_and_counts() -> None:
    assert count(6260, "value") == "6,260 values"


def test_a_time_has_the_interval_of_what_identical_work_differs_by() -> None:
    """Too few pairs: 15 % are assumed. 2 / 1.15 = 1.739 and 2 x 1.15 = 2.3."""
    (one,) = changes(make_run([make_record()]), make_run([make_record(median_s=2.0)])).moved
    assert one.first.change_in_full == f"{one.first.change} (+73.9 % to +130.0 %)"


def test_a_speed_up_has_the_interval_of_its_blocks_without_what_the_rule_allows() -> None:
    base, head = (
        make_run([make_block_record("fp32", 1.0, 0.0), make_block_record("bf16", speedup)]) for speedup in (1.0, 2.0)
    )
    (one,) = [row for row in changes(base, head).rows if row.metric.name == "speedup" and row.variant == "bf16"]
    interval = one.interval
    assert interval is not None
    assert interval[0] < 2 < interval[1]
    assert interval[0] * interval[1] == pytest.approx(4)
    wider = [row for row in changes(base, head, "speedup:50%").rows if row.metric.name == "speedup"]
    assert wider[-1].interval == pytest.approx(interval)


def test_what_the_gate_goes_by_comes_first_and_the_worse_before_the_better() -> None:
    base = make_run([make_record(memory=MemoryFacts(10**9))], [make_variant()])
    head = make_run([make_record(median_s=2.0, memory=MemoryFacts(10**8))], [make_variant(weight_bytes=5_000_000)])
    assert [one.verdict for one in changes(base, head).moved] == [
        Verdict.REGRESSED, Verdict.IMPROVED, Verdict.REGRESSED,
    ]  # fmt: skip


def test_what_is_off_is_not_told() -> None:
    found = changes(make_run([make_record()]), make_run([make_record(median_s=2.0)]), "timing:off,speedup:off")
    assert Kind.TIMING not in {row.metric.kind for row in found.rows}
    assert found.still


def test_another_model_leaves_nothing_to_compare_and_is_named() -> None:
    other = make_run([make_record()], provenance=make_provenance(model="gpt2"))
    found = changes(make_run([make_record()]), other)
    assert found.sentence == "Nothing can be compared with 0001_a: another model: gpt2; the baseline's: tiny."
    assert found.moved == []


def test_runs_without_a_common_test_have_nothing_to_compare() -> None:
    found = changes(make_run(), make_run())
    assert found.sentence == "Nothing can be compared with 0001_a: they have no test in common."


def test_another_workload_is_among_what_can_not_be_told() -> None:
    found = changes(make_run([make_record()]), make_run([make_record(workload=make_workload("other"))]))
    reasons = {row.reason for row in found.rows if row.verdict is Verdict.NOT_MEASURED}
    assert reasons == {"another workload than the baseline's"}
    assert "not comparable" in found.sentence


def test_a_test_that_one_run_lacks_is_named() -> None:
    gone = make_record(scenario="cache", case="off")
    found = changes(make_run([make_record(), gone]), make_run([make_record()]))
    assert [(one.test, one.coverage.value) for one in found.tests] == [(gone.test, "vanished")]
    assert "1 of its tests was not measured now" in found.sentence


def test_a_results_file_has_the_name_of_its_folder() -> None:
    found = two().comparison
    for source, name in (
        ("/a/nightly/results.json", "nightly"),
        ("/a/llm-bench-report/results.json", "a/llm-bench-report"),  # of which there are many
        ("/a/0003_x.json", "0003_x"),
    ):
        assert Changes(replace(found, base=replace(found.base, source=source))).name == name


def test_names_from_the_file_are_shown_and_not_obeyed() -> None:
    found = two().comparison
    named = Changes(replace(found, base=replace(found.base, source="/a/\x1b[31m\u202ex.json")))
    assert not set("\x1b\u202e") & set(named.sentence + named.name)
