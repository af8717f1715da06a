"""Pure: what the hosts' probes say about room for runs: where a job's runs go, and why a run waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpufleet.model import HostView, RunSpec
from tpufleet.placement import Room, place, shares, why_waiting
from tpufleet.restart import Reason, State

Run = Mapping[str, Any]  # as its host tells it
ACTIVE = (State.QUEUED, State.RUNNING, State.RECOVERING)
TAKEN = ("person", "busy")  # chips that no run gets a turn on (host/probe.py)


def find_places(
    runs: Sequence[RunSpec], views: Sequence[HostView], homes: Mapping[str, str], *, away: int
) -> tuple[dict[str, str], dict[str, int]]:
    """The host of each of one job's runs, and each host's share of the job's `max_parallel` if it has one.

    `homes` are the hosts that runs were on before; `away` runs of the job may be on hosts that can't be heard.
    """
    if not runs:
        return {}, {}
    name, job = runs[0].job, runs[0].spec
    heard = [view for view in views if view.probe]
    rooms = [_room(view, name) for view in heard]
    if job.max_parallel is None:
        return place(runs, rooms, homes), {}
    held = {homes[run.id]: 0 for run in runs if run.id in homes}
    held |= {str(view.host.name): share for view in heard if (share := _share_before(view, name))}
    shared = shares(job, max(1, job.max_parallel - away), rooms, held)
    return place(runs, rooms, homes, shared), shared


def with_waits(view: HostView, states: Iterable[Run]) -> list[Run]:
    """The runs of one host, those that wait with `waits`: what is on the host's chips, and what comes before it.

    `states` may be newer than the probe in `view`.
    """
    states = list(states)
    line = sorted((state for state in states if _is_waiting(state)), key=_turn)
    before = {str(state["id"]): place for place, state in enumerate(line)}
    return [_waiting(view, states, state, before[str(state["id"])]) if _says_why(state) else state for state in states]


def _waiting(view: HostView, states: Sequence[Run], state: Run, before: int) -> Run:
    runs_on = {chip for other in states if other["state"] == State.RUNNING for chip in other.get("chips") or ()}
    free = {f"{view.host.name}:{chip}" for chip in free_chips(view)}
    used = {f"{view.host.name}:{chip['index']}" for chip in view.chips} - free | runs_on
    people = [_owner(chip) for chip in view.chips if _is_taken(chip)]
    return {**state, "waits": why_waiting(view.host.name, len(view.chips), len(used), people, before)}


def free_chips(view: HostView) -> tuple[int, ...]:
    """The chips that a run may have now: nobody is on them, and they are nobody's seat."""
    return tuple(int(chip["index"]) for chip in view.chips if chip["state"] == "free" and not chip.get("seat"))


def _is_taken(chip: Mapping[str, Any]) -> bool:
    """Whether no run gets a turn on it, however long it waits."""
    return chip["state"] in TAKEN or bool(chip.get("seat"))


def _owner(chip: Mapping[str, Any]) -> str:
    return str(chip.get("person") or chip.get("seat") or f"pid {chip.get('pid')}")


def _says_why(state: Run) -> bool:
    """Until the host has looked at a run it isn't said to wait."""
    return state["state"] == State.QUEUED and bool(state.get("reason"))


def _is_waiting(state: Run) -> bool:
    return state["state"] in (State.QUEUED, State.RECOVERING)


def _turn(state: Run) -> tuple[int, str, str]:
    """The order in which a host starts what waits (host/queue.py)."""
    return -int(state.get("priority") or 0), str(state.get("submitted", "")), str(state["id"])


def _room(view: HostView, job: str) -> Room:
    unfinished = [state for state in view.runs if state["state"] in ACTIVE]
    return Room(
        view.host.name,
        chips=len(view.chips),
        free=free_chips(view),
        waiting=sum(max(1, int(state.get("slot") or 1)) for state in unfinished if _wants_chips(state)),
        taken=sum(map(_is_taken, view.chips)),
        of_job=sum(state.get("job") == job for state in unfinished),
        suspect=bool((view.probe or {}).get("suspect")),
    )


def _wants_chips(state: Run) -> bool:
    """A run that waits for others of its job wants none of the chips that are free."""
    return _is_waiting(state) and state.get("reason") != Reason.JOB_IS_FULL


def _share_before(view: HostView, job: str) -> int:
    """How many runs of the job the host may have on at once by what it was told; without a bound, all of them."""
    unfinished = [state for state in view.runs if state["state"] in ACTIVE and state.get("job") == job]
    bounds = [int(state.get("group_limit") or len(unfinished)) for state in unfinished]
    return max(bounds, default=0)
