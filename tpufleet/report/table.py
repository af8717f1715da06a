"""The table of runs: one row each, the best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.marks import key
from tpufleet.report.text import clock, duration, measured, number, shorten, size
from tpufleet.report.view import View, best_of, param_names

_SYMBOLS = {"done": "✓", "running": "▸", "recovering": "↻", "queued": "…", "stopped": "■", "failed": "✕"}
_MOST_PARAMS = 12
_MOST_METRICS = 9
_AT_ONCE = 100  # rows that are in the page from the start


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading and its cells' class: `n` for numbers, which stand right."""

    heading: str
    class_: str | None = None


def runs_table(v: View) -> Child:
    """The table in a container of its own that scrolls, so that the page never does sideways; a long one in two parts,
    of which a script makes one when that is wanted."""
    params = param_names(v.collection.runs)[:_MOST_PARAMS]
    metrics = v.columns[:_MOST_METRICS]
    columns = [
        Column("Run"),
        Column("State"),
        *(Column(name, "n") for name in params),
        Column("Step", "n"),
        *(Column(name, "n") for name in metrics),
        *map(Column, ("Chip", "Host", "Commit", "Started (UTC)")),
        *(Column(name, "n") for name in ("Duration", "Attempts", "Checkpoints")),
        *([Column("Cost", "n")] if v.cost.runs else []),
    ]
    bests = {name: best_of(v.runs, name) for name in metrics}
    dated = len({run.started.date() for run in v.runs if run.started}) > 1  # one day stands in the page's head
    rows = [_row(v, run, params, bests, dated=dated) for run in v.runs]
    head = el("thead", el("tr", [el("th", c.heading, scope="col", class_=c.class_) for c in columns]))
    first = scrolling("Runs", head, el("tbody", rows[:_AT_ONCE]), class_="runs sortable")
    if len(rows) <= _AT_ONCE:
        return first
    return [first, in_time(scrolling("Further runs", head, el("tbody", rows[_AT_ONCE:]), class_="runs"), lazy=True)]


def scrolling(label: str, *parts: Child, class_: str | None = None) -> Element:
    """A table that scrolls within its own frame, by keyboard too."""
    return el("div", el("table", *parts, class_=class_), class_="frame", role="region", aria_label=label, tabindex=0)


def state(run: Run) -> list[Child]:
    """A run's state with a symbol and a colour, and the reason, if any."""
    known = run.state in _SYMBOLS
    return [
        el("span", f"{_SYMBOLS.get(run.state, '?')} {run.state}", class_=f"state {run.state if known else ''}".strip()),
        el("small", run.reason, class_="reason") if run.reason else None,
    ]


def in_time(shown: Child, lazy: bool) -> Child:
    """`shown`; where there is much of it and scripts run, one of them puts it in when it's wanted."""
    return el("noscript", shown, class_="lazy") if lazy else shown


def run_link(run: Run, words: str | None = None) -> Element:
    """A run's name, or other `words`, as a link to its part of the page. (Its id is a safe name, and so a safe
    anchor.)"""
    return el("a", words or run.id, href=f"#run-{run.id}")


def commit(run: Run, length: int = 9) -> list[Child]:
    """The first characters of the commit, and whether the tree had changes that are in no commit."""
    if not run.commit:
        return ["–"]
    dirty = el("span", "+ changes", class_="dirty", title="uncommitted changes were part of the code")
    return [el("code", run.commit[:length]), [" ", dirty] if run.dirty else None]


def _row(v: View, run: Run, params: Sequence[str], bests: Mapping[str, float | None], *, dated: bool) -> Element:
    """A run's row. `data-v` is what a cell is sorted by where that isn't its text."""
    best = run is v.best
    name = el("span", key(v.marks.get(run.id)), run_link(run), class_="name")
    lasted = run.trained_for
    return el(
        "tr",
        el("th", name, scope="row"),
        el("td", state(run)),
        [el("td", shorten(run.params.get(p, "–"), 40), class_="n") for p in params],
        _number("–" if run.step is None else number(run.step), run.step),
        [_metric(run, name, best=value) for name, value in bests.items()],
        el("td", ", ".join(run.chips) or "–"),
        el("td", run.host or "–"),
        el("td", commit(run)),
        el("td", _started(run, dated=dated)),
        _number(duration(lasted), round(lasted.total_seconds())) if lasted is not None else _number("–", None),
        _number(number(len(run.attempts)), len(run.attempts)),
        _number(_checkpoints(run), len(run.checkpoints)),
        _number(f"${run_cost:,.2f}" if (run_cost := v.cost.runs.get(run.id)) is not None else "–", run_cost)
        if v.cost.runs
        else None,
        class_="best" if best else None,
        data_run=run.id,
    )


def _number(words: str, value: float | None) -> Element:
    return el("td", words, class_="n", data_v=value)


def _metric(run: Run, name: str, *, best: float | None) -> Element:
    value = run.metrics.get(name)
    if value is None:
        return _number("–", None)
    badge = el("span", "best ", class_="badge") if value == best else None
    return el("td", badge, measured(value), class_="n", data_v=value if math.isfinite(value) else None)


def _started(run: Run, *, dated: bool) -> str:
    if run.started is None:
        return "–"
    return clock(run.started) if dated else f"{run.started:%H:%M:%S}"


def _checkpoints(run: Run) -> str:
    if not run.checkpoints:
        return "–"
    return f"{len(run.checkpoints)} · {size(sum(c.size for c in run.checkpoints))}"
