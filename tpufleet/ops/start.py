"""`run` from end to end: which runs, at which commit, on which hosts; then start them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpufleet.errors import HostKeyMismatch, UsageError
from tpufleet.model import Code, HostView, JobSpec, RunSpec, Scalar
from tpufleet.names import ParamName
from tpufleet.ops.code import resolve
from tpufleet.ops.create import bring_code
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import read_runs
from tpufleet.ops.observe import observe
from tpufleet.ops.runs import Launch, launch, located, plan_launch
from tpufleet.sweep import expand


@dataclass(frozen=True)
class Request:
    """What the person typed after `run`."""

    job: str
    settings: Mapping[ParamName, Scalar]
    grid: Mapping[ParamName, Sequence[Scalar]]
    env: Mapping[str, str]
    restart: bool = False


@dataclass(frozen=True)
class Started:
    """The runs of a request, what was (or would be) done with them, and their states where hosts know them."""

    runs: tuple[RunSpec, ...]
    launch: Launch
    code: Code
    states: Mapping[str, Mapping[str, Any]]


def start(fleet: Fleet, request: Request, *, dry_run: bool) -> Started:
    """Start what of the request is not running or done yet. Everything is checked before anything is touched."""
    runs, secrets = _wanted(fleet, request)
    code = _code(fleet)
    views = _heard(fleet)
    home: dict[str, Mapping[str, Any]] = {run["id"]: run for run in read_runs(fleet.paths.artifacts / "runs.json")}
    plan = plan_launch(runs, views, home=home, sent=fleet.journal.placements(), restart=request.restart)
    states = home | {run: item.state for run, item in located(views).items()}
    if plan.placed and not dry_run:
        hosts = {str(view.host.name): view.host for view in views}
        bring_code(fleet, [hosts[name] for name in sorted(set(plan.placed.values()))], code)
        answers = launch(fleet, runs, plan, hosts, code=code, secrets=secrets, restart=request.restart)
        states |= {str(state["id"]): state for state in answers}
    return Started(runs, plan, code, {run.id: states[run.id] for run in runs if run.id in states})


def _wanted(fleet: Fleet, request: Request) -> tuple[tuple[RunSpec, ...], Mapping[str, str]]:
    job = next((job for name, job in fleet.spec.jobs.items() if name == request.job), None)
    if job is None:
        names = ", ".join(fleet.spec.jobs) or "none: add one under `jobs`"
        raise UsageError(f"the fleet file has no job {request.job!r}", hint=f"jobs: {names}")
    runs = expand(request.job, job, settings=request.settings, grid=request.grid, env=request.env)
    return runs, _secrets(job)


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


def _heard(fleet: Fleet) -> tuple[HostView, ...]:
    views = observe(fleet).hosts
    if not any(view.probe for view in views):
        silent = next((view.error for view in views if view.error), None)
        raise UsageError(f"no host of the fleet is ready{f': {silent}' if silent else ''}", hint="tpufleet create")
    for view in views:
        if view.impostor:
            raise HostKeyMismatch(str(view.error), where=view.host.name, hint="tpufleet doctor")
        if view.error:
            fleet.say(view.host.name, f"{view.error}: no run is sent there", "failed")
    return views
