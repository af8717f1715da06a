"""`tpufleet create`: make the fleet equal the file."""

from __future__ import annotations

from typing import Annotated

import typer

from tpufleet.actions import DeleteNode, Plan
from tpufleet.cli.arguments import DryRun, Yes, duration, session
from tpufleet.cli.output import Output
from tpufleet.cli.render import PLAN_COLUMNS, bill_line, plan_fields, plan_rows, ttl_lines, unknown_places
from tpufleet.cli.session import Session
from tpufleet.errors import CloudUnreachable, Conflict, PermissionDenied
from tpufleet.model import Provider, Snapshot, Spec
from tpufleet.text import counted, listed


def create(
    context: typer.Context,
    yes: Yes = False,
    dry_run: DryRun = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="How long to wait for chips: 90s, 30m, 12h.")
    ] = "30m",
) -> None:
    """Make the fleet equal the file: nodes, keys, code.

    Running it again changes nothing; what is missing or preempted is made, what the file dropped is deleted. Where a
    zone has no chips left the next one of the file is asked, then all of them again, until the time is over.

    Example: tpufleet create --dry-run

    Example: tpufleet create --timeout 12h
    """
    from tpufleet.ops import create as operation
    from tpufleet.ops.observe import survey
    from tpufleet.plan import plan_create

    this = session(context)
    limit = duration("--timeout", timeout)
    if dry_run:
        spec = this.spec()
        operation.resolve_code(spec, this.paths(spec).directory)
        plan = plan_create(spec, _there(this, spec))
        show_plan(this.out, spec, plan)
        this.out.line("every host that lacks the agent or the code then gets it")
        if plan.conflicts:
            raise typer.Exit(Conflict.exit_code)
        return
    with this.fleet("create", start=True) as fleet, this.changing(fleet):
        code = operation.resolve_code(fleet.spec, fleet.paths.directory)
        there = survey(fleet.spec, fleet.cloud, fleet.zones)
        plan = plan_create(fleet.spec, there)
        if given := _token_for_people(fleet.spec):
            this.out.note(given)
        if plan.conflicts:
            raise Conflict(plan.conflicts[0], hint="tpufleet create --dry-run")
        _confirm(this.out, plan, yes=yes)
        key_line = this.access(fleet.spec).key_line()
        created = operation.create(fleet, plan, there.nodes, code, key_line, limit_s=limit.seconds)
    views, commit = created.views, code.commit if code else None
    nodes, chips = len({view.host.node for view in views}), sum(len(view.chips) for view in views)
    ready = ", ".join((counted(nodes, "node"), counted(len(views), "host"), counted(chips, "chip")))
    this.out.line(f"{fleet.spec.fleet}: {ready} ready" + ("" if created.changed else "; nothing to do"))
    for line in ttl_lines(views):
        this.out.note(line)
    this.out.data(
        fleet=fleet.spec.fleet,
        dry_run=False,
        changed=created.changed,
        actions=plan_fields(plan, trc=fleet.spec.cloud.trc),
        conflicts=[],
        hosts=[
            {"name": view.host.name, "address": view.host.address, "chips": len(view.chips), "commit": commit}
            for view in views
        ],
    )


def _token_for_people(spec: Spec) -> str | None:
    """What people with accounts get from Google along with it: every process on a VM may ask for this token."""
    if spec.cloud.provider is not Provider.GCP or not spec.people or spec.cloud.service_account is not None:
        return None
    return (
        "people on the hosts can act as the project's default service account; name one without any role as "
        "cloud.service_account (docs/google-cloud.md)"
    )


def _there(this: Session, spec: Spec) -> Snapshot:
    """What is there, for a plan; prices and zones can be looked at before anybody may ask the cloud."""
    try:
        return this.survey(spec)
    except (PermissionDenied, CloudUnreachable) as error:
        this.out.note(f"the cloud was not asked ({error.message}); this is the plan for an empty one")
        return Snapshot()


def show_plan(out: Output, spec: Spec, plan: Plan) -> None:
    """The plan as a table and as JSON, with what the new nodes cost."""
    fields = plan_fields(plan, trc=spec.cloud.trc)
    if plan.actions:
        out.table(PLAN_COLUMNS, plan_rows(fields), numbers=("usd/h",))
    if bill := bill_line(plan, trc=spec.cloud.trc):
        out.line(bill)
    for text in unknown_places(plan):
        out.line(text)
    for conflict in plan.conflicts:
        out.line(f"in the way: {conflict}")
    if not plan.actions and not plan.conflicts:
        out.line("nothing to do")
    changed = bool(plan.actions)
    out.data(fleet=spec.fleet, dry_run=True, changed=changed, actions=fields, conflicts=list(plan.conflicts))


def _confirm(out: Output, plan: Plan, *, yes: bool) -> None:
    surplus = [action.name for action in plan.actions if isinstance(action, DeleteNode) and action.surplus]
    if surplus:
        out.confirm(f"Not in the file any more, to be deleted: {listed(surplus)}.", yes=yes)
