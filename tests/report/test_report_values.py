"""What the report says, before any format."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_factory import (
    FALLBACK,
    absent_variant,
    full_run,
    make_block_record,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    make_workload,
    skipped_record,
)
from shown_table import by_column, header, rows

from llm_bench_fixtures.report.about import facts, footnotes
from llm_bench_fixtures.report.findings import Findings, SkippedOrFailed, findings_of
from llm_bench_fixtures.report.page.build import all_sections, page_values
from llm_bench_fixtures.report.tables.by_variant import summary_section
from llm_bench_fixtures.report.tables.table import LATENCY, Cell, Column, Section
from llm_bench_fixtures.report.words.measured import describe_workload
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import Direction, Kind, Metric, Unit, registry
from llm_bench_fixtures.results.record import MemoryFacts, Run, Scenario, Session, Status

pytestmark = pytest.mark.usefixtures("processes_differ_by_one_percent")


def found(run: Run) -> Findings:
    return findings_of(run, registry())


def section(findings: Findings, title: str) -> Section:
    return next(section for section in all_sections(findings) if section.title == title)


def summary(run: Run) -> Section:
    return summary_section(found(run))


def notes(run: Run) -> list[str]:
    return list(footnotes(found(run)))


def header_line(run: Run) -> str:
    return found(run).header


def row(section: Section, key: str) -> dict[str, str]:
    """The row that begins with `key`, by column."""
    return by_column(section.table, key)


def test_the_header_line() -> None:
    assert header_line(make_run([make_record()])) == "Loaded: tiny | device=cpu | dtype=float32"


def test_the_header_line_tells_of_random_weights() -> None:
    run = make_run([make_record()], provenance=make_provenance(model="gpt2", random_weights=True))
    assert header_line(run) == "Loaded: gpt2 (random weights) | device=cpu | dtype=float32"


def test_the_header_line_and_the_facts_tell_of_chats_and_attention() -> None:
    run = make_run([make_record()], provenance=make_provenance(chat=True, attention="eager"))
    assert header_line(run) == "Loaded: tiny | device=cpu | dtype=float32 | prompts=chats"
    found = dict(facts(run))
    assert found["Attention"] == "eager, as asked for"
    assert found["Prompts"] == "turns in the model's chat template, whose tokens count; quality is of plain text"
    assert not {"Attention", "Prompts"} & dict(facts(make_run([make_record()]))).keys()


def test_the_header_line_tells_of_a_fallback() -> None:
    run = make_run([make_record("fp16")], [make_variant("fp16", label=FALLBACK)], reference="fp16")
    assert header_line(run) == f"Loaded: tiny | device=cpu | dtype={FALLBACK}"


def test_the_header_line_has_the_references_dtype() -> None:
    variants = [make_variant("bf16", label="bfloat16"), make_variant("fp32")]
    assert header_line(make_run([], variants)).endswith("dtype=float32")


def test_the_header_line_without_the_reference_has_the_first_that_loaded() -> None:
    variants = [absent_variant("fp32", "why"), make_variant("bf16", label="bfloat16")]
    assert header_line(make_run([], variants)).endswith("dtype=bfloat16")


def test_the_header_line_where_nothing_loaded() -> None:
    run = make_run([], [absent_variant("fp32", "why")])
    assert header_line(run) == "Loaded: tiny | device=cpu | dtype=nothing loaded"


def test_the_summary_has_a_row_for_every_variant() -> None:
    run = full_run()
    table = summary(run).table
    assert [cells[0] for cells in rows(table)] == [variant.id for variant in run.variants]
    assert {len(cells) for cells in rows(table)} == {len(header(table))}


def test_the_summarys_numbers() -> None:
    """80 ms for 16 tokens are 200 a second; the first of them after 32 ms; 100 ms / 80 ms is 1.25."""
    assert row(summary(full_run()), "bf16") == {
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


def test_the_reference_has_its_perplexity_instead_of_a_change() -> None:
    cells = row(summary(full_run()), "fp32")
    assert (cells["speed-up"], cells["perplexity"]) == ("1.00×", "20.000")


def in_blocks() -> Run:
    """bf16 is twice as fast in each of ten blocks, but for 1 %; one of its rounds waited for a core."""
    waited_s = (0.5,) + (0.0,) * 9
    return make_run([make_block_record(spread=0.0), make_block_record("bf16", 2.0, waited_s=waited_s)])


def test_an_interval_is_in_the_unit_of_its_column() -> None:
    """Bug: it was told in seconds next to milliseconds."""
    column = Column("time", Notation.SECONDS, unit="ms", size=1e-3)
    assert Cell(value=0.00736, low=0.0052, high=0.0104).text(column) == "7.36 (5.20–10.4)"


def test_a_speedup_of_blocks_has_its_interval() -> None:
    """Ten blocks, a hundredth above and below the logarithm of 2: the error is a third of that, and Student's t of nine
    degrees of freedom makes 2.26 x 0.33 = 0.75 of it. Two processes add 1.96 x 1.41 hundredths."""
    table = summary(in_blocks())
    assert row(table, "bf16")["speed-up"] == "2.00× (1.94–2.06)"
    assert row(table, "fp32")["speed-up"] == "1.00×"


def test_a_scenarios_table_has_the_speedup_beside_the_latency() -> None:
    table = section(found(in_blocks()), "Precision").table
    place = header(table).index("latency")
    assert header(table)[place : place + 2] == ("latency", "speed-up")
    assert [cells[place + 1] for cells in rows(table)] == ["1.00×", "2.00× (1.94–2.06)"]
    assert table.columns[place].is_numeric
    assert table.columns[place + 1].is_numeric


def test_the_variation_says_how_many_rounds_were_disturbed() -> None:
    variation = section(found(in_blocks()), "Variation between rounds")
    assert row(variation, "bf16")["disturbed"] == "1"
    assert row(variation, "fp32")["disturbed"] == "–"


def test_a_variant_that_did_not_run_has_its_reason() -> None:
    table = summary(full_run())
    assert row(table, "autocast-fp16")["what ran"].startswith("skipped: float16 autocast needs an accelerator")
    assert row(table, "ort-fp32")["what ran"] == "error: OutOfMemory: 512 bytes asked for"
    assert set(rows(table.table)[-1][2:]) == {"–"}


def test_the_summary_says_on_which_workload() -> None:
    assert summary(full_run()).note == ("One prompt, 64 prompt tokens, 16 new tokens, batch 1, cache dynamic.")


def test_the_summary_where_nothing_was_timed() -> None:
    assert summary(make_run([skipped_record("fp32", "why")])).note == "Nothing was timed."


def test_random_weights_stand_at_what_ran() -> None:
    run = make_run([make_record()], [make_variant(quality={}, quality_note="random weights")])
    assert row(summary(run), "fp32")["what ran"] == "float32; quality not measured: random weights"
    assert "perplexity" not in row(summary(run), "fp32")


def test_what_is_not_finite_hides_no_perplexity_that_is() -> None:
    variant = make_variant(quality_note="not finite: kld_max")
    run = make_run([make_record()], [variant])
    assert row(summary(run), "fp32")["perplexity"] == "20.000"
    assert row(section(found(run), "Precision"), "fp32")["perplexity"] == "20.000"
    assert "fp32: not finite: kld_max." in notes(run)


def test_texts_that_depart_from_the_references_are_told_of_every_variant() -> None:
    """The mean over a variant's benchmarks, whatever they were; also where random weights have no other quality."""
    records = [
        make_record("fp32"),
        make_record("bf16", extra={"first_divergent_token": 2.0, "divergent_share": 0.5}),
        make_record("bf16", case="another", extra={"first_divergent_token": 5.0, "divergent_share": 0.25}),
    ]
    quality = section(found(make_run(records)), "Quality")
    columns = [registry()[name].column for name in ("first_divergent_token", "divergent_share")]
    assert [row(quality, "bf16")[column] for column in columns] == ["3.5000", "37.5 %"]
    assert [row(quality, "fp32")[column] for column in columns] == ["–", "–"]
    none = [make_variant(name, quality={}, quality_note="random weights") for name in ("fp32", "bf16")]
    note = section(found(make_run(records, none)), "Quality").note
    assert note == f"{' and '.join(columns)}: of the generated texts against fp32's, the mean of the benchmarks' means."


def test_candidates_that_were_not_used_are_a_warning() -> None:
    run = make_run([make_record()], provenance=make_provenance(passed_over=("mine: no such folder",)))
    assert "Not used: mine: no such folder." in page_values(found(run))["warnings"]


def test_memory_that_was_sampled_says_so() -> None:
    sampled = MemoryFacts(12_000_000, method="sampled every 2 ms")
    told = notes(make_run([make_record(memory=sampled)]))
    assert "The resident memory was sampled every 2 ms: a shorter peak may have escaped." in told
    assert not any("sampled" in note for note in notes(make_run([make_record()])))


def test_one_prompt_token_is_one_token() -> None:
    record = make_record(workload=make_workload(prompt_tokens=1, new_tokens=1))
    assert describe_workload(record) == "one prompt, 1 prompt token, 1 new token, batch 1, cache dynamic"


def test_several_prompts() -> None:
    record = make_record(workload=make_workload(prompts=4, batch_size=2, prompt_tokens=80, new_tokens=64))
    assert describe_workload(record) == "4 prompts, 80 prompt tokens, 64 new tokens, batch 2, cache dynamic"


@pytest.mark.parametrize(
    ("rounds_s", "cell"),
    [((), "–"), ((0.5,), "500 ms"), ((1.0, 2.0, 3.0, 4.0, 5.0), "3.00 s ± 1.00 s")],
    ids=["none", "one", "five"],
)
def test_latency_is_the_median_and_half_the_quartiles_distance(rounds_s: tuple[float, ...], cell: str) -> None:
    assert Cell.latency(make_record(rounds_s=rounds_s)).text(LATENCY) == cell


def test_warnings() -> None:
    run = full_run(interrupted=True, provenance=make_provenance(random_weights=True))
    assert page_values(found(run))["warnings"] == [
        "The run was interrupted; this is what had finished by then. --llm-resume goes on with it.",
        "Random weights: speed and memory are real, the generated text is meaningless.",
        "Failed to load: ort-fp32.",
    ]
    assert page_values(found(make_run([make_record()])))["warnings"] == []


def test_scenarios_are_in_the_suites_order_and_own_ones_follow() -> None:
    own = make_record(scenario="my_chat")
    titles = [item.title for item in all_sections(found(make_run([own, *full_run().records], full_run().variants)))]
    assert titles == [
        "Prefill and decode",
        "Variation between rounds",
        "Memory and exact counts",
        "Quality",
        "Precision",
        "Quantization",
        "KV cache",
        "Padding",
        "Batch size",
        "Prompt length",
        "Edge prompts",
        "My chat",
    ]


def test_a_scenario_says_how_it_is_shown() -> None:
    """Its title and its columns, in the run's order of scenarios, which is not that of the records."""
    shown = (
        Scenario("second", "The second", ("own_memory_bytes", "ttft_s")),
        Scenario("first"),
        Scenario("idle", "Never ran"),
    )
    records = [make_record(scenario=name) for name in ("my_first", "first", "second")]
    sections = all_sections(found(make_run(records, scenarios=shown)))
    tables = {item.scenario: item for item in sections if item.scenario}
    assert [(item.scenario, item.title) for item in tables.values()] == [
        ("second", "The second"),
        ("first", "First"),
        ("my_first", "My first"),
    ]
    assert header(tables["second"].table) == ("variant", "what ran", "latency", "peak memory", "TTFT", "remarks")
    usual = ("variant", "what ran", "latency", "TTFT", "TPOT", "tokens/s", "prompt tokens", "new tokens", "remarks")
    assert header(tables["first"].table) == header(tables["my_first"].table) == usual


def test_a_scenario_without_a_workload_that_ran_has_no_table() -> None:
    bare = replace(skipped_record("fp32", "why", scenario="batch"), workload=None)
    assert "Batch size" not in [item.title for item in all_sections(found(make_run([bare])))]


def test_an_own_metric_among_a_scenarios_columns_stands_there_once() -> None:
    own = Metric("mine", "Mine", "own column", Unit.NONE, Direction.NEITHER, Kind.EXACT, "mine")
    run = make_run([make_record(extra={"mine": 1.0})], scenarios=(Scenario("precision", "", ("mine", "ttft_s")),))
    names = header(section(findings_of(run, registry([own])), "Precision").table)
    assert names == ("variant", "what ran", "latency", "own column", "TTFT", "remarks")


def test_a_sweep_has_its_cases_together_and_a_column_for_them() -> None:
    records = [
        make_record(variant, scenario="batch", case=case, workload=make_workload(case))
        for variant in ("fp32", "bf16")
        for case in ("1", "8")
    ]
    table = section(found(make_run(records)), "Batch size").table
    assert header(table)[:2] == ("case", "variant")
    assert [cells[:2] for cells in rows(table)] == [("1", "fp32"), ("1", "bf16"), ("8", "fp32"), ("8", "bf16")]


def test_a_scenario_of_one_case_has_no_column_for_it() -> None:
    assert header(section(found(full_run()), "Precision").table)[0] == "variant"


def test_the_padding_table() -> None:
    """100 tokens of padding beside 100 of prompts; 64 new tokens in half a second."""
    cells = row(section(found(full_run()), "Padding"), "left")
    assert (cells["tokens/s"], cells["prompt tokens"], cells["padding tokens"], cells["padding share"]) == (
        "128",
        "100",
        "100",
        "50 %",
    )


def test_what_was_not_measured_says_so() -> None:
    record = make_record(status=Status.NOT_MEASURED, reason="--benchmark-disable", rounds_s=(), batches_s=())
    cells = row(section(found(make_run([record])), "Precision"), "fp32")
    assert (cells["latency"], cells["tokens/s"]) == ("–", "–")
    assert cells["remarks"] == "not measured: --benchmark-disable"


def test_a_failed_test_keeps_its_numbers_and_its_reason() -> None:
    record = make_record(median_s=0.5, status=Status.ERROR, reason="AssertionError: too slow\nassert 1 < 0")
    cells = row(section(found(make_run([record])), "Precision"), "fp32")
    assert cells["tokens/s"] == "32.0"
    assert cells["remarks"] == "error: AssertionError: too slow"


def test_skips_with_the_same_reason_are_counted_together() -> None:
    records = [skipped_record("fp16", "not here", case=str(number)) for number in range(3)]
    run = make_run([*records, skipped_record("fp32", "OutOfMemory", status=Status.ERROR)])
    assert found(run).skipped_or_failed == (
        SkippedOrFailed("fp16", Status.SKIPPED, "not here", 3),
        SkippedOrFailed("fp32", Status.ERROR, "OutOfMemory", 1),
    )


def test_facts_say_where_the_numbers_come_from() -> None:
    shown = dict(facts(full_run(provenance=make_provenance(dirty=True))))
    assert shown["Commit"] == "0123456789ab on main, with uncommitted changes"
    assert shown["Machine"] == "a processor, 2 cores, 2 threads; Linux"
    assert shown["Libraries"] == "torch 2.6.0"


def test_of_a_resumed_run_the_sessions_are_told() -> None:
    """The first has two benchmarks of one case, and the second one benchmark of another."""
    records = [
        make_record(),
        make_record("bf16"),
        make_record(case="other"),
        skipped_record("bf16", "why", case="other"),
    ]
    run = make_run(records, earlier=(Session("yesterday", tuple(one.test for one in records[:2])),))
    assert dict(facts(run))["Sessions"] == (
        "yesterday: 2 benchmarks of 1 case; 2026-01-02T03:04:05+00:00: 1 benchmark of 1 case; "
        "the machine, model, commit and libraries are the same"
    )
    unknown = replace(run, provenance=make_provenance(commit=""))
    assert dict(facts(unknown))["Sessions"].endswith("the machine, model and libraries are the same")
    assert "Started" not in dict(facts(run))
    assert notes(run)[-1].startswith("The sessions took 12 s: ")


def test_outside_a_repository_there_is_no_commit() -> None:
    assert "Commit" not in dict(facts(full_run(provenance=make_provenance(commit="", branch=""))))


def test_footnotes_tell_the_noise_floor() -> None:
    """fp32 came to 100 and 101 ms, fp16, which ran the same, to 102 ms: too few pairs to tell 2 % from chance."""
    note = notes(full_run())[0]
    assert "is assumed to differ by up to 15 %" in note
    assert "3 pairs" in note


def test_footnotes_tell_a_noise_floor_that_was_found() -> None:
    """Five records of the same work make ten pairs, four of them 20 % apart."""
    times_s = (1.0, 1.0, 1.0, 1.0, 1.2)
    note = notes(make_run([make_record("fp32", time_s, case=str(time_s)) for time_s in times_s]))[0]
    assert "20 %" in note
    assert "10 pairs" in note


def test_footnotes_tell_how_things_came_to_be() -> None:
    run = full_run()
    noted = replace(run, variants=(replace(run.variants[0], notes=("exported in 3 s", "opset 18")), *run.variants[1:]))
    assert "fp32: exported in 3 s; opset 18." in notes(noted)


def test_the_time_of_the_session() -> None:
    assert notes(full_run())[-1] == "The session took 12 s: generating 9.0 s, loading 2.0 s."


def test_own_metrics_are_columns_where_they_have_a_value() -> None:
    own = [
        Metric(name, name.capitalize(), f"{name} column", Unit.NONE, Direction.NEITHER, kind, "mine")
        for name, kind in (("answers", Kind.EXACT), ("accuracy", Kind.QUALITY), ("absent", Kind.EXACT))
    ]
    run = make_run([make_record(extra={"answers": 3.0})], [make_variant(quality={"accuracy": 0.75})])
    findings = findings_of(run, registry(own))
    for item in (summary_section(findings), section(findings, "Precision")):
        cells = row(item, "fp32")
        assert (cells["answers column"], cells["accuracy column"]) == ("3.00", "0.7500")
        assert "absent column" not in cells
