"""`tpufleet sync`: every host at one commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpufleet.cli.arguments import DryRun, On, session
from tpufleet.errors import UsageError

if TYPE_CHECKING:
    from tpufleet.model import Code, HostView
    from tpufleet.ops.code import Synced


def sync(
    context: typer.Context,
    on: On = "",
    restore: Annotated[
        bool, typer.Option("--restore", help="Undo what was changed by hand in a host's checkout.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
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
        views = probe(fleet, hosts)
        before = {view.host.name: view.commit_of(code.repo_id) for view in views}
        was_dirty = {view.host.name for view in views if _is_dirty(view, code)}
        synced = () if dry_run else bring_code(fleet, hosts, code, restore=restore)
    done = {item.host: item for item in synced}
    this.out.table(
        ("host", "commit", "drift", "set-up"),
        [_row(host.name, before[host.name], code.commit, done.get(host.name), was_dirty) for host in hosts],
    )
    changed = any(before[host.name] != code.commit for host in hosts) or any(item.setup == "ran" for item in synced)
    changed |= any(item.host in was_dirty and not item.dirty for item in synced)
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


def _is_dirty(view: HostView, code: Code) -> bool:
    """Whether the host's checkout of this commit was changed by hand."""
    trees: list[Mapping[str, Any]] = view.probe["code"] if view.probe else []
    return any(tree["dirty"] for tree in trees if (tree["repo"], tree["commit"]) == (code.repo_id, code.commit))


def _row(host: str, before: str | None, now: str, synced: Synced | None, was_dirty: Collection[str]) -> tuple[str, ...]:
    change = "unchanged" if before == now else f"{(before or 'none')[:12]} → {now[:12]}"
    dirty = synced.dirty if synced else host in was_dirty
    drift = "changed on the host" if dirty else "restored" if host in was_dirty else ""
    return (host, change, drift, synced.setup if synced else "")
