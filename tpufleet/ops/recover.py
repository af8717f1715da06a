"""Runs whose host is gone: which they are, and how they go on elsewhere with what came home of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tpufleet.model import GONE_STATES, Host, HostView, Node, NodeState
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import RunHome, is_over, mirrored_step
from tpufleet.paths import remote_staged
from tpufleet.restart import Reason
from tpufleet.state.store import Placement
from tpufleet.text import counted

Run = Mapping[str, Any]


def lost_runs(
    nodes: Iterable[Node],
    views: Sequence[HostView],
    *,
    sent: Mapping[str, Placement],
    home: Mapping[str, Run],
    zones: Collection[str],
) -> tuple[str, ...]:
    """Pure: the runs that were `sent` to a host, are not over as far as is known at `home`, and are nowhere now.

    A machine that is stopped or being repaired keeps its disk, one that can't be heard may well be at work, and a zone
    that was not looked at says nothing: the runs there are not lost. A host that answers and knows nothing of a run
    was never asked, or is another machine than it was.
    """
    known = {str(state["id"]) for view in views for state in view.runs}
    unheard = {view.host.identity for view in views if not view.probe}
    heard = {view.host.identity for view in views if view.probe}
    alive = {node.uid for node in nodes if node.state not in GONE_STATES | {NodeState.DELETING}}

    def is_lost(run: str, there: Placement) -> bool:
        if run in known or (run in home and is_over(home[run])):
            return False
        if there.identity in heard:
            return True
        uid = there.identity.rpartition("-w")[0]
        return there.identity not in unheard and uid not in alive and (not there.zone or there.zone in zones)

    return tuple(run for run, there in sent.items() if is_lost(run, there))


def closed(state: Run, now: datetime) -> Run:
    """The run as it is when its host is gone: an attempt that was under way ended by that, as did one that was done
    and took its results with it; no process is left."""
    ended = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    attempts = [dict(attempt) for attempt in state.get("attempts") or ()]
    for attempt in attempts:
        if not attempt.get("ended"):
            attempt |= {"ended": ended, "reason": Reason.PREEMPTED.value}
    if attempts and state.get("incomplete"):
        attempts[-1]["reason"] = Reason.PREEMPTED.value
    return {**state, "attempts": attempts, "pid": None}


def revive(fleet: Fleet, host: Host, runs: Sequence[str], home: Mapping[str, Run]) -> dict[str, dict[str, Any]]:
    """Bring what is home of the runs to `host`, where they go on.

    Returns each run's past as the host takes it with the run (host/restore.py); nothing for one that never began.
    """
    now = datetime.now(UTC)
    begun = {run: closed(home[run], now) for run in runs if run in home and home[run].get("attempts")}
    for state in begun.values():
        _bring(fleet, host, state)
    return {run: {"attempts": state["attempts"], "began": state.get("began") or ""} for run, state in begun.items()}


def say_lost(fleet: Fleet, runs: Sequence[str], home: Mapping[str, Run]) -> None:
    """Where the runs go on; a person must know when that is the beginning."""
    for run in runs:
        step = mirrored_step(fleet.paths.runs / run) if run in home else None
        if step is not None:
            fleet.say(run, f"its host is gone; it goes on from step {step}, which is home")
        elif (home.get(run) or {}).get("attempts"):
            fleet.say(run, "its host is gone, and no checkpoint of it was home: it begins from the start")


def _bring(fleet: Fleet, host: Host, state: Run) -> None:
    run = str(state["id"])
    files = RunHome.open(fleet.paths.runs, state).to_restore()
    if not files:
        return
    agent = fleet.agent(host)
    fleet.say(host.name, f"receiving {counted(len(files), 'file')} of {run}")
    for number, (_, file) in enumerate(files):
        agent.upload(file, remote_staged(run, number))
    offer = [_described(path, file) for path, file in files]
    agent.ask("restore", {"run": run, "files": offer}, timeout_s=600)


def _described(path: str, file: Path) -> dict[str, Any]:
    status = file.stat()
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    return {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest}
