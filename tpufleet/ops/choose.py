"""What of all that runs left a person wants home: kinds of files, the best runs' checkpoints, runs since a moment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tpufleet.errors import UsageError
from tpufleet.model import HostView
from tpufleet.names import Duration
from tpufleet.ops.runs import find, located
from tpufleet.restart import FINAL_STATES
from tpufleet.text import natural

Run = Mapping[str, Any]
CHECKPOINTS = "checkpoints"
BY_FILE = {"log.txt": "logs", "metrics.jsonl": "metrics", "completions.jsonl": "completions"}
KINDS = (*BY_FILE.values(), CHECKPOINTS, "artifacts")  # the last: what the job's `artifacts:` name
RECORD = "changes.diff"  # part of what a run is, as run.json: it comes with any kind


@dataclass(frozen=True)
class Choice:
    """Of all runs (None) or these; of all kinds (nothing) or these. `best`: the only runs whose checkpoints come, of
    each the newest; `verify`: what is home already is read again and compared."""

    runs: frozenset[str] | None = None
    kinds: frozenset[str] = frozenset()
    best: frozenset[str] | None = None
    verify: bool = False

    def wants_run(self, run: str) -> bool:
        return self.runs is None or run in self.runs

    def wants(self, path: str) -> bool:
        """Whether a plain file comes. A checkpoint is shown after the records before it, so it brings those along."""
        if not self.kinds or path == RECORD or (self.wants_checkpoints and path in BY_FILE):
            return True
        return BY_FILE.get(path, "artifacts") in self.kinds

    @property
    def wants_checkpoints(self) -> bool:
        return not self.kinds or CHECKPOINTS in self.kinds

    def wants_checkpoint(self, run: str, *, newest: bool) -> bool:
        return self.wants_checkpoints and (self.best is None or (run in self.best and newest))


EVERYTHING = Choice()


@dataclass(frozen=True)
class Wish:
    """What a person typed: runs or jobs by `names`, and what of them."""

    names: Sequence[str] = ()
    kinds: frozenset[str] = frozenset()
    best: int | None = None
    since: datetime | None = None
    verify: bool = False

    def among(self, views: Sequence[HostView]) -> Choice:
        """The choice among the runs of these hosts. Raises UsageError for a name that no run has, and for `best`
        where no run has told a loss."""
        there = located(views)
        runs = find(self.names, there, views) if self.names else list(there)
        if self.since is not None:
            runs = [run for run in runs if alive_since(there[run].state, self.since)]
        chosen = frozenset(runs) if self.names or self.since else None
        best = best_runs([there[run].state for run in runs], self.best) if self.best and runs else None
        return Choice(chosen, self.kinds, best, self.verify)


def kinds(names: Iterable[str]) -> frozenset[str]:
    """The values of `--only`; raises UsageError for one that isn't a kind."""
    chosen = frozenset(names)
    if unknown := sorted(chosen - {*KINDS}):
        raise UsageError(
            f"--only brings one of {', '.join(KINDS)}, not {unknown[0]!r}", hint="--only metrics --only completions"
        )
    return chosen


def moment(text: str, now: datetime) -> datetime:
    """The value of `--since`: a length of time before `now`, or a moment (UTC unless it says otherwise).

    Raises UsageError for neither, and for one that is still to come.
    """
    try:
        found = now - timedelta(seconds=Duration(text).seconds)
    except OverflowError as error:
        raise UsageError(f"--since {text} is longer ago than there are dates", hint="--since 7d") from error
    except ValueError:
        found = _time(text)
    if found is None:
        raise UsageError(
            f"--since takes a length of time or a moment, not {text!r}", hint="--since 8h, or --since 2026-11-21T18:00"
        )
    if found > now:
        raise UsageError(f"--since {text} is still to come", hint="moments are UTC, unless they end with +02:00")
    return found


def alive_since(state: Run, since: datetime) -> bool:
    """Whether a run has given a sign of life after `since`: it is under way, or began or ended later."""
    if state.get("state") not in FINAL_STATES:
        return True
    attempts: Sequence[Run] = state.get("attempts") or ()
    told = [state.get("submitted"), *(attempt.get(name) for attempt in attempts for name in ("started", "ended"))]
    return any(time >= since for time in map(_time, told) if time)


def best_runs(states: Iterable[Run], count: int) -> frozenset[str]:
    """The `count` runs whose last `main_metric` is lowest; fewer where fewer have one. Raises UsageError for none."""
    known = sorted(states, key=lambda state: natural(str(state["id"])))
    metric = main_metric(known)
    values = {str(state["id"]): _number(state.get("metrics"), metric) for state in known}
    ranked = sorted((run for run in values if math.isfinite(values[run])), key=lambda run: values[run])
    if not ranked:
        raise UsageError(
            "--best needs a loss to go by, and no run has told one", hint="the job's metrics: in the fleet file"
        )
    return frozenset(ranked[:count])


def main_metric(states: Iterable[Run]) -> str | None:
    """What the report ranks these runs by, too."""
    from tpufleet.report.view import deciding  # late: only --best needs it

    return deciding(list(dict.fromkeys(str(name) for state in states for name in state.get("metrics") or ())))


def _number(metrics: Mapping[str, object] | None, name: str | None) -> float:
    value = metrics.get(name) if metrics and name else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
