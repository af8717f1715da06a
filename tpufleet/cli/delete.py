"""`tpufleet delete`: take the fleet down and prove it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.actions import Plan
from tpufleet.cli import completion
from tpufleet.cli.arguments import DryRun, Yes, duration, session
from tpufleet.cli.create import show_plan
from tpufleet.cli.output import Output
from tpufleet.cloud.port import ALL_ZONES
from tpufleet.errors import UsageError
from tpufleet.model import Provider, Snapshot, Spec
from tpufleet.text import counted, listed

if TYPE_CHECKING:
    from tpufleet.ops.delete import Proof


def delete(
    context: typer.Context,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE...]", help="Only these; default: all.", autocompletion=completion.nodes),
    ] = None,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Only what bears the fleet's label and the file doesn't know, anywhere.")
    ] = False,
    expired: Annotated[bool, typer.Option("--expired", help="Only nodes whose ttl is over.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait: 90s, 15m.")] = "15m",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take the fleet down, and prove it.

    Nodes go with their queued resources. Waits until all is gone, then lists every zone of the file.

    Example: tpufleet collect && tpufleet delete --yes

    Example: tpufleet delete --orphans --dry-run
    """
    from tpufleet.ops import delete as operation
    from tpufleet.ops.ledger import remember
    from tpufleet.ops.observe import survey

    this = session(context)
    limit = duration("--timeout", timeout)
    if sum((bool(nodes), orphans, expired)) > 1:
        raise UsageError("name nodes, or say --orphans, or --expired")
    if (spec := this.spec()).cloud.provider is Provider.INVENTORY:
        _keep(this.out, spec, dry_run=dry_run)
        return
    if dry_run:
        show_plan(this.out, spec, _plan(spec, this.survey(spec, everywhere=orphans), nodes or (), orphans, expired))
        return
    with this.fleet("delete") as fleet, this.changing(fleet):
        everywhere = orphans or not fleet.journal.is_kept  # which alone knows of zones that have left the file
        there = survey(fleet.spec, fleet.cloud, [ALL_ZONES] if everywhere else fleet.zones)
        remember(fleet, there.nodes)  # what they cost outlives them
        plan = _plan(fleet.spec, there, nodes or (), orphans, expired)
        if plan.actions and not yes:
            going = operation.at_risk(fleet, plan, there)
            lost = f" {len(going)} runs have not ended: {', '.join(going[:3])}." if going else ""
            doomed = listed([_named(action.name, action.zone, there) for action in plan.actions])
            this.out.confirm(f"Delete {doomed}, with all on them?{lost}", yes=yes)
        proof = operation.delete(fleet, plan, everywhere=everywhere, limit_s=limit.seconds)
    if plan.actions and not fleet.journal.is_kept:
        this.out.note("this deletion is not on record: a watch that is on would make the nodes again, end it")
    if not plan.actions:
        this.out.line("nothing to do")
    for item in proof:
        this.out.line(proven(item, fleet.spec.fleet))
    this.out.data(
        fleet=fleet.spec.fleet,
        dry_run=False,
        deleted=[action.name for action in plan.actions],
        proof=[dataclasses.asdict(item) for item in proof],
    )
    if not (nodes or orphans or expired):
        operation.raise_unless_empty(proof)


def _keep(out: Output, spec: Spec, *, dry_run: bool) -> None:
    """The hosts of an inventory were there before the fleet, and outlive it."""
    hosts = counted(len(spec.cloud.hosts), "host")
    out.line(f"nothing to delete: the {hosts} of cloud.hosts stay, with what runs on them (tpufleet stop ends runs)")
    out.data(fleet=spec.fleet, dry_run=dry_run, deleted=[], proof=[])


def _plan(spec: Spec, there: Snapshot, nodes: Sequence[str], orphans: bool, expired: bool) -> Plan:
    from tpufleet.plan import plan_delete, plan_expired, plan_orphans

    if orphans:
        return plan_orphans(spec, there)
    return plan_expired(there, time.time()) if expired else plan_delete(there, nodes)


def _named(name: str, zone: str, there: Snapshot) -> str:
    adopted = any(node.adopted for node in there.nodes if (node.name, node.zone) == (name, zone))
    return f"{name} (adopted)" if adopted else name


def proven(item: Proof, fleet: str) -> str:
    if not item.granted:
        return f"{item.zone}: not granted to the project, nothing could be listed"
    zone = "all zones" if item.zone == ALL_ZONES else item.zone
    queued = counted(item.queued_resources, "queued resource")
    return f"{zone}: {counted(item.nodes, 'node')}, {queued} of {fleet}"
