"""`tpufleet run`: expand a job's grid and start one training per chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import DryRun, axes, environment, session, settings, within
from tpufleet.cli.output import Output
from tpufleet.cli.run_table import run_table
from tpufleet.errors import PartialFailure
from tpufleet.model import PARALLEL, PRIORITIES

if TYPE_CHECKING:
    from tpufleet.ops.runs import Launch
    from tpufleet.ops.start import Started

Pairs = list[str]


def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="A job of the fleet file.", autocompletion=completion.jobs)],
    set_: Annotated[Pairs | None, typer.Option("--set", metavar="K=V", help="Fix a value of the grid.")] = None,
    grid: Annotated[
        Pairs | None, typer.Option("--grid", metavar="K=A,B", help="Another axis, or other values.")
    ] = None,
    env: Annotated[Pairs | None, typer.Option("--env", metavar="K=V", help="A variable for the runs.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and watch until all have ended.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Do again what is done already.")] = False,
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", metavar="N", help="At most N of the runs at once.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="Before runs of a lower one; 0 otherwise.")
    ] = None,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Also where the host's checkout was changed by hand.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Start a job: a run for each point of its grid.

    One run per chip; what finds none waits in the hosts' own queues and is worked off with nobody connected.
    The same command again starts what failed or was stopped, and leaves alone what runs or is done.

    Example: tpufleet run gpt --follow --max-parallel 4

    Example: tpufleet run gpt --set lr=0.003 --grid seed=0,1,2,3 --dry-run
    """
    from tpufleet.ops.start import Request, start

    this = session(context)
    request = Request(
        job,
        settings(set_ or ()),
        axes(grid or ()),
        environment(env or ()),
        restart,
        within("--max-parallel", max_parallel, PARALLEL),
        within("--priority", priority, PRIORITIES),
        allow_dirty,
    )
    with this.fleet("run", dry_run=dry_run) as fleet, this.changing(fleet):
        started = start(fleet, request, dry_run=dry_run)
    if not follow or dry_run:
        _show(this.out, started, dry_run=dry_run)
        _raise_for_unknown(started)
        return
    from tpufleet.cli.follow import follow as watch, raise_for_failed

    ended = watch(this, [spec.id for spec in started.runs], started.states)
    _show(this.out, replace(started, states=ended), dry_run=False, table=False)
    raise_for_failed(ended)


def _raise_for_unknown(started: Started) -> None:
    """Runs that were sent to a host which can't be heard are neither started nor known to run."""
    unknown = started.launch.unknown
    if unknown:
        raise PartialFailure(
            f"{len(unknown)} of {len(started.runs)} runs are on hosts that can't be heard now, such as {unknown[0]}",
            hint="tpufleet status, then the same command again",
        )


def _show(out: Output, started: Started, *, dry_run: bool, table: bool = True) -> None:
    plan = started.launch
    if dry_run:
        out.table(
            ("run", "host", "command"),
            [(spec.id, _where(started, spec.id), " ".join(spec.command)) for spec in started.runs],
        )
    elif table:
        out.table(*run_table(list(started.states.values())))
    for word, ids in (
        ("already running or queued", plan.active),
        ("done already", plan.done),
        ("not heard of", plan.unknown),
    ):
        if ids:
            out.line(f"{word}: {_some(ids)}")
    if plan.changed:
        out.text(_changed_line(plan))
    if not plan.placed and not plan.unknown:
        out.line("nothing to do")
    out.data(
        dry_run=dry_run,
        commit=started.code.commit,
        placed=dict(plan.placed),
        active=list(plan.active),
        done=list(plan.done),
        unknown=list(plan.unknown),
        changed=list(plan.changed),
        runs=[started.states.get(spec.id) or _planned(started, spec.id) for spec in started.runs],
    )


def _changed_line(plan: Launch) -> str:
    """The job's command isn't what it was when these runs began: what goes on, goes on with which?"""
    old = [run for run in plan.changed if run not in plan.placed]
    new = [run for run in plan.changed if run in plan.placed]
    said = [f"another command than now: {_some(old)}; --restart does them with the new one"] if old else []
    said += [f"with another command than before: {_some(new)}"] if new else []
    return "\n".join(said)


def _some(ids: Sequence[str]) -> str:
    return f"{len(ids)}" + (f" ({', '.join(ids)})" if len(ids) <= 4 else "")


def _planned(started: Started, run: str) -> dict[str, object]:
    spec = next(spec for spec in started.runs if spec.id == run)
    where = started.launch.placed.get(run)
    return {"id": run, "job": spec.job, "params": dict(spec.params), "command": list(spec.command), "host": where}


def _where(started: Started, run: str) -> str:
    plan = started.launch
    if run in plan.placed:
        return plan.placed[run]
    return "(done)" if run in plan.done else "(running or queued)" if run in plan.active else "(not heard of)"
