"""Take the fleet down, and prove it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from tpufleet.actions import DeleteNode, Plan
from tpufleet.cloud.port import ALL_ZONES
from tpufleet.errors import DiskFull, PartialFailure
from tpufleet.model import Node, Queued, Snapshot
from tpufleet.ops.apply import DELETE_LIMIT_S, remove
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.ledger import remember
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


def delete(fleet: Fleet, plan: Plan, *, everywhere: bool = False, limit_s: float = DELETE_LIMIT_S) -> tuple[Proof, ...]:
    """Carry out the plan, wait until all is absent, then list the zones anew.

    They are those of the file and those that were touched, or with `everywhere` all that there are.
    """
    remove(fleet, [action for action in plan.actions if isinstance(action, DeleteNode)], limit_s=limit_s)
    touched = [action.zone for action in plan.actions]
    zones = [ALL_ZONES] if everywhere else list(dict.fromkeys([*fleet.zones, *touched]))
    found = survey(fleet.spec, fleet.cloud, zones)
    remember(fleet, found.nodes)
    with contextlib.suppress(DiskFull):  # a pin of a machine that is gone does no harm; the proof matters more
        _forget_keys(fleet, found.nodes)
    return _proof(found, zones)


def _forget_keys(fleet: Fleet, left: Sequence[Node]) -> None:
    """Of all machines but those that are `left`: also of those that a command deleted which was killed then. (A key
    too many that is forgotten is read anew from where it came.)"""
    there = {node.uid for node in left}
    fleet.trust.forget(*(one for one in fleet.trust.identities() if one.rpartition("-w")[0] not in there))


def _proof(found: Snapshot, zones: Sequence[str]) -> tuple[Proof, ...]:
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
