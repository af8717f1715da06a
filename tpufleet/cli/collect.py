"""`tpufleet collect`: everything comes home, and the report is written."""

from __future__ import annotations

from typing import Annotated

import typer

from tpufleet.cli.arguments import session
from tpufleet.errors import PartialFailure

AGAIN = "run the same command again; a checkpoint that is broken on its host stays there"


def collect(
    context: typer.Context,
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN...]", help="Only these; default: all.")] = None,
) -> None:
    """Bring everything home, verified, and write the report.

    Logs, metrics, completions and checkpoints of all runs, from all hosts side by side.
    What is home already is not sent again; unfinished runs come as they stand.

    Example: tpufleet collect
    """
    from tpufleet import report
    from tpufleet.ops.collect import collect as bring, summary
    from tpufleet.ops.observe import observe
    from tpufleet.ops.runs import find, located

    this = session(context)
    with this.fleet("collect") as fleet, this.changing(fleet):
        views = observe(fleet).hosts
        only = frozenset(find(runs, located(views), views)) if runs else frozenset[str]()
        brought = bring(fleet, views, only=only)
        fleet.say("report", "writing")
        page = report.write(fleet.paths.artifacts)
        fleet.say("report", str(page), "done")
    this.out.line(summary(brought))
    for note in brought.notes:
        this.out.note(f"stays where it is: {note}")
    for problem in brought.problems:
        this.out.note(f"not home: {problem}")
    this.out.line(f"report: {page}")
    this.out.data(
        fleet=fleet.spec.fleet,
        home=str(fleet.paths.artifacts),
        report=str(page),
        runs=brought.runs,
        files=brought.files,
        bytes=brought.bytes,
        checkpoints=brought.checkpoints,
        problems=brought.problems,
        notes=brought.notes,
    )
    if brought.full:
        raise brought.full
    if brought.problems:
        raise PartialFailure(
            f"not everything is home: {brought.problems[0]}",
            hint=AGAIN,
        )
