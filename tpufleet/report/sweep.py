"""What the sweep has found: a picture over the parameters, and the table of the grid's points, seeds taken together."""

from __future__ import annotations

from collections.abc import Sequence

from tpufleet.report.effects import effects
from tpufleet.report.grid import Axis, Point, axis, comparable, points, repeats, varying
from tpufleet.report.heat import MOST as MOST_CELLS, heat_map
from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.marks import key
from tpufleet.report.parallel import MOST_AXES, dots, parallel
from tpufleet.report.scale import Scale, span_of
from tpufleet.report.svg import percent
from tpufleet.report.table import run_link, scrolling
from tpufleet.report.text import count, measured, shorten
from tpufleet.report.view import View, main_metric

_MOST_ROWS = 40


def sweep(v: View) -> Child:
    """The section's content, for each sweep in it; None where nothing varies or nothing was measured."""
    parts = [(runs, part) for runs in comparable(v.runs) if (part := _one(v, runs))]
    if len(parts) > 1:
        return [[el("h3", _jobs(runs), class_="job"), part] for runs, part in parts]
    return parts[0][1] if parts else None


def _jobs(runs: Sequence[Run]) -> str:
    return ", ".join(sorted({run.job for run in runs}))


def _one(v: View, runs: Sequence[Run]) -> Child:
    """One sweep, by its own deciding metric."""
    names = varying(runs)
    main = main_metric(runs)
    if main is None or not names:
        return None
    grid = [name for name in names if not repeats(name)]
    found = points(runs, grid, main)
    if not any(point.results for point in found):
        return None
    counted = [run for point in found for run in point.counted]
    return [
        _picture(v, found, grid, main),
        _table(v, found, grid, main),
        effects(counted, grid, main),
        _left_out(found),
    ]


def _left_out(found: list[Point]) -> Child:
    """How many runs have a value that isn't compared, and why."""
    left = sum(len(point.runs) - len(point.counted) for point in found)
    if not left:
        return None
    return el("p", f"{count(left, 'run')} left out here: not done, or without a finite value.", class_="quiet")


def _picture(v: View, found: list[Point], grid: list[str], main: str) -> Child:
    runs = [run for point in found for run in point.counted]
    if not grid or len(runs) < 2:
        return None
    axes = [axis(runs, name) for name in grid]
    if len(grid) == 1:
        mean = "; the line is the mean" if any(len(point.results) > 1 for point in found) else ""
        caption = f" by {shorten(grid[0], 40)}{mean}."
        return _figure(main, caption, dots(v, found, grid[0], main))
    if len(grid) == 2 and max(len(each.values) for each in axes) <= MOST_CELLS:
        caption = f" by {shorten(axes[0].name, 40)} and {shorten(axes[1].name, 40)}; the darker, the lower."
        mean = ", mean over the seeds" if any(len(point.runs) > 1 for point in found) else ""
        return _figure(main, f"{mean}{caption}", heat_map(found, *_oriented(axes)))
    left = f" {len(grid) - MOST_AXES} further parameters are in the table of runs." if len(grid) > MOST_AXES else ""
    caption = f" by {count(min(len(grid), MOST_AXES), 'parameter')}, {count(len(runs), 'run')}; lower is better.{left}"
    drawn = el(
        "div", parallel(v, runs, grid, main), class_="frame bare", role="region", aria_label="Parallel coordinates"
    )
    return _figure(main, caption, drawn)


def _oriented(axes: Sequence[Axis]) -> tuple[Axis, Axis]:
    """Rows and columns: the one with fewer values across, where a phone is narrow."""
    first, second = axes
    return (first, second) if len(first.values) >= len(second.values) else (second, first)


def _figure(main: str, caption: str, picture: Child) -> Element:
    return el("figure", el("figcaption", el("b", main), caption), picture, class_="sweep")


def _table(v: View, found: list[Point], grid: list[str], main: str) -> Child:
    """Grouped by everything but the seed; None where that is the table of runs again."""
    if all(len(point.runs) == 1 for point in found):
        return None
    shown = [point for point in found[:_MOST_ROWS] if point.results]
    scale = span_of([value for point in shown for value in point.results])
    headings: list[Child] = [el("th", shorten(name, 24), scope="col", class_="n") for name in grid]
    headings += [el("th", name, scope="col", class_="n") for name in ("Runs", f"Mean {main}", "± sd", "Lowest")]
    headings.append(el("th", "Each run", scope="col", class_="strip"))
    head = el("thead", el("tr", headings))
    rows = [_row(v, point, main, scale, best=point is found[0]) for point in shown]
    left = sum(bool(point.results) for point in found) - len(shown)
    return [
        el("h3", "Grouped by everything but the seed", class_="over"),
        scrolling("Points of the grid", head, el("tbody", rows), class_="points"),
        el("p", f"{count(left, 'further point')} not shown.", class_="quiet") if left else None,
    ]


def _row(v: View, point: Point, main: str, scale: Scale, *, best: bool) -> Element:
    lowest = min(point.counted, key=lambda run: run.metrics[main])
    badge = el("span", "best ", class_="badge") if best else None
    return el(
        "tr",
        [el("td", shorten(value, 40), class_="n") for _, value in point.values],
        el("td", f"{len(point.results)}" if len(point.results) == len(point.runs) else _of(point), class_="n"),
        el("td", badge, el("b", measured(point.mean or 0.0)), class_="n"),
        el("td", "–" if point.sd is None else measured(point.sd), class_="n"),
        el("td", key(v.marks.get(lowest.id)), run_link(lowest, measured(min(point.results))), class_="n"),
        el("td", _strip(point, main, scale), class_="strip"),
        class_="best" if best else None,
    )


def _of(point: Point) -> str:
    return f"{len(point.results)} of {len(point.runs)}"


def _strip(point: Point, main: str, scale: Scale) -> Element:
    """The point's results on one line, all rows to the same scale, with a stroke at their mean."""

    def at(value: float) -> str:
        return percent(min(1.0, max(0.0, scale.at(value))))

    low, high, mean = at(min(point.results)), at(max(point.results)), at(point.mean or 0.0)
    return el(
        "svg",
        el("line", x1=low, x2=high, y1="50%", y2="50%"),
        [
            el(
                "circle",
                el("title", f"{run.id}: {measured(run.metrics[main])}"),
                cx=at(run.metrics[main]),
                cy="50%",
                r=3,
            )
            for run in point.counted
        ],
        el("line", x1=mean, x2=mean, y1="15%", y2="85%", class_="mean"),
        class_="strip",
        role="img",
        aria_label=f"from {measured(min(point.results))} to {measured(max(point.results))}",
    )
