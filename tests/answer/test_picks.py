"""Who wins for each reader, as values: derived by hand."""

from __future__ import annotations

import pytest
from run_factory import BLOCKS_S, asking, make_block_record, make_run, make_variant, make_workload

from llm_bench_fixtures.answer.evidence import evidence_of
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need, Reader
from llm_bench_fixtures.answer.picks import Outcome, Pick, picks_of, rivals_of
from llm_bench_fixtures.results.record import Run


def pick(run: Run, reader: Reader, need: Need = DEFAULT_NEED) -> Pick:
    return next(one for one in picks_of(evidence_of(run), need) if one.reader is reader)


def lossy_run() -> Run:
    """v0 is twice as fast at 5 % more perplexity."""
    quality = {"perplexity": 21.0, "ppl_ratio": 1.05}
    records = [make_block_record(spread=0.0), make_block_record("v0", 2.0)]
    return make_run(records, [make_variant(), make_variant("v0", quality=quality)])


def test_a_winner_keeps_what_is_needed() -> None:
    found = pick(lossy_run(), Reader.LATENCY, asking("ppl_ratio<=1.05"))
    assert (found.outcome, found.alike, found.beyond_limit) == (Outcome.WINNER, ("v0",), ())


def test_who_does_not_keep_it_is_named_apart() -> None:
    found = pick(lossy_run(), Reader.LATENCY)
    assert (found.outcome, found.alike) == (Outcome.REFERENCE, ("fp32",))
    assert [one.variant for one in found.beyond_limit] == ["v0"]


def rivals(speedups: dict[str, tuple[float, float]], qualities: dict[str, dict[str, float]]) -> list[str]:
    """Who is named next to the lowest latency. speedups: of each variant, and its spread."""
    records = [make_block_record(name, *found) for name, found in speedups.items()]
    variants = [make_variant(name, quality=qualities[name]) for name in speedups]
    run = make_run([make_block_record(spread=0.0), *records], [make_variant(), *variants])
    found = rivals_of(picks_of(evidence_of(run), DEFAULT_NEED))
    return [choice.variant for pick, choice in found if pick.reader is Reader.LATENCY]


def test_the_fastest_that_may_keep_the_limit_is_named_next_to_the_one_that_does() -> None:
    """Below 1.5 times as fast, what is beyond the limit is not, nor what may as well be slower: an interval of a ratio
    that is widened for three comparisons reaches 4 % to either side."""
    speedups = {"kept": (2.0, 0.01), "beyond": (2.6, 0.01), "unclear": (2.4, 0.01), "unknown": (2.5, 0.01)}
    kept = {"ppl_ratio": 1.001}
    qualities = {
        "kept": kept,
        "beyond": {"ppl_ratio": 1.05},
        "unclear": {"ppl_ratio": 1.01, "ppl_ratio_error": 0.01},
        "unknown": {},
    }
    assert rivals(speedups, qualities) == ["unknown"]
    assert rivals({**speedups, "unclear": (2.55, 0.01)}, qualities) == ["unclear"]
    assert rivals({**speedups, "beyond": (4.0, 0.01)}, qualities) == ["beyond", "unknown"]
    assert rivals({**speedups, "unknown": (4.0, 1.0)}, qualities) == ["unclear"]
    assert rivals({"kept": (2.0, 0.01), "unknown": (4.0, 1.0)}, qualities) == ["unknown"]
    assert rivals({"kept": (2.0, 0.01), "unknown": (2.1, 1.0)}, qualities) == []
    assert rivals({"kept": (2.0, 0.01), "unknown": (2.08, 0.01)}, qualities) == ["unknown"]
    assert rivals({"kept": (2.0, 0.01), "unknown": (2.02, 0.01)}, qualities) == []
    assert rivals({"kept": (2.0, 0.01), "beyond": (4.0, 1.0)}, qualities) == []


def test_throughput_is_picked_at_one_batch_size() -> None:
    workload = make_workload("batch 4", "batch", prompts=4, batch_size=4, new_tokens=64)
    where = {"scenario": "batch", "case": "4", "workload": workload, "reference_s": BLOCKS_S}
    found = pick(
        make_run([make_block_record(spread=0.0, **where), make_block_record("v0", 3.0, **where)]), Reader.THROUGHPUT
    )
    assert (found.alike, found.batch_size) == (("v0",), 4)
    assert pick(lossy_run(), Reader.THROUGHPUT).choices == ()


def test_the_likely_best_is_one_that_is_shown_to_be_better_unless_another_is_far_ahead() -> None:
    """v0 is steadily twice as fast; v1's ratios are up and down by half, around 2.1 or 3 times."""
    for speedup, names in ((2.1, ("v0", "v1")), (3.0, ("v1", "v0"))):
        records = [make_block_record(spread=0.0), make_block_record("v0", 2.0), make_block_record("v1", speedup, 1.0)]
        found = pick(make_run(records), Reader.LATENCY)
        assert found.outcome is Outcome.UNDECIDED
        assert tuple(one.variant for one in found.choices) == names
        assert found.better == ("v0",)


def test_where_the_reference_does_not_meet_a_need_the_best_that_does_is_used_though_it_is_slower() -> None:
    """v0 and v1 have half and a quarter of the reference's weights, at 0.8 and 0.9 times its speed."""
    records = [make_block_record(spread=0.0), make_block_record("v0", 0.8), make_block_record("v1", 0.9)]
    sizes = {"fp32": 4_000_000, "v0": 1_000_000, "v1": 2_000_000}
    run = make_run(records, [make_variant(name, weight_bytes=size) for name, size in sizes.items()])
    found = pick(run, Reader.LATENCY, asking("weight_bytes<=3MB"))
    assert (found.outcome, found.alike, found.better) == (Outcome.WINNER, ("v1",), ())
    assert found.is_ahead
    assert not found.keeps_reference
    assert pick(run, Reader.LATENCY, asking("weight_bytes<=1MB")).alike == ("v0",)


def test_where_nothing_meets_a_need_nothing_is_picked() -> None:
    found = pick(lossy_run(), Reader.LATENCY, asking("weight_bytes<=1MB"))
    assert (found.outcome, found.choices, found.beyond_limit) == (Outcome.UNMET, (), ())


def test_what_is_wanted_is_picked_first() -> None:
    for want in Reader:
        picks = picks_of(evidence_of(lossy_run()), asking("ppl_ratio<=1.01", want))
        assert picks[0].reader is want
        assert {one.reader for one in picks} == set(Reader)


@pytest.mark.parametrize(
    ("speedup", "spread", "runs"),
    [(1.5, 0.3, 2), (1.2, 0.4, 11), (1.05, 0.4, 149), (1.0, 0.1, 3), (2.0, 0.01, None)],
    ids=["likely", "open", "close", "tied", "decided"],
)
def test_how_many_runs_would_decide(speedup: float, spread: float, runs: int | None) -> None:
    """Of ten pairs, up and down by the spread, six are not trimmed: the standard error is the spread by the root of
    10 / (6 x 5), and Student's t of five degrees of freedom is 2.571, so that half the interval is 1.484 spreads wide.
    It excludes 1 once that is log(1.5) = 0.405, or log(1.2) = 0.182. For 1.05 it excludes 1 at 0.049, and ends below
    1.1 at 0.047; for 1 at 0.095. An interval narrows with the root of the number of runs."""
    found = pick(make_run([make_block_record(spread=0.0), make_block_record("v0", speedup, spread)]), Reader.LATENCY)
    assert found.runs_to_decide == runs


def test_runs_that_would_tell_one_from_the_best() -> None:
    """v1 over v0, of ten pairs each: where half the interval is 10 % wide, they are tied."""
    records = [make_block_record(spread=0.0), make_block_record("v0", 2.0, 0.0), make_block_record("v1", 2.0, 0.5)]
    found = pick(make_run(records), Reader.LATENCY)
    assert found.outcome is Outcome.UNDECIDED
    assert (found.runs_to_decide or 0) > 20
