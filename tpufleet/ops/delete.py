"""Take the fleet down, and prove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.errors import PartialFailure
from tpufleet.model import DeleteNode, Plan
from tpufleet.ops.apply import remove
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import find_nodes, hosts_of, is_ours, probe
from tpufleet.restart import FINAL_STATES
from tpufleet.ssh.fanout import gather


@dataclass(frozen=True)
class Proof:
    """What a zone still holds of the fleet after the deletion, as the cloud lists it."""

    zone: str
    nodes: int
    queued_resources: int


def at_risk(fleet: Fleet, plan: Plan) -> tuple[str, ...]:
    """The runs on the doomed hosts that have not ended: what a deletion would interrupt."""
    doomed = {action.name for action in plan.actions}
    views = probe(fleet, hosts_of(fleet, [node for node in find_nodes(fleet) if node.name in doomed]))
    return tuple(str(run["id"]) for view in views for run in view.runs if run["state"] not in FINAL_STATES)


def delete(fleet: Fleet, plan: Plan) -> tuple[Proof, ...]:
    """Carry the plan out, wait until the nodes are absent, then list every zone anew."""
    doomed = {action.name for action in plan.actions}
    hosts = hosts_of(fleet, [node for node in find_nodes(fleet) if node.name in doomed])
    remove(fleet, [action for action in plan.actions if isinstance(action, DeleteNode)])
    for host in hosts:
        fleet.trust.forget(host.identity)
    return prove(fleet)


def prove(fleet: Fleet) -> tuple[Proof, ...]:
    """Ask every zone of the file what is there of this fleet."""

    def look(zone: str) -> Proof:
        nodes = [node for node in fleet.cloud.nodes(zone) if is_ours(fleet.spec, node)]
        queued = [name for name in fleet.cloud.queued_resources(zone) if name.startswith(f"{fleet.spec.fleet}-")]
        return Proof(zone, len(nodes), len(queued))

    return tuple(outcome.unwrap() for outcome in gather(fleet.spec.cloud.zones, look))


def raise_unless_empty(proof: Sequence[Proof]) -> None:
    left = [item for item in proof if item.nodes or item.queued_resources]
    if left:
        said = ", ".join(f"{item.zone}: {item.nodes} nodes, {item.queued_resources} queued resources" for item in left)
        raise PartialFailure(f"the fleet is not gone: {said}", hint="tpufleet delete")
