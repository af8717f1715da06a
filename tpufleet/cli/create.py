"""`tpufleet create`: make the fleet equal the file."""

from __future__ import annotations

import typer

from tpufleet.cli.arguments import DryRun, Yes, session
from tpufleet.cli.output import Output
from tpufleet.cli.render import PLAN_COLUMNS, plan_fields, plan_rows
from tpufleet.errors import Conflict
from tpufleet.model import DeleteNode, Plan, Snapshot
from tpufleet.text import counted


def create(context: typer.Context, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Make the fleet equal the file: nodes, keys, code.

    Running it again changes nothing; what is missing or preempted is made, what the file dropped is deleted.

    Example: tpufleet create --dry-run
    """
    from tpufleet.ops import create as operation
    from tpufleet.ops.observe import find_nodes
    from tpufleet.plan import plan_create
    from tpufleet.ssh.keys import ensure_key

    this = session(context)
    if dry_run:
        spec = this.spec()
        operation.resolve_code(spec, this.paths(spec).directory)
        show_plan(this.out, spec.fleet, plan_create(spec, Snapshot(this.nodes(spec))))
        return
    with this.fleet("create", start=True) as fleet, this.changing(fleet):
        code = operation.resolve_code(fleet.spec, fleet.paths.directory)
        plan = plan_create(fleet.spec, Snapshot(find_nodes(fleet)))
        if plan.conflicts:
            raise Conflict(plan.conflicts[0], hint="tpufleet create --dry-run")
        _confirm(this.out, plan, yes=yes)
        created = operation.create(fleet, plan, code, ensure_key(fleet.paths.key))
    views, commit = created.views, code.commit if code else None
    nodes, chips = len({view.host.node for view in views}), sum(len(view.chips) for view in views)
    there = ", ".join((counted(nodes, "node"), counted(len(views), "host"), counted(chips, "chip")))
    this.out.line(f"{fleet.spec.fleet}: {there} ready" + ("" if created.changed else "; nothing to do"))
    this.out.data(
        fleet=fleet.spec.fleet,
        dry_run=False,
        changed=created.changed,
        actions=plan_fields(plan),
        conflicts=[],
        hosts=[
            {"name": view.host.name, "address": view.host.address, "chips": len(view.chips), "commit": commit}
            for view in views
        ],
    )


def show_plan(out: Output, fleet: str, plan: Plan) -> None:
    """The plan as a table and as JSON."""
    if plan.actions:
        out.table(PLAN_COLUMNS, plan_rows(plan))
    for conflict in plan.conflicts:
        out.line(f"in the way: {conflict}")
    if not plan.actions and not plan.conflicts:
        out.line("nothing to do")
    changed = bool(plan.actions)
    out.data(fleet=fleet, dry_run=True, changed=changed, actions=plan_fields(plan), conflicts=list(plan.conflicts))


def _confirm(out: Output, plan: Plan, *, yes: bool) -> None:
    surplus = [action.name for action in plan.actions if isinstance(action, DeleteNode) and action.surplus]
    if surplus:
        out.confirm(f"Not in the file any more, to be deleted: {', '.join(surplus)}.", yes=yes)
