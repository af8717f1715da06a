"""Carry out a plan on the nodes: all creations and deletions side by side, one poll for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tpufleet.cloud.port import FLEET_LABEL, NodeRequest, Pending
from tpufleet.errors import CapacityError, CloudError, PartialFailure, TpufleetError
from tpufleet.model import (
    GONE_STATES,
    AwaitNode,
    CreateNode,
    DeleteNode,
    Node,
    NodeState,
    Plan,
    StartNode,
)
from tpufleet.ops.fleet import Fleet, pauses
from tpufleet.ops.observe import find_nodes
from tpufleet.ssh.fanout import gather

CREATE_LIMIT_S = 1800.0
DELETE_LIMIT_S = 900.0

ToReady = CreateNode | StartNode | AwaitNode
A = TypeVar("A", CreateNode | StartNode | AwaitNode, DeleteNode)


def apply(fleet: Fleet, plan: Plan, key_line: str) -> None:
    """Make the plan true. Deletions come first, since a replaced node keeps its name.

    Raises the error of the only failure, or PartialFailure when some of many failed; the others are carried on.
    """
    remove(fleet, [action for action in plan.actions if isinstance(action, DeleteNode)])
    bring_up(fleet, [action for action in plan.actions if not isinstance(action, DeleteNode)], key_line)


def bring_up(fleet: Fleet, actions: Sequence[ToReady], key_line: str) -> None:
    """Ask for every node at once, then wait for all of them."""
    _carry_out(
        fleet,
        actions,
        ask=lambda action: _ask_for(fleet, action, key_line),
        reached=lambda node: node is not None and node.state is NodeState.READY,
        hopeless=lambda node: node is not None and node.state in GONE_STATES,
        words=("ready", CREATE_LIMIT_S),
    )


def remove(fleet: Fleet, actions: Sequence[DeleteNode]) -> None:
    """Delete every node at once, then wait until none is there; a name that is still DELETING is not free."""
    for action in actions:
        fleet.say(action.name, f"deleting ({action.why})")
    _carry_out(
        fleet,
        actions,
        ask=lambda action: _delete(fleet, action),
        reached=lambda node: node is None,
        hopeless=lambda _node: False,
        words=("gone", DELETE_LIMIT_S),
    )


def _ask_for(fleet: Fleet, action: ToReady, key_line: str) -> Pending | None:
    match action:
        case CreateNode(name, zone, pool):
            fleet.say(name, f"creating {pool.accelerator} in {zone}")
            with fleet.journal.intent(fleet.command, "create-node", name, zone=zone, accelerator=pool.accelerator):
                return fleet.cloud.create(_request(fleet, action, key_line))
        case StartNode(name, zone):
            fleet.say(name, "starting")
            with fleet.journal.intent(fleet.command, "start-node", name, zone=zone):
                return fleet.cloud.start(name, zone)
        case AwaitNode(name, _zone):
            fleet.say(name, "waiting: somebody asked for it already")
            return None


def _delete(fleet: Fleet, action: DeleteNode) -> Pending | None:
    with fleet.journal.intent(fleet.command, "delete-node", action.name, zone=action.zone):
        return fleet.cloud.delete(action.name, action.zone)


def _request(fleet: Fleet, action: CreateNode, key_line: str) -> NodeRequest:
    pool = action.pool
    return NodeRequest(
        name=action.name,
        zone=action.zone,
        accelerator=pool.accelerator,
        runtime=pool.runtime or pool.type.runtime,
        spot=pool.spot,
        labels={FLEET_LABEL: fleet.spec.fleet, f"{FLEET_LABEL}-pool": pool.name},
        metadata={"ssh-keys": f"{fleet.spec.ssh.user}:{key_line}", "enable-guest-attributes": "TRUE"},
    )


def _carry_out(
    fleet: Fleet,
    actions: Sequence[A],
    *,
    ask: Callable[[A], Pending | None],
    reached: Callable[[Node | None], bool],
    hopeless: Callable[[Node | None], bool],
    words: tuple[str, float],
) -> None:
    done_word, limit_s = words
    failures: dict[str, TpufleetError] = {}
    waiting: dict[str, Pending | None] = {}
    started = time.monotonic()
    for outcome in gather(actions, ask):
        if outcome.error:
            failures[outcome.item.name] = outcome.error
        else:
            waiting[outcome.item.name] = outcome.value
    for _ in pauses(limit_s=limit_s):
        if not waiting:
            break
        there = {node.name: node for node in find_nodes(fleet)}
        for name in list(waiting):
            node = there.get(name)
            if reached(node):
                fleet.say(name, f"{done_word} after {time.monotonic() - started:.1f} s", "done")
                del waiting[name]
            elif error := _failure(name, node, waiting[name], hopeless):
                failures[name] = error
                del waiting[name]
    for name in waiting:
        failures[name] = CloudError(
            f"not {done_word} after {limit_s / 60:.0f} minutes", where=name, hint="run the same command again"
        )
    _raise_for(fleet, failures, len(actions))


def _failure(
    name: str, node: Node | None, pending: Pending | None, hopeless: Callable[[Node | None], bool]
) -> CloudError | None:
    """Why a node will not get there, or None while it still may."""
    if node is not None and hopeless(node):
        return CapacityError(f"became {node.state} before it was ready", where=name, hint="run the same command again")
    if node is None and pending is not None:  # not listed (any more): only then the operation can tell why
        try:
            pending.finished()
        except CloudError as error:
            return error
    return None


def _raise_for(fleet: Fleet, failures: Mapping[str, TpufleetError], of: int) -> None:
    for name, error in failures.items():
        fleet.say(name, error.message, "failed")
    if not failures:
        return
    first = next(iter(failures.values()))
    if len(failures) == of:
        raise first
    raise PartialFailure(
        f"{len(failures)} of {of} nodes failed: {first}", hint=first.hint or "run the same command again"
    )
