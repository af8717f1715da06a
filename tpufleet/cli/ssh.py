"""`tpufleet ssh` and `tpufleet ssh-config`: the system's own ssh, with the host keys verified."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpufleet.cli import completion
from tpufleet.cli.arguments import DryRun, session, shell_line
from tpufleet.errors import UsageError

if TYPE_CHECKING:
    from tpufleet.model import Host
    from tpufleet.ops.fleet import Fleet
    from tpufleet.ssh.access import Access

INCLUDE_NOTE = "# tpufleet: the hosts of a fleet (tpufleet ssh-config --install)"


def ssh(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST]", help="tpu-0-w0, or tpu-0; default: the first host.", autocompletion=completion.hosts
        ),
    ] = None,
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- CMD...]", help="Instead of a shell.")] = None,
) -> None:
    """Open a shell, or run a command, on one host.

    Example: tpufleet ssh tpu-0

    Example: tpufleet ssh tpu-0-w0 -- 'df -h | tail -1'
    """
    this = session(context)
    program = shutil.which("ssh")
    if program is None:
        raise UsageError("there is no ssh program here", hint="install OpenSSH's client")
    with this.fleet("ssh") as fleet:
        target = _one(fleet, host)
        fleet.pin(target)
        write_config(fleet, this.access(fleet.spec))
    words = [program, "-F", str(fleet.paths.ssh_config), target.name]
    os.execv(program, [*words, "--", shell_line(command)] if command else words)  # noqa: S606 (a list, no shell here)


def ssh_config(
    context: typer.Context,
    install: Annotated[bool, typer.Option("--install", help="Write it, and include it in ~/.ssh/config.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Print an OpenSSH config for ssh, scp, rsync and editors.

    Example: tpufleet ssh-config --install && ssh tpu-0
    """
    this = session(context)
    with this.fleet("ssh-config") as fleet:
        hosts, text = write_config(fleet, this.access(fleet.spec), dry_run=dry_run)
    if install and not dry_run:
        changed = _include(Path.home() / ".ssh" / "config", fleet.paths.ssh_config)
        this.out.note(
            f"~/.ssh/config includes {fleet.paths.ssh_config}" + ("" if changed else " already; nothing to do")
        )
    else:
        this.out.text(text)
    this.out.data(config=text, file=str(fleet.paths.ssh_config), hosts=[host.name for host in hosts])


def write_config(fleet: Fleet, access: Access, *, dry_run: bool = False) -> tuple[tuple[Host, ...], str]:
    """Write the fleet's own config and known_hosts (0600, in `.tpufleet/`); returns the hosts and the config's text."""
    from tpufleet.ops.observe import find_nodes, hosts_of
    from tpufleet.paths import write_atomically
    from tpufleet.ssh.fanout import gather
    from tpufleet.ssh.openssh import config_text

    hosts = hosts_of(fleet, find_nodes(fleet))
    for outcome in gather(hosts, fleet.pin):
        if outcome.error:
            fleet.say(outcome.item.name, outcome.error.message, "failed")
    text = config_text(hosts, access, fleet.trust, fleet.paths.known_hosts)
    if dry_run:
        return hosts, text
    write_atomically(fleet.paths.known_hosts, fleet.trust.known_hosts(hosts).encode())
    write_atomically(fleet.paths.ssh_config, text.encode())
    return hosts, text


def _one(fleet: Fleet, name: str | None) -> Host:
    from tpufleet.ops.observe import find_nodes, hosts_of
    from tpufleet.ops.selection import select

    hosts = hosts_of(fleet, find_nodes(fleet))
    if not hosts:
        raise UsageError("the fleet has no host that is ready", hint="tpufleet create")
    chosen = select(hosts, name) if name else hosts[:1]
    target, *others = chosen
    if others:
        raise UsageError(f"{name} has {len(chosen)} hosts", hint=f"name one: {', '.join(host.name for host in chosen)}")
    return target


def _include(config: Path, ours: Path) -> bool:
    """Put an Include at the top of the person's config (first match wins there); True if it was not there yet."""
    from tpufleet.paths import write_atomically

    line = f'Include "{ours}"'
    old = config.read_text() if config.exists() else ""
    if line in old.splitlines():
        return False
    config.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(config.resolve(), f"{INCLUDE_NOTE}\n{line}\n\n{old}".encode())
    return True
