"""What the charts hold: each figure by its data, and each a figure that plotly accepts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_runs import FLOPS_PER_S, PEAKS, READ_BYTES_PER_S, chart_findings, chart_run
from run_factory import full_run, make_block_record, make_record, make_run, make_variant

from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.report.charts.plotly import escaped, hover, plotly_json
from llm_bench_fixtures.report.charts.spec import LEAST_GAP, Axis, Chart, apart
from llm_bench_fixtures.report.charts.variants import COLOURS, looks_of, sweep_charts
from llm_bench_fixtures.report.charts.whole_run import own_roof, phases_chart, roofline_chart, tradeoff_chart
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.roofline import PhaseWork
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.spread import NORMAL_95


@pytest.fixture(scope="module")
def findings() -> Findings:
    return chart_findings()


def found(run: Run) -> Findings:
    return findings_of(run, registry())


def all_charts(findings: Findings) -> list[Chart]:
    charts = [tradeoff_chart(findings), *sweep_charts(findings), phases_chart(findings), roofline_chart(findings)]
    return [chart for chart in charts if chart is not None]


def traces(chart: Chart | None, **having: Any) -> list[dict[str, Any]]:
    """Those of the chart that have these values."""
    assert chart is not None
    data: Any = plotly_json(chart)["data"]
    return [trace for trace in data if all(trace.get(name) == value for name, value in having.items())]


def note(findings: Findings) -> str:
    chart = tradeoff_chart(findings)
    assert chart is not None
    return chart.note


def test_a_run_that_has_it_all_has_every_chart(findings: Findings) -> None:
    assert [chart.name for chart in all_charts(findings)] == [
        "tradeoff", "prompt_length-ttft_s", "prompt_length-speedup", "batch-output_tokens_per_s", "batch-speedup",
        "phases", "roofline",
    ]  # fmt: skip


def test_every_figure_is_one_of_plotly(findings: Findings) -> None:
    from plotly.graph_objects import Figure

    for chart in all_charts(findings):
        Figure(plotly_json(chart))  # raises ValueError for what plotly doesn't know


def test_every_trace_of_a_variant_says_so(findings: Findings) -> None:
    measured = {"fp32", "bf16", "ort-fp32", "ort-int8"}
    for chart in all_charts(findings):
        assert {trace["meta"] for trace in traces(chart) if "meta" in trace} == measured


def test_a_run_that_measured_nothing_has_no_chart() -> None:
    assert all_charts(found(make_run())) == []


def test_a_run_without_quality_and_limits_still_shows_its_phases() -> None:
    run = make_run(
        [make_record(), make_record("bf16", 0.5)], [make_variant(quality={}), make_variant("bf16", quality={})]
    )
    assert [chart.name for chart in all_charts(found(run))] == ["phases"]


def test_the_tradeoff_has_speed_quality_and_memory(findings: Findings) -> None:
    """16 new tokens in a median of 1.025 s; the area of a marker grows with the memory."""
    chart = tradeoff_chart(findings)
    (fp32,), (int8,) = traces(chart, meta="fp32"), traces(chart, meta="ort-int8")
    assert (fp32["x"], fp32["y"]) == ([pytest.approx(16 / 1.025)], [0.0])
    assert int8["y"] == [pytest.approx(2.0)]
    assert int8["error_y"]["array"] == [pytest.approx(NORMAL_95 * 0.1)]
    areas = fp32["marker"]["size"] ** 2 / int8["marker"]["size"] ** 2
    assert areas == pytest.approx(PEAKS["fp32"] / PEAKS["ort-int8"])


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [((110.0, 380.0), [150, 200, 300]), ((3.08, 5.33), [4, 5]), ((90.0, 1100.0), None)],
)
def test_a_short_logarithmic_axis_has_ticks_between_powers_of_ten(
    ends: tuple[float, float], ticks: list[float] | None, findings: Findings
) -> None:
    """Bug: it had one, at its edge, or none."""
    chart = replace(tradeoff_chart(findings), x=Axis("latency, ms", ends, is_log=True))
    layout: Any = plotly_json(chart)["layout"]
    assert layout["xaxis"].get("tickvals") == ticks


def test_the_front_has_no_variant_that_another_beats(findings: Findings) -> None:
    """ort-fp32 is faster than fp32 and needs more memory, bf16 needs the least, ort-int8 is the fastest; all four stay.
    With ort-fp32's memory no larger than fp32's, fp32 is beaten: slower, and no better in anything."""
    assert "better overall than any of fp32, bf16, ort-fp32, ort-int8." in note(findings)
    records = [
        replace(record, memory=replace(record.memory, peak_resident_bytes=int(PEAKS["fp32"])))
        if record.memory and record.variant == "ort-fp32"
        else record
        for record in chart_run().records
    ]
    smaller = found(replace(chart_run(), records=tuple(records)))
    assert "better overall than any of bf16, ort-fp32, ort-int8." in note(smaller)
    chart = tradeoff_chart(smaller)
    (beaten,), (best,) = traces(chart, meta="fp32"), traces(chart, meta="ort-fp32")
    assert beaten["marker"]["color"] == "rgba(0,0,0,0)"
    assert best["marker"]["color"] == COLOURS["onnxruntime"]


def test_near_lossless_variants_are_not_ordered_by_quality() -> None:
    """bf16's perplexity is 0.1 % higher for certain, and yet fp32, which is as large and as slow, does not beat it."""
    variants = [make_variant(), make_variant("bf16", quality={"perplexity": 20, "ppl_ratio": 1.001})]
    run = make_run([make_record(), make_record("bf16")], variants)
    assert "better overall than any of fp32, bf16." in note(found(run))


def test_one_variant_is_no_tradeoff() -> None:
    assert tradeoff_chart(found(make_run([make_record()]))) is None


def test_a_sweeps_error_bars_are_the_intervals_of_its_speedups(findings: Findings) -> None:
    chart = next(chart for chart in sweep_charts(findings) if chart.name == "batch-speedup")
    (bf16,) = traces(chart, meta="bf16")
    assert bf16["x"] == [1, 4]
    assert bf16["y"] == [pytest.approx(0.8), pytest.approx(3.2)]
    records = [record for record in findings.run.measured("batch") if record.variant == "bf16"]
    speedups = [record_speedup(record) for record in records]
    for place, speedup in enumerate(speedups):
        assert speedup is not None
        assert bf16["error_y"]["array"][place] == pytest.approx(speedup.high - speedup.ratio)
        assert bf16["error_y"]["arrayminus"][place] == pytest.approx(speedup.ratio - speedup.low)


def test_a_throughputs_error_bars_are_the_rounds_quartiles() -> None:
    """Rounds of 0.98 to 1.02 s have quartiles at 0.99 and 1.01 s; the slower one gives the lower throughput."""
    chart = next(chart for chart in sweep_charts(found(full_run())) if chart.name == "batch-output_tokens_per_s")
    (fp32,) = traces(chart, meta="fp32")
    assert fp32["x"] == [1, 2, 4]
    assert fp32["y"][0] == pytest.approx(64 / 0.8)
    assert fp32["error_y"]["arrayminus"][0] == pytest.approx(80 - 80 / 1.01)
    assert fp32["error_y"]["array"][0] == pytest.approx(80 / 0.99 - 80)


def test_a_run_taken_apart_has_other_second_panels() -> None:
    names = [chart.name for chart in sweep_charts(found(full_run()))]
    assert names == [
        "prompt_length-ttft_s", "prompt_length-output_tokens_per_s", "batch-output_tokens_per_s",
        "batch-per_sample_latency_s",
    ]  # fmt: skip


def test_one_case_is_no_sweep() -> None:
    assert list(sweep_charts(found(make_run([make_record(scenario="prompt_length", case="16")])))) == []


def test_the_phases_are_milliseconds_of_prefill_and_decode() -> None:
    """The first token of 100 ms comes after 40."""
    chart = phases_chart(found(full_run()))
    prefill, decode = traces(chart, meta="fp32")
    assert (prefill["x"], decode["x"]) == ([pytest.approx(40)], [pytest.approx(60)])


def test_the_roofline_has_each_phase_below_the_machines_limits(findings: Findings) -> None:
    """fp32's prefill reads 4 MB for 128 MFLOP: 32 FLOP a byte; its decode 2 MFLOP for the same: half a FLOP a byte."""
    chart = roofline_chart(findings)
    prefill, decode = traces(chart, meta="fp32")
    assert (prefill["x"], decode["x"]) == ([pytest.approx(32)], [pytest.approx(0.5)])
    assert prefill["y"] == [pytest.approx(128e6 / (0.4 * 1.025) / 1e9)]
    (roof,) = traces(chart, mode="lines")
    ridge = FLOPS_PER_S / READ_BYTES_PER_S
    assert (roof["x"][1], roof["y"][1]) == (pytest.approx(ridge), pytest.approx(FLOPS_PER_S / 1e9))
    assert roof["y"][0] == pytest.approx(roof["x"][0] * READ_BYTES_PER_S / 1e9)


def test_a_machine_whose_limits_were_not_measured_has_no_roofline() -> None:
    assert roofline_chart(chart_findings(provenance={"read_bytes_per_s": None})) is None


def test_backends_have_colours_and_variants_of_one_backend_differ_in_marker_and_dash() -> None:
    run = make_run([], [make_variant(one.id, backend=one.backend) for one in CATALOGUE])
    looks = looks_of(run)
    assert {looks[one.id].colour for one in CATALOGUE} >= set(COLOURS.values())
    assert len({(look.colour, look.marker, look.dash) for look in looks.values()}) == len(CATALOGUE)


def test_variants_of_many_backends_still_differ() -> None:
    """Ten backends of two variants, of whom some share one of the seven colours."""
    names = [(f"{number}-{form}", f"engine {number}") for number in range(10) for form in ("fp32", "int8")]
    looks = looks_of(make_run([], [make_variant(one, backend=backend) for one, backend in names]))
    assert len({(look.colour, look.marker, look.dash) for look in looks.values()}) == len(names)


def test_a_projects_own_backend_has_a_colour_of_its_own() -> None:
    looks = looks_of(make_run([], [make_variant(), make_variant("mine", backend="my.engine")]))
    assert looks["mine"].colour not in COLOURS.values()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=14))
def test_labels_keep_their_order_and_their_distance(places: list[float]) -> None:
    moved = apart(places)
    ordered = [moved[index] for index in sorted(range(len(places)), key=lambda index: places[index])]
    assert all(after - before >= LEAST_GAP - 1e-9 for before, after in pairwise(ordered))
    assert min(moved) >= -1e-9
    assert max(moved) <= 1 + 1e-9


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert apart([0.9, 0.1, 0.5]) == [0.9, 0.1, 0.5]


def test_more_labels_than_fit_stay_in_the_plot() -> None:
    moved = apart([0.5] * 40)
    assert (min(moved), max(moved)) == (pytest.approx(0), pytest.approx(1))


def test_what_plotly_would_take_for_markup_is_escaped() -> None:
    assert escaped("<a href='x'>&\u202e\0") == "&lt;a href='x'&gt;&amp;\ufffd\ufffd"
    assert hover("<b>", (("a", "1<2"),)) == "<b>&lt;b&gt;</b><br>a: 1&lt;2"


@pytest.mark.parametrize(("read_bytes_per_s", "expected"), [(10.0, 50.0), (30.0, 100.0), (None, None)])
def test_the_roof_of_a_variant_is_that_of_its_own_precision(
    read_bytes_per_s: float | None, expected: float | None
) -> None:
    """Five operations for each byte: on the slope of 10 bytes a second, below the ceiling of 100 operations at 30."""
    variant = make_variant(matmul_flops_per_s=100.0, read_bytes_per_s=read_bytes_per_s)
    assert own_roof(variant, PhaseWork(flops=10, bytes_read=2, seconds=1.0)) == expected


def test_the_band_is_named_by_its_width_and_the_near_lossless_are_marked(findings: Findings) -> None:
    """bf16's interval is within 0.5 %; that of ort-int8, at 2 %, is not."""
    chart = tradeoff_chart(findings)
    assert chart is not None
    layout: Any = plotly_json(chart)["layout"]
    assert [one["text"] for one in layout["annotations"]] == ["within ± 0.5 %"]
    texts = {trace["meta"]: trace["text"] for trace in traces(chart) if "meta" in trace}
    assert texts["bf16"] == ["≈ bf16"]
    assert texts["ort-int8"] == ["ort-int8"]
    assert "≈: near-lossless" in chart.note


def test_a_front_of_one_variant_is_said_to_be_one() -> None:
    """fp32 is twice as fast; both are as good and as large."""
    variants = [make_variant(), make_variant("bf16", quality={"perplexity": 20, "ppl_ratio": 1.001})]
    run = make_run([make_block_record(spread=0.0), make_block_record("bf16", 0.5)], variants)
    assert "only fp32; each other variant is beaten" in note(found(run))


def test_the_roofline_names_whose_ceilings_were_not_measured() -> None:
    run = chart_run()
    chart = roofline_chart(found(run))
    assert chart is not None
    assert "No ceiling" not in chart.note
    assert "one far below both, by overhead" in chart.note
    variants = tuple(replace(one, matmul_flops_per_s=None) if one.id == "ort-int8" else one for one in run.variants)
    chart = roofline_chart(found(replace(run, variants=variants)))
    assert chart is not None
    assert "for the arithmetic of ort-int8: " in chart.note
