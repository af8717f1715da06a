"""Curves as a picture that fits any width.

Positions are percentages of the plot, text and marks keep their size, and only the curves themselves are
stretched (with strokes that do not scale); so one picture serves a phone, a page on paper and a projector,
without a script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.report.curves import Curve, Point, thin
from tpufleet.report.html import Child, Element, el
from tpufleet.report.marks import colour_class, shape
from tpufleet.report.scale import Scale, span_of, steps_of, tick_label
from tpufleet.report.text import measured, number, shorten

_ENOUGH = 4  # points of a curve after its first, on average
UNITS = 1000  # the curves' own coordinates; with one decimal that is finer than any screen
_CROWD = 100  # grey curves; more are drawn together,
_CHUNK = 40  # so many as one path
_CROWD_POINTS = 30
_LABEL = 24  # characters of a run's name beside its curve
_LABEL_GAP = 0.052  # of the plot's height: one line of text in the large picture


@dataclass(frozen=True, slots=True)
class Series:
    """One run's curve in one picture; `mark` is its index among the marked runs, None draws it in grey."""

    name: str
    curve: Curve
    mark: int | None


@dataclass(frozen=True, slots=True)
class Axes:
    """The two scales of a picture."""

    x: Scale
    y: Scale

    def across(self, point: Point) -> float:
        return self.x.at(point[0])

    def down(self, point: Point) -> float:
        return 1 - self.y.at(point[1])


def chart(metric: str, series: Sequence[Series], *, labels: bool) -> Element:
    """A picture of `metric` over steps, a curve for each of `series`.

    With `labels`, every marked curve has its run's name and last value beside it. Series without a finite
    point are left out; with none at all, the picture is a sentence.
    """
    drawn = [s for s in series if s.curve.points]
    if not drawn:
        return el("p", f"No finite value of {metric} came home.", class_="quiet")
    axes = _axes(drawn)
    drawn.sort(key=lambda s: s.mark is not None)  # grey first, so that it lies below
    places = _label_places([s for s in drawn if s.mark is not None], axes) if labels else {}
    grey = [s for s in drawn if s.mark is None]
    crowd = _crowd(grey, axes) if len(grey) > _CROWD else None
    plot = el(
        "svg",
        _grid(axes),
        crowd,
        el(
            "g",
            [_series(metric, s, axes, places.get(s.name)) for s in drawn if not crowd or s.mark is not None],
            class_="curves",
        ),
        class_="plot",
        role="img",
        aria_label=f"{metric} over steps: {_range_in_words(drawn)}",
    )
    return el("div", plot, class_="chart labelled" if labels else "chart")


def outside(series: Sequence[Series]) -> str | None:
    """What lies above the picture of these series, in a sentence; None when all of it is in."""
    drawn = [s for s in series if s.curve.points]
    if not drawn:
        return None
    highest = max(value for s in drawn for _, value in s.curve.points)
    if _axes(drawn).y.at(highest) <= 1:
        return None
    return f"Values up to {measured(highest)} lie above the picture."


def _axes(drawn: Sequence[Series]) -> Axes:
    """The scales for curves with points. Where each curve's first value, mostly that of an untrained model,
    would take more than half of the height, the picture begins below it and the curves come in from above."""
    steps = [step for s in drawn for step in (s.curve.points[0][0], s.curve.points[-1][0])]
    whole = [value for s in drawn for _, value in s.curve.points]
    trained = [value for s in drawn for _, value in s.curve.points[1:]]
    if len(trained) >= _ENOUGH * len(drawn) and _reach(whole) > 2 * _reach(trained) and min(whole) == min(trained):
        whole = trained
    return Axes(steps_of(steps), span_of(whole))


def _reach(values: Sequence[float]) -> float:
    return max(values) - min(values)


def title(metric: str, series: Series) -> str:
    """What a curve says when it is pointed at."""
    step, _ = series.curve.points[-1]
    words = f"{series.name}: {metric} {measured(series.curve.last)} at step {number(step)}"
    lowest = series.curve.lowest
    if lowest and lowest[1] < series.curve.last:
        words += f", lowest {measured(lowest[1])} at step {number(lowest[0])}"
    return words


def _range_in_words(drawn: Sequence[Series]) -> str:
    if len(drawn) == 1:
        return title("value", drawn[0])
    lasts = [s.curve.points[-1][1] for s in drawn]
    return f"{len(drawn):,} runs, last values from {measured(min(lasts))} to {measured(max(lasts))}"


def _grid(axes: Axes) -> Element:
    rows = [(1 - axes.y.at(tick), tick_label(tick)) for tick in axes.y.ticks(5)]
    columns = [(axes.x.at(tick), tick_label(tick)) for tick in axes.x.ticks(5)]
    return grid(rows, columns)


def grid(rows: Sequence[tuple[float, str]], columns: Sequence[tuple[float, str]]) -> Element:
    """Lines across a picture with their words at the left, and words below it; each with its place, 0 to 1."""
    return el(
        "g",
        [el("line", x1=0, x2="100%", y1=percent(at), y2=percent(at)) for at, _ in rows],
        [el("text", word, x=-8, y=percent(at), dy="0.35em", class_="row") for at, word in rows],
        el("line", x1=0, x2="100%", y1="100%", y2="100%", class_="axis"),
        [el("text", word, x=percent(at), y="100%", dy="1.5em", class_="column") for at, word in columns],
        class_="grid",
        aria_hidden="true",
    )


def _series(metric: str, series: Series, axes: Axes, place: float | None) -> Element:
    points = series.curve.points
    path = _path(points, axes)
    end, mark = points[-1], series.mark
    return el(
        "g",
        el("title", title(metric, series)),
        stretched(
            el("path", class_="reach", d=path) if mark is not None else None,  # easier to point at
            el("path", class_="curve", d=path),
        ),
        [_mark_at(point, mark, axes) for point in _marked_points(points, mark)],
        _label(series, mark, axes.across(end), axes.down(end), place)
        if mark is not None and place is not None
        else None,
        class_=f"run {colour_class(mark)}",
    )


def _crowd(series: Sequence[Series], axes: Axes) -> Element:
    """Many grey curves as few paths, thinner than others: nobody can tell them apart, and each would cost elements."""
    chunks = [series[i : i + _CHUNK] for i in range(0, len(series), _CHUNK)]
    paths = ["".join(_path(thin(s.curve.points, _CROWD_POINTS), axes) for s in chunk) for chunk in chunks]
    said = el("title", f"{len(series):,} other runs")
    return el("g", said, stretched([el("path", class_="curve", d=path) for path in paths]), class_="run grey")


def stretched(*children: Child) -> Element:
    """Paths in units of a thousandth of the picture, stretched to its size."""
    return el(
        "svg",
        *children,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
    )


def _path(points: Sequence[Point], axes: Axes) -> str:
    """The path's data in the curves' own units; the plot clips it, and values far beyond the axis stop there."""
    pairs = [f"{UNITS * axes.across(p):.1f} {UNITS * min(99.0, max(-99.0, axes.down(p))):.1f}" for p in points]
    if len(pairs) == 1:  # a stroke of no length with round caps is a dot
        pairs *= 2
    return "M" + "L".join(pairs)


def _marked_points(points: Sequence[Point], mark: int | None) -> list[Point]:
    """The curve's end, and of a long curve three points on the way, at other places for each run."""
    if mark is None:
        return []
    shift = (mark * 0.382) % 1  # the golden section keeps neighbours apart
    inner = [points[int((i + shift) / 3.2 * len(points))] for i in range(3)] if len(points) >= 12 else []
    return [*inner, points[-1]]


def _mark_at(point: Point, mark: int | None, axes: Axes) -> Element | None:
    x, y = axes.across(point), axes.down(point)
    if mark is None or not 0 <= y <= 1:
        return None
    return el("svg", shape(mark), x=percent(x), y=percent(y), class_="at")


def _label(series: Series, mark: int, x: float, y: float, place: float) -> list[Element]:
    """The run's last value and name at the right, and a line that leads from the curve's end to them."""
    y = min(1.0, max(0.0, y))
    aside = el(
        "svg",
        el("line", x1=8, y1=percent(y), x2=22, y2=percent(place), class_="lead"),
        el("svg", shape(mark), x=30, y=percent(place), class_="at"),
        el(
            "text",
            el("tspan", measured(series.curve.last), class_="value"),
            f" {shorten(series.name, _LABEL)}",
            x=41,
            y=percent(place),
            dy="0.35em",
        ),
        x="100%",
        class_="aside",
    )
    if x > 0.995:
        return [aside]
    return [
        el("line", x1=percent(x), x2="100%", y1=percent(y), y2=percent(y), class_="lead dotted"),
        aside,
    ]


def _label_places(series: Sequence[Series], axes: Axes) -> dict[str, float]:
    """A height for each label, as near to its curve's end as its neighbours let it be, top to bottom.

    First downward, each at least a line below the one above it; then from the bottom up, for what ran out.
    """
    wanted = sorted((min(1.0, max(0.0, axes.down(s.curve.points[-1]))), s.name) for s in series)
    centred = _centred([at for at, _ in wanted], _LABEL_GAP)
    shift = min(0.0, 1.02 - centred[-1]) if centred else 0.0
    return {name: at + shift for (_, name), at in zip(wanted, centred, strict=True)}


def _centred(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions at least `gap` apart, as near as can be to the ascending `wanted` (least squares).

    Labels that touch form a block, which stands where its members' wishes are in balance; blocks that come to
    touch are joined (the pool-adjacent-violators algorithm).
    """
    blocks: list[tuple[float, int]] = []  # the first label's position, how many labels
    for at in wanted:
        start, members = at, 1
        while blocks and blocks[-1][0] + blocks[-1][1] * gap > start:
            above, earlier = blocks.pop()
            total = earlier + members
            start = (above * earlier + (start - earlier * gap) * members) / total
            members = total
        blocks.append((start, members))
    return [start + i * gap for start, members in blocks for i in range(members)]


def percent(share: float) -> str:
    """A place in a picture, 0 to 1, as an attribute says it."""
    return "0" if math.isclose(share, 0, abs_tol=1e-6) else f"{100 * share:.2f}%"
