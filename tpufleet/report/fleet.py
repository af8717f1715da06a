"""The fleet's part of the page: its timeline as a picture, and what its time would cost."""

from __future__ import annotations

from datetime import datetime

from tpufleet.report.cost import Cost
from tpufleet.report.html import Child, Element, el
from tpufleet.report.marks import colour_class
from tpufleet.report.svg import percent
from tpufleet.report.text import clock, count, duration, shorten
from tpufleet.report.timeline import DONE, FAILED, GOING, INTERRUPTED, STOPPED, Bar, Row, Timeline, ticks, timeline
from tpufleet.report.view import View

_ROW = 20  # pixels of a chip's row
_LANE = 7
_LONG = 22
_ENDS = {
    INTERRUPTED: ("M1-7L-4 1H0L-1 7L4-1H0z", "preempted, rebooted or lost"),
    FAILED: ("M-3.5-5L0-1.5L3.5-5L5-3.5L1.5 0L5 3.5L3.5 5L0 1.5L-3.5 5L-5 3.5L-1.5 0L-5-3.5z", "failed"),
    STOPPED: ("M-3.5-3.5h7v7h-7z", "stopped"),
    GOING: ("M-3-5L5 0L-3 5z", "had not ended"),
}


def fleet_time(v: View) -> Child:
    """The picture and the sums; None where no attempt has begun."""
    line = timeline(v.runs, v.collection.nodes)
    if line is None:
        return None
    return [_picture(v, line), _cost(v)]


def _picture(v: View, line: Timeline) -> Element:
    heights = [_ROW if row.lanes == 1 else row.lanes * _LANE + 8 for row in line.rows]
    tops = [sum(heights[:i]) for i in range(len(heights))]
    total = sum(heights)
    used = {bar.ending for row in line.rows for bar in row.bars} - {DONE}
    marks = [(at, word) for at, word in ticks(line.start, line.end) if line.at(at) < 0.97]
    placed = list(zip(line.rows, tops, heights, strict=True))
    plot = el(
        "svg",
        [_life(line, *life, top, height) for row, top, height in placed for life in row.lives],
        [
            el("g", el("line", x1=x, x2=x, y1=0, y2=total), el("text", word, x=x, y=total, dy="1.4em", class_="column"))
            for x, word in ((percent(line.at(at)), word) for at, word in marks)
        ],
        [_row(v, line, row, top, height) for row, top, height in placed],
        class_="plot",
        height=total,
        role="img",
        aria_label=f"{count(len(line.rows), 'row')} from {clock(line.start)} to {clock(line.end)} UTC",
    )
    caption = el(
        "figcaption",
        el("b", "Which chip did what"),
        f", {clock(line.start)} to {clock(line.end)} UTC ({duration(line.end - line.start)}).",
        f" {count(line.left_out, 'further host')} not drawn." if line.left_out else None,
    )
    legend = [el("li", _end_key(name), words) for name, (_, words) in _ENDS.items() if name in used]
    legend += [el("li", el("span", class_="band"), "the node was there")] if v.collection.nodes else []
    return el(
        "figure",
        caption,
        el(
            "div",
            el("div", plot, class_="chart timeline"),
            class_="tall",
            role="region",
            aria_label="Timeline",
            tabindex=0,
        ),
        el("ul", legend, class_="ends") if legend else None,
    )


def _row(v: View, line: Timeline, row: Row, top: int, height: int) -> Element:
    return el(
        "g",
        el("text", shorten(row.name, _LONG), x=-8, y=top + height / 2, dy="0.35em", class_="row"),
        [_bar(v, line, bar, top, height if row.lanes == 1 else None) for bar in row.bars],
    )


def _life(line: Timeline, start: datetime, end: datetime, top: int, height: int) -> Element:
    left, width = line.at(start), line.at(end) - line.at(start)
    return el("rect", x=percent(left), y=top + 1, width=percent(width), height=height - 2, class_="band")


def _end_key(name: str) -> Element:
    path = el("path", d=_ENDS[name][0], class_=f"end {name}")
    return el("svg", path, class_="key", viewBox="-8 -8 16 16", width=12, height=12, aria_hidden="true")


def _bar(v: View, line: Timeline, bar: Bar, top: int, height: int | None) -> Element:
    """A chip's bar fills its row; a lane's bar its lane."""
    y, tall = (top + 4, height - 8) if height else (top + 4 + bar.lane * _LANE, _LANE - 1)
    left, right = line.at(bar.start), line.at(bar.end)
    number = f", attempt {bar.attempt.number}" if len(bar.run.attempts) > 1 else ""
    until = clock(bar.end)[11:] if bar.attempt.ended else "had not ended"
    said = f"{bar.run.id}{number}: {clock(bar.start)} to {until}"
    said += f", {bar.attempt.reason}" if bar.attempt.reason else ""
    return el(
        "g",
        el("title", said),
        el("rect", x=percent(left), y=y, width=percent(right - left), height=tall, rx=2),
        _end(bar.ending, percent(right), y + tall / 2),
        class_=f"run {colour_class(v.marks.get(bar.run.id))}",
        data_run=bar.run.id,
    )


def _end(ending: str, x: str, y: float) -> Child:
    if ending not in _ENDS:
        return None
    return el("svg", el("path", d=_ENDS[ending][0], class_=f"end {ending}"), x=x, y=y, class_="at")


def _cost(v: View) -> Child:
    if not v.collection.nodes:
        return None
    cost = v.cost
    pairs: list[tuple[str, Child]] = [
        ("Nodes", f"{count(len(v.collection.nodes), 'node')}, {cost.node_hours:,.1f} node-hours"),
        ("Chips", f"{cost.chip_hours:,.1f} chip-hours"),
        ("Idle", "–" if cost.idle is None else f"{100 * cost.idle:.0f} % of the chips' time had no run"),
        ("Cost", [el("b", usd(cost)), " at list prices: not a bill"]),
    ]
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in pairs], class_="sums")


def usd(cost: Cost) -> str:
    """The total in words."""
    if cost.unpriced and not cost.usd:
        return "unknown"
    beside = f", and {count(cost.unpriced, 'node')} of unknown price" if cost.unpriced else ""
    return f"{dollars(cost.usd)}{beside}"


def dollars(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}"
