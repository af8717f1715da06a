"""Two parameters of a sweep as a heat map: a table whose cells are the darker the better their point did."""

from __future__ import annotations

from tpufleet.report.grid import Axis, Point, level
from tpufleet.report.html import Element, el
from tpufleet.report.table import scrolling
from tpufleet.report.text import count, measured, shorten

MOST = 30  # values of one parameter; beyond that a table says less than a picture
_LONG = 24


def heat_map(points: list[Point], down: Axis, across: Axis) -> Element:
    """The mean of each point, `down`'s values as rows and `across`'s as columns; the best point has a frame.

    `points` come in their order, the best first, and at least one of them has a mean.
    """
    means = [point.mean for point in points if point.mean is not None]
    cells = {(point.value(down.name), point.value(across.name)): point for point in points}
    best = points[0]
    corner = el(
        "th", shorten(down.name, _LONG), " ↓  ", shorten(across.name, _LONG), " →", scope="col", class_="corner"
    )
    head = el("tr", corner, [el("th", shorten(value, _LONG), scope="col") for value in across.values])
    rows = [
        el(
            "tr",
            el("th", shorten(row, _LONG), scope="row"),
            [_cell(cells.get((row, column)), means, best) for column in across.values],
        )
        for row in down.values
    ]
    return scrolling(
        f"Heat map over {down.name} and {across.name}", el("thead", head), el("tbody", rows), class_="heat"
    )


def _cell(point: Point | None, means: list[float], best: Point) -> Element:
    if point is None:
        return el("td", "·", class_="none")
    if point.mean is None:
        return el("td", "–", class_="none", title=f"{count(len(point.runs), 'run')}, none that counts")
    spread = el("small", f"± {measured(point.sd)}") if point.sd is not None else None
    classes = f"h{level(point.mean, means)}{' best' if point is best else ''}"
    badge = el("span", "best ", class_="badge") if point is best else None
    return el("td", badge, el("b", measured(point.mean)), spread, class_=classes)
