"""What came home as pandas data frames, for a notebook: `tpufleet.load("artifacts/sherlock").runs`.

Needs the extra `notebook`. The frames are plain: one row a run, a point, a completion, a file of a checkpoint, an
attempt, a node; times are UTC, whole numbers stay whole where some are missing.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpufleet.errors import StateError, UsageError
from tpufleet.report.artifacts import read_completions
from tpufleet.report.load import Collection, load as collected
from tpufleet.report.metrics import read_points
from tpufleet.report.records import as_count, as_list, as_number, as_record, as_text, read_json
from tpufleet.report.rows import AFTER, FIXED, run_directories, run_rows
from tpufleet.report.text import clean

if TYPE_CHECKING:
    from pandas import DataFrame

ALL = 1 << 40  # of a run's completions
MARKS = ("runs.json", "runs", "nodes.json")  # by any of which a fleet's folder is known

TEXT, WHOLE, NUMBER, TRUTH, TIME, NAME = "string", "Int64", "float64", "boolean", "time", "category"
NODE = {
    **{"name": TEXT, "id": TEXT, "zone": TEXT, "accelerator": TEXT, "spot": TRUTH},
    **{"created": TIME, "seen": TIME, "gone": TIME, "hosts": TEXT, "chips_per_host": WHOLE, "usd_per_hour": NUMBER},
}
ATTEMPT = {
    **{"run": NAME, "n": WHOLE, "host": TEXT, "chips": TEXT, "started": TIME, "ended": TIME},
    **{"seconds": NUMBER, "exit_code": WHOLE, "reason": TEXT},
}
CHECKPOINT = {
    **{"run": NAME, "step": WHOLE, "file": TEXT, "size": WHOLE, "sha256": TEXT, "path": TEXT, "problem": TEXT},
}
COMPLETION = {"run": NAME, "step": WHOLE, "prompt": TEXT, "text": TEXT}
METRIC = {"run": NAME, "metric": NAME, "step": WHOLE, "value": NUMBER}
NO_RUNS = (*FIXED, *AFTER)
RUN = {
    **dict.fromkeys(("step", "steps", "attempts"), WHOLE),
    **dict.fromkeys(("started", "ended"), TIME),
    **{"dirty": TRUTH, "seconds": NUMBER},
}


def load(path: str | Path = "artifacts") -> Results:
    """The results below `path`: a fleet's folder (`artifacts/sherlock`), or one that holds a single fleet's.

    Raises UsageError where pandas is missing, StateError where there are no results, each in one sentence.
    """
    _pandas()
    return Results(_home(Path(path)))


@dataclass(frozen=True)
class Results:
    """One fleet's results. Each frame is read from the files when it is asked for, and once."""

    home: Path

    @functools.cached_property
    def runs(self) -> DataFrame:
        """A row a run: id, job, state, reason, `param.NAME`, `last.NAME`, `min.NAME`, step, host, times, versions."""
        rows = run_rows(self._collection)
        kinds = {
            name: RUN.get(name) or _kind(name, [row[name] for row in rows]) for name in (rows[0] if rows else NO_RUNS)
        }
        return _frame(rows, kinds)

    @functools.cached_property
    def metrics(self) -> DataFrame:
        """Every point that was written: run, metric, step, value. `.pivot(index="step", …)` makes it wide."""
        names: list[tuple[str, str, int]] = []
        steps: list[float] = []
        values: list[float] = []
        for directory in run_directories(self.home):
            for metric, points in read_points(directory / "metrics.jsonl").items():
                names.append((directory.name, metric, len(points)))
                steps += (step for step, _ in points)
                values += (value for _, value in points)
        frame = _pandas().DataFrame(
            {
                "run": _repeated([(run, count) for run, _, count in names]),
                "metric": _repeated([(metric, count) for _, metric, count in names]),
                "step": steps,
                "value": values,
            }
        )
        return _typed(frame, METRIC)

    @functools.cached_property
    def completions(self) -> DataFrame:
        """What the models wrote after each prompt: run, step, prompt, text."""
        rows = [
            {"run": directory.name, "step": said.step, "prompt": clean(said.prompt), "text": clean(said.text)}
            for directory in run_directories(self.home)
            for said in read_completions(directory / "completions.jsonl", ALL, [])
        ]
        return _frame(rows, COMPLETION)

    @functools.cached_property
    def checkpoints(self) -> DataFrame:
        """A row a file: run, step, file, size, sha256 and `path`, ready for `torch.load`; `problem` where one isn't as
        its manifest says."""
        rows: list[dict[str, object]] = []
        for run in self._collection.runs:
            folder = self.home / "runs" / run.id / "checkpoints"
            for point in run.checkpoints:
                for file in point.files:
                    path = folder / f"step-{point.step:08}" / file.path
                    here = str(path) if not point.problem and path.is_file() else None
                    shown = {"file": clean(file.path), "size": file.size, "sha256": clean(file.sha256), "path": here}
                    rows.append({"run": run.id, "step": point.step, **shown, "problem": clean(point.problem) or None})
        return _frame(rows, CHECKPOINT)

    @functools.cached_property
    def attempts(self) -> DataFrame:
        """Every start of every run: run, n, host, chips, started, ended, seconds, exit_code, reason."""
        rows = [
            {
                "run": run.id,
                "n": attempt.number,
                "host": clean(attempt.host),
                "chips": " ".join(map(clean, attempt.chips)),
                "started": attempt.started,
                "ended": attempt.ended,
                "seconds": (attempt.ended - attempt.started).total_seconds()
                if attempt.started and attempt.ended
                else None,
                "exit_code": attempt.exit_code,
                "reason": clean(attempt.reason) or None,
            }
            for run in self._collection.runs
            for attempt in run.attempts
        ]
        return _frame(rows, ATTEMPT)

    @functools.cached_property
    def nodes(self) -> DataFrame:
        """Every node that the fleet has had: name, zone, accelerator, times, hosts, price."""
        listed = as_list(as_record(read_json(self.home / "nodes.json")).get("nodes"))
        return _frame([_node(as_record(item)) for item in listed], NODE)

    @property
    def notes(self) -> tuple[str, ...]:
        """In sentences, what could not be read."""
        collection = self._collection
        return (*collection.notes, *(f"{run.id}: {note}" for run in collection.runs for note in run.notes))

    @functools.cached_property
    def _collection(self) -> Collection:
        return collected(self.home)


def _node(record: Mapping[str, object]) -> dict[str, object]:
    spot, price = record.get("spot"), as_number(record.get("usd_per_hour"))
    texts = {name: clean(as_text(record.get(name))) for name, kind in NODE.items() if kind in (TEXT, TIME)}
    hosts = " ".join(clean(as_text(host)) for host in as_list(record.get("hosts")))
    chips = as_count(record.get("chips_per_host"))
    return {**texts, "spot": spot is True, "hosts": hosts, "chips_per_host": chips, "usd_per_hour": price}


def _home(path: Path) -> Path:
    """The one fleet's folder that `path` is or holds."""
    if any((path / name).exists() for name in MARKS):
        return path
    inside = [below for below in sorted(path.iterdir()) if below.is_dir()] if path.is_dir() else []
    fleets = [below for below in inside if any((below / name).exists() for name in MARKS)]
    if not fleets:
        raise StateError(
            "there are no results; `tpufleet collect` brings them home", where=str(path), hint="tpufleet collect"
        )
    if len(fleets) > 1:
        raise StateError(
            f"there are results of {len(fleets)} fleets; name one: {', '.join(map(str, fleets[:5]))}", where=str(path)
        )
    return fleets[0]


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise UsageError("tpufleet.load needs pandas: pip install 'tpufleet[notebook]'") from None


def _kind(name: str, values: Sequence[object]) -> str:
    """The kind of a column that not every fleet has. Parameters are numbers where all of them are."""
    if name.startswith(("last.", "min.")):
        return NUMBER
    texts = [value for value in values if value is not None]
    if name.startswith("param.") and texts and all(isinstance(value, str) and _is_number(value) for value in texts):
        return NUMBER if any(value is None or not str(value).lstrip("-").isdigit() for value in values) else WHOLE
    return TEXT


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text and len(text) < 19  # beyond that a whole number is a name


def _repeated(names: Sequence[tuple[str, int]]) -> Any:
    """A category column of each name so many times: a million points cost a million small numbers, no texts."""
    known = {name: code for code, name in enumerate(dict.fromkeys(name for name, _ in names))}
    codes = [code for name, count in names for code in itertools.repeat(known[name], count)]
    return _pandas().Categorical.from_codes(codes, categories=_pandas().Index(list(known), dtype=object))


def _frame(rows: Iterable[Mapping[str, object]], kinds: Mapping[str, str]) -> DataFrame:
    """Rows as a frame with exactly these columns, each of its kind, in this order."""
    return _typed(_pandas().DataFrame(list(rows), columns=list(kinds), dtype=object), kinds)


def _typed(frame: Any, kinds: Mapping[str, str]) -> DataFrame:
    pandas = _pandas()
    for name, kind in kinds.items():
        column = frame[name]
        if kind == TIME:
            frame[name] = pandas.to_datetime(column, utc=True, errors="coerce", format="ISO8601")
        elif kind in (WHOLE, NUMBER):
            numbers = pandas.to_numeric(column, errors="coerce")
            whole = kind == WHOLE and (numbers.dropna() % 1 == 0).all()  # a job may well count in halves
            frame[name] = numbers.astype(WHOLE if whole else NUMBER)
        else:
            frame[name] = column.astype(kind)
    return frame
