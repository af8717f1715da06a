"""`tpufleet stop`: end runs, or take them out of the queue."""

from __future__ import annotations

from typing import Annotated

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import DryRun, session
from tpufleet.cli.run_table import run_table
from tpufleet.text import natural


def stop(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(help="Run ids, or a job's name for all its runs.", autocompletion=completion.runs_and_jobs),
    ],
    dry_run: DryRun = False,
) -> None:
    """Stop runs, or take them out of the queue.

    SIGTERM to all their processes, SIGKILL after ten seconds. `run` goes on with them later.

    Example: tpufleet stop gpt-lr0.001-seed0

    Example: tpufleet stop gpt
    """
    from tpufleet.ops.observe import observe
    from tpufleet.ops.runs import find, going, located, stop as end

    this = session(context)
    with this.fleet("stop", dry_run=dry_run) as fleet, this.changing(fleet):
        views = observe(fleet).hosts
        there = located(views)
        chosen = find(runs, there, views)
        doomed = going(chosen, there)
        states = [there[run].state for run in chosen] if dry_run else end(fleet, chosen, there)
    states = sorted(states, key=lambda state: natural(str(state["id"])))
    this.out.table(*run_table(states))
    if not doomed:
        this.out.line("nothing to do")
    this.out.data(dry_run=dry_run, stopped=doomed, runs=states)
