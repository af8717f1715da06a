"""What was collected, from files to frozen values. Every value came from a host: each is checked for its type,
cut to a bearable length, and a run's id decides about paths only once it is a safe name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from tpufleet.errors import StateError
from tpufleet.report.artifacts import (
    Checkpoint,
    Completion,
    last_lines,
    read_checkpoints,
    read_completions,
    read_diff,
    read_log,
)
from tpufleet.report.curves import Curve
from tpufleet.report.metrics import MAX_NAME, MAX_NAMES, Metrics
from tpufleet.report.nodes import Node, read_nodes
from tpufleet.report.records import (
    Record,
    as_count,
    as_list,
    as_number,
    as_record,
    as_text,
    as_time,
    read_json,
)
from tpufleet.report.text import count
from tpufleet.troubles import Trouble, find

_RUN_ID = re.compile(r"[a-z0-9][a-z0-9._=+-]{0,127}")
MAX_CURVE = 500  # points of one curve: a picture is rarely wider than 1,000 pixels
MAX_POINTS = 60_000  # points of one metric over all runs, which keeps the page small enough to scroll
MAX_ATTEMPTS = 1_000  # of a run
MAX_WORDS = 1_000  # of its command, and chips of an attempt
MAX_EARLIER = 2_000  # completions over all runs


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run."""

    number: int
    host: str
    chips: tuple[str, ...]
    started: datetime | None
    ended: datetime | None
    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """One training as it came home. `metrics` holds the last value of each, `facts` what is not a number, `troubles`
    what the end of its log says that has a known meaning."""

    id: str
    job: str
    params: dict[str, str]
    state: str
    reason: str
    host: str
    chips: tuple[str, ...]
    commit: str
    dirty: bool
    command: tuple[str, ...]
    versions: dict[str, str]
    attempts: tuple[Attempt, ...]
    step: int | None
    resumed_from: str
    metrics: dict[str, float]
    curves: dict[str, Curve]
    facts: dict[str, str]
    completions: tuple[Completion, ...]
    checkpoints: tuple[Checkpoint, ...]
    log: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    diff: str
    notes: tuple[str, ...]

    @property
    def started(self) -> datetime | None:
        return min((a.started for a in self.attempts if a.started), default=None)

    @property
    def ended(self) -> datetime | None:
        return max((a.ended for a in self.attempts if a.ended), default=None)

    @property
    def trained_for(self) -> timedelta | None:
        """The time on a chip, over all attempts that have ended; None when there is none."""
        spans = [a.ended - a.started for a in self.attempts if a.started and a.ended]
        return sum(spans, timedelta()) if spans else None


@dataclass(frozen=True, slots=True)
class Collection:
    """Everything below one `artifacts/FLEET`; `notes` says in sentences what could not be used."""

    fleet: str
    runs: tuple[Run, ...]
    notes: tuple[str, ...]
    nodes: tuple[Node, ...] = ()


Told: TypeAlias = Callable[[str, Metrics], object]  # by a run's name, what it measured


def _nobody(_run: str, _metrics: Metrics) -> None:
    """Where only the curves are wanted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each run the page has room for, given how many there are."""

    points: int
    completions: int

    @classmethod
    def of(cls, runs: int) -> Limits:
        runs = max(1, runs)
        return cls(points=max(40, min(MAX_CURVE, MAX_POINTS // runs)), completions=max(2, min(40, MAX_EARLIER // runs)))


def load(home: Path, told: Told = _nobody) -> Collection:
    """The runs that `home/runs.json` lists and those that only have a directory, by their ids' natural order.

    `told` gets every point of each run, by the runs' names, while they are read: the curves hold only some.
    Raises StateError when there is no such directory. Anything broken inside becomes a note.
    """
    look_for(home)
    listing = as_record(read_json(home / "runs.json"))
    notes: list[str] = []
    if not listing:
        notes.append("runs.json is missing or can't be read; the runs were taken from their own run.json.")
    found, unsafe = _find_runs(home, listing)
    links = [run_id for run_id in found if (home / "runs" / run_id).is_symlink()]
    for run_id in links:
        del found[run_id]
    if links:
        notes.append(f"{count(len(links), 'run')} left out: a link in place of a run's directory could lead anywhere.")
    if unsafe:
        notes.append(f"{count(unsafe, 'run')} left out: a run's name must be a safe file name.")
    limits = Limits.of(len(found))
    runs = [_run(run_id, found[run_id], home / "runs" / run_id, limits, told) for run_id in sorted(found)]
    fleet = as_text(listing.get("fleet")) or home.resolve().name
    return Collection(fleet, tuple(sorted(runs, key=lambda run: natural(run.id))), tuple(notes), read_nodes(home))


def look_for(home: Path) -> None:
    """Raises StateError where nothing has come home yet."""
    if not home.is_dir():
        raise StateError(
            "there is nothing to report on yet", where=str(home), hint="tpufleet collect brings the runs home"
        )


def natural(text: str) -> list[tuple[int, float, str]]:
    """A sort key by which `seed2` comes before `seed10`, and `lr0.003` before `lr0.01`."""
    parts = re.split(r"(\d{1,15}(?:\.\d{1,15})?)", text)
    return [(1, 0.0, part) if i % 2 == 0 else (0, float(part), part) for i, part in enumerate(parts)]


def _find_runs(home: Path, listing: Record) -> tuple[dict[str, Record], int]:
    """Run id → its record, from the list and then from the directories, and how many had an unsafe name."""
    found: dict[str, Record] = {}
    unsafe = 0
    for record in map(as_record, as_list(listing.get("runs"))):
        run_id = record.get("id")
        if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id):
            found[run_id] = record
        else:
            unsafe += 1
    folder = home / "runs"
    directories = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    for directory in directories:
        if not _RUN_ID.fullmatch(directory.name):
            unsafe += 1
        elif directory.name not in found:
            found[directory.name] = as_record(read_json(directory / "run.json"))
    return found, unsafe


def _run(run_id: str, record: Record, directory: Path, limits: Limits, told: Told) -> Run:
    notes: list[str] = []
    measured = Metrics.read(directory / "metrics.jsonl")
    told(run_id, measured)
    curves = _curves(measured, limits.points, notes)
    metrics = {name: curve.last for name, curve in curves.items()}
    for name, value in list(as_record(record.get("metrics")).items())[:MAX_NAMES]:
        amount = as_number(value)
        if amount is not None:
            metrics.setdefault(name[:80], amount)
    completions = read_completions(directory / "completions.jsonl", limits.completions, notes)
    log = read_log(directory / "log.txt")
    last_step = max((c.points[-1][0] for c in curves.values() if c.points), default=None)
    step = as_count(record.get("step"))
    return Run(
        id=run_id,
        job=as_text(record.get("job")),
        params={k[:80]: as_text(v) for k, v in list(as_record(record.get("params")).items())[:MAX_NAMES]},
        state=as_text(record.get("state"), 40) or "unknown",
        reason=as_text(record.get("reason")),
        host=as_text(record.get("host")),
        chips=_texts(record.get("chips")),
        commit=as_text(record.get("commit"), 64),
        dirty=record.get("dirty") is True,
        command=_texts(record.get("command")),
        versions={k[:80]: as_text(v, 80) for k, v in list(as_record(record.get("versions")).items())[:MAX_NAMES]},
        attempts=tuple(map(_attempt, enumerate(map(as_record, as_list(record.get("attempts"))[:MAX_ATTEMPTS])))),
        step=as_count(last_step) if step is None else step,
        resumed_from=as_text(record.get("resumed_from")),
        metrics=metrics,
        curves=curves,
        facts={name[:MAX_NAME]: said for name, said in measured.facts.items()},
        completions=completions,
        checkpoints=read_checkpoints(directory / "checkpoints"),
        log=last_lines(log),
        troubles=find(log),
        diff=read_diff(directory / "changes.diff"),
        notes=tuple(notes),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(as_text(item) for item in as_list(value)[:MAX_WORDS])


def _attempt(numbered: tuple[int, Record]) -> Attempt:
    index, record = numbered
    number, exit_code = as_count(record.get("n")), as_number(record.get("exit_code"))
    return Attempt(
        number=index + 1 if number is None else number,
        host=as_text(record.get("host")),
        chips=_texts(record.get("chips")),
        started=as_time(record.get("started")),
        ended=as_time(record.get("ended")),
        exit_code=int(exit_code) if exit_code is not None and abs(exit_code) < 2**31 else None,
        reason=as_text(record.get("reason")),
    )


def _curves(metrics: Metrics, limit: int, notes: list[str]) -> dict[str, Curve]:
    """The curves of a run's numbers by metric; what is odd about them goes to the `notes`."""
    curves = {name[:MAX_NAME]: Curve.of(points, limit) for name, points in metrics.points.items()}
    if metrics.broken:
        notes.append(f"metrics.jsonl: {count(metrics.broken, 'line')} could not be read.")
    notes += [
        f"metrics.jsonl: {count(curve.unfinite, 'value')} of {name} not finite."
        for name, curve in curves.items()
        if curve.unfinite
    ]
    return curves
