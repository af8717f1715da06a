"""Take a node into the fleet that somebody made without tpufleet, and give it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpufleet import labels
from tpufleet.cloud.port import Pending
from tpufleet.errors import Conflict, NotFound, StuckOperation, UsageError
from tpufleet.model import Node, NodeState, Spec
from tpufleet.ops.fleet import Fleet, pauses
from tpufleet.ops.observe import all_nodes
from tpufleet.plan import wanted_nodes

UPDATE_LIMIT_S = 120.0


def find(fleet: Fleet, name: str) -> Node:
    """The node of that name in the zones of the file, whoever made it; raises NotFound or UsageError."""
    found = [node for node in all_nodes(fleet) if node.name == name]
    zones = ", ".join(fleet.spec.cloud.zones)
    if not found:
        raise NotFound(f"no node {name} in {zones}", hint="add its zone to cloud.zones in the fleet file")
    if len(found) > 1:
        raise UsageError(f"{name} is in several zones: {', '.join(node.zone for node in found)}")
    return found[0]


def adopted_labels(spec: Spec, node: Node) -> Mapping[str, str]:
    """The labels with which `node` belongs to the fleet; raises Conflict when it can't.

    A node that the file counts anyway is simply that one; another is marked as adopted, and is no surplus.
    """
    owner = labels.fleet_of(node.labels)
    if owner not in (None, spec.fleet):
        raise Conflict(f"it belongs to the fleet {owner}", where=node.name, hint="tpufleet adopt --release, there")
    pool = wanted_nodes(spec).get(node.name)  # pyright: ignore[reportArgumentType] - a str finds its NodeName
    if pool and pool.accelerator != node.accelerator:
        raise Conflict(
            f"it is a {node.accelerator}, and the file wants a {pool.accelerator} of this name",
            where=node.name,
            hint="rename the pool in the fleet file",
        )
    mark = {} if pool else {labels.ADOPTED: "true"}
    return {**node.labels, labels.FLEET: str(spec.fleet), **mark}


def with_key(metadata: Mapping[str, str], user: str, key_line: str) -> Mapping[str, str]:
    """`metadata` with the operator's key beside the keys that are there."""
    line = f"{user}:{key_line}"
    lines = metadata.get("ssh-keys", "").splitlines()
    keys = lines if line in lines else [*lines, line]
    return {**metadata, "ssh-keys": "\n".join(keys), "enable-guest-attributes": "TRUE"}


def adopt(fleet: Fleet, node: Node, key_line: str) -> bool:
    """Label the node and give the operator an account on its hosts; False when it was so before.

    A node has no etag: who changes its metadata at the same moment may lose a key (Cloud TPU's API).
    """
    wanted = adopted_labels(fleet.spec, node)
    metadata = with_key(node.metadata, fleet.spec.ssh.user, key_line)
    if wanted == node.labels and metadata == node.metadata:
        return False
    _update(fleet, "adopt-node", node, wanted, metadata)
    return True


def release(fleet: Fleet, node: Node, key_line: str) -> bool:
    """Take labels and key away again; False when the node was not the fleet's."""
    if labels.fleet_of(node.labels) != fleet.spec.fleet:
        return False
    line = f"{fleet.spec.ssh.user}:{key_line}"
    kept: Sequence[str] = [key for key in node.metadata.get("ssh-keys", "").splitlines() if key != line]
    theirs = {key: value for key, value in node.labels.items() if key not in labels.RESERVED}
    _update(fleet, "release-node", node, theirs, {**node.metadata, "ssh-keys": "\n".join(kept)})
    return True


def _update(fleet: Fleet, action: str, node: Node, wanted: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    if node.state is not NodeState.READY:
        raise Conflict(f"it is {node.state}; only a READY node can be changed", where=node.name)
    with fleet.journal.intent(fleet.command, action, node.name, zone=node.zone):
        pending = fleet.cloud.update(node.name, node.zone, labels=wanted, metadata=metadata)
        _await(pending, node.name)


def _await(pending: Pending, name: str) -> None:
    for _ in pauses(limit_s=UPDATE_LIMIT_S):
        if pending.finished():
            return
    raise StuckOperation("its labels are still not changed", where=name, hint="run the same command again")
