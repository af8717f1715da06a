"""Curves over steps: pictures that need no script, and what the script draws from where one runs."""

from __future__ import annotations

from tpufleet.report.html import Child, Element, el
from tpufleet.report.marks import MOST, key
from tpufleet.report.svg import Series, chart, outside
from tpufleet.report.table import run_link
from tpufleet.report.text import count, measured
from tpufleet.report.view import View

_MOST_PICTURES = 12


def curves(v: View) -> Child:
    """The section's content. Scripts hide the pictures behind their own; on paper the pictures stay."""
    if not v.main and not v.others:
        return el("p", "No metrics came home.", class_="quiet") if v.runs else None
    small = _small_ones(v)
    return [
        el("div", id="live"),
        el(
            "div",
            _large(v, v.main) if v.main else None,
            el("div", [_small(v, name) for name in small], class_="pictures") if small else None,
            class_="static",
        ),
        _left_out(len(v.others) - len(small)),
    ]


def curves_data(v: View) -> dict[str, object]:
    """What `tpufleetCurves` wants: the deciding metric, the runs with their marks, and their curves' points."""
    drawn = [name for name in (v.main, *_small_ones(v)) if name]
    return {
        "main": v.main,
        "runs": {
            run.id: {"job": run.job, "state": run.state, "params": run.params, "mark": v.marks.get(run.id)}
            for run in v.runs
        },
        "curves": {
            run.id: {
                name: list(
                    zip(*((step, float(f"{value:.6g}")) for step, value in run.curves[name].points), strict=True)
                )
                for name in drawn
                if name in run.curves and run.curves[name].points
            }
            for run in v.runs
        },
    }


def _small_ones(v: View) -> tuple[str, ...]:
    return v.others[:_MOST_PICTURES]


def _large(v: View, metric: str) -> Element:
    series = _series(v, metric)
    grey = len(series) - sum(s.mark is not None for s in series)
    more = f" The best {MOST} are marked, the other {grey:,} are grey." if grey else ""
    above = f" {sentence}" if (sentence := outside(series)) else ""
    caption = el("figcaption", el("b", metric), f" over steps, {count(len(series), 'run')}.{more}{above}")
    return el("figure", caption, chart(metric, series, labels=True), _legend(v, metric), class_="large")


def _small(v: View, metric: str) -> Element:
    return el("figure", el("figcaption", el("b", metric)), chart(metric, _series(v, metric), labels=False))


def _series(v: View, metric: str) -> list[Series]:
    return [Series(run.id, run.curves[metric], v.marks.get(run.id)) for run in v.runs if metric in run.curves]


def _legend(v: View, metric: str) -> Element:
    """Names and last values below the picture, where the screen is too narrow for them beside it."""
    marked = [run for run in v.runs if run.id in v.marks and metric in run.metrics]
    items = [el("li", key(v.marks[r.id]), run_link(r), " ", el("b", measured(r.metrics[metric]))) for r in marked]
    return el("ul", items, class_="legend")


def _left_out(metrics: int) -> Child:
    if metrics <= 0:
        return None
    return el(
        "p", f"{count(metrics, 'further metric')} not drawn; the last values stand with each run.", class_="quiet"
    )
