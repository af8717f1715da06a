"""`tpufleet sync`: every host at one commit."""

from __future__ import annotations

import typer

from tpufleet.cli.arguments import DryRun, On, session
from tpufleet.errors import UsageError


def sync(context: typer.Context, on: On = "", dry_run: DryRun = False) -> None:
    """Bring the training repository to every host, at one commit, and run its set-up where that is new.

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
        before = {view.host.name: _commit(view.probe) for view in probe(fleet, hosts)}
        synced = () if dry_run else bring_code(fleet, hosts, code)
    done = {item.host: item for item in synced}
    rows: list[tuple[str, ...]] = []
    for host in hosts:
        item = done.get(host.name)
        change = (
            "unchanged"
            if before[host.name] == code.commit
            else f"{before[host.name][:12] or 'none'} → {code.commit[:12]}"
        )
        rows.append(
            (host.name, change, "changed on the host" if item and item.dirty else "", item.setup if item else "")
        )
    this.out.table(("host", "commit", "drift", "set-up"), rows)
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
                "before": before[host.name] or None,
                "dirty": done[host.name].dirty if host.name in done else None,
                "setup": done[host.name].setup if host.name in done else None,
            }
            for host in hosts
        ],
    )


def _commit(probe: object) -> str:
    """The commit a host has now (the newest checkout), or an empty string."""
    if not isinstance(probe, dict):
        return ""
    code = probe.get("code") or []  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (JSON)
    return str(code[-1]["commit"]) if code else ""  # pyright: ignore[reportUnknownArgumentType] (JSON)
