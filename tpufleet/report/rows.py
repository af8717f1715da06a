"""What was collected as plain rows, for spreadsheets, data frames and other people's tools.

`run_rows` gives one row a run, `metric_rows` every point that a run wrote, thinned by nothing. Names and texts come
from hosts: control characters are shown as marks, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from tpufleet.host.places import RUN_ID
from tpufleet.report.load import Collection, Run
from tpufleet.report.metrics import TOTAL, read_points
from tpufleet.report.text import clean

Cell = str | int | float | bool | None
Row = dict[str, Cell]
MetricRow = tuple[str, str, float, float]

FIXED = ("id", "job", "state", "reason")  # the columns before a run's parameters and numbers, and those after
AFTER = ("step", "steps", "host", "chips", "commit", "dirty", "attempts", "started", "ended", "seconds")


def run_rows(collection: Collection) -> list[Row]:
    """One flat row a run, each with the same columns in the same order, None where a run has no such thing.

    `param.NAME` is text as the run was asked for; `last.NAME` is a metric's last value (NaN where the job wrote that),
    `min.NAME` its lowest finite one; times are RFC 3339 UTC, `seconds` is the time on a chip
    over all attempts that have ended.
    """
    rows = [_run_row(run) for run in collection.runs]
    columns = _columns(rows)
    return [{name: row.get(name) for name in columns} for row in rows]


def _run_row(run: Run) -> Row:
    steps = run.metrics.get(TOTAL)
    numbers = {name: value for name, value in run.metrics.items() if name != TOTAL}
    lowest = {name: curve.lowest[1] for name, curve in run.curves.items() if curve.lowest and name != TOTAL}
    return {
        "id": run.id,
        "job": clean(run.job),
        "state": clean(run.state),
        "reason": clean(run.reason) or None,
        **_named("param", {name: clean(value) for name, value in run.params.items()}),
        **_named("last", numbers),
        **_named("min", lowest),
        "step": run.step,
        "steps": int(steps) if steps is not None and math.isfinite(steps) else None,
        "host": clean(run.host),
        "chips": " ".join(map(clean, run.chips)),
        "commit": clean(run.commit) or None,
        "dirty": run.dirty,
        "attempts": len(run.attempts),
        "started": _moment(run.started),
        "ended": _moment(run.ended),
        "seconds": run.trained_for.total_seconds() if run.trained_for is not None else None,
        **_named("version", {name: clean(value) for name, value in run.versions.items()}),
    }


def _named(kind: str, values: Mapping[str, Cell]) -> Row:
    return {f"{kind}.{clean(name)}": value for name, value in values.items()}


def _columns(rows: Iterable[Row]) -> list[str]:
    """All rows' columns: those that every run has where they belong, the others in the order they turn up."""
    found = dict.fromkeys(name for row in rows for name in row)
    kinds = ("param.", "last.", "min.")
    middle = [name for kind in kinds for name in found if name.startswith(kind)]
    return [*FIXED, *middle, *AFTER, *(name for name in found if name.startswith("version."))]


def _moment(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def metric_rows(home: Path) -> Iterator[MetricRow]:
    """(run, metric, step, value) of every number below `home/runs`, by run, metric, step; broken lines are passed over.

    As in the curves of the report, a step that was passed already means that the run resumed: what it had written of
    that metric from there on is void. A value may be NaN or infinite where the job wrote that.
    """
    for directory in run_directories(home):
        for metric, points in read_points(directory / "metrics.jsonl").items():
            for step, value in points:
                yield directory.name, metric, step, value


def run_directories(home: Path) -> list[Path]:
    """The directories of runs below `home`, by name; anything else that lies there is passed over."""
    folder = home / "runs"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if RUN_ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink())
