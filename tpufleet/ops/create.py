"""Make the fleet equal the file, from nodes to code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpufleet.errors import CloudError, PartialFailure
from tpufleet.model import Code, Host, HostView, Plan, Spec
from tpufleet.ops.apply import apply
from tpufleet.ops.code import Synced, resolve, sync
from tpufleet.ops.fleet import Fleet, values_or_raise
from tpufleet.ops.observe import find_nodes, hosts_of
from tpufleet.ops.prepare import prepare


@dataclass(frozen=True)
class Created:
    """The fleet after `create`; `changed` is False when everything was so before."""

    views: tuple[HostView, ...]
    changed: bool


def resolve_code(spec: Spec, directory: Path) -> Code | None:
    """The commit the file means now, if it names a repository; asked before anything is made for it."""
    return resolve(spec.code, directory) if spec.code else None


def create(fleet: Fleet, plan: Plan, code: Code | None, key_line: str) -> Created:
    """Carry out the plan, then make every host ready and bring it to the commit.

    Nodes that can't be had don't keep the others from being used: their error is raised at the end.
    """
    failed = _failure_of(lambda: apply(fleet, plan, key_line))
    hosts = hosts_of(fleet, find_nodes(fleet))
    views = prepare(fleet, hosts)
    synced = bring_code(fleet, hosts, code) if code else ()
    changed = bool(plan.actions) or any(item.fetched or item.setup == "ran" for item in synced)
    if failed:
        raise failed
    return Created(views, changed)


def _failure_of(work: Callable[[], None]) -> CloudError | PartialFailure | None:
    try:
        work()
    except (CloudError, PartialFailure) as error:
        return error
    return None


def bring_code(fleet: Fleet, hosts: Sequence[Host], code: Code) -> tuple[Synced, ...]:
    """Every host at the commit; raises for those that can't be brought there, after all were tried."""
    if code.uncommitted:
        fleet.say(
            "code", f"{code.uncommitted} changed files are not committed: hosts get {code.commit[:12]} without them"
        )
    return values_or_raise(fleet, sync(fleet, hosts, code), "hosts have not got the code")
