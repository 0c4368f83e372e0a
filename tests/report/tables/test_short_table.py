"""The table of a terminal and a pull request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import FALLBACK, full_run, make_block_record, make_record, make_run, make_variant, make_workload
from shown_table import by_column, header, rows

from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.tables.by_variant import summary_section, variants_table
from llm_bench_fixtures.report.tables.table import Cell, Column, Table, Tone
from llm_bench_fixtures.results.formatting import BYTE_SIZES, SECOND_SIZES, Notation, common_unit
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import MemoryFacts, Run


def table_of(run: Run, *names: str) -> Table:
    return variants_table(findings_of(run, registry()), run.variants, names)


def row(table: Table, key: str) -> dict[str, str]:
    return by_column(table, key)


def tones(table: Table, column: str) -> dict[str, Tone]:
    """By variant, of the column."""
    cells = table.cells(column.partition(", ")[0])
    return {row[0].words: cell.tone for row, cell in zip(table.rows, cells, strict=True) if cell.tone}


def test_the_numbers_of_a_full_run() -> None:
    """80 ms for 16 tokens are 200 a second; the first of them after 32 ms; 100 ms / 80 ms is 1.25."""
    assert row(table_of(full_run()), "bf16") == {
        "variant": "bf16",
        "what ran": "bfloat16",
        "TTFT, ms": "32.0",
        "TPOT, ms": "3.20",
        "latency, ms": "80.0 ± 0.8",
        "speed-up": "1.25×",
        "tokens/s": "200",
        "batched, tokens/s": "–",
        "weights, MB": "2.00",
        "peak, MB": "12.0",
        "perplexity": "+1.0 % ± 0.2 %",
        "KLD": "0.0100",
        "top-1": "98.5 %",
    }


def test_the_reference_has_its_perplexity_and_the_others_their_change() -> None:
    table = table_of(full_run())
    assert row(table, "fp32")["perplexity"] == "20.000"
    assert row(table, "fp16")["what ran"] == FALLBACK
    assert row(table, "bnb-nf4")["perplexity"] == "22.000"  # it wasn't compared with the reference


def test_why_there_is_no_quality_stands_at_what_ran() -> None:
    """Bug: it stood in the column of perplexities, which it made as wide as a sentence."""
    run = make_run([make_record()], [make_variant(quality={}, quality_note="random weights")])
    assert row(table_of(run), "fp32")["what ran"] == "float32; quality not measured: random weights"


def test_what_did_not_run_has_its_reason() -> None:
    cells = rows(table_of(full_run()))[-1]
    assert cells[:2] == ("ort-fp32", "error: OutOfMemory: 512 bytes asked for")
    assert set(cells[2:]) == {"–"}


def test_a_reference_whose_own_test_was_not_selected_has_the_figures_of_its_turns() -> None:
    """Its rounds have a median of 1.025 s, in which 16 tokens are 15.6 a second. Nobody measured its memory."""
    run = make_run([make_block_record("v0", 2.0, memory=MemoryFacts(9_000_000))], [make_variant(), make_variant("v0")])
    cells = row(table_of(run), "fp32")
    assert (cells["latency, ms"].split(" ")[0], cells["speed-up"], cells["tokens/s"]) == ("1,025", "1.00×", "15.6")
    assert (cells["TTFT, ms"], cells["peak, MB"]) == ("–", "–")


def test_flips_stand_with_their_interval() -> None:
    """As in the answers' own table."""
    flips = {"flips": 0.04, "flips_low": 0.0174, "flips_high": 0.0773, "flips_lost": 6, "flips_gained": 2}
    variants = [
        make_variant(quality={"choice_items": 200}),
        make_variant("bf16", quality={**flips, "choice_items": 200}),
    ]
    table = table_of(make_run([make_record(), make_record("bf16")], variants), "flips")
    assert header(table) == ("variant", "what ran", "flips")
    assert [cells[2] for cells in rows(table)] == ["–", "8/200 (1.7–7.7 %)"]


def test_columns_can_be_chosen() -> None:
    assert header(table_of(full_run(), "latency", "peak")) == ("variant", "what ran", "latency, ms", "peak, MB")


def test_the_largest_batch_stands_with_its_size() -> None:
    """64 tokens in 1 s are 64 a second, in 0.5 s 128."""
    records = [
        make_record(
            variant,
            seconds,
            scenario="batch",
            case=str(size),
            workload=make_workload(f"batch {size}", "batch", prompts=4, batch_size=size, new_tokens=64),
        )
        for variant, size, seconds in (("fp32", 1, 0.8), ("fp32", 4, 1.0), ("bf16", 1, 1.0), ("bf16", 4, 0.5))
    ]
    table = table_of(make_run(records))
    assert [cells[header(table).index("batched, tokens/s")] for cells in rows(table)] == ["64.0 (4)", "128 (4)"]
    assert tones(table, "batched, tokens/s") == {"bf16": Tone.BETTER}


def test_who_was_measured_elsewhere_only_has_figures_with_a_mark() -> None:
    """Bug: fp16 was measured, in the precision scenario, and had a dash in each column. Half the median of the
    reference's rounds is 512 ms."""
    capital = make_workload("capital", prompt_tokens=6)
    records = [make_block_record(name, scenario="quantization", workload=capital) for name in ("fp32", "v0", "v1")]
    fp16 = make_block_record("fp16", 2.0, memory=MemoryFacts(9_000_000))
    run = make_run([*records, fp16])
    table = table_of(run)
    cells = row(table, "fp16")
    assert cells["what ran"] == "float32; * one prompt of 64 tokens (“Precision”)"
    assert (cells["speed-up"], cells["peak, MB"], cells["weights, MB"]) == ("2.00×* (1.94–2.06)", "9.00*", "4.00")
    assert cells["latency, ms"].startswith("512* ± ")
    assert "fp16" not in tones(table, "speed-up")
    assert "*" not in "".join(row(table, "v0").values())
    whole = row(summary_section(findings_of(run, registry())).table, "fp16")
    assert (whole["speed-up"], whole["tokens/s"], whole["weights, MB"]) == ("2.00×* (1.94–2.06)", "31.2*", "4.00")
    assert "*: measured only on other prompts or settings, see the variant" in list(table.legend())


def test_a_speed_up_that_is_not_the_ratio_of_the_latencies_says_why() -> None:
    """The reference's own test has a median of 2 s, its rounds next to v0's one of 1.025 s: v0 is twice as fast as
    these, and the latencies would make it 3.9 times."""
    alone = make_record(median_s=2.0)
    table = table_of(make_run([alone, make_block_record("v0", 2.0)]))
    (note,) = table.notes
    assert note == (
        "v0: the speed-up compares rounds that ran next to each other, the latencies are medians of all rounds, so "
        "their ratio differs"
    )
    assert set(table.notes) <= set(table.legend())
    assert table_of(make_run([make_block_record(spread=0.0), make_block_record("v0", 2.0)])).notes == ()


def test_a_mean_over_prompts_names_the_prompt_that_the_latencies_are_of() -> None:
    """2, 2 and 8 times as fast are 3.17 times in the mean, and the latencies are of the middle length. Bug: they were
    said to be of the shortest."""
    records = []
    for tokens, speedup in ((16, 2.0), (64, 2.0), (128, 8.0)):
        workload = make_workload(str(tokens), prompt_tokens=tokens)
        where = {"scenario": "prompt_length", "case": str(tokens), "workload": workload}
        records += [make_block_record(spread=0.0, **where), make_block_record("v0", speedup, **where)]
    (note,) = table_of(make_run(records)).notes
    assert note == (
        "v0: the speed-up is a mean over prompts of 16, 64 and 128 tokens, the latencies are of one prompt of 64 "
        "tokens, so their ratio differs"
    )


def test_a_batch_size_of_its_own_stands_for_who_lacks_the_largest() -> None:
    records = [
        make_record(name, scenario="batch", case="4", workload=make_workload("4", batch_size=4)) for name in "ab"
    ]
    alone = make_record("c", scenario="batch", case="2", workload=make_workload("2", "4", batch_size=2))
    assert row(table_of(make_run([*records, alone])), "c")["batched, tokens/s"] == "16.0 (2)"


def test_a_speed_has_a_tone_where_the_run_can_show_the_difference() -> None:
    speedups = {"faster": 2.0, "slower": 0.5, "alike": 1.001}
    records = [make_block_record(name, speedup) for name, speedup in speedups.items()]
    table = table_of(make_run([make_block_record(spread=0.0), *records]))
    for column in ("latency, ms", "speed-up", "tokens/s"):
        assert tones(table, column) == {"faster": Tone.BETTER, "slower": Tone.WORSE}


def test_memory_and_weights_have_a_tone_beyond_their_tolerance() -> None:
    peaks = {"fp32": 100, "less": 50, "more": 150, "alike": 105}
    records = [make_record(name, memory=MemoryFacts(peak * 1_000_000)) for name, peak in peaks.items()]
    run = make_run(records)
    sized = [replace(one, weight_bytes=peaks[one.id] * 1_000_000) for one in run.variants]
    table = table_of(replace(run, variants=tuple(sized)))
    assert tones(table, "peak, MB") == {"less": Tone.BETTER, "more": Tone.WORSE}
    assert tones(table, "weights, MB") == {"less": Tone.BETTER, "more": Tone.WORSE, "alike": Tone.WORSE}


def test_a_perplexity_has_a_tone_where_it_is_neither_near_lossless_nor_unclear() -> None:
    found = {"near": (1.004, 0.0001), "worse": (1.02, 0.001), "unclear": (1.02, 0.02), "better": (0.98, 0.001)}
    variants = [
        make_variant(name, quality={"perplexity": 20.0, "ppl_ratio": ratio, "ppl_ratio_error": error})
        for name, (ratio, error) in found.items()
    ]
    run = make_run([make_record(name) for name in ("fp32", *found)], [make_variant(), *variants])
    assert tones(table_of(run), "perplexity") == {"worse": Tone.WORSE, "better": Tone.BETTER}


@pytest.mark.parametrize(
    ("values", "unit"), [((0.5, 3.0), "ms"), ((1.0, 3.0), "s"), ((2e-5, 1.0), "µs"), ((1e-9,), "µs"), ((), "µs")]
)
def test_a_column_has_one_unit_in_which_no_value_is_below_one(values: tuple[float, ...], unit: str) -> None:
    assert common_unit(values, SECOND_SIZES)[0] == unit


def test_the_unit_of_bytes() -> None:
    assert common_unit((4e6, 5e9), BYTE_SIZES) == ("MB", 1e6)


@pytest.mark.parametrize(
    ("value", "spread", "shown"),
    [(33.81, 0.393, "33.8 ± 0.4"), (1234.0, 12.3, "1,234 ± 12"), (2.0, 0.001, "2.00 ± 0.00")],
)
def test_a_spread_has_as_many_digits_as_its_value(value: float, spread: float, shown: str) -> None:
    assert Cell(value=value, error=spread).text(Column("", Notation.NUMBER, unit="ms")) == shown
