"""`run` from end to end: which runs, at which commit, on which hosts; then start them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpufleet.errors import CodeError, HostError, HostKeyMismatch, UsageError
from tpufleet.model import Code, Host, HostView, JobSpec, RunSpec, Scalar
from tpufleet.names import ParamName
from tpufleet.ops.code import resolve, syncing
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import read_runs
from tpufleet.ops.observe import hosts_of, probe, survey
from tpufleet.ops.recover import revive, say_lost
from tpufleet.ops.rooms import with_waits
from tpufleet.ops.runs import Launch, Ready, launch, located, plan_launch
from tpufleet.ops.turn import turn
from tpufleet.sweep import expand


@dataclass(frozen=True)
class Request:
    """What the person typed after `run`."""

    job: str
    settings: Mapping[ParamName, Scalar]
    grid: Mapping[ParamName, Sequence[Scalar]]
    env: Mapping[str, str]
    restart: bool = False
    max_parallel: int | None = None  # instead of the job's own
    priority: int | None = None
    allow_dirty: bool = False


@dataclass(frozen=True)
class Started:
    """The runs of a request, what was (or would be) done with them, and their states where hosts know them."""

    runs: tuple[RunSpec, ...]
    launch: Launch
    code: Code
    states: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _Wanted:
    """The request's runs, what they are run from, and the values of their secrets."""

    runs: tuple[RunSpec, ...]
    code: Code
    secrets: Mapping[str, str]


def start(fleet: Fleet, request: Request, *, dry_run: bool) -> Started:
    """Start what of the request is not running or done yet. Everything is checked before anything is touched."""
    wanted = _wanted(fleet, request)
    with _looking(fleet, dry_run=dry_run) as views:
        return _give_out(fleet, request, wanted, views, dry_run=dry_run)


def _give_out(fleet: Fleet, request: Request, wanted: _Wanted, views: Sequence[HostView], *, dry_run: bool) -> Started:
    _check(fleet, views)
    runs = wanted.runs
    home: dict[str, Mapping[str, Any]] = {run["id"]: run for run in read_runs(fleet.paths.artifacts / "runs.json")}
    plan = plan_launch(runs, views, home=home, sent=fleet.journal.placements(), restart=request.restart)
    states = home | {run: item.state for run, item in located(views).items()}
    _say_if_more_at_once(fleet, runs, plan)
    if plan.placed and not dry_run:
        past = {} if request.restart else {run: state for run, state in home.items() if run not in located(views)}
        answers = send(
            fleet,
            runs,
            plan,
            views,
            code=wanted.code,
            secrets=wanted.secrets,
            home=past,
            restart=request.restart,
            allow_dirty=request.allow_dirty,
        )
        states |= {str(state["id"]): state for state in _with_waits(views, answers)}
    return Started(runs, plan, wanted.code, {run.id: states[run.id] for run in runs if run.id in states})


def send(
    fleet: Fleet,
    runs: Sequence[RunSpec],
    plan: Launch,
    views: Sequence[HostView],
    *,
    code: Code,
    secrets: Mapping[str, str],
    home: Mapping[str, Mapping[str, Any]],
    restart: bool = False,
    allow_dirty: bool = False,
) -> list[Mapping[str, Any]]:
    """Carry out the plan; returns the states of the runs that were sent. A host gets the commit first, and what its
    runs had left elsewhere: each on its own, so that one that is slow or silent holds up no other.

    `home` is what is known of runs that no host knows any more: they go on from what came home of them.
    """
    hosts = {str(view.host.name): view.host for view in views}
    say_lost(fleet, list(plan.placed), home)
    with syncing(fleet, code) as bring:

        def prepare(host: Host, names: Sequence[str]) -> Ready:
            synced = bring(host)
            if synced.dirty and not allow_dirty:
                raise _drifted(host, code)
            return Ready(revive(fleet, host, names, home), synced.dirty)

        return launch(fleet, runs, plan, hosts, prepare, code=code, secrets=secrets, restart=restart)


def _wanted(fleet: Fleet, request: Request) -> _Wanted:
    job = next((job for name, job in fleet.spec.jobs.items() if name == request.job), None)
    if job is None:
        names = ", ".join(fleet.spec.jobs) or "none: add one under `jobs`"
        raise UsageError(f"the fleet file has no job {request.job!r}", hint=f"jobs: {names}")
    if request.max_parallel is not None:
        job = replace(job, max_parallel=request.max_parallel)
    if request.priority is not None:
        job = replace(job, priority=request.priority)
    runs = expand(request.job, job, settings=request.settings, grid=request.grid, env=request.env)
    secrets = _secrets(job)
    return _Wanted(runs, _code(fleet), secrets)


def _say_if_more_at_once(fleet: Fleet, runs: Sequence[RunSpec], plan: Launch) -> None:
    """Runs go back to where their checkpoints are, also where these are more hosts than may work at once."""
    most = runs[0].spec.max_parallel if runs else None
    if most is not None and sum(plan.shares.values()) > most:
        said = f"up to {sum(plan.shares.values())} runs at once, since they are on so many hosts already"
        fleet.say(runs[0].job, f"{said} (max_parallel {most})")


def _drifted(host: Host, code: Code) -> CodeError:
    return CodeError(
        f"the checkout of {code.commit[:12]} on {host.name} was changed by hand: a run there would be of no commit",
        hint="tpufleet sync --restore undoes the changes; run --allow-dirty runs with them",
    )


def _with_waits(views: Sequence[HostView], answers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What hosts answered, and of those that wait why."""
    asked = {str(state["id"]) for state in answers}
    found: list[Mapping[str, Any]] = []
    for view in views:
        newer = [state for state in answers if state.get("host") == view.host.name]
        older = [state for state in view.runs if str(state["id"]) not in asked]
        found += [state for state in with_waits(view, [*older, *newer]) if str(state["id"]) in asked]
    return found


def _secrets(job: JobSpec) -> Mapping[str, str]:
    """The values of the job's secrets, from this command's environment; they are sent and never written here."""
    missing = [name for name in job.secrets if name not in os.environ]
    if missing:
        raise UsageError(
            f"the job wants the secret {', '.join(missing)}, which is not set here", hint=f"export {missing[0]}"
        )
    return {name: os.environ[name] for name in job.secrets}


def _code(fleet: Fleet) -> Code:
    if fleet.spec.code is None:
        raise UsageError("the fleet file names no repository to run from", hint="add code.repo to it")
    return resolve(fleet.spec.code, fleet.paths.directory)


@contextlib.contextmanager
def _looking(fleet: Fleet, *, dry_run: bool) -> Generator[tuple[HostView, ...]]:
    """What the hosts say; unless it is only to be told, no other command gives them runs meanwhile."""
    hosts = hosts_of(fleet, survey(fleet.spec, fleet.cloud, fleet.zones).nodes)
    if dry_run:
        yield probe(fleet, hosts)
        return
    with turn(fleet, hosts) as views:
        yield views


def _check(fleet: Fleet, views: Sequence[HostView]) -> None:
    impostor = next((view for view in views if view.impostor), None)
    if impostor:
        raise HostKeyMismatch(str(impostor.error), where=impostor.host.name, hint="tpufleet doctor")
    if not any(view.probe for view in views):
        silent = next((f"{view.host.name}: {view.error}" for view in views if view.error), None)
        if silent:
            raise HostError(f"no host of the fleet answers; {silent}", hint="tpufleet status")
        raise UsageError("no host of the fleet is ready", hint="tpufleet create")
    for view in views:
        if view.error:
            fleet.say(view.host.name, f"{view.error}: no run is sent there", "failed")
        if view.probe and (suspect := view.probe.get("suspect")):
            fleet.say(view.host.name, f"{suspect}: it gets runs only where no other host has room", "failed")
