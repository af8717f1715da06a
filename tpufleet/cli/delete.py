"""`tpufleet delete`: take the fleet down and prove it."""

from __future__ import annotations

from typing import Annotated

import typer

from tpufleet.cli.arguments import DryRun, Yes, session
from tpufleet.cli.create import show_plan
from tpufleet.model import Snapshot


def delete(
    context: typer.Context,
    nodes: Annotated[list[str] | None, typer.Argument(metavar="[NODE...]", help="Only these; default: all.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take the fleet down, and prove it.

    Waits until all is gone, then lists every zone of the file.

    Example: tpufleet collect && tpufleet delete --yes
    """
    from tpufleet.ops import delete as operation
    from tpufleet.ops.observe import find_nodes
    from tpufleet.plan import plan_delete

    this = session(context)
    if dry_run:
        spec = this.spec()
        show_plan(this.out, spec.fleet, plan_delete(Snapshot(this.nodes(spec)), nodes or ()))
        return
    with this.fleet("delete") as fleet, this.changing(fleet):
        plan = plan_delete(Snapshot(find_nodes(fleet)), nodes or ())
        if plan.actions and not yes:
            going = operation.at_risk(fleet, plan)
            lost = f" {len(going)} runs have not ended: {', '.join(going[:3])}." if going else ""
            this.out.confirm(
                f"Delete {', '.join(action.name for action in plan.actions)}, with all on them?{lost}", yes=yes
            )
        proof = operation.delete(fleet, plan)
    if not plan.actions:
        this.out.line("nothing to do")
    for item in proof:
        this.out.line(
            f"{item.zone}: {item.nodes} nodes, {item.queued_resources} queued resources of {fleet.spec.fleet}"
        )
    this.out.data(
        fleet=fleet.spec.fleet,
        dry_run=False,
        deleted=[action.name for action in plan.actions],
        proof=[{"zone": item.zone, "nodes": item.nodes, "queued_resources": item.queued_resources} for item in proof],
    )
    if not nodes:
        operation.raise_unless_empty(proof)
