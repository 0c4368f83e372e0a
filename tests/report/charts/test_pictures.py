"""The pictures, by what they are made of: values, bars, labels and colours."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
from page_runs import FLOPS_PER_S, PEAKS, READ_BYTES_PER_S, chart_findings, chart_run
from run_factory import full_run, make_block_record, make_record, make_run, make_variant, make_workload, skipped_record

from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.report.charts.pictures import DASHES, MARKERS, STYLE, draw, drawable, pictures, write_plots
from llm_bench_fixtures.report.charts.plotly import plotly_json
from llm_bench_fixtures.report.charts.spec import Plot
from llm_bench_fixtures.report.charts.variants import looks_of
from llm_bench_fixtures.report.charts.whole_run import tradeoff_chart
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.spread import NORMAL_95

pytestmark = pytest.mark.slow("draws pictures")

NAMES = ["tradeoff", "memory", "phases", "roofline", "precision", "quantization", "batch", "prompt_length"]
HOSTILE = "漢字 😀 \x1b[2J\n\u202e$x^2$ _a_ </svg><script>"


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    """That of write_plots. A warning, such as one of a missing glyph, is an error."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def found(run: Run) -> Findings:
    return findings_of(run, registry())


def drawn(run: Run) -> list[str]:
    return [picture.name for picture in pictures(found(run))]


def drawing_of(name: str, findings: Findings) -> Figure | None:
    return next((draw(picture) for picture in pictures(findings) if picture.name == name), None)


def finished(figure: Figure | None) -> Figure:
    """With everything in its place."""
    assert figure is not None
    figure.draw_without_rendering()
    return figure


def bars_of(axis: Axes) -> list[tuple[float, float]]:
    """Where each bar starts, and how long it is, from the top."""
    return [(patch.get_x(), patch.get_width()) for patch in axis.patches if patch.get_height() != 1]


def errors_of(axis: Axes) -> list[list[float]]:
    """The ends of the error bars along x, from the top."""
    found = [one for one in axis.containers if isinstance(one, ErrorbarContainer)]
    return [list(one.lines[2][0].get_segments()[0][:, 0]) for one in found]


def notes_of(figure: Figure) -> list[Annotation]:
    """The names beside points and lines."""
    texts = itertools.chain.from_iterable(axis.texts for axis in figure.axes)
    return [text for text in texts if isinstance(text, Annotation) and text.get_text()]


def crowd(count: int) -> Run:
    """That many variants with long names, all within a few percent of each other, in every scenario that is drawn."""
    names = ["fp32", *(f"ort-int8-dynamic-{number}" for number in range(1, count))]
    records = []
    for scenario, digest in (("precision", "one prompt"), ("batch", "1"), ("batch", "8")):
        where = {"scenario": scenario, "case": digest}
        size = int(digest) if scenario == "batch" else 1
        workload = make_workload(digest, scenario, batch_size=size, prompts=8 if scenario == "batch" else 1)
        for number, name in enumerate(names):
            spread = 0.0 if name == "fp32" else 0.01
            records.append(make_block_record(name, 1 + number / 200, spread, workload=workload, **where))
    backends = ("torch", "onnxruntime", "bitsandbytes")
    variants = [
        make_variant(
            name,
            weight_bytes=4_000_000 + 20_000 * number,
            backend=backends[number % 3],
            quality={"perplexity": 20.0, **({"ppl_ratio": 1 + number / 500} if number else {})},
        )
        for number, name in enumerate(names)
    ]
    return make_run(records, variants)


def test_a_run_that_has_it_all_has_every_picture_as_png_and_svg(tmp_path: Path) -> None:
    plots = write_plots(chart_findings(), tmp_path)
    assert [plot.path.stem for plot in plots] == NAMES
    assert [plot.scenario for plot in plots] == [
        "summary", "summary", "machine", "machine", "precision", "quantization", "batch", "prompt_length",
    ]  # fmt: skip
    for plot in plots:
        assert plot.title
        assert ElementTree.fromstring(plot.path.read_text(encoding="utf-8")).tag.endswith("svg")  # noqa: S314  # our own
        assert plot.path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert plot.path.stat().st_size < 100_000


def test_the_same_run_gives_the_same_svg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tradeoff = next(pictures(chart_findings()))
    monkeypatch.setattr("llm_bench_fixtures.report.charts.pictures.pictures", lambda _: [tradeoff])
    first, second = (write_plots(chart_findings(), tmp_path / name)[0].path.read_bytes() for name in "ab")
    assert first == second


def test_a_run_that_measured_nothing_has_none(tmp_path: Path) -> None:
    assert write_plots(found(make_run([skipped_record("fp32", "why")])), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scenario", ["precision", "quantization", "batch", "prompt_length"])
def test_a_scenario_that_did_not_run_is_not_drawn(scenario: str) -> None:
    run = full_run()
    kept = tuple(record for record in run.records if record.scenario != scenario)
    assert scenario not in drawn(replace(run, records=kept))


def test_one_point_is_no_line() -> None:
    run = make_run([make_record(scenario="prompt_length", case="16"), make_record(scenario="batch", case="1")])
    assert drawing_of("prompt_length", found(run)) is None
    assert drawing_of("batch", found(run)) is None


def test_one_variant_is_no_tradeoff() -> None:
    assert drawing_of("memory", found(make_run([make_record()]))) is None
    assert drawing_of("memory", found(make_run([make_record(), make_record("bf16")]))) is not None
    alone = replace(chart_run(), records=tuple(one for one in chart_run().records if one.variant == "fp32"))
    assert drawing_of("tradeoff", found(alone)) is None


def test_the_tradeoff_draws_what_the_pages_chart_has() -> None:
    """The same places, bars and front, and areas that grow with the memory; the better quality is up."""
    (axis,) = finished(drawing_of("tradeoff", chart_findings())).axes
    chart = tradeoff_chart(chart_findings())
    assert chart is not None
    data: Any = plotly_json(chart)["data"]
    traces = {trace["meta"]: trace for trace in data if "meta" in trace}
    drawn = {one.get_label(): one for one in axis.containers if isinstance(one, ErrorbarContainer)}
    assert drawn.keys() == traces.keys()
    for variant, trace in traces.items():
        marker, _, bars = drawn[variant]
        assert [float(marker.get_xdata()[0]), float(marker.get_ydata()[0])] == [*trace["x"], *trace["y"]]
        if "error_y" in trace:
            below, above = trace["error_y"]["arrayminus"][0], trace["error_y"]["array"][0]
            ends = bars[-1].get_segments()[0][:, 1]
            assert list(ends) == pytest.approx([trace["y"][0] - below, trace["y"][0] + above])
        assert (marker.get_markerfacecolor() == "none") == (trace["marker"]["color"] == "rgba(0,0,0,0)")
    sizes = {variant: drawn[variant].lines[0].get_markersize() for variant in traces}
    assert (sizes["fp32"] / sizes["bf16"]) ** 2 == pytest.approx(PEAKS["fp32"] / PEAKS["bf16"])
    bottom, top = axis.get_ylim()
    assert top < bottom
    assert "≈ bf16, 50.0 MB" in {note.get_text() for note in notes_of(axis.figure)}


def test_a_machine_whose_limits_were_not_measured_has_no_roofline() -> None:
    assert drawing_of("roofline", chart_findings(provenance={"read_bytes_per_s": None})) is None


def test_pictures_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    for name in ("batch.png", "batch.svg"):
        (tmp_path / name).write_text("old", encoding="utf-8")
    assert len(write_plots(found(make_run([make_record()])), tmp_path)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "phases.png", "phases.svg", "precision.png", "precision.svg",
    ]  # fmt: skip


def test_where_no_perplexity_was_compared_there_is_no_panel_for_it() -> None:
    figure = finished(drawing_of("precision", found(make_run([make_record()], [make_variant()]))))
    assert len(figure.axes) == 2


def test_a_bar_of_perplexity_is_its_change_against_the_reference() -> None:
    """In percent: ort-int8's is 2 % higher; the reference's own is 0."""
    (*_, axis) = finished(drawing_of("precision", chart_findings())).axes
    assert axis.get_title(loc="left") == "Perplexity change, %"
    assert [width for _, width in bars_of(axis)] == pytest.approx([0, 0.1, 0, 2])
    assert errors_of(axis)[-1] == pytest.approx([2 - NORMAL_95 * 0.1, 2 + NORMAL_95 * 0.1])


def test_a_change_within_the_band_is_no_long_bar() -> None:
    """Bug: the axis ended at the longest bar, so that a change of 0.01 % went from one side to the other."""
    variants = [make_variant(), make_variant("bf16", quality={"perplexity": 20.0, "ppl_ratio": 1.0001})]
    (*_, axis) = finished(drawing_of("precision", found(make_run([make_record(), make_record("bf16")], variants)))).axes
    left, right = axis.get_xlim()
    assert left < -0.5
    assert right > 0.5
    assert "-0.00" not in {text.get_text() for text in axis.texts}


@pytest.mark.parametrize("name", ["precision", "quantization"])
def test_no_title_of_a_panel_leaves_the_picture(name: str) -> None:
    """Bug: the last one was cut at the right edge."""
    figure = finished(drawing_of(name, chart_findings()))
    for axis in figure.axes:
        title = next(text for text in (axis.title, axis._left_title) if text.get_text())  # type: ignore[attr-defined]
        assert title.get_window_extent().x1 <= figure.bbox.x1


def test_bars_are_as_long_as_the_numbers() -> None:
    """0.1 s is 100 ms; 4 000 000 bytes are 4 MB."""
    figure = finished(drawing_of("precision", found(make_run([make_record(median_s=0.1)]))))
    widths = [axis.patches[0].get_width() for axis in figure.axes]
    assert widths == [pytest.approx(100), pytest.approx(4)]


def test_speedups_have_their_intervals_as_error_bars() -> None:
    """A panel of their own, between the latency and the weights, where any was measured in blocks."""
    records = [make_block_record(spread=0.0), make_block_record("bf16", 2.0)]
    axis = finished(drawing_of("precision", found(make_run(records)))).axes[1]
    assert axis.get_title(loc="left") == "Speed-up over fp32"
    assert [width for _, width in bars_of(axis)] == [pytest.approx(1), pytest.approx(2, rel=1e-9)]
    speedup = record_speedup(records[1])
    assert speedup is not None
    assert errors_of(axis) == [pytest.approx([speedup.low, speedup.high])]  # the reference's is exact


def test_phases_are_stacked_milliseconds() -> None:
    """The first token of 100 ms comes after 40."""
    (axis,) = finished(drawing_of("phases", found(full_run()))).axes
    assert bars_of(axis)[:2] == [(0, pytest.approx(40)), (pytest.approx(40), pytest.approx(60))]
    assert [label.get_text() for label in axis.get_yticklabels()][:2] == ["fp32", "fp16"]


def test_the_roofline_has_each_phase_and_the_machines_limits() -> None:
    """fp32's prefill does 32 operations for each byte, its decode half of one; the ridge is at 10."""
    (axis,) = finished(drawing_of("roofline", chart_findings())).axes
    roof = next(line for line in axis.lines if len(line.get_xdata()) == 3)
    assert list(roof.get_xdata())[1] == pytest.approx(FLOPS_PER_S / READ_BYTES_PER_S)
    assert list(roof.get_ydata())[1:] == [pytest.approx(FLOPS_PER_S / 1e9)] * 2
    points = [one.lines[0] for one in axis.containers if one.get_label() == "fp32"]  # type: ignore[attr-defined]
    assert [float(line.get_xdata()[0]) for line in points] == [pytest.approx(32), pytest.approx(0.5)]
    assert [line.get_markerfacecolor() == "none" for line in points] == [False, True]  # the decode is open


def test_a_sweep_has_the_lines_and_the_bars_of_the_page() -> None:
    throughput, speedup = finished(drawing_of("batch", chart_findings())).axes
    assert throughput.get_title(loc="left") == "Output throughput by batch"
    (bf16,) = [one for one in speedup.containers if one.get_label() == "bf16"]
    assert isinstance(bf16, ErrorbarContainer)
    assert [(float(x), float(y)) for x, y in zip(*bf16.lines[0].get_data(), strict=True)] == [
        (1, pytest.approx(0.8)),
        (4, pytest.approx(3.2)),
    ]
    records = [record for record in chart_run().measured("batch") if record.variant == "bf16"]
    speedups = [record_speedup(record) for record in records]
    segments = bf16.lines[2][0].get_segments()
    for segment, one in zip(segments, speedups, strict=True):
        assert one is not None
        assert list(segment[:, 1]) == pytest.approx([one.low, one.high])


def test_lines_are_named_at_their_ends_and_nothing_has_a_legend(tmp_path: Path) -> None:
    figure = finished(drawing_of("prompt_length", chart_findings()))
    for axis in figure.axes:
        assert {text.get_text() for text in axis.texts} == {"fp32", "bf16", "ort-fp32", "ort-int8"}
    for picture in pictures(chart_findings()):
        one = draw(picture)
        assert one.legends == []
        assert all(axis.get_legend() is None for axis in one.axes)


def boxes(figure: Figure) -> list[Bbox]:
    """Of the names, without the lines that join them to what they name."""
    return [Text.get_window_extent(note) for note in notes_of(figure)]


@pytest.mark.parametrize("name", ["tradeoff", "memory", "batch", "roofline"])
def test_no_name_covers_another(name: str) -> None:
    """A dozen long ones, of points that lie within a few percent of each other."""
    findings = chart_findings() if name == "roofline" else found(crowd(12))
    figure = finished(drawing_of(name, findings))
    placed = boxes(figure)
    assert len(placed) >= 8
    for one, other in itertools.combinations(placed, 2):
        assert Bbox.intersection(one, other) is None


def test_no_name_beside_memory_leaves_the_picture() -> None:
    figure = finished(drawing_of("memory", found(crowd(12))))
    (axis,) = figure.axes
    for box in boxes(figure):
        assert axis.get_window_extent().count_contains(box.corners()) == 4


def test_no_marker_beside_memory_is_cut_by_the_edge() -> None:
    """Two variants almost alike: the axes start at zero, far from both."""
    records = [make_record(variant="fp32", median_s=0.100), make_record(variant="bf16", median_s=0.101)]
    variants = [make_variant("fp32", weight_bytes=4_000_000), make_variant("bf16", weight_bytes=4_040_000)]
    figure = finished(drawing_of("memory", found(make_run(records, variants))))
    (axis,) = figure.axes
    marker_pixels = 12 * figure.dpi / 72
    x, y = axis.transData.transform((4.04, 101))
    assert axis.bbox.x1 - x > marker_pixels / 2
    assert axis.bbox.y1 - y > marker_pixels / 2


def test_memory_has_weights_latency_and_the_change_of_the_perplexity() -> None:
    variants = [make_variant(), make_variant("bf16", weight_bytes=2_000_000, quality={"ppl_ratio": 1.01})]
    (axis,) = finished(drawing_of("memory", found(make_run([make_record(), make_record("bf16", 0.5)], variants)))).axes
    (bf16,) = [one for one in axis.containers if one.get_label() == "bf16"]
    assert isinstance(bf16, ErrorbarContainer)
    assert [list(map(float, values)) for values in bf16.lines[0].get_data()] == [[2.0], [500.0]]
    assert {note.get_text() for note in axis.texts if note.get_text()} == {"fp32", "bf16 +1.0 %"}
    assert "; numbers: perplexity change" in axis.get_title(loc="left")


def test_memory_is_the_peak_where_it_was_measured() -> None:
    """The memory that the answer goes by: bf16 needs 50 MB at its peak, with weights of 2 MB."""
    (axis,) = finished(drawing_of("memory", chart_findings())).axes
    (bf16,) = [one for one in axis.containers if one.get_label() == "bf16"]
    assert isinstance(bf16, ErrorbarContainer)
    assert float(bf16.lines[0].get_xdata()[0]) == pytest.approx(50)
    assert "peak" in axis.get_xlabel()


def test_one_round_has_no_error_bar() -> None:
    run = make_run([make_record(rounds_s=(1.0,)), make_record("bf16", rounds_s=(2.0,))])
    assert drawn(run) == ["memory", "phases", "precision"]


def test_a_variant_without_a_finite_perplexity_is_drawn_without_it() -> None:
    broken = make_variant("fp16", quality={}, quality_note="not finite: loss, perplexity")
    run = make_run([make_record(), make_record("fp16")], [make_variant(), broken])
    assert drawn(run) == ["memory", "phases", "precision"]


def smallest_letters(axis: Axes) -> float:
    """Points of the smallest text on the axes."""
    texts = [*axis.get_xticklabels(), *axis.get_yticklabels(), axis.xaxis.label, axis.yaxis.label, *axis.texts]
    return min(text.get_fontsize() for text in texts if text.get_text())


@pytest.mark.parametrize("name", NAMES)
def test_letters_can_be_read_on_a_slide(name: str) -> None:
    """A slide is 13.3 inches wide; 11 points are its smallest text."""
    figure = finished(drawing_of(name, chart_findings()))
    shrunk = 13.3 / figure.get_size_inches()[0]
    assert min(smallest_letters(axis) for axis in figure.axes) * min(shrunk, 1.0) >= 11


def test_every_variant_of_the_catalogue_has_a_look_of_its_own() -> None:
    """In matplotlib's words, too."""
    run = make_run([], [make_variant(one.id, backend=one.backend) for one in CATALOGUE])
    found = {(one.colour, MARKERS[one.marker], str(DASHES[one.dash])) for one in looks_of(run).values()}
    assert len(found) == len(CATALOGUE)


def hostile_run() -> Run:
    """The ids of all variants but the reference are hostile, and so is what it ran on."""
    run = chart_run(provenance={"model": HOSTILE, "hardware": HOSTILE})
    names = {variant.id: variant.id if variant.id == "fp32" else f"{HOSTILE} {variant.id}" for variant in run.variants}
    variants = tuple(replace(variant, id=names[variant.id]) for variant in run.variants)
    return replace(
        run,
        variants=variants,
        records=tuple(replace(record, variant=names[record.variant]) for record in run.records),
    )


def test_hostile_names_are_drawn_without_a_warning_and_make_no_element(tmp_path: Path) -> None:
    plots: list[Plot] = write_plots(found(hostile_run()), tmp_path)
    assert [plot.path.stem for plot in plots] == NAMES
    for plot in plots:
        tags = {one.tag.rpartition("}")[2] for one in ElementTree.parse(plot.path).iter()}  # noqa: S314  # our own
        assert "script" not in tags


def test_what_the_font_lacks_stands_as_its_number() -> None:
    assert drawable("漢 a\x1b") == "\\u{6f22} a\ufffd"
    assert drawable("ort-int8 – ± µ") == "ort-int8 – ± µ"


def test_a_change_without_an_error_is_drawn_with_a_bar_of_no_length() -> None:
    """Bug: a ratio that is 1 but for the rounding of floats had an interval beside its bar."""
    quality = {"perplexity": 20.0, "ppl_ratio": 1 - 1e-9, "ppl_ratio_error": 0.0}
    run = make_run([make_record(), make_record("bf16")], [make_variant(), make_variant("bf16", quality=quality)])
    (*_, axis) = finished(drawing_of("precision", found(run))).axes
    assert [width for _, width in bars_of(axis)] == [0, pytest.approx(-1e-7)]
    assert errors_of(axis) == []
