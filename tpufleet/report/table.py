"""The table of runs: one row each, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.marks import key
from tpufleet.report.text import clock, duration, measured, number, shorten, size
from tpufleet.report.view import View, param_names

_SYMBOLS = {"done": "✓", "running": "▸", "recovering": "↻", "queued": "…", "stopped": "■", "failed": "✕"}
_MOST_PARAMS = 12
_MOST_METRICS = 6


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading and its cells' class: `n` for numbers, which stand right."""

    heading: str
    class_: str | None = None


def runs_table(v: View) -> Element:
    """The table in a container of its own that scrolls, so that the page never does sideways."""
    params = param_names(v.collection.runs)[:_MOST_PARAMS]
    metrics = [name for name in (v.main, *v.others) if name][:_MOST_METRICS]
    columns = [
        Column("Run"),
        Column("State"),
        *(Column(name, "n") for name in params),
        Column("Step", "n"),
        *(Column(name, "n") for name in metrics),
        *map(Column, ("Chip", "Host", "Commit", "Started (UTC)")),
        *(Column(name, "n") for name in ("Duration", "Attempts", "Checkpoints")),
    ]
    dated = len({run.started.date() for run in v.runs if run.started}) > 1  # one day stands in the page's head
    rows = [_row(v, run, params, metrics, dated=dated) for run in v.runs]
    return scrolling(
        "Runs",
        el("thead", el("tr", [el("th", c.heading, scope="col", class_=c.class_) for c in columns])),
        el("tbody", rows),
        class_="runs",
    )


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


def run_link(run: Run) -> Element:
    """A run's name as a link to its part of the page. (Its id is a safe name, and so a safe anchor.)"""
    return el("a", run.id, href=f"#run-{run.id}")


def commit(run: Run, length: int = 9) -> list[Child]:
    """The first characters of the commit, and whether the tree had changes that are in no commit."""
    if not run.commit:
        return ["–"]
    dirty = el("span", "+ changes", class_="dirty", title="uncommitted changes were part of the code")
    return [el("code", run.commit[:length]), [" ", dirty] if run.dirty else None]


def _row(v: View, run: Run, params: Sequence[str], metrics: Sequence[str], *, dated: bool) -> Element:
    best = run is v.best
    name = el("span", key(v.marks.get(run.id)), run_link(run), class_="name")
    return el(
        "tr",
        el("th", name, scope="row"),
        el("td", state(run)),
        [el("td", shorten(run.params.get(p, "–"), 40), class_="n") for p in params],
        el("td", "–" if run.step is None else number(run.step), class_="n"),
        [_metric(run, name, best=best and name == v.main) for name in metrics],
        el("td", ", ".join(run.chips) or "–"),
        el("td", run.host or "–"),
        el("td", commit(run)),
        el("td", _started(run, dated=dated)),
        el("td", duration(run.trained_for) if run.trained_for is not None else "–", class_="n"),
        el("td", number(len(run.attempts)), class_="n"),
        el("td", _checkpoints(run), class_="n"),
        class_="best" if best else None,
    )


def _metric(run: Run, name: str, *, best: bool) -> Element:
    value = run.metrics.get(name)
    if value is None:
        return el("td", "–", class_="n")
    return el("td", el("span", "best ", class_="badge") if best else None, measured(value), class_="n")


def _started(run: Run, *, dated: bool) -> str:
    if run.started is None:
        return "–"
    return clock(run.started) if dated else f"{run.started:%H:%M:%S}"


def _checkpoints(run: Run) -> str:
    if not run.checkpoints:
        return "–"
    return f"{len(run.checkpoints)} · {size(sum(c.size for c in run.checkpoints))}"
