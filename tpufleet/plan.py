"""Pure: what is wanted and what is there -> what to do about the nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tpufleet.errors import UsageError
from tpufleet.model import (
    GONE_STATES,
    Action,
    AwaitNode,
    CreateNode,
    DeleteNode,
    Node,
    NodePool,
    NodeState,
    Plan,
    Snapshot,
    Spec,
    StartNode,
)
from tpufleet.names import NodeName, Zone

# Cloud TPU ends these states by itself.
PASSING_STATES = frozenset(
    {NodeState.CREATING, NodeState.STARTING, NodeState.RESTARTING, NodeState.REIMAGING, NodeState.REPAIRING}
)


def wanted_nodes(spec: Spec) -> dict[NodeName, NodePool]:
    """Every node of the file, by name: `tpu-0`, `tpu-1`, …"""
    return {NodeName(f"{pool.name}-{index}"): pool for pool in spec.nodes for index in range(pool.count)}


def zone_for(pool: NodePool, spec: Spec) -> Zone:
    """The first zone of the file that is known to have the type; else the first, since the table may be old."""
    zones = spec.cloud.zones
    return next((zone for zone in zones if zone in pool.type.zones), zones[0])


def plan_create(spec: Spec, snapshot: Snapshot) -> Plan:
    """Make the fleet equal the file: create what is missing, replace what is gone, remove what it dropped."""
    there = {node.name: node for node in snapshot.nodes}
    wanted = wanted_nodes(spec)
    actions: list[Action] = []
    conflicts: list[str] = []
    for name, pool in wanted.items():
        node = there.get(name)
        if node and node.accelerator != pool.accelerator:
            conflicts.append(
                f"{name} is a {node.accelerator} in {node.zone}, the file wants a {pool.accelerator}; "
                f"delete it first (tpufleet delete {name})"
            )
        else:
            actions += _towards_ready(name, pool, node, spec)
    surplus = sorted(set(there) - set(wanted))
    actions += [DeleteNode(name, there[name].zone, "not in the file", surplus=True) for name in surplus]
    return Plan(tuple(actions), tuple(conflicts))


def plan_delete(snapshot: Snapshot, only: Collection[str] = ()) -> Plan:
    """Take down all of the fleet's nodes, or `only` those named; raises UsageError for a name that no node has."""
    unknown = set(only) - {node.name for node in snapshot.nodes}
    if unknown:
        raise UsageError(f"the fleet has no node {', '.join(sorted(unknown))}", hint="tpufleet status")
    nodes = [node for node in snapshot.nodes if not only or node.name in only]
    return Plan(tuple(DeleteNode(node.name, node.zone, "asked for") for node in nodes))


def _towards_ready(name: NodeName, pool: NodePool, node: Node | None, spec: Spec) -> Iterator[Action]:
    if node is None:
        yield CreateNode(name, zone_for(pool, spec), pool)
    elif node.state in GONE_STATES or node.state is NodeState.DELETING:
        # A preempted node never comes back, and a name that is still DELETING can't be created on: both are
        # deleted (again: harmless), awaited absent, then made anew.
        yield DeleteNode(name, node.zone, node.state.value.lower())
        yield CreateNode(name, zone_for(pool, spec), pool)
    elif node.state in (NodeState.STOPPED, NodeState.STOPPING):
        yield StartNode(name, node.zone)
    elif node.state in PASSING_STATES:
        yield AwaitNode(name, node.zone)
