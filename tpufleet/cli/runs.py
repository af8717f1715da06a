"""`tpufleet runs`: every run the hosts know, and those that are home already."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import session
from tpufleet.cli.run_table import run_table
from tpufleet.errors import CloudUnreachable
from tpufleet.restart import FINAL_STATES
from tpufleet.text import listed, natural

if TYPE_CHECKING:
    from tpufleet.state.store import Placement


def runs(
    context: typer.Context,
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Only this job's runs.", autocompletion=completion.jobs)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and watch until all have ended.")] = False,
) -> None:
    """List the runs: state, step, time left, last metrics, chip.

    Example: tpufleet runs gpt --json

    Example: tpufleet runs --follow
    """
    from tpufleet.ops.home import read_runs
    from tpufleet.ops.observe import observe
    from tpufleet.ops.runs import located

    this = session(context)
    spec = this.spec()
    home = {run["id"]: run for run in read_runs(this.paths(spec).artifacts / "runs.json")}
    try:
        with this.fleet("runs") as fleet:
            views = observe(fleet).hosts
            placed = fleet.journal.placements()
    except CloudUnreachable as error:
        if not home:
            raise
        this.out.note(f"{error.message}: these are the runs as they were last collected")
        views, placed = (), {}
    known = home | {run: dict(item.state) for run, item in located(views).items()}
    ordered = [known[run] for run in sorted(known, key=natural)]
    chosen = [state for state in ordered if job is None or state.get("job") == job]
    going = {str(state["id"]): state for state in chosen if state["state"] not in FINAL_STATES}
    if follow and going:
        from tpufleet.cli.follow import follow as watch, raise_for_failed

        ended = watch(this, list(going), going)
        this.out.data(fleet=spec.fleet, runs=[ended.get(str(state["id"]), state) for state in chosen])
        raise_for_failed(ended)
        return
    for view in views:
        if view.error:
            this.out.note(f"{view.host.name}: {view.error}; its runs are shown as they were last collected")
    for host, unknown in _unheard(placed.values(), known).items():
        this.out.note(f"{host}: {listed(unknown)}: sent there, not heard of and not home")
    if chosen:
        this.out.table(*run_table(chosen))
    else:
        this.out.line("no runs yet; tpufleet run JOB")
    this.out.data(fleet=spec.fleet, runs=chosen)


def _unheard(placed: Iterable[Placement], known: Container[str]) -> dict[str, list[str]]:
    """The runs that were sent to hosts and are not among the `known`, by host."""
    unheard: dict[str, list[str]] = {}
    for item in placed:
        if item.run not in known:
            unheard.setdefault(item.host, []).append(item.run)
    return unheard
