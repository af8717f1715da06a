"""`tpufleet adopt`: a node that somebody made by hand joins the fleet, or leaves it."""

from __future__ import annotations

from typing import Annotated

import typer

from tpufleet.cli.arguments import DryRun, session


def adopt(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name, in a zone of the file.")],
    release: Annotated[bool, typer.Option("--release", help="Give it back: the node stays as it is.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Take an existing node into the fleet.

    It gets the fleet's label and the operator's key; `create` then brings the code, `run` uses its chips, and
    `delete` deletes it with the others.

    Example: tpufleet adopt my-old-tpu && tpufleet create
    """
    from tpufleet.ops import adopt as operation

    this = session(context)
    verb = "release" if release else "adopt"
    with this.fleet(verb, dry_run=dry_run) as fleet, this.changing(fleet):
        found = operation.find(fleet, node)
        key_line = this.access(fleet.spec).key_line()
        if dry_run:
            changed = not release and operation.adopted_labels(fleet.spec, found) != found.labels
        else:
            change = operation.release if release else operation.adopt
            changed = change(fleet, found, key_line)
    words = f"does not belong to {fleet.spec.fleet}" if release else f"belongs to {fleet.spec.fleet}"
    said = "would be changed" if dry_run and changed else words if changed else f"{words}; nothing to do"
    this.out.line(f"{node} in {found.zone}: {said}")
    this.out.data(
        fleet=fleet.spec.fleet, node=node, zone=found.zone, released=release, changed=changed, dry_run=dry_run
    )
