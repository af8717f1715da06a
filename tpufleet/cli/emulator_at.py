"""Which rehearsal cloud the commands of `tpufleet emulator` are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tpufleet.cli.arguments import session
from tpufleet.errors import CloudUnreachable, UsageError
from tpufleet.model import Provider, Spec
from tpufleet.paths import LocalPaths

if TYPE_CHECKING:
    from tpufleet.emulator.launch import Running
    from tpufleet.emulator.remote import Remote


def rehearsed(context: typer.Context) -> tuple[Spec, LocalPaths]:
    """The fleet and its paths; raises UsageError when it isn't on the rehearsal cloud."""
    this = session(context)
    spec = this.spec()
    if spec.cloud.provider is not Provider.EMULATOR:
        raise UsageError(
            f"this fleet is on {spec.cloud.provider}, not on the rehearsal cloud", hint="--config another.yaml"
        )
    return spec, this.paths(spec)


def running(context: typer.Context) -> Running:
    """The fleet's emulator; raises CloudUnreachable when it doesn't run."""
    from tpufleet.emulator import launch

    _, paths = rehearsed(context)
    found = launch.running(paths.emulator)
    if found is None:
        raise CloudUnreachable("the rehearsal cloud is not running", hint="tpufleet emulator start")
    return found


def remote(context: typer.Context) -> Remote:
    """What steers the fleet's emulator; raises CloudUnreachable when it doesn't run."""
    from tpufleet.emulator.remote import Remote

    return Remote(running(context).url)
