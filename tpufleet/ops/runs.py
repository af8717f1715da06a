"""The fleet's runs as the hosts tell them, and what one may ask of them: launch, stop, follow the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tpufleet.errors import HostError, NotFound, UsageError
from tpufleet.host.setup import environment_id
from tpufleet.model import Code, Host, HostView, RunSpec
from tpufleet.ops.fleet import Fleet, values_or_raise
from tpufleet.ops.home import is_over
from tpufleet.ops.planned import stored_code, stored_run
from tpufleet.ops.rooms import ACTIVE, find_places, with_waits
from tpufleet.restart import FINAL_STATES, State
from tpufleet.ssh.fanout import gather
from tpufleet.state.store import Placement

STOP_GRACE_S = 10


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
    changed: tuple[str, ...] = ()  # known with another command than the file has for them now
    chips: Mapping[str, int] = field(default_factory=dict[str, int])  # run -> how many, where the job doesn't say
    shares: Mapping[str, int] = field(default_factory=dict[str, int])  # host -> how many of the job at once


@dataclass(frozen=True)
class Ready:
    """What a host that was prepared has for its runs: their `pasts` on other hosts (ops/recover.py), and whether its
    checkout is `dirty`: changed by hand, and the person said that they shall run nevertheless."""

    pasts: Mapping[str, Mapping[str, Any]]
    dirty: bool


def located(views: Sequence[HostView]) -> dict[str, Located]:
    """Every run on the hosts, by id; where two hosts know one run (a node was replaced) the later word counts."""
    found: dict[str, Located] = {}
    for view in views:
        for state in with_waits(view, view.runs):
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
    """Pure: what to start and where. The `runs` are of one job.

    A run that was `sent` to a host which can't be heard is left alone: it may well be running there. One that is at
    `home` as done is done, also when the fleet that did it is gone.
    """
    there = located(views)
    unheard = {view.host.identity for view in views if view.error}
    start: list[RunSpec] = []
    active: list[str] = []
    done: list[str] = []
    unknown: list[str] = []
    changed: list[str] = []
    for run in runs:
        known = there[run.id].state if run.id in there else None
        if known and known["state"] in ACTIVE:
            active.append(run.id)
        elif not restart and _is_done(known or home.get(run.id)):
            done.append(run.id)
        elif not known and run.id in sent and sent[run.id].identity in unheard:
            unknown.append(run.id)
        else:
            start.append(run)
        if _is_other_command(run, known or home.get(run.id)):
            changed.append(run.id)
    # a run that begins anew has no use for the checkpoints that lie where it was
    homes = {} if restart else {run: located.host.name for run, located in there.items()}
    placed, shared = find_places(start, views, homes, away=len(unknown))
    sizes = {str(view.host.name): len(view.chips) for view in views}
    chips = {run.id: sizes[placed[run.id]] for run in start if run.spec.whole_host}
    return Launch(placed, tuple(active), tuple(done), tuple(unknown), tuple(changed), chips, shared)


def launch(
    fleet: Fleet,
    runs: Sequence[RunSpec],
    plan: Launch,
    hosts: Mapping[str, Host],
    prepare: Callable[[Host, Sequence[str]], Ready],
    *,
    code: Code,
    secrets: Mapping[str, str],
    restart: bool = False,
) -> list[Mapping[str, Any]]:
    """Prepare each host for its runs and send them to it, all hosts side by side; returns the states they answer with.

    A host that can't be prepared gets none of them, and nothing is kept of having sent them there.
    """
    by_id = {run.id: run for run in runs}
    batches: dict[str, list[RunSpec]] = {}
    for run, host in plan.placed.items():
        batches.setdefault(host, []).append(by_id[run])
    stored = stored_code(code)

    def send(host: Host) -> list[Mapping[str, Any]]:
        batch = batches[host.name]
        ready = prepare(host, [run.id for run in batch])
        fleet.journal.placed(
            [Placement(run.id, host.name, host.identity, host.zone, stored_run(run), stored) for run in batch]
        )
        with fleet.journal.intent(fleet.command, "enqueue", host.name, runs=[run.id for run in batch]):
            multi_host = sum(other.node == host.node for other in hosts.values()) > 1
            wire = [
                _wire(
                    fleet,
                    run,
                    host,
                    chips=plan.chips.get(run.id, run.spec.chips),
                    share=plan.shares.get(host.name),
                    multi_host=multi_host,
                    code=code,
                    dirty=ready.dirty,
                    secrets=secrets,
                )
                | dict(ready.pasts.get(run.id, {}))
                for run in batch
            ]
            return fleet.agent(host).ask("enqueue", {"runs": wire, "restart": restart})["runs"]

    outcomes = gather([hosts[name] for name in batches], send)
    return [state for states in values_or_raise(fleet, outcomes, "hosts took no runs") for state in states]


def stop(fleet: Fleet, runs: Sequence[str], there: Mapping[str, Located]) -> list[Mapping[str, Any]]:
    """End the runs that have not ended, host by host side by side; returns the states of all.

    None of them is sent on any more, also those that a `stop` ended which was killed then; but for what is done, since
    that is done again when it is lost before it came home. Raises NotFound for an id nobody knows.
    """
    unknown = [run for run in runs if run not in there]
    if unknown:
        raise NotFound(f"there is no run {', '.join(unknown)}", hint="tpufleet runs")
    states = {run: there[run].state for run in runs}
    batches: dict[str, list[str]] = {}
    for run in going(runs, there):
        batches.setdefault(there[run].host.name, []).append(run)
    hosts = {str(there[run].host.name): there[run].host for run in runs}

    def end(host: Host) -> list[Mapping[str, Any]]:
        batch = batches[host.name]
        with fleet.journal.intent(fleet.command, "stop", host.name, runs=batch):
            ask = {"runs": batch, "grace_s": STOP_GRACE_S}
            return fleet.agent(host).ask("stop", ask, timeout_s=STOP_GRACE_S + 50)["runs"]

    outcomes = gather([hosts[name] for name in batches], end)
    for ended in values_or_raise(fleet, outcomes, "hosts could not stop their runs"):
        states |= {str(state["id"]): state for state in ended}
    fleet.journal.forget([run for run, state in states.items() if state["state"] != State.DONE])
    return list(states.values())


def going(runs: Sequence[str], there: Mapping[str, Located]) -> list[str]:
    """Those that have not ended."""
    return [run for run in runs if there[run].state["state"] not in FINAL_STATES]


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


def _is_done(run: Mapping[str, Any] | None) -> bool:
    return run is not None and run["state"] == State.DONE and is_over(run)


def _is_other_command(run: RunSpec, known: Mapping[str, Any] | None) -> bool:
    return bool(known) and list(known.get("command") or run.command) != list(run.command)


def _wire(
    fleet: Fleet,
    run: RunSpec,
    host: Host,
    *,
    chips: int,
    share: int | None,
    multi_host: bool,
    code: Code,
    dirty: bool,
    secrets: Mapping[str, str],
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
        "environment": environment_id(code.setup),
        "dirty": dirty,
        "workdir": job.workdir,
        "chips": chips,
        "device": job.device,
        "multi_host": multi_host,
        "env": dict(run.env),
        "secrets": {name: secrets[name] for name in job.secrets},
        "metrics": dict(job.metrics),
        "artifacts": list(job.artifacts),
        "retries": job.retries,
        "priority": job.priority,
        "time_limit_s": job.time_limit and job.time_limit.seconds,
        "stalled_s": job.stalled_after and job.stalled_after.seconds,
        "stop_on_nan": job.stop_on_nan,
        "log_limit": job.log_limit_mb * 1_000_000,
        "group": run.job,
        "group_limit": share,
        "submitted": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
