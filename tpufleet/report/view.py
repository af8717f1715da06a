"""What the page says about all runs together: which metric decides, who is best, which mark is whose."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpufleet.report.cost import Cost, cost_of
from tpufleet.report.load import Collection, Run
from tpufleet.report.marks import MOST
from tpufleet.report.metrics import TOTAL
from tpufleet.report.text import count, duration, measured, number

_STATES = ("done", "running", "recovering", "queued", "stopped", "failed")
PREFERRED = "test_loss"
FACTS = frozenset({TOTAL, "compilations", "compile_seconds"})  # said in records beside the metrics; no curves
_LOWER = re.compile(r"loss|error|perplexity|ppl|nll|seconds|latency|compilations|(?:^|_)ms(?:_|$)", re.IGNORECASE)
_HIGHER = re.compile(r"acc|score|reward|bleu|f1|per_second|throughput", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class View:
    """The collection as the page needs it.

    `runs` are ranked, the best first; `main` is the deciding metric, if there is one; `others` are further
    metrics that have curves; `columns` are those that stand in a table of runs; `marks` gives the runs that have a
    mark of their own its index; `cost` is what the nodes' time is worth.
    """

    collection: Collection
    runs: tuple[Run, ...]
    main: str | None
    others: tuple[str, ...]
    columns: tuple[str, ...]
    best: Run | None
    marks: dict[str, int]
    cost: Cost


def view(collection: Collection) -> View:
    main = main_metric(collection.runs)
    ranked = tuple(sorted(collection.runs, key=lambda run: _rank(run, main)))  # stable: then by id
    best = ranked[0] if ranked and math.isfinite(_rank(ranked[0], main)) else None
    marked = collection.runs if len(collection.runs) <= MOST else ranked[:MOST]
    return View(
        collection=collection,
        runs=ranked,
        main=main,
        others=tuple(name for name in _metrics(collection.runs) if name != main and _moves(collection.runs, name)),
        columns=columns(collection.runs, main),
        best=best,
        marks={run.id: index for index, run in enumerate(marked)},
        cost=cost_of(collection.nodes, collection.runs),
    )


def main_metric(runs: Sequence[Run]) -> str | None:
    """The deciding metric of these runs: the one to rank them by, the lowest first; None where there is no such."""
    return deciding(_metrics(runs))


def deciding(names: Sequence[str]) -> str | None:
    """`test_loss` where it is among `names`, else the first with "loss" in it, else the first that is the better the
    lower, by its name."""
    if PREFERRED in names:
        return PREFERRED
    losses = (name for name in names if "loss" in name.lower())
    return next(losses, next((name for name in names if name not in FACTS and _LOWER.search(name)), None))


def columns(runs: Sequence[Run], main: str | None) -> tuple[str, ...]:
    """What a table says of each of `runs`: `main`, and in their order the metrics that moved in one of them, or in
    which they differ."""
    names = dict.fromkeys(name for run in runs for name in run.metrics if name not in (TOTAL, main))
    told = (name for name in names if _moves(runs, name) or _differs(runs, name))
    return (*([main] if main else []), *told)


def param_names(runs: Iterable[Run]) -> list[str]:
    """Every parameter of any run, in the order in which the runs name them."""
    return list(dict.fromkeys(name for run in runs for name in run.params))


def best_of(runs: Iterable[Run], metric: str) -> float | None:
    """The best last value of a metric; see `best_value`."""
    return best_value(metric, [run.metrics.get(metric, math.nan) for run in runs])


def best_value(metric: str, values: Iterable[float]) -> float | None:
    """The best of `values`, by what the metric's name says of the direction; None where it says nothing, or where there
    is nothing to compare."""
    finite = [value for value in values if math.isfinite(value)]
    if len(set(finite)) < 2 or not (_LOWER.search(metric) or _HIGHER.search(metric)):
        return None
    return min(finite) if _LOWER.search(metric) else max(finite)


def headline(v: View) -> str:
    """`8 runs on 8 chips of 2 nodes: 8 done.`"""
    runs = v.collection.runs
    if not runs:
        return "No runs came home."
    chips = {chip for run in runs for chips in (run.chips, *(a.chips for a in run.attempts)) for chip in chips}
    nodes = {node_of(chip) for chip in chips}
    where = f" on {count(len(chips), 'chip')} of {count(len(nodes), 'node')}" if chips else ""
    states = Counter(run.state if run.state in _STATES else "unknown" for run in runs)
    parts = [f"{states[state]:,} {state}" for state in (*_STATES, "unknown") if states[state]]
    return f"{count(len(runs), 'run')}{where}: {', '.join(parts)}."


def node_of(chip: str) -> str:
    """The node of a chip's full name: `tpu-0` of `tpu-0-w0:3`."""
    return re.sub(r"-w\d+$", "", chip.rsplit(":", 1)[0])


def winner(v: View) -> tuple[str, Run] | None:
    """`Best test_loss 1.787 at step 2,000`, and whose it is."""
    if v.best is None or v.main is None:
        return None
    curve = v.best.curves.get(v.main)
    at = f" at step\u00a0{number(curve.points[-1][0])}" if curve and curve.points else ""
    return f"Best {v.main} {measured(v.best.metrics[v.main])}{at}", v.best


def when(v: View) -> str:
    """`2026-11-21, 04:08 to 04:13 UTC (5 min 12 s)`, or nothing when no time is known."""
    started = min((run.started for run in v.runs if run.started), default=None)
    ended = max((run.ended for run in v.runs if run.ended), default=None)
    if started is None:
        return ""
    if ended is None or ended < started:
        return f"since {started:%Y-%m-%d %H:%M} UTC"
    until = f"{ended:%H:%M}" if ended.date() == started.date() else f"{ended:%Y-%m-%d %H:%M}"
    return f"{started:%Y-%m-%d %H:%M} to {until} UTC ({duration(ended - started)})"


def concerns(v: View) -> list[tuple[str, Run | None]]:
    """What a person should know before they believe the page, in sentences, each with the run it is about."""
    found: list[tuple[str, Run | None]] = [(note, None) for note in v.collection.notes]
    for run in v.collection.runs:
        reason = f": {run.reason}" if run.reason else ""
        if run.state in ("failed", "stopped"):
            found.append((f"{run.state}{reason}.{_explained(run)}", run))
        elif run.state not in _STATES:
            found.append(("came home without a state that is known.", run))
        elif run.state != "done":
            found.append((f"had not ended when this was collected; it was {run.state}{reason}.{_explained(run)}", run))
        found += [(note, run) for note in run.notes]
        found += [(f"checkpoint {number(c.step)}: {c.problem}.", run) for c in run.checkpoints if c.problem]
    return found


def _explained(run: Run) -> str:
    """What the first message in the log that is known means, and what mends it."""
    return f" Its log says that {run.troubles[0].sentence}" if run.troubles else ""


def _rank(run: Run, metric: str | None) -> float:
    value = run.metrics.get(metric, math.nan) if metric else math.nan
    return value if math.isfinite(value) else math.inf


def _metrics(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.metrics if name not in FACTS))


def _differs(runs: Iterable[Run], metric: str) -> bool:
    """Whether the runs' last values of `metric` differ."""
    return len({run.metrics[metric] for run in runs if metric in run.metrics}) > 1


def _moves(runs: Iterable[Run], metric: str) -> bool:
    """Whether any run's curve of `metric` has two different values; a count of parameters has not."""
    curves = (run.curves[metric] for run in runs if metric in run.curves)
    return any(len({value for _, value in curve.points}) > 1 for curve in curves)
