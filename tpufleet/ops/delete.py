"""Take the fleet down, and prove it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.actions import DeleteNode, Plan
from tpufleet.cloud.port import ALL_ZONES
from tpufleet.errors import PartialFailure
from tpufleet.model import Node, Queued, Snapshot
from tpufleet.ops.apply import DELETE_LIMIT_S, remove
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import hosts_of, probe, survey
from tpufleet.restart import FINAL_STATES


@dataclass(frozen=True)
class Proof:
    """What a zone (or ALL_ZONES) still holds of the fleet after the deletion, as the cloud lists it.

    A zone that isn't `granted` to the project could not be listed.
    """

    zone: str
    nodes: int
    queued_resources: int
    granted: bool = True


def at_risk(fleet: Fleet, plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """The runs on the doomed hosts that have not ended: what a deletion would interrupt."""
    views = probe(fleet, hosts_of(fleet, _doomed(plan, snapshot)))
    return tuple(str(run["id"]) for view in views for run in view.runs if run["state"] not in FINAL_STATES)


def delete(
    fleet: Fleet, plan: Plan, snapshot: Snapshot, *, everywhere: bool = False, limit_s: float = DELETE_LIMIT_S
) -> tuple[Proof, ...]:
    """Carry out the plan that was made from `snapshot`, wait until all is absent, then list the zones anew.

    They are those of the file and those that were touched, or with `everywhere` all that there are.
    """
    remove(fleet, [action for action in plan.actions if isinstance(action, DeleteNode)], limit_s=limit_s)
    for node in _doomed(plan, snapshot):
        for worker in range(max(len(node.addresses), 1)):
            fleet.trust.forget(f"{node.uid}-w{worker}")
    touched = [action.zone for action in plan.actions]
    return prove(fleet, [ALL_ZONES] if everywhere else list(dict.fromkeys([*fleet.zones, *touched])))


def prove(fleet: Fleet, zones: Sequence[str]) -> tuple[Proof, ...]:
    """Ask each zone what is there of this fleet."""
    found = survey(fleet.spec, fleet.cloud, zones)

    def counted(things: Sequence[Node | Queued], zone: str) -> int:
        return sum(zone in (thing.zone, ALL_ZONES) for thing in things)

    return tuple(
        Proof(zone, counted(found.nodes, zone), counted(found.queued, zone), zone not in found.not_granted)
        for zone in zones
    )


def raise_unless_empty(proof: Sequence[Proof]) -> None:
    left = [item for item in proof if item.nodes or item.queued_resources]
    if left:
        said = ", ".join(f"{item.zone}: {item.nodes} nodes, {item.queued_resources} queued resources" for item in left)
        raise PartialFailure(f"the fleet is not gone: {said}", hint="tpufleet delete")


def _doomed(plan: Plan, snapshot: Snapshot) -> list[Node]:
    doomed = {(action.name, action.zone) for action in plan.actions}
    return [node for node in snapshot.nodes if (node.name, node.zone) in doomed]
