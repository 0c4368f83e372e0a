"""The order of the variants by machine: ranks as far as they are shown, and where machines differ."""

from __future__ import annotations

from collections.abc import Mapping

from run_factory import make_block_record, make_provenance, make_run, make_variant

from llm_bench_fixtures.answer.evidence import Evidence, evidence_of
from llm_bench_fixtures.report.agreement import ranks_of


def seen(speedups: Mapping[str, float], spread: float = 0.001) -> Evidence:
    records = [make_block_record("fp32", 1.0, 0.0)]
    records += [make_block_record(name, speedup, spread) for name, speedup in speedups.items()]
    variants = [make_variant("fp32"), *(make_variant(name) for name in speedups)]
    return evidence_of(make_run(records, variants, provenance=make_provenance(isolated=True)))


def rows(*runs: tuple[str, str, Evidence]) -> list[list[str]]:
    found = ranks_of(runs)
    return [[cell.words for cell in row] for row in found.section.table.rows] if found else []


def test_each_variant_has_its_rank_on_each_machine() -> None:
    """bf16 is twice as fast as fp32 on one machine and half as fast on the other; nf4 is slowest on both."""
    found = rows(
        ("tiny", "server", seen({"bf16": 2.0, "nf4": 0.2})),
        ("tiny", "laptop", seen({"bf16": 0.5, "nf4": 0.2})),
        ("large", "server", seen({"bf16": 2.0})),
    )
    assert found == [
        ["tiny", "fp32", "2", "1", "no: bf16"],
        ["tiny", "bf16", "1", "2", "no: fp32"],
        ["tiny", "nf4", "3", "3", "yes"],
    ]


def test_what_noise_hides_is_no_contradiction() -> None:
    found = rows(("tiny", "a", seen({"bf16": 1.01}, 0.2)), ("tiny", "b", seen({"bf16": 0.99}, 0.2)))
    assert found == [["tiny", "fp32", "1–2", "1–2", "yes"], ["tiny", "bf16", "1–2", "1–2", "yes"]]


def test_machines_on_which_nothing_was_timed_agree_on_nothing() -> None:
    """Bug: they had all variants in the same order, it said."""
    assert rows(("tiny", "a", seen({})), ("tiny", "b", evidence_of(make_run([])))) == []
    assert ranks_of([("tiny", name, evidence_of(make_run([]))) for name in "ab"]) is None


def test_what_ran_on_one_machine_or_twice_on_one_has_no_ranks() -> None:
    one = seen({"bf16": 2.0})
    assert rows(("tiny", "a", one), ("large", "b", one)) == []
    assert rows(("tiny", "a", one), ("tiny", "a", one), ("tiny", "b", one)) == []


def test_a_sentence_says_where_machines_differ() -> None:
    fast, slow = seen({"bf16": 2.0}), seen({"bf16": 0.5})

    def said(*of_b: Evidence) -> str:
        runs = [(f"m{at}", machine, one) for at, two in enumerate(of_b) for machine, one in (("a", fast), ("b", two))]
        found = ranks_of(runs)
        return found.sentence if found else ""

    assert said(fast, fast) == "No machine is shown to rank the variants differently."
    assert said(slow) == "Machines have the variants in different orders for m0."
    assert said(*[slow] * 4, fast) == (
        "Machines have the variants in different orders for m0, m1, m2, ... and 1 more; elsewhere (1) they agree, "
        "as far as is shown."
    )
