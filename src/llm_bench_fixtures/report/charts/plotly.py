"""A chart as plotly.js takes it. The page's script adds the colours of the light or the dark theme.

Plotly takes a small markup in its texts, so what comes from elsewhere is escaped for it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.statistics.spread import Estimate
from llm_bench_fixtures.text import printable, readable

Json: TypeAlias = "dict[str, object]"

LABEL_ROOM = 132  # pixels to the right of a plot for its lines' labels
PIXELS = 4 / 3  # a point
SMALL = 11  # pixels
TIMES = (1, 1.5, 2, 3, 4, 5, 7)  # a power of ten: ticks of a logarithmic axis that is shorter than two of these


def plotly_json(chart: spec.Chart) -> Json:
    """`data` and `layout`. A trace's `meta`, and an annotation's `name`, is the variant that it is about."""
    traces = [*map(_key, chart.keys), *map(_line, chart.lines), *map(_series, chart.series), *map(_bar, chart.bars)]
    at_ends = [one for one in chart.series if one.is_line and one.label]
    return {
        "data": traces,
        "layout": {
            "height": chart.height,
            "margin": {"l": 16, "r": LABEL_ROOM if at_ends else 24, "t": 16, "b": 52},
            "showlegend": bool(chart.keys),
            **({"legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}} if chart.keys else {}),
            **({"barmode": "overlay", "bargap": 0.32} if chart.bars else {}),
            "dragmode": "zoom" if chart.can_zoom else False,  # else a page on a phone scrolls
            "hovermode": "closest",
            "hoverlabel": {"align": "left"},
            "xaxis": {**_axis(chart.x, can_zoom=chart.can_zoom), "automargin": chart.can_zoom},
            "yaxis": {**_axis(chart.y, can_zoom=chart.can_zoom), "automargin": True},
            "shapes": [*map(_band, chart.bands)],
            "annotations": [*(_text(one, chart) for one in chart.texts), *_end_labels(at_ends, chart.y)],
        },
    }


def figures_of(charts: Iterable[spec.Chart]) -> dict[str, Json]:
    """Plotly figures by the charts' names."""
    return {chart.name: plotly_json(chart) for chart in charts}


def escaped(text: str) -> str:
    """Text for plotly, shown as it is, whatever is in it; what stands between two $ would be a formula."""
    return html.escape(printable(text), quote=False).replace("$", "&#36;")


def hover(title: str, facts: spec.Facts) -> str:
    """Text next to the pointer: a title, and a line for each fact."""
    lines = (f"{escaped(name)}: {escaped(value)}" for name, value in facts)
    return "<br>".join([f"<b>{escaped(title)}</b>", *lines])


def _axis(axis: spec.Axis, *, can_zoom: bool) -> Json:
    drawn: Json = {
        "title": {"text": escaped(axis.title), "standoff": 10},
        "type": "log" if axis.is_log else "linear",
        "showgrid": axis.has_grid,
        "fixedrange": not can_zoom,
        "zeroline": False,
        "ticksuffix": axis.suffix,
        "range": [math.log10(end) if axis.is_log else end for end in axis.ends],
    }
    if axis.ticks:
        drawn["tickvals"] = [at for at, _ in axis.ticks]
        drawn["ticktext"] = [escaped(spec.short(text)) for _, text in axis.ticks]
    elif axis.is_log:
        drawn |= _log_ticks(*axis.ends)
    return drawn


def _log_ticks(low: float, high: float) -> Json:
    """Powers of ten; between them, too, where the axis has no more than one."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if sum(low <= 10.0**power <= high for power in powers) > 1:
        return {"dtick": 1}
    ticks = [times * 10.0**power for power in powers for times in TIMES if low <= times * 10.0**power <= high]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _key(key: tuple[str, spec.Look]) -> Json:
    """An entry of the legend: a trace of its own, which stays whatever variants are shown."""
    name, look = key
    marker = {"color": look.colour, "symbol": look.marker, "size": 9}
    return {"type": "scatter", "mode": "markers", "name": escaped(name), "x": [None], "y": [None], "marker": marker}


def _line(line: spec.Line) -> Json:
    about = {"meta": readable(line.variant)} if line.variant else {}
    values = {"x": [x for x, _ in line.places], "y": [y for _, y in line.places]}
    look = {"color": line.colour, "width": line.width * PIXELS, "dash": line.dash}
    passive = {"hoverinfo": "skip", "showlegend": False}
    return {"type": "scatter", "mode": "lines", **about, **values, "line": look, **passive}


def _series(series: spec.Series) -> Json:
    look, points = series.look, series.points
    has_label = bool(series.label) and not series.is_line
    mode = "+".join(filter(None, ("lines" * series.is_line, "markers" * (series.size > 0), "text" * has_label)))
    xs, ys = [point.x for point in points], [point.y for point in points]
    values = {"x": [one.value for one in xs], "y": [one.value for one in ys]}
    errors = {**_error_bars("error_x", xs, look.colour), **_error_bars("error_y", ys, look.colour)}
    marker = {
        "color": look.colour if series.is_filled else "rgba(0,0,0,0)",
        "symbol": look.marker,
        "size": series.size * PIXELS,
        "opacity": series.opacity,
        "line": {"color": look.colour, "width": 0 if series.is_line else 2},
    }
    pointer = {"hoverinfo": "text", "hovertext": [hover(series.variant, point.facts) for point in points]}
    drawn: Json = {"type": "scatter", "mode": mode, **_about(series.variant), **values, **errors}
    drawn |= {"cliponaxis": series.is_line, "marker": marker, **pointer}
    if series.is_line:
        drawn |= {"line": {"color": look.colour, "width": 1.8, "dash": look.dash}, "opacity": series.opacity}
    if has_label:
        label = escaped(spec.short(series.label))
        drawn |= {"text": [label], "textposition": "top center", "textfont": {"color": look.colour, "size": SMALL}}
    if any(point.link for point in points):
        drawn["customdata"] = [point.link for point in points]
    return drawn


def _about(variant: str) -> Json:
    """A trace's variant, which the page's filter goes by."""
    return {"name": escaped(variant), "meta": readable(variant), "showlegend": False}


def _error_bars(name: str, estimates: Sequence[Estimate], colour: str) -> Json:
    if all(one.is_exact for one in estimates):
        return {}
    above, below = [one.high - one.value for one in estimates], [one.value - one.low for one in estimates]
    look = {"color": colour, "thickness": 1.2, "width": 3}
    return {name: {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}}


def _bar(bar: spec.Bar) -> Json:
    values = {"base": [bar.start], "x": [bar.length.value], "y": [bar.row]}
    marker = {"color": bar.look.colour, "opacity": bar.opacity}
    errors = _error_bars("error_x", [bar.length], bar.look.colour)
    pointer = {"hoverinfo": "text", "hovertext": [hover(bar.variant, bar.facts)]}
    return {"type": "bar", "orientation": "h", **_about(bar.variant), **values, "marker": marker, **errors, **pointer}


def _band(band: spec.Band) -> Json:
    along, across = ("x", "y") if band.is_of_x else ("y", "x")
    ends = {f"{along}0": band.low, f"{along}1": band.high, f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
    look = {"layer": "below", "line": {"width": 0}, "fillcolor": spec.NEAR_COLOUR, "opacity": 0.1}
    return {"type": "rect", **ends, **look}


def _text(text: spec.Text, chart: spec.Chart) -> Json:
    """Annotation, whose place is a logarithm on a logarithmic axis."""
    x, y = (math.log10(at) if axis.is_log else at for at, axis in ((text.x, chart.x), (text.y, chart.y)))
    anchors = {"xanchor": "right" if text.is_right else "left", "yanchor": "top" if text.is_below else "bottom"}
    font = {"color": spec.SOFT, "size": SMALL}
    return {"text": escaped(text.text), "x": x, "y": y, **anchors, "showarrow": False, "font": font}


def _end_labels(series: Sequence[spec.Series], axis: spec.Axis) -> Iterator[Json]:
    """A label to the right of each line, as near its last value as the others allow."""
    low, high = axis.ends
    places = spec.apart([(one.points[-1].y.value - low) / (high - low) for one in series])
    for one, place in zip(series, places, strict=True):
        about = {"name": readable(one.variant), "text": f"{one.look.sign} {escaped(spec.short(one.label))}"}
        across = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 6}
        up = {"y": place, "yref": "paper", "yanchor": "middle"}
        yield {**about, **across, **up, "showarrow": False, "font": {"color": one.look.colour, "size": SMALL}}
