"""What to use here: true of every run, and never inside the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from run_factory import (
    BLOCKS_S,
    absent_variant,
    around,
    asking,
    full_run,
    make_block_record,
    make_record,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
)

from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need, Reader
from llm_bench_fixtures.answer.picks import Outcome
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.words.answer import Answer, Recommendation
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import MemoryFacts, Record, Run, VariantResult

pytestmark = pytest.mark.usefixtures("processes_differ_by_one_percent")

LOOSE = asking("ppl_ratio<=1.02")


def answer(run: Run, need: Need = DEFAULT_NEED) -> Answer:
    return findings_of(run, registry(), need).answer


def for_reader(run: Run, reader: Reader, need: Need = DEFAULT_NEED) -> Recommendation:
    return next(one for one in answer(run, need).recommendations if one.pick.reader is reader)


def latency(run: Run, need: Need = DEFAULT_NEED) -> str:
    """The sentence for the lowest latency."""
    return for_reader(run, Reader.LATENCY, need).sentence


def chosen(run: Run, reader: Reader = Reader.LATENCY) -> tuple[str, ...]:
    """The best or likeliest for the reader, and what the run can't tell from it."""
    return tuple(one.variant for one in for_reader(run, reader).pick.choices)


def remarks(run: Run, title: str, need: Need = DEFAULT_NEED) -> dict[str, str]:
    """What the list of that title says, by variant."""
    lists = [them for name, them in answer(run, need).lists if name.startswith(title)]
    return {remark.variant: remark.text for them in lists for remark in them}


def not_worth_it(run: Run) -> dict[str, str]:
    return remarks(run, "Not worth using")


def two(fp32_s: float, bf16_s: float, **bf16: object) -> Run:
    variants = [make_variant(), make_variant("bf16", **{"quality": {"perplexity": 22.0}, **bf16})]
    return make_run([make_record("fp32", fp32_s), make_record("bf16", bf16_s)], variants)


def test_a_full_runs_answer() -> None:
    """2 MB of 4 MB; 100 ms / 80 ms; the limit is kept with 1.01 + 1.96 x 0.002 = 1.0139."""
    found = answer(full_run(), LOOSE)
    assert found.sentence == (
        "Use bf16 for the lowest latency and the least memory: 1.25× as fast as fp32, 2.00 MB of weights instead of "
        "4.00 MB, perplexity +1.0 %. bnb-nf4 takes 1.32 MB of weights instead of 4.00 MB, but has no quality figure to "
        "compare with fp32's."
    )
    assert [(one.pick.reader, one.name) for one in found.recommendations] == [
        (Reader.LATENCY, "bf16"),
        (Reader.MEMORY, "bf16"),
    ]
    assert found.notes[0] == (
        "Recommended: variants with perplexity at most 2 % above fp32's (ppl_ratio ≤ 1.02; change it with --llm-need)."
    )


def test_the_lowest_latency_with_what_it_costs() -> None:
    assert latency(full_run(), LOOSE) == (
        "bf16 is the fastest within the quality limit: 1.25× as fast as fp32 on one prompt of 64 tokens (80.0 ms "
        "instead of 100 ms); perplexity +1.0 % ± 0.2 %, top-1 98.5 %; weights 2.00 MB instead of 4.00 MB."
    )


def test_the_least_memory_with_what_it_costs() -> None:
    found = for_reader(full_run(), Reader.MEMORY, LOOSE)
    assert found.sentence == (
        "bf16 takes the least memory within the quality limit: 2.00 MB of weights, 50 % of fp32's 4.00 MB; perplexity "
        "+1.0 % ± 0.2 %, top-1 98.5 %; 1.25× as fast as fp32."
    )
    assert found.notes == ()


def test_the_limit_moves_the_answer() -> None:
    """From 1.0061 to 1.0139, the ratio is not shown to be within 1.01."""
    found = answer(full_run())
    assert found.lines == (
        (
            "Keep fp32: no other variant within the quality limit is more than 10 % faster or takes measurably "
            "less memory. bf16 is 1.25× as fast as fp32, but may or may not keep the quality limit (not decided: "
            "perplexity +1.0 % ± 0.2 %, limit +1 %). bnb-nf4 takes 1.32 MB of weights instead of 4.00 MB, but has no "
            "quality figure to compare with fp32's."
        ),
    )
    assert found.recommendations[0].sentence == ("No other variant within the quality limit is more than 10 % faster.")
    assert found.recommendations[0].notes == ()
    assert list(remarks(full_run(), "Not recommended")) == ["bf16", "bnb-nf4"]


def test_a_limit_on_the_agreement() -> None:
    """bf16 agrees at 98.5 % of the tokens."""
    assert answer(full_run(), asking("top1_agreement>=98%")).sentence.startswith("Use bf16 ")
    found = answer(full_run(), asking("top1_agreement>=99%"))
    assert found.sentence.startswith("Keep fp32: no other variant within the quality limit ")
    assert found.remarks[2] == (
        "Not recommended under the quality limit: bf16 does not keep it (top-1 agreement 98.5 %, limit 99 %); "
        "bnb-nf4 has no quality figure to compare with fp32's."
    )
    assert found.notes[0].startswith("Recommended: variants with top-1 agreement of at least 99 % with fp32 (")


@pytest.mark.parametrize("note", ["random weights", "not finite: loss, perplexity"])
def test_a_win_without_quality_says_why(note: str) -> None:
    run = two(1.0, 0.5, quality={}, quality_note=note)
    assert f"; quality not measured ({note})" in latency(run)
    assert answer(run).notes[0] == (
        f"The limit ppl_ratio ≤ 1.01 is not applied: no variant's quality was compared with fp32's ({note})."
    )


def test_dummy_models_are_said_to_have_random_weights() -> None:
    run = full_run()
    variants = tuple(_dummy(variant) for variant in run.variants)
    found = answer(replace(run, variants=variants))
    assert found.sentence.startswith("Use bf16 for the lowest latency: 1.25× as fast as fp32")
    assert "quality not measured" in found.sentence
    assert "random weights" in found.recommendations[0].sentence
    assert not any("perplexity" in one.sentence for one in found.recommendations)
    assert not any("Near-lossless" in note for note in found.notes)


def _dummy(variant: VariantResult) -> VariantResult:
    return replace(variant, quality={}, quality_note="random weights" if variant.label else "")


def engines(int4_ratio: float | None) -> Run:
    """fp32, an engine that is 2.5 times as fast and near-lossless, and one in 4 bits that is 9 times as fast.

    int4_ratio: of the latter's perplexity over fp32's; None for random weights.
    """
    ratios = {"fp32": 1.0, "fp16": 1.0, "bnb-nf4": 1.05, "ov-int8": 1.001, "ortgenai-int4": int4_ratio or 1.0}
    speedups = {"fp32": 1.0, "fp16": 0.7, "bnb-nf4": 0.3, "ov-int8": 2.5, "ortgenai-int4": 9.0}
    megabytes = {"fp32": 4.0, "fp16": 2.0, "bnb-nf4": 1.3, "ov-int8": 1.1, "ortgenai-int4": 0.7}
    variants = [
        make_variant(
            name,
            weight_bytes=int(megabytes[name] * 1e6),
            quality=(
                {}
                if int4_ratio is None
                else {
                    "perplexity": 20 * ratio,
                    "ppl_ratio": ratio,
                    "ppl_ratio_error": 0.0005 if name != "fp32" else 0.0,
                }
            ),
            quality_note="random weights" if int4_ratio is None else "",
        )
        for name, ratio in ratios.items()
    ]
    records = [
        make_block_record(name, speedup, spread=0.0 if name == "fp32" else 0.01) for name, speedup in speedups.items()
    ]
    return make_run(records, variants)


READERS = "for the lowest latency and the least memory"
INT4 = "9.00× (8.72–9.29) as fast as fp32"
INT8 = f"Use ov-int8 {READERS}: 2.50× (2.42–2.58) as fast as fp32, 1.10 MB of weights instead of 4.00 MB, near-lossless"
RIVAL = f"ortgenai-int4 is {INT4}"
LEAST = "700 kB of weights instead of 4.00 MB"


@pytest.mark.parametrize(
    ("ratio", "sentence"),
    [
        (1.008, f"Use ortgenai-int4 {READERS}: {INT4}, {LEAST}, perplexity +0.8 %."),
        (None, f"Use ortgenai-int4 {READERS}: {INT4}, {LEAST}, quality not measured."),
        (1.03, f"{INT8}. {RIVAL}, but does not keep the quality limit (perplexity +3.00 % ± 0.05 %, limit +1 %)."),
        (
            1.0095,
            (
                f"{INT8}. {RIVAL} and takes {LEAST}, but may or may not keep the quality limit (not decided: "
                "perplexity +0.95 % ± 0.05 %, limit +1 %)."
            ),
        ),
    ],
    ids=["within the limit", "random weights", "beyond the limit", "across the limit"],
)
def test_an_engine_that_is_several_times_as_fast_is_in_the_answer(ratio: float | None, sentence: str) -> None:
    """With its factor, and with what it costs, on whichever side of the limit."""
    assert answer(engines(ratio)).sentence == sentence


def test_a_small_win_beyond_the_limit_stays_out_of_the_answer() -> None:
    """1.25 times as fast: it is said below."""
    quality = {"perplexity": 22.0, "ppl_ratio": 1.1, "ppl_ratio_error": 0.001}
    found = answer(two(1.0, 0.8, quality=quality))
    assert "bf16" not in found.sentence
    assert found.recommendations[0].notes == (
        "bf16 is 1.25× as fast as fp32, but does not keep the quality limit (perplexity +10.0 % ± 0.1 %, limit +1 %).",
    )


def test_where_all_that_is_faster_is_beyond_the_limit_the_win_is_told_all_the_same() -> None:
    quality = {"perplexity": 22.0, "ppl_ratio": 1.1, "ppl_ratio_error": 0.001}
    assert answer(two(1.0, 0.25, quality=quality)).lines == (
        (
            "Keep fp32: no other variant within the quality limit is more than 10 % faster or takes measurably "
            "less memory. bf16 is 4.00× as fast as fp32, but does not keep the quality limit (perplexity +10.0 % "
            "± 0.1 %, limit +1 %)."
        ),
    )


def test_each_reader_has_a_rival_beyond_the_limit() -> None:
    """v0 is the faster one alone, v1 in batches; neither keeps the limit, and each is told once, for its reader."""
    quality = {"perplexity": 22.0, "ppl_ratio": 1.1, "ppl_ratio_error": 0.001}
    variants = [make_variant(), *(make_variant(name, quality=quality) for name in ("v0", "v1"))]
    records = [
        *(make_block_record(spread=0.0), make_block_record("v0", 4.0), make_block_record("v1", 2.0)),
        *(batch("fp32", 4), batch("v0", 4, 2.0), batch("v1", 4, 3.0)),
    ]
    cost = "but does not keep the quality limit (perplexity +10.0 % ± 0.1 %, limit +1 %)"
    kept = (
        "Keep fp32: no other variant within the quality limit is more than 10 % faster, has over 10 % more throughput "
        "or takes measurably less memory."
    )
    latency, throughput = "4.00× (3.88–4.13) as fast as fp32", "3.00× (2.91–3.10) fp32's throughput at batch 4"
    assert answer(make_run(records, variants)).lines == (
        f"{kept} v0 is {latency}, {cost}. v1 has {throughput}, {cost}.",
    )
    records[-1] = batch("v1", 4, 1.5)
    throughput = "2.00× (1.94–2.06) fp32's throughput at batch 4"
    assert answer(make_run(records, variants)).lines == (f"{kept} v0 is {latency} and has {throughput}, {cost}.",)


def test_who_was_not_measured_in_batches_is_named() -> None:
    """Bug: in a run that had no time for the batches of all variants, the most throughput was told as if of all."""
    one_prompt = [make_block_record(spread=0.0), make_block_record("v0", 4.0), make_block_record("v1", 2.0)]
    found = answer(make_run([*one_prompt, batch("fp32", 4), batch("v1", 4, 2.0)]))
    assert found.untold == ("Not compared in throughput, because not measured at batch 4: v0.",)
    assert answer(make_run([*one_prompt, batch("fp32", 4), batch("v1", 4), batch("v0", 4)])).untold == ()


def test_it_changes_when_the_numbers_do() -> None:
    assert "2.00× as fast" in latency(two(1.0, 0.5))
    assert "4.00× as fast" in latency(two(1.0, 0.25))


def test_the_winner_changes_with_the_numbers() -> None:
    variants = [make_variant(name) for name in ("fp32", "bf16", "fp16")]
    records = [make_record("fp32", 1.0), make_record("bf16", 0.5), make_record("fp16", 0.25)]
    assert latency(make_run(records, variants)).startswith("fp16 is the fastest")
    records[2] = make_record("fp16", 0.75)
    assert latency(make_run(records, variants)).startswith("bf16 is the fastest")


def test_no_win_is_claimed_inside_the_scatter() -> None:
    run = make_run([make_record(rounds_s=around(1.1, 0.2)), make_record("bf16", rounds_s=around(1.0, 0.2))])
    assert for_reader(run, Reader.LATENCY).pick.outcome is Outcome.UNDECIDED


def test_no_win_is_claimed_below_the_floor() -> None:
    """bf16 is 20 % faster, but fp32 differed from itself by 30 %."""
    run = make_run([make_record("fp32", 1.2), make_record("fp32", 1.56, scenario="cache"), make_record("bf16", 1.0)])
    assert latency(run) == (
        "Undecided: probably bf16, 1.20× as fast as fp32 on one prompt of 64 tokens (1.00 s instead of 1.20 s); "
        "perplexity +0.0 %. Certainly faster than fp32: none."
    )


def test_no_win_is_claimed_with_two_rounds() -> None:
    run = make_run([make_record(rounds_s=(1.0, 1.0)), make_record("bf16", rounds_s=(0.1, 0.1))])
    assert answer(run).lines[0] == (
        "Undecided for the lowest latency: probably bf16, 10.0× as fast as fp32, perplexity +0.0 %. Certainly faster "
        "than fp32: none."
    )
    assert for_reader(run, Reader.LATENCY).notes == ()


def test_a_faster_one_that_scatters_too_widely_is_named_with_what_is_certain() -> None:
    records = [make_record("fp32", 1.0), make_record("bf16", 0.5), make_record("fp16", rounds_s=(0.1, 0.2, 0.9))]
    found = for_reader(make_run(records), Reader.LATENCY)
    assert found.name == "probably fp16"
    assert found.sentence.endswith(". Certainly faster than fp32: bf16.")
    assert found.notes == ("Other candidates for the lowest latency: bf16 (2.00×).",)


def test_a_slower_variant_is_no_win() -> None:
    assert latency(two(1.0, 2.0)) == "No other variant is more than 10 % faster."


def test_a_fallback_that_ran_the_same_is_no_rival() -> None:
    variants = [make_variant(), make_variant("fp16", label="float32 (why)", configuration="configuration of fp32")]
    run = make_run([make_record("fp32", 1.0), make_record("fp16", 0.5)], variants)
    assert chosen(run) == ("fp32",)
    assert not_worth_it(run) == {"fp16": "is identical to fp32 here"}


def side_by_side(*speedups: float, spread: float = 0.01, **changes: Any) -> Run:
    """fp32 and a variant for each speed-up, measured in the same blocks."""
    others = [make_block_record(f"v{index}", speedup, spread) for index, speedup in enumerate(speedups)]
    return make_run([make_block_record(spread=0.0), *others], **changes)


def test_a_win_in_blocks_has_its_interval() -> None:
    """Ten blocks, one hundredth above and below in turn: the error is a third of that, of which Student's t of nine
    degrees of freedom makes 2.26 x 0.33 = 0.75. Two processes add 1.96 x 1.41 hundredths."""
    found = for_reader(side_by_side(2.0, 1.5), Reader.LATENCY)
    assert found.sentence.startswith(
        "v0 is the fastest: 2.00× (1.94–2.06) as fast as fp32 on one prompt of 64 tokens ("
    )
    assert "different times" not in found.sentence
    best = found.pick.best
    assert (best.ratio, best.low, best.high) == (
        pytest.approx(2.0),
        pytest.approx(1.94, abs=0.005),
        pytest.approx(2.06, abs=0.005),
    )


@pytest.mark.parametrize(("disturbed", "notes"), [(5, 0), (6, 1)])
def test_a_win_over_disturbed_rounds_of_the_reference_is_doubtful(disturbed: int, notes: int) -> None:
    """Bug: next to a server, which tells no waits of its own, such a win was headlined without a word."""
    waited_s = (0.5,) * disturbed + (0.0,) * (10 - disturbed)
    run = make_run([make_block_record(spread=0.0), make_block_record("endpoint", 29.3, reference_waited_s=waited_s)])
    found = for_reader(run, Reader.LATENCY).notes
    doubt = (
        f"endpoint's speed-up for the lowest latency may be off: in {disturbed} of 10 pairs of rounds, threads waited "
        "for a core."
    )
    assert [note for note in found if "may be off" in note] == [doubt] * notes


def test_a_win_in_blocks_may_be_smaller_than_the_noise_of_different_times() -> None:
    assert "v0 is the fastest: 1.05×" in latency(side_by_side(1.05))


@pytest.mark.parametrize(
    ("speedup", "says"),
    [
        (2.0, "as fast as fp32 on one prompt of 64 tokens (512 ms instead of 1.02 s); perplexity +0.0 %."),
        (0.925, "No other variant is more than 10 % faster."),
    ],
)
def test_the_answer_uses_the_reference_rounds_next_to_the_variants_own(speedup: float, says: str) -> None:
    """Bug: where the reference's own test was timed on its own, the answer found no difference, and the table one of
    0.925× (0.892–0.960)."""
    apart = make_record(rounds_s=(3.0, 3.01, 3.02))
    run = make_run([apart, make_block_record("v0", speedup)])
    found = for_reader(run, Reader.LATENCY)
    assert found.sentence.endswith(says)
    assert found.notes == ()


def test_the_turns_of_a_reference_whose_own_test_was_not_selected_count() -> None:
    """Bug: 4.35× in the table, and below it "The reference fp32 was not measured on what the others ran"."""
    variants = [make_variant(), make_variant("v0")]
    run = make_run([make_block_record("v0", 2.0, memory=MemoryFacts(9_000_000))], variants)
    assert answer(run).sentence.startswith("Use v0 for the lowest latency: 2.00× (1.94–2.06) as fast as fp32")
    assert "(512 ms instead of 1.02 s)" in latency(run)
    assert for_reader(run, Reader.MEMORY).pick.metric == "weight_bytes"  # its peak can't be known


def test_rounds_outside_of_turns_are_no_measurement_of_the_reference() -> None:
    run = make_run([make_record("v0"), make_record("v1")], [make_variant(), make_variant("v0"), make_variant("v1")])
    assert answer(run).sentence == (
        "fp32, the reference, was not measured on the others' prompts: nothing to compare with."
    )


def test_no_win_is_claimed_inside_the_interval() -> None:
    found = for_reader(side_by_side(1.01), Reader.LATENCY)
    assert found.sentence == "No other variant is more than 10 % faster."
    assert found.notes == ("No measurable difference in latency: fp32, v0 (1.01×).",)


def test_many_claims_at_once_need_wider_intervals() -> None:
    """Alone 4 % exceed the interval's 2.9 %. Eleven variants are compared with fp32 and ten with the best of them:
    99.76 % confidence each, of which Student's t is 4.2, the normal quantile 3.0 and the interval 4.5 %."""
    assert "v0 is the fastest" in latency(side_by_side(1.04))
    run = side_by_side(1.04, *[1.0] * 10)
    assert latency(run) == "No other variant is more than 10 % faster."
    found = findings_of(run, registry())
    assert (found.comparisons, found.confidence) == (21, pytest.approx(1 - 0.05 / 21))


def test_variants_that_this_run_cannot_tell_apart_are_both_named() -> None:
    """v1's ratios are up where v0's are down, so that the two differ by 2 hundredths to either side."""
    records = [make_block_record(spread=0.0), make_block_record("v0", 2.0), make_block_record("v1", 2.01, -0.01)]
    run = make_run(records)
    found = for_reader(run, Reader.LATENCY)
    assert found.sentence.startswith("v1 is among the best: 2.01×")
    assert found.notes == ("No measurable difference in latency: v1, v0 (2.00×).",)
    assert answer(run).lines[0].startswith("Use v1 for the lowest latency: 2.01× ")
    assert answer(run).lines[0].endswith(". As good for that: v0.")


def test_two_variants_that_ran_the_same_are_never_told_apart() -> None:
    """However steadily one comes out faster."""
    variants = [make_variant(), make_variant("v0"), make_variant("v1", configuration="configuration of v0")]
    found = for_reader(side_by_side(2.0, 1.8, variants=variants), Reader.LATENCY)
    assert found.notes == ("No measurable difference in latency: v0, v1 (1.80×).",)


def test_a_fallback_that_ran_the_same_in_blocks_is_neither_faster_nor_slower() -> None:
    variants = [make_variant(), make_variant("v0", configuration="configuration of fp32", base="fp32", quantized=True)]
    for speedup in (1.5, 0.5):
        run = side_by_side(speedup, variants=variants)
        assert chosen(run) == ("fp32",)
        assert not_worth_it(run) == {"v0": "is identical to fp32 here"}


def test_variants_of_different_blocks_are_compared_by_the_reference() -> None:
    """v1 has blocks of its own, in which the machine took twice as long."""
    elsewhere = make_block_record("v1", 1.5, reference_s=[2 * seconds for seconds in BLOCKS_S])
    run = make_run([make_block_record(spread=0.0), make_block_record("v0", 2.0), elsewhere])
    assert chosen(run) == ("v0",)
    assert latency(run).startswith("v0 is the fastest: 2.00×")


def test_a_base_that_is_not_the_reference_is_one_more_comparison() -> None:
    variants = [make_variant(), make_variant("v0"), make_variant("v1", base="v0", quantized=True)]
    assert findings_of(side_by_side(2.0, 1.5, variants=variants), registry()).comparisons == 2 + 1 + 1


def batch(variant: str, size: int, speedup: float = 1.0, scale: float = 1.0) -> Record:
    """Four prompts, 64 tokens in all, in blocks with the reference, whose rounds take `scale` s or so."""
    workload = make_workload(f"batch {size}", "batch", prompts=4, batch_size=size, new_tokens=64)
    spread = 0.0 if variant == "fp32" else 0.01
    reference_s = [scale * seconds for seconds in BLOCKS_S]
    return make_block_record(variant, speedup, spread, reference_s, scenario="batch", case=str(size), workload=workload)


def test_the_most_throughput_is_at_the_largest_batch() -> None:
    """The reference's rounds have a median of 1.025 s: 64 tokens in it are 62.4 a second."""
    records = [batch("fp32", 1, scale=2.0), batch("v0", 1, 2.0, scale=2.0), batch("fp32", 4), batch("v0", 4, 3.0)]
    found = for_reader(make_run(records), Reader.THROUGHPUT)
    assert found.sentence.startswith("v0 has the most throughput: 3.00× (2.91–3.10) fp32's throughput at batch 4 (187 ")
    assert found.sentence.endswith(" instead of 62.4 tokens/s); perplexity +0.0 %.")
    assert found.pick.metric == "output_tokens_per_s"
    assert findings_of(make_run(records), registry()).comparisons == 1 + 1  # the common workload and the largest batch


def test_a_smaller_batch_does_not_decide() -> None:
    """v0 is four times as fast one at a time, and no faster in the batch."""
    records = [batch("fp32", 1, scale=2.0), batch("v0", 1, 4.0, scale=2.0), batch("fp32", 4), batch("v0", 4)]
    assert chosen(make_run(records), Reader.THROUGHPUT) == ("fp32", "v0")


def lengths(*speedups: float, variant: str = "v0", spread: float = 0.01) -> list[Record]:
    """A variant's speed-ups on prompts of 16, 32, 48, ... tokens."""
    return [
        make_block_record(
            variant,
            speedup,
            spread,
            scenario="prompt_length",
            case=str(tokens),
            workload=make_workload(f"{tokens} tokens", prompt_tokens=tokens),
        )
        for tokens, speedup in zip(range(16, 100, 16), speedups, strict=False)
    ]


def test_latency_is_decided_by_all_prompt_lengths_together() -> None:
    """1, 2 and 4 times as fast: twice, by the geometric mean. Each case's error is a third of a hundredth, their
    mean's 0.58 of that; of 27 degrees of freedom Student's t is 2.05. Two processes add 1.96 x 1.41 hundredths, once:
    2.8 in all. The figures are those of the middle length."""
    run = make_run([*lengths(1, 1, 1, variant="fp32", spread=0.0), *lengths(1, 2, 4)])
    assert latency(run).startswith(
        "v0 is the fastest: 2.00× (1.94–2.06) as fast as fp32 on one prompt of 16, 32 or 48 tokens (512 ms instead of "
        "1.02 s with 32 tokens); "
    )
    assert answer(run).sentence.startswith("Use v0 for the lowest latency: 2.00× (1.94–2.06) as fast as fp32, ")


def test_two_variants_are_compared_over_all_prompt_lengths() -> None:
    """v0 is faster at the middle length, v1 by more at the others."""
    run = make_run(
        [*lengths(1, 1, 1, variant="fp32", spread=0.0), *lengths(2, 2, 2), *lengths(4, 1.5, 4, variant="v1")]
    )
    assert chosen(run) == ("v1",)


def test_what_is_slower_over_all_prompt_lengths_is_not_worth_using() -> None:
    run = make_run([*lengths(1, 1, 1, variant="fp32", spread=0.0), *lengths(0.25, 1, 0.5)])
    assert not_worth_it(run) == {"v0": "is 50 % slower than fp32 (49 to 51 %), same weight size"}
    assert answer(run).lists[0][0] == "Not worth using on one prompt of 16, 32 or 48 tokens, batch 1"


def test_one_variant_for_all_readers_is_one_recommendation() -> None:
    lean = [make_variant(), make_variant("v0", weight_bytes=1_000_000)]
    records = [make_block_record(spread=0.0), make_block_record("v0", 2.0), batch("fp32", 4), batch("v0", 4, 3.0)]
    assert answer(make_run(records, lean)).sentence == (
        "Use v0: 2.00× (1.94–2.06) as fast as fp32, 3.00× (2.91–3.10) fp32's throughput at batch 4, 1.00 MB of weights "
        "instead of 4.00 MB, perplexity +0.0 %."
    )


def test_a_slower_one_is_a_candidate_where_the_rounds_are_too_few() -> None:
    """v0 is twice as fast as fp32 and v1 1.5 times, in three blocks that can't tell the two apart: the logarithms of
    their ratio scatter by 0.06 to either side, so that its error is 0.04, of which Student's t of two degrees of
    freedom makes 0.3 at 98.3 %, and the two differ by log(2 / 1.5) = 0.29 - 0.02. v1 takes less memory."""
    blocks_s = (1.0, 1.1, 0.9)
    lean = [make_variant(), make_variant("v0"), make_variant("v1", weight_bytes=1_000_000)]
    records = [
        make_block_record(spread=0.0, reference_s=blocks_s),
        make_block_record("v0", 2.0, 0.03, reference_s=blocks_s),
        make_block_record("v1", 1.5, -0.03, reference_s=blocks_s),
    ]
    lines = answer(make_run(records, lean)).lines
    assert lines[0].startswith("Undecided for the lowest latency: probably v0, 1.98×")
    assert " Certainly faster than fp32: v0, v1. About 2 pooled runs in all would decide" in lines[0]
    assert lines[1].startswith("Use v1 for the least memory: 1.00 MB of weights instead of 4.00 MB, ")


def with_peaks(*peaks: tuple[str, int]) -> Run:
    """Variants of half the speed, and the peak of each; another of the same variant is another case of the workload."""
    records = []
    for index, (name, peak) in enumerate(peaks):
        memory = MemoryFacts(peak)
        speedup, spread = (1.0, 0.0) if name == "fp32" else (0.5, 0.01)
        records.append(make_block_record(name, speedup, spread, memory=memory, case=str(index)))
    return make_run(records)


def test_the_peak_of_a_round_decides_on_memory() -> None:
    found = for_reader(with_peaks(("fp32", 100_000_000), ("v0", 40_000_000)), Reader.MEMORY)
    assert found.sentence == (
        "v0 takes the least memory: 40.0 MB at its peak, 40 % of fp32's 100 MB; perplexity +0.0 %; 0.500× "
        "(0.485–0.516) as fast as fp32."
    )
    assert found.pick.metric == "own_memory_bytes"


def test_memory_alone_is_no_reason_to_give_up_speed() -> None:
    run = with_peaks(("fp32", 100_000_000), ("v0", 40_000_000))
    assert answer(run).lines == (
        "Keep fp32 for the lowest latency: no other variant is more than 10 % faster.",
        (
            "Use v0 for the least memory: 40.0 MB of memory instead of 100 MB, perplexity +0.0 %, 0.500× (0.485–0.516) "
            "as fast as fp32."
        ),
    )


def test_a_speed_that_too_few_rounds_tell_is_not_spoken_of() -> None:
    """Bug: "40.0 MB of memory instead of 100 MB, perplexity +0.0 %, – as fast as fp32", after a single round."""
    peaks = {"fp32": 100_000_000, "v0": 40_000_000}
    once = [make_block_record(name, reference_s=(1.0,), memory=MemoryFacts(peak)) for name, peak in peaks.items()]
    said = "Use v0 for the least memory: 40.0 MB of memory instead of 100 MB, perplexity +0.0 %."
    assert said in answer(make_run(once)).lines


@pytest.mark.parametrize(
    ("peaks", "outcome", "names"),
    [
        ((("fp32", 19_000_000), ("v0", 15_000_000)), Outcome.REFERENCE, ("fp32", "v0")),  # 4 MB are within 5 MB
        ((("fp32", 1_000_000_000), ("v0", 950_000_000)), Outcome.REFERENCE, ("fp32", "v0")),  # within 10 %
        ((("fp32", 100_000_000), ("v0", 40_000_000), ("v0", 95_000_000)), Outcome.UNDECIDED, ("v0",)),  # as much, once
        ((("fp32", 100_000_000), ("v0", 150_000_000)), Outcome.REFERENCE, ("fp32",)),
    ],
)
def test_memory_is_claimed_beyond_its_tolerance_and_its_own_range_only(
    peaks: Sequence[tuple[str, int]], outcome: Outcome, names: tuple[str, ...]
) -> None:
    run = with_peaks(*peaks)
    assert for_reader(run, Reader.MEMORY).pick.outcome is outcome
    assert chosen(run, Reader.MEMORY) == names


def test_the_smallest_weights_stand_beside_the_peaks() -> None:
    run = with_peaks(("fp32", 100_000_000), ("v0", 95_000_000))
    run = replace(run, variants=(run.variants[0], make_variant("v0", weight_bytes=1_320_000)))
    assert for_reader(run, Reader.MEMORY).notes == (
        "Too close in memory to rank, with peaks within 10 % or 5.00 MB: fp32, v0 (95.0 MB).",
        "v0 has the smallest weights: 1.32 MB, 33 % of fp32's 4.00 MB.",
    )


def test_what_costs_time_is_not_worth_using_whatever_it_saves() -> None:
    """4 % are enough, far inside the noise of different times."""
    run = side_by_side(0.96, variants=[make_variant(), make_variant("v0", weight_bytes=3_000_000)])
    run = replace(run, records=tuple(replace(one, memory=MemoryFacts(50_000_000)) for one in run.records))
    assert not_worth_it(run) == {"v0": "is 4 % slower than fp32 (0.93 to 7 %), saves 1.00 MB of weights"}
    assert "Not worth using on one prompt of 64 tokens, batch 1: v0 is 4 % slower " in " ".join(answer(run).remarks)


def test_quantization_that_costs_time_against_its_base_is_not_worth_using() -> None:
    variants = [make_variant(), make_variant("v0"), make_variant("v1", base="v0", quantized=True)]
    assert not_worth_it(side_by_side(2.0, 1.5, variants=variants)) == {
        "v1": "is 25 % slower than v0 (22 to 28 %), same weight size"
    }


def test_what_is_faster_in_batches_may_be_worth_using() -> None:
    records = [make_block_record(spread=0.0), make_block_record("v0", 0.5), batch("fp32", 4), batch("v0", 4, 3.0)]
    assert not_worth_it(make_run(records)) == {}
    assert list(not_worth_it(make_run(records[:2]))) == ["v0"]


@pytest.mark.parametrize(
    ("in_batches", "words"), [(0.5, ", slower in batches, too"), (1.0, ", no gain shown in batches")]
)
def test_what_is_not_worth_using_says_whether_batches_change_that(in_batches: float, words: str) -> None:
    records = [
        make_block_record(spread=0.0),
        make_block_record("v0", 0.5),
        batch("fp32", 4),
        batch("v0", 4, in_batches),
    ]
    assert not_worth_it(make_run(records))["v0"].endswith(words)


def test_what_is_recommended_for_its_memory_may_be_worth_using() -> None:
    assert not_worth_it(with_peaks(("fp32", 100_000_000), ("v0", 40_000_000))) == {}


def test_near_lossless_variants_are_grouped() -> None:
    near = {"perplexity": 20.0, "ppl_ratio": 1.0, "ppl_ratio_error": 0.001}
    run = make_run([make_record(), make_record("bf16", 0.5)], [make_variant(), make_variant("bf16", quality=near)])
    found = answer(run)
    assert found.notes[-1].startswith("Near-lossless by perplexity: bf16. The whole 95 % interval of its perplexity ")
    assert found.lines == (
        "Use bf16 for the lowest latency: 2.00× as fast as fp32, near-lossless.",
        "Keep fp32 for the least memory: no other variant takes measurably less memory.",
    )


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (make_run(), "Nothing was measured, so there is no answer."),
        (make_run([skipped_record("fp32", "why")]), "Nothing was measured, so there is no answer."),
        (make_run([], [absent_variant("fp32", "why")]), "Nothing was measured, so there is no answer."),
        (make_run([make_record()]), "Only fp32 was measured: there is nothing to choose between."),
        (
            make_run([skipped_record("fp32", "why"), make_record("bf16")]),
            "Only bf16 was measured: there is nothing to choose between.",
        ),
        (
            make_run([make_record("bf16", 0.5), make_record("fp16", 0.1)]),
            "fp32, the reference, was not measured on the others' prompts: nothing to compare with.",
        ),
    ],
)
def test_runs_that_have_no_answer_say_so(run: Run, sentence: str) -> None:
    found = answer(run)
    assert found.sentence == sentence
    assert not any(one.pick.outcome is Outcome.WINNER for one in found.recommendations)


def test_a_reference_that_was_not_measured_is_not_compared_with() -> None:
    run = make_run([skipped_record("fp32", "why"), make_record("bf16", 0.5), make_record("fp16", 0.1)])
    assert answer(run).recommendations == ()


def test_who_was_measured_elsewhere_only_is_not_compared() -> None:
    """However fast it is there."""
    elsewhere = make_block_record("v1", 9.0, workload=make_workload("other"), case="other")
    run = make_run([*side_by_side(2.0).records, elsewhere])
    assert chosen(run) == ("v0",)
    assert answer(run).untold[-1] == ("Not compared, because not measured on one prompt of 64 tokens: v1.")


def test_a_reader_without_an_answer_is_told_why() -> None:
    """Bug: where no batches were measured, the most throughput was left out without a word."""
    run = side_by_side(2.0)
    (sentence,) = answer(run).untold
    assert sentence == "No answer for the most throughput: no batch sizes were measured."
    assert sentence in answer(run).remarks
    apart = replace(batch("v0", 4), reference_s=())
    alone = make_run([*run.records, apart])
    assert answer(alone).untold[0].endswith("fp32 was not measured in batches.")
    own = make_run([*run.records, batch("fp32", 4)])
    assert answer(own).untold[0].endswith("only fp32 was measured in batches.")
    both = make_run([*run.records, batch("fp32", 4), batch("v0", 4)])
    assert answer(both).untold == ()


def test_the_best_of_those_that_keep_the_limit_says_so() -> None:
    """Where a faster one is beyond it."""
    lossy = {"perplexity": 30.0, "ppl_ratio": 1.5, "ppl_ratio_error": 0.01}
    near = {"perplexity": 20.0, "ppl_ratio": 1.0, "ppl_ratio_error": 0.001}
    variants = [make_variant(), make_variant("v0", quality=near), make_variant("v1", quality=lossy)]
    found = for_reader(side_by_side(2.0, 4.0, variants=variants), Reader.LATENCY)
    assert found.sentence.startswith("v0 is the fastest within the quality limit: 2.00×")


def test_flips_are_part_of_the_evidence() -> None:
    flips = {"flips": 0.04, "flips_lost": 6, "flips_gained": 2, "choice_items": 200}
    run = two(1.0, 0.5, quality={"perplexity": 22.0, **flips})
    assert "perplexity +10.0 %, flips 8/200." in latency(run)


def test_a_scatter_too_wide_for_its_rounds_is_unknown_and_not_no() -> None:
    run = make_run([make_record(rounds_s=(0.5, 1.0, 2.0)), make_record("bf16", rounds_s=(0.1, 0.2, 0.9))])
    assert for_reader(run, Reader.LATENCY).pick.outcome is Outcome.UNDECIDED


def with_a_wide_one(**wide: Any) -> Run:
    """v0 is steadily twice as fast as fp32; v1's ratios are up by half and down by half in turn."""
    return make_run([make_block_record(spread=0.0), make_block_record("v0", 2.0), make_block_record("v1", **wide)])


def test_a_name_is_proven_for_every_reader_that_it_serves() -> None:
    """Bug: what took the least memory was named for the lowest latency, too, at 0.945× (0.181 to 4.93), because its
    interval was too wide to tell it from the fastest."""
    run = with_a_wide_one(speedup=1.5, spread=0.5)
    small = make_variant("v1", weight_bytes=1_000_000)
    run = replace(run, variants=tuple(small if one.id == "v1" else one for one in run.variants))
    lines = answer(run).lines
    assert lines[0] == (
        "Undecided for the lowest latency: probably v0, 2.00× (1.94–2.06) as fast as fp32, perplexity +0.0 %. "
        "Certainly faster than fp32: v0. About 13 pooled runs in all would decide (llm-bench report RUN RUN ...)."
    )
    assert lines[1].startswith("Use v1 for the least memory: 1.00 MB of weights instead of 4.00 MB, ")
    (note,) = for_reader(run, Reader.LATENCY).notes
    assert note.startswith("Other candidates for the lowest latency: v1 (1.50×, 0.7")


def test_a_throughput_with_a_wide_interval_is_no_recommendation() -> None:
    """Bug: "(or ort-int8-static) for the most throughput" stood for 0.34 to 16.9 times that of fp32."""
    first = with_a_wide_one(speedup=2.0).records
    names = (("fp32", 1.0, 0.0), ("v0", 3.0, 0.01), ("v1", 2.9, 1.5))
    batched = [
        replace(one, scenario="batch", case="4", workload=batch("v0", 4).workload)
        for one in (make_block_record(name, speedup, spread) for name, speedup, spread in names)
    ]
    run = make_run([*first, *batched])
    assert chosen(run) == ("v0", "v1")
    assert for_reader(run, Reader.THROUGHPUT).pick.alike == ("v0",)
    assert answer(run).lines[1].startswith("Undecided for the most throughput: probably v0, 3.00× ")


def test_memory_that_is_not_shown_to_be_less_than_the_references_is_no_recommendation() -> None:
    """v1 took 95 MB once, as much as fp32 within the tolerance, and 40 MB once, as little as v0."""
    run = with_peaks(("fp32", 100_000_000), ("v0", 40_000_000), ("v1", 40_000_000), ("v1", 95_000_000))
    found = for_reader(run, Reader.MEMORY)
    assert found.pick.alike == ("v0",)
    assert found.notes[0].startswith("Too close in memory to rank, with peaks within 10 % or 5.00 MB: v0, v1 (")


def test_few_blocks_with_a_wide_interval_are_unknown_and_not_no() -> None:
    """Bug: 0.302× from three blocks stood under "no difference that this run can show"."""
    slow = make_block_record("v0", 0.3, 0.5, (1.0, 1.0, 1.0))
    run = make_run([make_block_record(spread=0.0, reference_s=(1.0, 1.0, 1.0)), slow])
    told = "Undecided for the lowest latency: the best alternative to fp32 is v0, 0.254× (0.060–1.07) as fast as fp32"
    assert answer(run).lines[0].startswith(told)


def test_readers_whom_nothing_serves_are_told_in_the_answer() -> None:
    """Two who keep the reference, or one of whom the rounds tell nothing."""
    steady = make_run([*side_by_side(2.0).records, batch("fp32", 4), batch("v0", 4)])
    assert answer(steady).lines[1] == (
        "Keep fp32 for the most throughput and the least memory: no other variant has over 10 % more throughput or "
        "takes measurably less memory."
    )
    wide = replace(make_block_record("v0", 1.0, 1.0), scenario="batch", case="4", workload=batch("v0", 4).workload)
    unknown = make_run([*side_by_side(2.0).records, batch("fp32", 4), wide])
    assert answer(unknown).lines[1].startswith("Undecided for the most throughput: ")
    assert answer(unknown).lines[2] == "Keep fp32 for the least memory: no other variant takes measurably less memory."
