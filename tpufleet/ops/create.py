"""Make the fleet equal the file, from nodes to code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpufleet.actions import Plan
from tpufleet.errors import TpufleetError
from tpufleet.model import Code, Host, HostView, Node, NodeState, Spec
from tpufleet.ops.apply import CREATE_LIMIT_S, apply
from tpufleet.ops.code import Synced, resolve, sync
from tpufleet.ops.fleet import Fleet, values_or_raise
from tpufleet.ops.prepare import preparation
from tpufleet.text import natural


@dataclass(frozen=True)
class Created:
    """The fleet after `create`; `changed` is False when everything was so before."""

    views: tuple[HostView, ...]
    changed: bool


def resolve_code(spec: Spec, directory: Path) -> Code | None:
    """The commit the file means now, if it names a repository; asked before anything is made for it."""
    return resolve(spec.code, directory) if spec.code else None


def create(
    fleet: Fleet,
    plan: Plan,
    nodes: Sequence[Node],
    code: Code | None,
    key_line: str,
    *,
    limit_s: float = CREATE_LIMIT_S,
) -> Created:
    """Carry out the plan, and make each host ready and bring it to the commit as soon as its node is there.

    `nodes` are those that the plan was made from. Nodes that can't be had don't keep the others from being used:
    their error is raised at the end.
    """
    touched = {(action.name, action.zone) for action in plan.actions}
    with preparation(fleet, code) as hosts:
        for node in nodes:
            if node.state is NodeState.READY and (node.name, node.zone) not in touched:
                hosts.of_old(node)
        failed = _failure_of(lambda: apply(fleet, plan, key_line, hosts.of_new, limit_s=limit_s))
        outcomes = hosts.finish()
    if failed:
        raise failed
    prepared = values_or_raise(fleet, outcomes, "hosts could not be prepared", told=True)
    changed = bool(plan.actions) or any(item.synced and _is_news(item.synced) for item in prepared)
    in_order = sorted(prepared, key=lambda item: natural(item.view.host.name))  # not as they came
    return Created(tuple(item.view for item in in_order), changed)


def _is_news(synced: Synced) -> bool:
    return synced.fetched or synced.setup == "ran"


def _failure_of(work: Callable[[], None]) -> TpufleetError | None:
    try:
        work()
    except TpufleetError as error:
        return error
    return None


def bring_code(fleet: Fleet, hosts: Sequence[Host], code: Code, *, restore: bool = False) -> tuple[Synced, ...]:
    """Every host at the commit; raises for those that can't be brought there, after all were tried."""
    return values_or_raise(fleet, sync(fleet, hosts, code, restore=restore), "hosts have not got the code")
