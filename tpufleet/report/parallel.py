"""Pictures of a sweep of one parameter (dots) and of several (parallel coordinates)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tpufleet.report.grid import Axis, Point, axis, value_of
from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.marks import colour_class, shape
from tpufleet.report.scale import Scale, span_of, tick_label
from tpufleet.report.svg import UNITS, grid, percent, stretched
from tpufleet.report.text import measured, shorten
from tpufleet.report.view import View

MOST_AXES = 8
_MOST_WORDS = 12  # values named on one axis
_LONG = 14


def parallel(v: View, runs: Sequence[Run], names: Sequence[str], metric: str) -> Element:
    """A line for each of `runs` (those with a finite `metric`) through its values of `names` and its result."""
    axes = [axis(runs, name) for name in names[:MOST_AXES]]
    scale = span_of([run.metrics[metric] for run in runs])
    stops = _stops(runs, axes, scale, metric)
    lines = [
        _line(v, run, stops[run.id], names[:MOST_AXES], metric) for run in sorted(runs, key=lambda r: _depth(v, r))
    ]
    plot = el(
        "svg",
        [_stroke(i / len(axes)) for i in range(len(axes) + 1)],
        el("g", lines, class_="curves"),
        [_words(each, i / len(axes)) for i, each in enumerate(axes)],
        _named_axis(metric, 1.0, [(1 - scale.at(tick), tick_label(tick)) for tick in scale.ticks(6)]),
        class_="plot",
        role="img",
        aria_label=f"Parallel coordinates of {len(runs):,} runs over {', '.join(names[:MOST_AXES])} and {metric}",
    )
    return el("div", plot, class_=f"chart parallel axes{len(axes) + 1}")


def _stops(runs: Sequence[Run], axes: Sequence[Axis], scale: Scale, metric: str) -> dict[str, list[float]]:
    """Run → how far down its line crosses each axis. Lines through the same value are fanned out by their result, the
    lowest lowest, so that each can be followed."""
    ordered = sorted(runs, key=lambda run: run.metrics[metric])
    stops: dict[str, list[float]] = {run.id: [] for run in runs}
    for each in axes:
        width = min(0.09, 0.7 / max(1, len(each.values)))
        for value, place in zip(each.values, each.places, strict=True):
            members = [run for run in ordered if value_of(run, each.name) == value]
            for i, run in enumerate(members):
                share = 0.5 - i / (len(members) - 1) if len(members) > 1 else 0.0
                stops[run.id].append(1 - (0.05 + 0.9 * place) + width * share)
    for run in runs:
        stops[run.id].append(min(1.05, max(-0.05, 1 - scale.at(run.metrics[metric]))))
    return stops


def _depth(v: View, run: Run) -> int:
    """Grey lines lie lowest, the best on top."""
    return -v.marks.get(run.id, len(v.runs))


def _stroke(x: float) -> Element:
    return el("g", el("line", x1=percent(x), x2=percent(x), y1=0, y2="100%", class_="axis"), class_="grid")


def _words(each: Axis, x: float) -> Element:
    stride = -(-len(each.values) // _MOST_WORDS)
    named = list(zip(each.places, each.values, strict=True))[::stride]
    return _named_axis(each.name, x, [(0.95 - 0.9 * place, shorten(value, _LONG)) for place, value in named])


def _named_axis(name: str, x: float, words: Sequence[tuple[float, str]]) -> Element:
    at = percent(x)
    return el(
        "g",
        el("text", shorten(name, 2 * _LONG), x=at, y=0, dy="-1.1em", class_="column name"),
        [el("text", word, x=at, dx=8, y=percent(y), dy="0.35em", class_="word") for y, word in words],
        class_="grid",
        aria_hidden="true",
    )


def _line(v: View, run: Run, heights: Sequence[float], names: Sequence[str], metric: str) -> Element:
    last = len(heights) - 1
    stops = [(UNITS * i / last, UNITS * height) for i, height in enumerate(heights)]
    path = f"M{stops[0][0]:.0f} {stops[0][1]:.0f}"
    for (x, y), (to_x, to_y) in itertools.pairwise(stops):
        middle = (x + to_x) / 2
        path += f"C{middle:.0f} {y:.0f} {middle:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"
    mark = v.marks.get(run.id)
    return el(
        "g",
        el("title", _said(run, names, metric)),
        stretched(el("path", class_="reach", d=path) if mark is not None else None, el("path", class_="curve", d=path)),
        el("svg", shape(mark), x="100%", y=percent(heights[-1]), class_="at") if mark is not None else None,
        class_=f"run {colour_class(mark)}",
        data_run=run.id,
    )


def dots(v: View, points: Sequence[Point], name: str, metric: str) -> Element:
    """One parameter: each run a dot over its value, and a line where the mean of those is."""
    runs = [run for point in points for run in point.counted]
    across = axis(runs, name)
    scale = span_of([run.metrics[metric] for run in runs])
    inset = {value: 0.06 + 0.88 * place for value, place in zip(across.values, across.places, strict=True)}
    stride = -(-len(across.values) // _MOST_WORDS)
    columns = [(inset[value], shorten(value, _LONG)) for value in across.values[::stride]]
    rows = [(1 - scale.at(tick), tick_label(tick)) for tick in scale.ticks(5)]
    ordered = sorted(runs, key=lambda run: _depth(v, run))

    def height(run: Run) -> float:
        return min(1.0, max(0.0, 1 - scale.at(run.metrics[metric])))

    plot = el(
        "svg",
        grid(rows, columns),
        [_mean(point, inset[point.value(name)], scale) for point in points if point.value(name) in inset],
        el(
            "g",
            [_dot(v, run, inset[value_of(run, name)], height(run), _said(run, [name], metric)) for run in ordered],
            class_="curves",
        ),
        class_="plot",
        role="img",
        aria_label=f"{metric} over {name}: {len(runs):,} runs",
    )
    return el("div", plot, el("p", shorten(name, 40), class_="across"), class_="chart dots")


def _mean(point: Point, x: float, scale: Scale) -> Child:
    if point.mean is None or len(point.results) < 2 or not 0 <= (y := 1 - scale.at(point.mean)) <= 1:
        return None
    ends = {"x1": percent(x - 0.025), "x2": percent(x + 0.025)}
    return el("line", el("title", f"mean {measured(point.mean)}"), **ends, y1=percent(y), y2=percent(y), class_="mean")


def _dot(v: View, run: Run, x: float, y: float, said: str) -> Element:
    mark = v.marks.get(run.id)
    drawn = el("svg", shape(mark or 0), x=percent(x), y=percent(y), class_="at")
    return el("g", el("title", said), drawn, class_=f"run {colour_class(mark)}", data_run=run.id)


def _said(run: Run, names: Sequence[str], metric: str) -> str:
    values = ", ".join(f"{name} {value_of(run, name)}" for name in names)
    return f"{run.id}: {metric} {measured(run.metrics[metric])} with {values}"
