"""Several runs beside each other: what can stand in one column does, and what can't says why, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_factory import (
    absent_variant,
    make_block_record,
    make_provenance,
    make_record,
    make_run,
    make_variant,
    make_workload,
)
from shown_table import header, rows

from llm_bench_fixtures.answer.need import Reader
from llm_bench_fixtures.report.agreement import labels_of
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.page.build import render_runs
from llm_bench_fixtures.report.renderers.latex import render_runs_latex
from llm_bench_fixtures.report.renderers.markdown import render_runs_markdown
from llm_bench_fixtures.report.runs import (
    MOST_SHOWN,
    Aspect,
    RunPlace,
    Runs,
    answers_table,
    notes,
    obstacles,
    runs_of,
)
from llm_bench_fixtures.report.tables.table import Tone
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import MemoryFacts, Run

WORK = "one prompt, {} prompt tokens, 16 new tokens, batch 1, cache dynamic"
HOSTILE = "<script>alert(1)</script> | `x` [a](b) \x1b[31m\u202e"


def pair(fp32_s: float = 1.0, bf16_s: float = 0.5, **provenance: Any) -> Run:
    records = [make_record("fp32", fp32_s), make_record("bf16", bf16_s)]
    variants = [make_variant(), make_variant("bf16", quality={"perplexity": 20.1, "ppl_ratio": 1.005})]
    return make_run(records, variants, provenance=make_provenance(**provenance))


def of(run: Run) -> Findings:
    return findings_of(run, registry())


def beside(*found: Run, unreadable: tuple[str, ...] = ()) -> Runs:
    named = (replace(run, source=f"/runs/{at}/results.json") for at, run in enumerate(found, 1))
    return runs_of(list(map(of, named)), unreadable)


def test_there_is_a_row_for_each_variant_and_machine_the_machines_of_each_variant_together() -> None:
    found = beside(pair(hardware="laptop"), pair(0.1, 0.2, hardware="server")).table
    assert [row[:2] for row in rows(found)] == [
        ("fp32", "laptop"), ("fp32", "server"), ("bf16", "laptop"), ("bf16", "server"),
    ]  # fmt: skip
    speedup = header(found).index("speed-up")
    assert [row[speedup] for row in rows(found)[2:]] == ["2.00×", "0.500×"]
    assert [row[speedup].tone for row in found.rows[2:]] == [Tone.BETTER, Tone.WORSE]


def test_figures_of_another_workload_than_the_headlines_are_not_compared_between_runs() -> None:
    alone = make_record("fp16", workload=make_workload("other"))
    run = make_run([make_record("fp32"), make_record("bf16"), alone])
    found = beside(run, pair(hardware="server")).table
    by_variant = {row[0]: row for row in rows(found)}
    assert by_variant["fp16"][header(found).index("speed-up")] == "–"


def test_columns_have_one_unit() -> None:
    same = beside(pair(hardware="a"), pair(hardware="b")).table
    assert "latency, ms" in header(same)
    mixed = beside(pair(hardware="a"), pair(1e-4, 1e-4, hardware="b")).table
    latency = header(mixed).index("latency, µs")
    assert [row[latency] for row in rows(mixed)] == ["1,000,000 ± 10,000", "100 ± 1", "500,000 ± 5,000", "100 ± 1"]


def test_the_sentence_names_for_each_reader_what_to_use_where() -> None:
    found = beside(pair(hardware="laptop"), pair(0.5, 1.0, hardware="server"))
    assert found.sentence == (
        "Lowest latency: bf16 on laptop, 2.00× as fast as fp32; fp32 on server. Least memory: fp32 on all of them."
    )
    assert list(found.readers) == [Reader.LATENCY, Reader.MEMORY]
    assert [(label, one.name, one.standing) for label, one in found.readers[Reader.LATENCY].items()] == [
        ("laptop", "bf16", "2.00× as fast as fp32"),
        ("server", "fp32", "no other variant is more than 10 % faster"),
    ]


def test_a_run_that_is_undecided_names_its_likely_winner() -> None:
    """bf16's rounds scatter too widely, on one machine around twice fp32's speed, on the other around half of it."""
    wide = {"rounds_s": (0.1, 0.5, 2.0)}, {"rounds_s": (0.5, 2.0, 8.0)}
    runs = [
        make_run([make_record(), make_record("bf16", **one)], provenance=make_provenance(hardware=hardware))
        for hardware, one in zip(("laptop", "server"), wide, strict=True)
    ]
    found = beside(*runs)
    assert found.sentence.startswith(
        "Lowest latency: probably bf16 on laptop, 2.00× as fast as fp32; undecided on server. "
    )
    assert [one.standing for one in found.readers[Reader.LATENCY].values()] == [
        "undecided: 2.00× as fast as fp32",
        "undecided: 0.500× as fast as fp32",
    ]


def in_blocks(speedup: float, **provenance: Any) -> Run:
    records = [make_block_record("fp32", 1.0, 0.0), make_block_record("bf16", speedup, 0.0)]
    return make_run(records, provenance=make_provenance(**provenance))


@pytest.mark.usefixtures("processes_differ_by_one_percent")
def test_a_winner_has_its_speed_up_with_the_interval_and_several_the_least_and_the_greatest() -> None:
    found = beside(in_blocks(3.0, hardware="laptop"), in_blocks(2.0, hardware="server"))
    assert found.sentence.startswith(
        "Lowest latency: bf16 on all of them, 2.00× (1.95–2.06) to 3.00× (2.92–3.08) as fast as fp32. "
    )


def test_speed_ups_over_different_references_are_not_merged() -> None:
    """Bug: 2.00× over bf16 to 3.00× over fp32 were "as fast as fp32"."""
    records = [make_block_record("bf16", 1.0, 0.0), make_block_record("int8", 2.0, 0.0)]
    variants = [make_variant("bf16"), make_variant("int8")]
    other = replace(make_run(records, variants, provenance=make_provenance(hardware="server")), reference="bf16")
    one = make_run(
        [make_block_record("fp32", 1.0, 0.0), make_block_record("int8", 3.0, 0.0)],
        [make_variant("fp32"), make_variant("int8")],
        provenance=make_provenance(hardware="laptop"),
    )
    assert beside(one, other).sentence.startswith("Lowest latency: int8 on all of them. ")


def test_who_has_no_answer_is_not_among_all_of_them() -> None:
    without = make_run([], provenance=make_provenance())
    found = beside(in_blocks(3.0, hardware="a"), in_blocks(3.0, hardware="b"), without)
    assert found.sentence.startswith("Lowest latency: bf16 on 2 runs, 3.00× ")


def noisy(*machines: str) -> Runs:
    return runs_of([replace(of(pair(hardware=name)), noisy="Noisy machine: 20 %.") for name in machines])


def test_noise_is_said_before_the_answer() -> None:
    """Bug: Markdown had it folded, and the page at its end."""
    found = noisy("laptop", "server")
    assert found.noisy == ("laptop: Noisy machine: 20 %.", "server: Noisy machine: 20 %.")
    for text in (render_runs_markdown(found), render_runs(found).partition("<main>")[2]):
        places = [text.index(sentence) for sentence in (*found.noisy, found.sentence)]
        assert places == sorted(places)
        assert all(text.count(one) == 1 for one in found.noisy)
    assert noisy("a", "b", "c", "d", "e").noisy == (
        "Noisy machine: a, b, c and 2 more. The report of each alone says what is still certain.",
    )


def test_beneath_the_table_stand_its_workload_and_what_its_figures_are() -> None:
    """The speed-ups say 2, and the latencies 3 s over half a second."""
    records = [make_record("fp32", 3.0), make_block_record("bf16", 2.0)]
    found = beside(*(make_run(records, provenance=make_provenance(hardware=name)) for name in "ab"))
    assert found.workload == WORK.format(64)
    (note,) = found.table.notes
    assert "bf16 on a, bf16 on b" in note
    for text in (render_runs_markdown(found), render_runs_latex(found), render_runs(found)):
        assert found.workload in text
        assert "ran next to each other" in text


def test_the_caption_names_models_and_machines() -> None:
    runs = beside(pair(hardware="a", threads=2), pair(hardware="b", threads=8, model="large"))
    (caption,) = (line for line in render_runs_latex(runs).splitlines() if "caption" in line)
    assert (
        f"{{Text generation of tiny and large on a (2 threads, cpu) and b (8 threads, cpu): {WORK.format(64)}.}}"
        in (caption)
    )


def test_the_caption_of_many_machines_names_three() -> None:
    (caption,) = (
        line
        for line in render_runs_latex(beside(*(pair(hardware=name) for name in "abcde"))).splitlines()
        if "caption" in line
    )
    assert " on a (2 threads, cpu), b (2 threads, cpu), c (2 threads, cpu) and 2 more: " in caption


@pytest.mark.parametrize(
    ("origins", "labels"),
    [
        ([{"hardware": "a"}, {"hardware": "b"}], ["a", "b"]),
        ([{"model": "x"}, {"model": "y"}], ["x", "y"]),
        ([{"model": "x", "hardware": "a"}, {"model": "x", "hardware": "b"}, {"model": "y", "hardware": "b"}],
         ["x · a", "x · b", "y · b"]),
        ([{"random_weights": True}, {}], ["tiny (random weights)", "tiny"]),
        ([{"device": "cpu"}, {"device": "cuda"}], ["cpu", "cuda"]),
        ([{"commit": "a" * 40}, {"commit": "b" * 40}], ["a" * 12, "b" * 12]),
        ([{"hardware": "Intel(R) Xeon(R) CPU, 2 cores"}, {"hardware": "M3, 8 cores"}], ["Intel Xeon", "M3"]),
        ([{"hardware": "M3, 8 cores"}, {"hardware": "M3, 16 cores"}], ["M3, 8 cores", "M3, 16 cores"]),
        ([{}, {}], ["tiny · run 1", "tiny · run 2"]),
        ([{"hardware": "a", "commit": "c"}, {"hardware": "b", "commit": "d"}], ["a", "b"]),
    ],
)  # fmt: skip
def test_a_label_is_what_tells_the_runs_apart(origins: list[dict[str, Any]], labels: list[str]) -> None:
    assert labels_of([make_provenance(**origin) for origin in origins]) == labels


def other(**changes: Any) -> Run:
    run = pair()
    return replace(run, **{name: change(run) if callable(change) else change for name, change in changes.items()})


def on_longer_prompts(run: Run) -> tuple[Any, ...]:
    return tuple(replace(record, workload=make_workload("long", prompt_tokens=128)) for record in run.records)


@pytest.mark.parametrize(
    ("run", "aspects", "reason"),
    [
        (pair(), [], ""),
        (pair(hardware="another", python="3.13"), [], ""),
        (pair(corpus="mine"), [Aspect.QUALITY], "another corpus: mine; the first run's: embedded corpus"),
        (
            other(records=on_longer_prompts),
            [Aspect.LATENCY, Aspect.SPEEDUP, Aspect.PEAK],
            f"another workload: {WORK.format(128)}; the first run's: {WORK.format(64)}",
        ),
        (other(reference="bf16"), [Aspect.SPEEDUP, Aspect.QUALITY, Aspect.FLIPS],
         "another reference: bf16, float32; the first run's: fp32, float32"),
        (pair(isolated=True), [], ""),
    ],
)  # fmt: skip
def test_what_can_not_be_compared_says_why(run: Run, aspects: list[Aspect], reason: str) -> None:
    found = obstacles(of(pair()), of(run))
    assert list(found) == aspects
    assert set(found.values()) == ({reason} if reason else set())


def test_peaks_of_processes_apart_are_not_those_of_one_process() -> None:
    records = tuple(replace(record, memory=MemoryFacts(10**8)) for record in pair().records)
    found = obstacles(of(other(records=records)), of(other(records=records, provenance=make_provenance(isolated=True))))
    assert found == {
        Aspect.PEAK: (
            "another kind of peak: Peak memory, each variant apart; the first run's: Peak memory, all in one process"
        )
    }


def test_what_is_left_out_is_absent_from_the_table_and_named() -> None:
    found = beside(pair(hardware="a"), other(provenance=make_provenance(hardware="b", corpus="mine")))
    perplexity = header(found.table).index("perplexity")
    cells = {row[:2]: row[perplexity] for row in rows(found.table)}
    assert cells["bf16", "a"] == "+0.5 %"
    assert cells["bf16", "b"] == "–"
    assert found.incomparable == ("b: no quality: another corpus: mine; the first run's: embedded corpus.",)


def test_a_run_that_timed_nothing_and_a_file_that_is_none_are_named() -> None:
    empty = make_run(provenance=make_provenance(hardware="b"))
    found = beside(pair(hardware="a"), empty, unreadable=("x.json is of schema version 2; this reads 4",))
    assert found.incomparable == (
        "Not here: x.json is of schema version 2; this reads 4.",
        "b: nothing was timed in it.",
    )


def test_what_did_not_run_somewhere_is_noted_with_the_reason() -> None:
    run = pair(hardware="b")
    lacking = replace(run, variants=(*run.variants, absent_variant("bnb-nf4", "bitsandbytes is not installed")))
    said = notes(beside(pair(hardware="a"), lacking).runs)
    assert "b: not measured: bnb-nf4 (skipped: bitsandbytes is not installed)." in said


def test_perplexities_of_two_models_are_said_to_be_over_other_tokens() -> None:
    assert any("over other tokens" in note for note in notes(beside(pair(model="a"), pair(model="b")).runs))
    assert not any("over other tokens" in note for note in notes(beside(pair(), pair()).runs))


def test_nothing_in_the_runs_becomes_markup() -> None:
    text = render_runs_markdown(
        beside(pair(hardware=HOSTILE), pair(model=HOSTILE, corpus=HOSTILE), unreadable=(HOSTILE,))
    )
    assert "<script" not in text
    assert not set("\x1b\u202e") & set(text)
    assert "](b)" not in text.replace("\\]", "")
    assert len(text.encode()) < 10_000


def many_runs(number: int = 11, variants: int = 11) -> Runs:
    names = ["fp32", *(f"variant-{at}" for at in range(1, variants))]
    records = [make_record(name, 1.0 + at) for at, name in enumerate(names)]
    quality = {"perplexity": 20.0, "ppl_ratio": 1.0, "choice_items": 190.0, "flips": 0.01, "flips_low": 0.0}
    quality |= {"flips_high": 0.03, "flips_lost": 1.0, "flips_gained": 1.0}
    run = make_run(records, [make_variant(name, quality=quality) for name in names])
    return beside(*[replace(run, provenance=make_provenance(commit="", hardware="M3, 8 cores"))] * number)


def test_the_markdown_of_many_runs_is_bounded_and_says_what_is_left_out() -> None:
    """Bug: eleven runs of eleven variants made 40 kB."""
    found = many_runs()
    text = render_runs_markdown(found)
    assert len(text.encode()) < 10_000
    assert text.endswith("**Cut here, as it is too long for a comment: `report.html` has the rest.**\n")
    assert text.count("<details>") == text.count("</details>")
    assert "All of tiny, M3." in text
    assert [run.label for run in found.runs] == [str(at) for at in range(1, 12)]
    assert [label for label, _ in found.answers] == ["on all 11"]
    assert "flips" in header(found.table)


def test_runs_of_one_machine_are_named_by_their_folder_or_their_minute() -> None:
    """Bug: a commit that some of them lack was joined with the raw time."""
    origins = [
        make_provenance(commit=commit, started=f"2026-11-22T1{at}:09:19+00:00") for at, commit in enumerate("aab")
    ]
    assert labels_of(origins, ["/r/x/results.json", "/r/y/results.json", "/r/0003_z.json"]) == ["x", "y", "0003_z"]
    usual = [f"/{name}/llm-bench-report/results.json" for name in "abc"]
    assert labels_of(origins, usual) == ["a/llm-bench-report", "b/llm-bench-report", "c/llm-bench-report"]
    saved = [f"/s/000{number}_{'a' * 40}_20261122_100919.json" for number in (1, 2, 3)]
    assert labels_of(origins, saved) == ["0001", "0002", "0003"]
    assert labels_of(origins) == ["2026-11-22 10:09 UTC", "2026-11-22 11:09 UTC", "2026-11-22 12:09 UTC"]


def test_many_runs_have_a_table_of_answers_in_place_of_cards_and_charts() -> None:
    few, many = (
        beside(*(pair(hardware=f"machine {place}") for place in range(runs))) for runs in (MOST_SHOWN, MOST_SHOWN + 1)
    )
    pages = [render_runs(one) for one in (few, many)]
    assert ['class="card"' in page for page in pages] == [True, False]
    assert ["data-chart=" in page for page in pages] == [True, False]
    found = answers_table(many)
    assert header(found)[:2] == ("run", "lowest latency")
    assert rows(found)[0][:2] == ("machine 0", "bf16")


def test_cells_of_a_sweep_are_compared_between_machines_only() -> None:
    """The long one has other work; each machine's is compared with the first machine's."""
    long = make_workload("long", prompt_tokens=999)
    runs = [pair(), make_run([make_record("fp32", workload=long), make_record("bf16", 0.5, workload=long)])]
    found = [of(run) for run in (*runs, *runs)]
    places = [RunPlace(f"{what}/{at}", at, what) for at in ("a", "b") for what in ("short", "long")]
    assert [bool(run.left_out) for run in runs_of(found).runs] == [False, True, False, True]
    assert not any(run.left_out for run in runs_of(found, (), places).runs)
    workloads = (WORK.format(64), WORK.format(999))
    assert runs_of(found, (), places).workload == "short/a, short/b: {}. long/a, long/b: {}".format(*workloads)
    assert runs_of(found, (), places).pooled == ()
