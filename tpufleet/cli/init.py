"""`tpufleet init`: a commented fleet file to begin with."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tpufleet.cli.arguments import DryRun, session
from tpufleet.errors import UsageError


def init(
    context: typer.Context,
    project: Annotated[
        str | None, typer.Option(metavar="ID", help="A Google Cloud project; else it is rehearsed.")
    ] = None,
    zone: Annotated[str | None, typer.Option(metavar="ZONE", help="The zone, such as us-central1-b.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The fleet's name; default: the directory's.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Write a commented tpufleet.yaml.

    Example: tpufleet init

    Example: tpufleet init --project my-project --zone us-central1-b
    """
    from tpufleet.config.template import template
    from tpufleet.names import FleetName, ProjectId, Zone
    from tpufleet.paths import write_atomically

    this = session(context)
    if (project is None) != (zone is None):
        raise UsageError("--project and --zone go together", hint="tpufleet init --project ID --zone us-central1-b")
    try:
        fleet = FleetName(name) if name else _fleet_name(this.config.absolute().parent.name)
        text = template(fleet=fleet, project=ProjectId(project) if project else None, zone=Zone(zone) if zone else None)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if this.config.exists():
        raise UsageError(f"{this.config} is there already", hint="edit it, or name another with --config FILE")
    if dry_run:
        this.out.text(text)
    else:
        try:
            write_atomically(this.config, text.encode(), mode=0o644)
        except OSError as error:
            raise UsageError(f"{this.config} can't be written: {error.strerror}") from error
        where = "" if this.config.name == "tpufleet.yaml" else f" --config {this.config}"
        this.out.line(f"wrote {this.config}; next: tpufleet{where} create")
    this.out.data(file=str(this.config), fleet=fleet, dry_run=dry_run)


def _fleet_name(directory: str) -> str:
    """A fleet name from the directory's, `fleet` where nothing of it can be used."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", directory.lower()).lstrip("-0123456789")[:40].strip("-")
    return cleaned or "fleet"
