"""`tpufleet sync`: every host at one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tpufleet.cli.arguments import DryRun, On, session
from tpufleet.errors import UsageError

if TYPE_CHECKING:
    from tpufleet.ops.code import Synced


def sync(context: typer.Context, on: On = "", dry_run: DryRun = False) -> None:
    """Bring the repository to every host, at one commit.

    Its set-up runs once per host and commit; runs keep the commit they started with.

    Example: tpufleet sync
    """
    from tpufleet.ops.code import resolve
    from tpufleet.ops.create import bring_code
    from tpufleet.ops.observe import find_nodes, hosts_of, probe
    from tpufleet.ops.selection import select

    this = session(context)
    with this.fleet("sync", dry_run=dry_run) as fleet, this.changing(fleet):
        if fleet.spec.code is None:
            raise UsageError("the fleet file names no repository", hint="add code.repo to it")
        code = resolve(fleet.spec.code, fleet.paths.directory)
        hosts = select(hosts_of(fleet, find_nodes(fleet)), on)
        if not hosts:
            raise UsageError("the fleet has no host that is ready", hint="tpufleet create")
        before = {view.host.name: view.commit_of(code.repo_id) for view in probe(fleet, hosts)}
        synced = () if dry_run else bring_code(fleet, hosts, code)
    done = {item.host: item for item in synced}
    this.out.table(
        ("host", "commit", "drift", "set-up"),
        [_row(host.name, before[host.name], code.commit, done.get(host.name)) for host in hosts],
    )
    changed = any(before[host.name] != code.commit for host in hosts) or any(item.setup == "ran" for item in synced)
    if not changed:
        this.out.line("nothing to do")
    this.out.data(
        dry_run=dry_run,
        commit=code.commit,
        uncommitted=code.uncommitted,
        changed=changed,
        hosts=[
            {
                "name": host.name,
                "before": before[host.name],
                "dirty": done[host.name].dirty if host.name in done else None,
                "setup": done[host.name].setup if host.name in done else None,
            }
            for host in hosts
        ],
    )


def _row(host: str, before: str | None, now: str, synced: Synced | None) -> tuple[str, ...]:
    change = "unchanged" if before == now else f"{(before or 'none')[:12]} → {now[:12]}"
    return (host, change, "changed on the host" if synced and synced.dirty else "", synced.setup if synced else "")
