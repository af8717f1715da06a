"""What to do about the nodes, as values: `plan` makes them, `ops.apply` carries them out. No I/O in here."""

from __future__ import annotations

from dataclasses import dataclass

from tpufleet.model import NodePool
from tpufleet.names import NodeName, Zone


@dataclass(frozen=True)
class CreateNode:
    """`zones` are where it may be made, in the order of preference."""

    name: NodeName
    zones: tuple[Zone, ...]
    pool: NodePool

    @property
    def zone(self) -> Zone:
        return self.zones[0]


@dataclass(frozen=True)
class StartNode:
    name: NodeName
    zone: str


@dataclass(frozen=True)
class AwaitNode:
    """A node that is on its way already, or waits in a queue (somebody asked for it before us)."""

    name: NodeName
    zone: str
    queued: bool = False


@dataclass(frozen=True)
class DeleteNode:
    """`surplus`: the node runs, but the file doesn't want it (any more).

    `queued` is the queued resource that goes with the node, or is all there is of it.
    """

    name: str
    zone: str
    why: str
    surplus: bool = False
    queued: str | None = None


Action = CreateNode | StartNode | AwaitNode | DeleteNode


@dataclass(frozen=True)
class Plan:
    """The actions on nodes, and what stands in the way (`conflicts`, one sentence each)."""

    actions: tuple[Action, ...] = ()
    conflicts: tuple[str, ...] = ()
