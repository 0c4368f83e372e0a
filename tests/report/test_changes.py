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
from llm_bench_fixtures.report.changes import Changes, changes_of
from llm_bench_fixtures.report.tables.table import Tone
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Force, Kind, registry
from llm_bench_fixtures.results.record import MemoryFacts, Run


def changes(base: Run, head: Run, rules: str = "") -> Changes:
    found = compare_runs(judged_run(base, "0001_a.json"), judged_run(head), Rules(parse_rules(rules)), registry())
    return changes_of(found)


def two(**head: Any) -> Changes:
    """One test of fp32; `head`: what differs about the variant in the second run."""
    base = make_run([make_record()], [make_variant()])
    return changes(base, make_run([make_record()], [make_variant(**head)]))


def test_a_value_that_got_worse_has_both_values_the_change_and_a_tone() -> None:
    (one,) = two(weight_bytes=5_000_000).moved
    assert (one.variant, one.benchmark, one.metric) == ("fp32", "", "Weights")
    assert (one.before, one.after, one.text, one.interval) == ("4.00 MB", "5.00 MB", "+25.0 %", "")
    assert (one.judgement.verdict, one.tone, one.is_advisory) == (Verdict.REGRESSED, Tone.WORSE, False)


def test_a_value_that_got_better_has_the_other_tone() -> None:
    (one,) = two(weight_bytes=2_000_000).moved
    assert (one.text, one.tone) == ("−50.0 %", Tone.BETTER)


def test_the_sentence_counts_what_moved_and_names_the_furthest() -> None:
    assert two(weight_bytes=5_000_000).sentence == "Against 0001_a, 1 value got worse (weights of fp32 by +25.0 %)."


def test_where_nothing_moved_the_sentence_says_so() -> None:
    found = two()
    assert found.sentence == "Against 0001_a, nothing changed beyond the noise."
    assert found.moved == ()
    told = [one for one in found.comparison.judgements if one.rule.force is not Force.OFF]
    assert sum(1 + one.others for one in found.still) == len(told)


def test_a_slower_run_is_told_once_a_test_and_as_advice() -> None:
    """The median's multiples moved with it: the latency stands for them. Of other timings no noise is known."""
    found = changes(make_run([make_record()]), make_run([make_record(median_s=2.0)]))
    (one,) = found.moved
    assert one.metric.startswith("Latency and ")
    assert (one.benchmark, one.text, one.is_advisory) == ("Precision", "+100.0 %", True)
    assert found.sentence == (
        "Against 0001_a, nothing changed of what a gate goes by; of 1 median latency 1 longer, which fails no gate."
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
    assert found.sentence == "Against 0001_a, nothing changed beyond the noise."
    assert found.moved == ()
    open_ones = [one for one in found.still if one.judgement.verdict is Verdict.INCONCLUSIVE]
    assert {one.interval for one in open_ones} == {""}
    assert "Mean latency" in {one.judgement.metric.title for one in open_ones}


def test_thousands_are_written_alike_in_words_and_counts() -> None:
    assert count(6260, "value") == "6,260 values"


def test_a_time_has_the_interval_of_what_identical_work_differs_by() -> None:
    """Too few pairs: 15 % are assumed. 2 / 1.15 = 1.739 and 2 x 1.15 = 2.3."""
    (one,) = changes(make_run([make_record()]), make_run([make_record(median_s=2.0)])).moved
    assert one.interval == "+73.9 % to +130.0 %"


def test_a_speed_up_has_the_interval_of_its_blocks_without_what_the_rule_allows() -> None:
    base, head = (
        make_run([make_block_record("fp32", 1.0, 0.0), make_block_record("bf16", speedup)]) for speedup in (1.0, 2.0)
    )
    (one,) = [change for change in changes(base, head).moved if change.judgement.metric.name == "speedup"]
    interval = one.judgement.interval
    assert interval is not None
    assert interval[0] < 2 < interval[1]
    assert interval[0] * interval[1] == pytest.approx(4)
    wider = [change for change in changes(base, head, "speedup:50%").moved if change.judgement.metric.name == "speedup"]
    assert wider[0].judgement.interval == pytest.approx(interval)


def test_what_the_gate_goes_by_comes_first_and_the_worse_before_the_better() -> None:
    base = make_run([make_record(memory=MemoryFacts(10**9))], [make_variant()])
    head = make_run([make_record(median_s=2.0, memory=MemoryFacts(10**8))], [make_variant(weight_bytes=5_000_000)])
    assert [one.judgement.verdict for one in changes(base, head).moved] == [
        Verdict.REGRESSED, Verdict.IMPROVED, Verdict.REGRESSED,
    ]  # fmt: skip


def test_what_is_off_is_not_told() -> None:
    found = changes(make_run([make_record()]), make_run([make_record(median_s=2.0)]), "timing:off,speedup:off")
    assert Kind.TIMING not in {one.judgement.metric.kind for one in (*found.moved, *found.still)}
    assert found.still


def test_another_model_leaves_nothing_to_compare_and_is_named() -> None:
    other = make_run([make_record()], provenance=make_provenance(model="gpt2"))
    found = changes(make_run([make_record()]), other)
    assert found.sentence == ("Against 0001_a nothing can be compared: another model: gpt2; the baseline's: tiny.")
    assert found.moved == ()


def test_runs_without_a_common_test_have_nothing_to_compare() -> None:
    found = changes(make_run(), make_run())
    assert found.sentence == "Against 0001_a nothing can be compared: they have no test in common."


def test_another_workload_is_among_what_can_not_be_told() -> None:
    found = changes(make_run([make_record()]), make_run([make_record(workload=make_workload("other"))]))
    reasons = {one.judgement.reason for one in found.still if one.judgement.verdict is Verdict.NOT_MEASURED}
    assert reasons == {"another workload than the baseline's"}
    assert "not comparable" in found.sentence


def test_a_test_that_one_run_lacks_is_named() -> None:
    gone = make_record(scenario="cache", case="off")
    found = changes(make_run([make_record(), gone]), make_run([make_record()]))
    assert [(one.test, one.coverage.value) for one in found.tests] == [(gone.test, "vanished")]
    assert "1 of its tests was not measured now" in found.sentence


def test_a_results_file_has_the_name_of_its_folder() -> None:
    found = two().comparison
    for source, name in (("/a/nightly/results.json", "nightly"), ("/a/0003_x.json", "0003_x")):
        assert changes_of(replace(found, base=replace(found.base, source=source))).name == name


def test_names_from_the_file_are_shown_and_not_obeyed() -> None:
    found = two().comparison
    named = changes_of(replace(found, base=replace(found.base, source="/a/\x1b[31m\u202ex.json")))
    assert not set("\x1b\u202e") & set(named.sentence + named.name)
