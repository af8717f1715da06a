"""The fleet's runs as the hosts tell them, and what one may ask of them: launch, stop, follow the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tpufleet.errors import HostError, NotFound, UsageError
from tpufleet.model import Code, Host, HostView, RunSpec
from tpufleet.ops.fleet import Fleet, values_or_raise
from tpufleet.placement import Room, place
from tpufleet.restart import State
from tpufleet.ssh.fanout import gather
from tpufleet.state.store import Placement

STOP_GRACE_S = 10
ACTIVE = (State.QUEUED, State.RUNNING, State.RECOVERING)


@dataclass(frozen=True)
class Located:
    """A run as its host tells it (a run of runs.json), and that host."""

    state: Mapping[str, Any]
    host: Host


@dataclass(frozen=True)
class Launch:
    """What a `run` would do, or did: run ids by what becomes of them."""

    placed: Mapping[str, str]  # run -> host
    active: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # sent to a host that can't be heard now


def located(views: Sequence[HostView]) -> dict[str, Located]:
    """Every run on the hosts, by id; where two hosts know one run (a node was replaced) the later word counts."""
    found: dict[str, Located] = {}
    for view in views:
        for state in view.runs:
            run = str(state["id"])
            if run not in found or str(state.get("submitted", "")) > str(found[run].state.get("submitted", "")):
                found[run] = Located(state, view.host)
    return found


def plan_launch(
    runs: Sequence[RunSpec],
    views: Sequence[HostView],
    *,
    home: Mapping[str, Mapping[str, Any]],
    sent: Mapping[str, Placement],
    restart: bool = False,
) -> Launch:
    """Pure: what to start and where.

    A run that was `sent` to a host which can't be heard is left alone: it may well be running there. One that is at
    `home` as done is done, also when the fleet that did it is gone.
    """
    there = located(views)
    unheard = {view.host.identity for view in views if view.error}
    start: list[RunSpec] = []
    active: list[str] = []
    done: list[str] = []
    unknown: list[str] = []
    for run in runs:
        known = there.get(run.id)
        if known and known.state["state"] in ACTIVE:
            active.append(run.id)
        elif not restart and _state(known.state if known else home.get(run.id)) == State.DONE:
            done.append(run.id)
        elif not known and run.id in sent and sent[run.id].identity in unheard:
            unknown.append(run.id)
        else:
            start.append(run)
    # a run that begins anew has no use for the checkpoints that lie where it was
    homes = {} if restart else {run: located.host.name for run, located in there.items()}
    rooms = [_room(view) for view in views if view.probe]
    placed = place(start, rooms, homes) if start else {}
    return Launch(placed, tuple(active), tuple(done), tuple(unknown))


def launch(
    fleet: Fleet,
    runs: Sequence[RunSpec],
    plan: Launch,
    hosts: Mapping[str, Host],
    *,
    code: Code,
    secrets: Mapping[str, str],
    restart: bool = False,
) -> list[Mapping[str, Any]]:
    """Send the runs to their hosts, all hosts side by side; returns the states they answer with."""
    by_id = {run.id: run for run in runs}
    batches: dict[str, list[RunSpec]] = {}
    for run, host in plan.placed.items():
        batches.setdefault(host, []).append(by_id[run])
    fleet.journal.placed(tuple(Placement(run, host, hosts[host].identity) for run, host in plan.placed.items()))

    def send(host: Host) -> list[Mapping[str, Any]]:
        batch = batches[host.name]
        with fleet.journal.intent(fleet.command, "enqueue", host.name, runs=[run.id for run in batch]):
            multi_host = sum(other.node == host.node for other in hosts.values()) > 1
            wire = [_wire(fleet, run, host, multi_host=multi_host, code=code, secrets=secrets) for run in batch]
            return fleet.agent(host).ask("enqueue", {"runs": wire, "restart": restart})["runs"]

    outcomes = gather([hosts[name] for name in batches], send)
    return [state for states in values_or_raise(fleet, outcomes, "hosts took no runs") for state in states]


def stop(fleet: Fleet, runs: Sequence[str], there: Mapping[str, Located]) -> list[Mapping[str, Any]]:
    """End the runs, host by host side by side; returns their states. Raises NotFound for an id nobody knows."""
    unknown = [run for run in runs if run not in there]
    if unknown:
        raise NotFound(f"there is no run {', '.join(unknown)}", hint="tpufleet runs")
    batches: dict[str, list[str]] = {}
    for run in runs:
        batches.setdefault(there[run].host.name, []).append(run)
    hosts = {str(there[run].host.name): there[run].host for run in runs}

    def end(host: Host) -> list[Mapping[str, Any]]:
        batch = batches[host.name]
        with fleet.journal.intent(fleet.command, "stop", host.name, runs=batch):
            ask = {"runs": batch, "grace_s": STOP_GRACE_S}
            return fleet.agent(host).ask("stop", ask, timeout_s=STOP_GRACE_S + 50)["runs"]

    outcomes = gather([hosts[name] for name in batches], end)
    return [state for states in values_or_raise(fleet, outcomes, "hosts could not stop their runs") for state in states]


def find(runs: Sequence[str], there: Mapping[str, Located], views: Sequence[HostView]) -> list[str]:
    """The ids that people meant: a run's id, or a job's name for all its runs. Raises UsageError for neither."""
    chosen: list[str] = []
    for name in runs:
        matching = [name] if name in there else [run for run, item in there.items() if item.state.get("job") == name]
        if not matching:
            unheard = [view.host.name for view in views if view.error]
            if unheard:
                raise HostError(f"no host that answers knows the run {name}; not heard: {', '.join(unheard)}")
            raise UsageError(f"there is no run {name}", hint="tpufleet runs")
        chosen += matching
    return list(dict.fromkeys(chosen))


def read_log(fleet: Fleet, run: Located, *, offset: int, follow: bool) -> Iterator[bytes]:
    """The run's log from byte `offset` (negative: so many last bytes) on; with `follow` until the run has ended."""
    ask = {"run": run.state["id"], "offset": offset, "follow": follow}
    with fleet.agent(run.host).open("log", ask) as stream:
        while chunk := stream.read(65536):
            yield chunk


def _state(run: Mapping[str, Any] | None) -> object:
    return run["state"] if run else None


def _room(view: HostView) -> Room:
    waiting = sum(_chips_wanted(state) for state in view.runs if state["state"] == State.QUEUED)
    free = sum(chip["state"] == "free" for chip in view.chips)
    return Room(view.host.name, len(view.chips), free, waiting)


def _chips_wanted(state: Mapping[str, Any]) -> int:
    return max(1, int(state.get("slot") or 1))


def _wire(
    fleet: Fleet, run: RunSpec, host: Host, *, multi_host: bool, code: Code, secrets: Mapping[str, str]
) -> dict[str, Any]:
    """The run as the host's agent takes it (host/specs.py)."""
    job = run.spec
    return {
        "id": run.id,
        "job": run.job,
        "fleet": fleet.spec.fleet,
        "host": host.name,
        "params": dict(run.params),
        "command": list(run.command),
        "repo": code.repo_id,
        "commit": code.commit,
        "workdir": job.workdir,
        "chips": job.chips,
        "device": job.device,
        "multi_host": multi_host,
        "env": dict(run.env),
        "secrets": {name: secrets[name] for name in job.secrets},
        "metrics": dict(job.metrics),
        "artifacts": list(job.artifacts),
        "retries": job.retries,
        "priority": 0,
        "submitted": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
