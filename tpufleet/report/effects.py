"""What each parameter does by itself: for each of its values, the mean of all that was measured in the runs with it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tpufleet.report.grid import axis, value_of
from tpufleet.report.html import Child, Element, el
from tpufleet.report.load import Run
from tpufleet.report.table import scrolling
from tpufleet.report.text import measured, shorten
from tpufleet.report.view import best_value, columns

_MOST_VALUES = 12
_MOST_METRICS = 9


def effects(runs: Sequence[Run], names: Sequence[str], main: str) -> Child:
    """A table with a row for each value of each of `names`; None where it would say nothing.

    Of several parameters those count whose values are shared by runs: in a full grid all else evens out, but where each
    run has a value of its own nothing does.
    """
    most = min(_MOST_VALUES, len(runs) // 2) if len(names) > 1 else _MOST_VALUES
    told = [name for name in names if 2 <= len({value_of(run, name) for run in runs}) <= most]
    metrics = columns(runs, main)[:_MOST_METRICS]
    if not told or len(metrics) < 2:
        return None
    headings: list[Child] = [el("th", name, scope="col") for name in ("Parameter", "Value")]
    headings += [el("th", name, scope="col", class_="n") for name in ("Runs", *metrics)]
    body = [_rows(runs, name, metrics) for name in told]
    title = "Each parameter by itself" if len(told) > 1 else f"All that was measured, by {shorten(told[0], 40)}"
    return [
        el("h3", title, class_="over"),
        el("p", "The last values; of several runs their mean.", class_="quiet"),
        scrolling("Parameters by themselves", el("thead", el("tr", headings)), el("tbody", body), class_="effects"),
    ]


def _rows(runs: Sequence[Run], name: str, metrics: Sequence[str]) -> list[Element]:
    groups = {value: [run for run in runs if value_of(run, name) == value] for value in axis(runs, name).values}
    means = {metric: [_mean(members, metric) for members in groups.values()] for metric in metrics}
    bests = {metric: best_value(metric, found) for metric, found in means.items()}
    first = el("th", shorten(name, 24), scope="rowgroup", rowspan=len(groups))
    return [
        el(
            "tr",
            first if number == 0 else None,
            el("td", shorten(value, 40)),
            el("td", str(len(members)), class_="n"),
            [_cell(means[metric][number], bests[metric]) for metric in metrics],
        )
        for number, (value, members) in enumerate(groups.items())
    ]


def _mean(runs: Sequence[Run], metric: str) -> float:
    """NaN where no run has a finite value; the largest floats would overflow in a sum."""
    values = [value for run in runs if abs(value := run.metrics.get(metric, math.nan)) < 1e150]
    return statistics.fmean(values) if values else math.nan


def _cell(mean: float, best: float | None) -> Element:
    if math.isnan(mean):
        return el("td", "–", class_="n")
    return el("td", el("b", measured(mean)) if mean == best else measured(mean), class_="n")
