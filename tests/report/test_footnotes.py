"""What the footnotes say of how speed-ups were measured."""

from __future__ import annotations

from dataclasses import replace

from run_factory import make_block_record, make_record, make_run

from llm_bench_fixtures.report.about import speedup_footnotes
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate

METHOD = (
    "Variants take turns in random order, always with the reference. A speed-up is the trimmed mean ratio of latencies "
    "from the same turns, with its 95 % interval."
)
WHOLE = "No round paused: each turn was a whole round."


def footnotes(*records: Record) -> list[str]:
    return list(speedup_footnotes(findings_of(make_run(records), registry())))


def test_a_run_in_blocks() -> None:
    assert footnotes(make_block_record(spread=0.0), make_block_record("bf16", 2.0)) == [METHOD, WHOLE]


def test_how_often_rounds_paused() -> None:
    """A record has ten rounds; one that was measured alone is a turn of its own."""
    records = [make_block_record(spread=0.0, pauses=30), make_block_record("bf16", 2.0, pauses=20), make_record("nf4")]
    told = footnotes(*records)
    assert told[1] == "20 rounds were paused 50 times so that variants could alternate."
    assert not any("cold" in one or "whole rounds" in one for one in told)


def test_how_many_decode_steps_were_cold() -> None:
    """Ten rounds of three decode steps of each; the number alone where some tokens' times weren't saved."""
    tokens_s = (((0.1, 0.2, 0.3, 0.4),),) * 10
    fp32 = make_block_record(spread=0.0, pauses=30, cold_steps=7, tokens_s=tokens_s)
    bf16 = make_block_record("bf16", 2.0, pauses=10, cold_steps=5, tokens_s=tokens_s)
    assert footnotes(fp32, bf16)[2] == (
        "12 of 60 decode steps followed a pause with cold caches: each counts as the mean of the steps after it."
    )
    assert footnotes(fp32, replace(bf16, tokens_s=()))[2].startswith("12 decode steps followed")


def test_who_ran_whole_rounds_though_others_paused() -> None:
    records = [make_block_record(spread=0.0, pauses=30), make_block_record("endpoint", 2.0)]
    assert footnotes(*records)[2] == "Turns of endpoint were whole rounds."


def test_whose_threads_were_bound() -> None:
    """Each record has ten rounds."""
    bound = {"fp32": 10, "bf16": 4, "nf4": 0}
    records = [make_block_record(name, 2.0, bound_rounds=rounds) for name, rounds in bound.items()]
    assert footnotes(*records)[2] == (
        "Computing threads had a core each: always for fp32; in some rounds for bf16; never for nf4."
    )


def test_how_many_rounds_were_left_out() -> None:
    records = [make_block_record(spread=0.0, crowded_rounds=1), make_block_record("bf16", 2.0, crowded_rounds=2)]
    assert footnotes(*records)[2] == "3 more rounds left out, because other programs ran meanwhile."


def test_how_many_pairs_of_rounds_were_disturbed() -> None:
    """Of the ten of bf16: the reference's own are counted with it."""
    bf16 = make_block_record("bf16", 2.0, waited_s=(0.5,) * 4 + (0.0,) * 6)
    assert footnotes(make_block_record(spread=0.0, waited_s=(0.5,) * 10), bf16)[2] == (
        "Each round of a variant is paired with one of the reference. In 4 of 10 pairs, a thread had to wait for a "
        "core."
    )


def test_how_many_pairs_of_rounds_had_cores_apart() -> None:
    """Three of ten, in which data took twice as long."""
    bf16 = make_block_record("bf16", 2.0, core_to_core=(1.8,) * 7 + (4.0, 3.2, 3.6))
    assert footnotes(make_block_record(spread=0.0), bf16)[2] == (
        "In 3 of 10 pairs the CPU cores exchanged data slowly, taking 2 times as long as at best; the host may have "
        "moved them apart. That slows variants whose threads share work."
    )


def test_how_far_cases_drift_apart() -> None:
    """A deviation of 0.15 in logarithms is one of 16 %. One of 2 % isn't said: a calm machine shows as much."""
    records = [
        make_block_record(name, 2.0, drift=VarianceEstimate(deviation**2, 9))
        for name, deviation in (("bf16", 0.15), ("nf4", 0.02))
    ]
    assert footnotes(make_block_record(spread=0.0), *records)[2] == (
        "Speed-ups varied between similar prompts by more than their rounds explain: bf16 16 % (standard deviation). "
        "A machine's changing state slows some variants more than others. The intervals include this."
    )


def test_rounds_of_the_reference_next_to_a_server_count() -> None:
    """Bug: a server tells no waits, so all of its pairs were left out."""
    server = make_block_record("endpoint", 29.3, reference_waited_s=(0.5,) * 10)
    assert "In 10 of 10 pairs, a thread had to wait for a core." in footnotes(make_block_record(spread=0.0), server)[2]


def test_how_many_comparisons_are_made_at_once() -> None:
    """Two with fp32, and one between the two: 1 - 0.05 / 3."""
    records = [make_block_record(spread=0.0), make_block_record("bf16", 2.0), make_block_record("nf4", 1.5)]
    told = "The 3 speed comparisons hold together with 95 % confidence: each is made at 98.33 % (Bonferroni)."
    assert told in footnotes(*records)


def test_what_was_measured_alone_is_named() -> None:
    records = [make_block_record(spread=0.0), make_block_record("bf16", 2.0), make_record("nf4"), make_record("int8")]
    assert footnotes(*records)[-1] == (
        "Some benchmarks were measured alone, not in turns with the reference: those of nf4, int8."
    )


def test_a_run_without_turns_says_so() -> None:
    assert footnotes(make_record(), make_record("bf16", 0.5)) == [
        "Variants were not measured in turns: a speed-up is a ratio of medians measured at different times."
    ]
    assert footnotes(make_record()) == []
