"""What a report says of what fits in a memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from page_runs import make_work
from run_factory import absent_variant, make_provenance, make_record, make_run, make_variant, make_workload
from shown_table import header, rows

from llm_bench_fixtures.models.needs import LayerCache, Parts, RoundSize, Taken
from llm_bench_fixtures.report.tables.on_request import fit_sections, fit_sentences, longest_of
from llm_bench_fixtures.report.tables.table import Section
from llm_bench_fixtures.results.record import MemoryFacts, Run, Status, VariantResult

# Bytes: a million of the process and ten of weights; 100 for each position's cache and 900 for a pass over it.
PARTS = Parts(1_000_000, 10_000_000, 0, 0, is_known=True, kept=(LayerCache(100),), taken=Taken(0, 0, 900, 0), logits=0)
LARGEST = make_workload("batch 8", prompts=8, batch_size=8, prompt_tokens=600, padded_tokens=200, new_tokens=8 * 11)


def variant(name: str = "fp32", **changes: Any) -> VariantResult:
    return make_variant(name, **{"parts": PARTS, "weight_bytes": 10_000_000, **changes})


def run_of(*variants: VariantResult, memory: int = 21_000_000, given: int | None = None, passes: int = 11) -> Run:
    """Ran a batch of eight prompts, of 100 tokens with their padding, and 11 new ones each."""
    record = make_record(
        scenario="batch",
        case="8",
        workload=LARGEST,
        work=replace(make_work(0, new_tokens=88, forward_passes=passes), cache_bytes=90_000),
        memory=MemoryFacts(12_000_000, library_bytes=500_000),
    )
    provenance = make_provenance(memory_bytes=memory, fit_bytes=given)
    return make_run([record], list(variants), provenance=provenance)


def by_column(section: Section, row: int = 0) -> dict[str, str]:
    return dict(zip(header(section.table), rows(section.table)[row], strict=True))


def test_what_is_predicted_stands_next_to_what_was_measured() -> None:
    """8 rows of 110 positions, the last of the 111 in none; at its peak 8 x 100 positions that all run."""
    (section,) = fit_sections(run_of(variant(weight_bytes=10_100_000)))
    row = by_column(section)
    assert section.title == "Does it fit in 21.0 MB?"
    assert (row["weights"], row["weights, measured"]) == ("10.0 MB", "10.1 MB")
    assert (row["KV cache"], row["KV cache, measured"]) == ("88.0 kB", "90.0 kB")
    assert row["activations"] == "720 kB"
    assert (row["peak"], row["peak, measured"]) == ("10.9 MB", "11.5 MB")
    assert row["cache per token"] == "100 B"


def test_a_batch_of_unlike_answers_runs_to_its_longest_one() -> None:
    """Bug: the cache was predicted for answers of 11 tokens on average, of which the longest has 21: 8 rows of 120."""
    (section,) = fit_sections(run_of(variant(), passes=21))
    assert by_column(section)["KV cache"] == "96.0 kB"


def test_the_largest_batch_and_the_longest_context() -> None:
    """Of 21 MB 0.42 are spare, and 9.58 are left beside process and weights: 100 kB for each prompt of 100 tokens,
    1,000 bytes for each token."""
    (section,) = fit_sections(run_of(variant()))
    row = by_column(section)
    assert (row["largest batch"], row["longest context"]) == ("95", "9,591")
    assert row["longest context, batch of 8"] == "1,208"  # 1,197 tokens of each of the eight that ran, and 11 new
    alone = make_run([], [variant()], provenance=make_provenance(memory_bytes=21_000_000))
    (section,) = fit_sections(alone)
    assert header(section.table)[-1] == "longest context"
    (section,) = fit_sections(run_of(variant(parts=replace(PARTS, context=512))))
    assert by_column(section)["longest context"] == "512"


def test_measured_weights_count_in_place_of_predicted_ones() -> None:
    """One megabyte more leaves 8.58."""
    (section,) = fit_sections(run_of(variant(weight_bytes=11_000_000)))
    assert by_column(section)["largest batch"] == "85"


def test_what_does_not_fit_and_what_is_not_known() -> None:
    guess = replace(PARTS, is_known=False)
    (section,) = fit_sections(run_of(variant(weight_bytes=30_000_000), variant("own", parts=guess)))
    none, unknown = (by_column(section, row) for row in (0, 1))
    assert (none["largest batch"], none["longest context"]) == ("none", "none")
    assert (unknown["largest batch"], unknown["longest context"]) == ("not known", "not known")
    assert (unknown["weights"], unknown["KV cache"], unknown["peak"]) == ("10.0 MB", "–", "–")


def test_a_variant_that_ran_out_of_memory_has_a_row_and_one_that_can_not_run_has_none() -> None:
    failed = replace(absent_variant("fp32", "OutOfMemory", Status.ERROR), parts=PARTS)
    skipped = replace(absent_variant("bnb-nf4", "not installed"), parts=PARTS)
    (section,) = fit_sections(run_of(failed, skipped))
    assert [row[0] for row in rows(section.table)] == ["fp32"]


def test_nothing_is_said_where_nothing_is_predicted() -> None:
    assert list(fit_sections(run_of(variant(parts=None)))) == []
    assert list(fit_sentences(run_of(variant(parts=None), given=10**9))) == []
    assert list(fit_sections(make_run([], [variant()]))) == []


def test_a_memory_that_was_given_is_fitted_in_words() -> None:
    run = run_of(variant(), variant("bf16", weight_bytes=50_000_000), given=12_000_000)
    assert list(fit_sentences(run)) == [
        "In 12.0 MB, of prompts of 100 tokens and 11 new: fp32 at most 7 at a time, bf16 does not fit."
    ]
    (section,) = fit_sections(run)
    assert "The memory is given; one variant runs alone in it and leaves 2 % free." in section.note
    assert list(fit_sentences(run_of(variant()))) == []
    (section,) = fit_sections(run_of(variant()))
    assert "The memory is what was free; one variant runs alone in it and leaves 2 % free." in section.note


def test_the_longest_of_unlike_prompts_counts_and_the_users_own_ones_first() -> None:
    """Bug: what fits was said of prompts of average length, 160 tokens and 31 new, or of the suite's own lengths."""
    facts = make_workload("mine", prompts=16, prompt_tokens=2550, new_tokens=500, longest_prompt=1800, longest_new=200)
    own = make_record(scenario="own", workload=facts)
    longer = make_record(scenario="prompt_length", workload=make_workload("longer", prompt_tokens=4000))
    run = make_run([own, longer], [variant()], provenance=make_provenance(prompts="mine.jsonl"))
    assert longest_of(run) == RoundSize(1, 1800, 200)
    assert longest_of(replace(run, provenance=make_provenance())) == RoundSize(1, 4000, 16)


def test_the_longest_prompt_counts_but_for_that_at_the_models_limit() -> None:
    run = run_of(variant())
    edge = make_record(scenario="edge_prompts", workload=make_workload("longest", prompt_tokens=496))
    assert longest_of(replace(run, records=(*run.records, edge))) == RoundSize(1, 100, 11)
    assert longest_of(make_run([], [variant()])) == RoundSize(1, 256, 16)
