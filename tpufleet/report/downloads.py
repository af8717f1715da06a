"""The files beside the page, for spreadsheets and programs: `runs.csv`, `metrics.csv`, `runs.json`."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import datetime

from tpufleet.report.load import Run
from tpufleet.report.metrics import Metrics
from tpufleet.report.rows import Cell, run_rows
from tpufleet.report.text import clean
from tpufleet.report.view import View

SCHEMA = 1
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_cell(cell: Cell) -> Cell:
    """A cell that no spreadsheet takes for a formula: text that begins like one, and is no number, is quoted."""
    if not isinstance(cell, str) or not cell.startswith(_FORMULA) or _is_number(cell):
        return cell
    return f"'{cell}"


def runs_csv(v: View) -> str:
    """A row a run, the columns as `run_rows` has them."""
    rows = run_rows(v.collection)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if rows:
        writer.writerow([safe_cell(name) for name in rows[0]])
    writer.writerows([safe_cell(cell) for cell in row.values()] for row in rows)
    return out.getvalue()


METRICS_HEAD = "run,metric,step,value\n"


def metric_lines(run: str, metrics: Metrics) -> str:
    """Every point of a run, as lines of a CSV file with the head `METRICS_HEAD`."""
    lines: list[str] = []
    steps: tuple[float, ...] = ()
    words: list[str] = []
    for metric, points in metrics.table().items():
        at, values = zip(*points, strict=True)
        if at != steps:  # a run's metrics mostly have the same ones
            steps, words = at, [str(int(step) if step.is_integer() else step) for step in map(float, at)]
        prefix = f"{_quoted(run)},{_quoted(metric)},"
        lines += [f"{prefix}{step},{value!r}\n" for step, value in zip(words, values, strict=True)]
    return "".join(lines)


def _quoted(text: str) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([safe_cell(text)])
    return out.getvalue()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def runs_json(v: View) -> str:
    """What the page says of each run, the best first, with the names that `--json` has for it."""
    told = {
        "schema": SCHEMA,
        "fleet": clean(v.collection.fleet),
        "metric": v.main,
        "best": v.best.id if v.best else None,
        "usd": round(v.cost.usd, 4) if v.collection.nodes else None,
        "runs": [_run(v, run) for run in v.runs],
    }
    return json.dumps(told, indent=1, allow_nan=False) + "\n"


def _run(v: View, run: Run) -> dict[str, object]:
    usd = v.cost.runs.get(run.id)
    return {
        "id": run.id,
        "job": clean(run.job),
        "params": _texts(run.params),
        "state": clean(run.state),
        "reason": clean(run.reason) or None,
        "host": clean(run.host) or None,
        "chips": [clean(chip) for chip in run.chips],
        "commit": clean(run.commit) or None,
        "dirty": run.dirty,
        "command": [clean(word) for word in run.command],
        "attempts": [
            {
                "n": attempt.number,
                "host": clean(attempt.host) or None,
                "chips": [clean(chip) for chip in attempt.chips],
                "started": _moment(attempt.started),
                "ended": _moment(attempt.ended),
                "exit_code": attempt.exit_code,
                "reason": clean(attempt.reason) or None,
            }
            for attempt in run.attempts
        ],
        "step": run.step,
        "metrics": {clean(name): value if math.isfinite(value) else None for name, value in run.metrics.items()},
        "resumed_from": clean(run.resumed_from) or None,
        "versions": _texts(run.versions),
        "facts": _texts(run.facts),
        "seconds": run.trained_for.total_seconds() if run.trained_for is not None else None,
        "usd": None if usd is None else round(usd, 4),
        "checkpoints": [
            {
                "step": checkpoint.step,
                "problem": clean(checkpoint.problem) or None,
                "files": [
                    {"path": clean(file.path), "size": file.size, "sha256": clean(file.sha256)}
                    for file in checkpoint.files
                ],
            }
            for checkpoint in run.checkpoints
        ],
    }


def _texts(values: dict[str, str]) -> dict[str, str]:
    return {clean(name): clean(value) for name, value in values.items()}


def _moment(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")
