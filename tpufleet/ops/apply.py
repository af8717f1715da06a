"""Carry out a plan on the nodes: all deletions and creations side by side, one look at the cloud for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tpufleet.actions import AwaitNode, CreateNode, DeleteNode, Plan, StartNode
from tpufleet.ops.bringup import Making, OnReady, Waking
from tpufleet.ops.errands import raise_failures, settle
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.remove import Removing

CREATE_LIMIT_S = 1800.0
DELETE_LIMIT_S = 900.0

ToReady = CreateNode | StartNode | AwaitNode


def apply(fleet: Fleet, plan: Plan, key_line: str, on_ready: OnReady, *, limit_s: float = CREATE_LIMIT_S) -> None:
    """Make the plan true; `on_ready` is told of each node the moment it is READY, while others are still made.

    Deletions come first, since a replaced node keeps its name. Raises the error of the only failure, or
    PartialFailure when some of many failed; the others are carried on.
    """
    remove(fleet, [action for action in plan.actions if isinstance(action, DeleteNode)])
    wishes = [action for action in plan.actions if not isinstance(action, DeleteNode)]
    bring_up(fleet, wishes, key_line, on_ready, limit_s=limit_s)


def bring_up(fleet: Fleet, actions: Sequence[ToReady], key_line: str, on_ready: OnReady, *, limit_s: float) -> None:
    """Ask for every node at once, then wait for all of them."""
    ways = [
        Making(fleet, action, key_line, on_ready) if isinstance(action, CreateNode) else Waking(fleet, action, on_ready)
        for action in actions
    ]
    settle(fleet, ways, limit_s=limit_s)
    raise_failures(fleet, ways, "nodes failed")


def remove(fleet: Fleet, actions: Sequence[DeleteNode], *, limit_s: float = DELETE_LIMIT_S) -> None:
    """Delete every node at once, then wait until none is there; a name that is still DELETING is not free."""
    doomed = [Removing(fleet, action) for action in actions]
    settle(fleet, doomed, limit_s=limit_s)
    raise_failures(fleet, doomed, "nodes are not deleted")
