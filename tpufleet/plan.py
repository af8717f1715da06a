"""Pure: what is wanted and what is there -> what to do about the nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tpufleet.actions import Action, AwaitNode, CreateNode, DeleteNode, Plan, StartNode
from tpufleet.errors import UsageError
from tpufleet.labels import fleet_of
from tpufleet.model import (
    ENDED_QUEUED_STATES,
    GONE_STATES,
    Node,
    NodePool,
    NodeState,
    Queued,
    QueuedState,
    Snapshot,
    Spec,
)
from tpufleet.names import NodeName, Zone
from tpufleet.text import natural

# Cloud TPU ends these states by itself.
PASSING_STATES = frozenset(
    {NodeState.CREATING, NodeState.STARTING, NodeState.RESTARTING, NodeState.REIMAGING, NodeState.REPAIRING}
)


@dataclass
class Claim:
    """What one name holds in one zone: a node, a queued resource that is to make it, or both."""

    name: str
    zone: str
    node: Node | None = None
    queued: Queued | None = None

    @property
    def accelerator(self) -> str:
        return self.node.accelerator if self.node else self.queued.accelerator if self.queued else ""

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.labels if self.node else self.queued.labels if self.queued else {}

    @property
    def ended(self) -> str | None:
        """Why nothing will come of it any more, if so: it has to be deleted before its name can be used again."""
        if self.queued and self.queued.state in ENDED_QUEUED_STATES | {QueuedState.DELETING}:
            return f"its queued resource is {self.queued.state}"
        if self.node and (self.node.state in GONE_STATES or self.node.state is NodeState.DELETING):
            return self.node.state.value.lower()
        if self.queued and self.queued.state is QueuedState.ACTIVE and not self.node:
            return "its node has vanished"
        return None

    def deletion(self, why: str, *, surplus: bool = False) -> DeleteNode:
        queued = self.queued.name if self.queued else self.node.queued if self.node else None
        return DeleteNode(self.name, self.zone, why, surplus=surplus, queued=queued)


@dataclass
class Holdings:
    """A snapshot's nodes and queued resources by name; of several of one name, the one that serves best is `held`."""

    held: dict[str, Claim] = field(default_factory=dict[str, Claim])
    twins: list[Claim] = field(default_factory=list[Claim])

    @property
    def all(self) -> list[Claim]:
        return sorted([*self.held.values(), *self.twins], key=lambda claim: (natural(claim.name), claim.zone))


def claims(snapshot: Snapshot) -> dict[tuple[str, str], Claim]:
    """What each name holds in each zone, by name and zone."""
    found: dict[tuple[str, str], Claim] = {}
    for node in snapshot.nodes:
        found.setdefault((node.name, node.zone), Claim(node.name, node.zone)).node = node
    for queued in snapshot.queued:
        found.setdefault((queued.node, queued.zone), Claim(queued.node, queued.zone)).queued = queued
    return found


def holdings(snapshot: Snapshot) -> Holdings:
    """What the fleet holds. The same name in two zones is a leak: a command was killed between two zones."""
    found = Holdings()
    for claim in sorted(claims(snapshot).values(), key=_usefulness):
        if claim.name in found.held:
            found.twins.append(claim)
        else:
            found.held[claim.name] = claim
    return found


def wanted_nodes(spec: Spec) -> dict[NodeName, NodePool]:
    """Every node of the file, by name: `tpu-0`, `tpu-1`, …"""
    return {NodeName(f"{pool.name}-{index}"): pool for pool in spec.nodes for index in range(pool.count)}


def zones_for(pool: NodePool, spec: Spec) -> tuple[Zone, ...]:
    """The file's zones in its order, but those first that are known to have the type: the table may be old."""
    known = tuple(zone for zone in spec.cloud.zones if zone in pool.type.zones)
    return known + tuple(zone for zone in spec.cloud.zones if zone not in known)


def plan_create(spec: Spec, snapshot: Snapshot) -> Plan:
    """Make the fleet equal the file: create what is missing, replace what is gone, remove what it dropped."""
    there = holdings(snapshot)
    wanted = wanted_nodes(spec)
    actions: list[Action] = []
    conflicts: list[str] = []
    for name, pool in wanted.items():
        claim = there.held.get(name)
        if clash := _clash(name, pool, claim, snapshot.others):
            conflicts.append(clash)
        else:
            actions += _towards_ready(name, pool, claim, spec)
    for claim in there.all:
        if claim in there.twins:
            actions.append(claim.deletion(f"{there.held[claim.name].zone} has {claim.name} as well", surplus=True))
        elif claim.name not in wanted and not (claim.node and claim.node.adopted):
            actions.append(claim.deletion("not in the file", surplus=True))
    return Plan(tuple(actions), tuple(conflicts))


def plan_delete(snapshot: Snapshot, only: Collection[str] = ()) -> Plan:
    """Take down all that the fleet holds, or `only` the nodes named; raises UsageError for a name that none has."""
    held = holdings(snapshot).all
    unknown = set(only) - {claim.name for claim in held}
    if unknown:
        raise UsageError(f"the fleet has no node {', '.join(sorted(unknown))}", hint="tpufleet status")
    return _deletions((claim, "asked for") for claim in held if not only or claim.name in only)


def plan_orphans(spec: Spec, snapshot: Snapshot) -> Plan:
    """Delete what bears the fleet's label and the file doesn't know: another zone, another name.

    `snapshot` is of all zones there are.
    """
    wanted = wanted_nodes(spec)

    def unknown(claim: Claim) -> str | None:
        if claim.zone not in spec.cloud.zones:
            return f"{claim.zone} is not in the file"
        adopted = claim.node is not None and claim.node.adopted
        return None if claim.name in wanted or adopted else "not in the file"

    return _deletions((claim, why) for claim in holdings(snapshot).all if (why := unknown(claim)))


def plan_expired(snapshot: Snapshot, now: float) -> Plan:
    """Delete the nodes whose ttl was over at `now` (Unix time, seconds)."""

    def is_over(claim: Claim) -> bool:
        return claim.node is not None and claim.node.expires is not None and claim.node.expires <= now

    return _deletions((claim, "its ttl is over") for claim in holdings(snapshot).all if is_over(claim))


def _deletions(doomed: Iterable[tuple[Claim, str]]) -> Plan:
    return Plan(tuple(claim.deletion(why) for claim, why in doomed))


def _clash(name: NodeName, pool: NodePool, claim: Claim | None, others: Iterable[Node]) -> str | None:
    """What makes it impossible that the node of this name becomes what the file wants, in a sentence."""
    if claim is None:
        other = next((node for node in others if node.name == name), None)
        if other is None:
            return None
        owner = fleet_of(other.labels)
        if owner:
            return f"{name} in {other.zone} belongs to the fleet {owner}; name the pool otherwise in the file"
        return f"{name} in {other.zone} is not tpufleet's; tpufleet adopt {name} takes it in"
    wanted = [(claim.accelerator, pool.accelerator)]
    if claim.node and not claim.node.queued:  # whether Google shows spot on a queued node is not known
        wanted.append((_payment(claim.node.spot), _payment(pool.spot)))
    if claim.node and claim.node.runtime and pool.runtime:
        wanted.append((claim.node.runtime, pool.runtime))
    unlike = next(((has, wants) for has, wants in wanted if has != wants), None)
    if unlike is None or claim.ended:
        return None
    has, wants = unlike
    return f"{name} in {claim.zone} is {has}, the file wants {wants}; delete it first (tpufleet delete {name})"


def _payment(spot: bool) -> str:
    return "spot" if spot else "on demand"


def _towards_ready(name: NodeName, pool: NodePool, claim: Claim | None, spec: Spec) -> Iterator[Action]:
    if claim is None:
        yield CreateNode(name, zones_for(pool, spec), pool)
    elif claim.ended:
        # A preempted node never comes back, an ended queued resource is never filled, and a name that is still
        # DELETING can't be created on: all are deleted (again: harmless), awaited absent, then made anew.
        yield claim.deletion(claim.ended)
        yield CreateNode(name, zones_for(pool, spec), pool)
    elif claim.node is None:
        yield AwaitNode(name, claim.zone, queued=True)
    elif claim.node.state in (NodeState.STOPPED, NodeState.STOPPING):
        yield StartNode(name, claim.zone)
    elif claim.node.state in PASSING_STATES:
        yield AwaitNode(name, claim.zone)


def _usefulness(claim: Claim) -> tuple[bool, bool, bool, str]:
    """Sorts what serves best to the front: a READY node, one on its way, a place in the queue, the rest."""
    ready = claim.node is not None and claim.node.state is NodeState.READY
    return (claim.ended is not None, not ready, claim.node is None, claim.zone)
