"""`tpufleet runs`: every run the hosts know, and those that are home already."""

from __future__ import annotations

from typing import Annotated

import typer

from tpufleet.cli.arguments import session
from tpufleet.cli.render import RUN_COLUMNS, run_rows
from tpufleet.errors import CloudUnreachable
from tpufleet.text import natural


def runs(
    context: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job's runs.")] = None,
) -> None:
    """List the runs: state, chip, step, last metrics.

    Example: tpufleet runs gpt --json
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
    except CloudUnreachable as error:
        if not home:
            raise
        this.out.note(f"{error.message}: these are the runs as they were last collected")
        views = ()
    known = home | {run: dict(item.state) for run, item in located(views).items()}
    ordered = [known[run] for run in sorted(known, key=natural)]
    chosen = [state for state in ordered if job is None or state.get("job") == job]
    for view in views:
        if view.error:
            this.out.note(f"{view.host.name}: {view.error}; its runs are shown as they were last collected")
    if chosen:
        this.out.table(RUN_COLUMNS, run_rows(chosen), numbers=("step",))
    else:
        this.out.line("no runs yet; tpufleet run JOB")
    this.out.data(fleet=spec.fleet, runs=chosen)
