"""What tpufleet asks of a cloud. One adapter (`tpu_api`) serves Google Cloud and the rehearsal cloud alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpufleet.model import Node

FLEET_LABEL = "tpufleet"  # every node of a fleet bears it, so that it is found without local state


@dataclass(frozen=True)
class NodeRequest:
    """A node to be made; `metadata` carries the operator's key, since two later writers would lose keys."""

    name: str
    zone: str
    accelerator: str
    runtime: str
    spot: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]


class Pending(Protocol):
    """A long-running operation that was asked for."""

    def finished(self) -> bool:
        """True when it ended well, False while it goes on; raises a CloudError when it failed."""
        ...


class Cloud(Protocol):
    """The calls tpufleet makes. Each raises a CloudError with its meaning and never waits for an operation."""

    ssh_port: int

    def nodes(self, zone: str) -> tuple[Node, ...]:
        """All nodes of the zone, whoever made them."""
        ...

    def create(self, request: NodeRequest) -> Pending | None:
        """Ask for a node; None when a node of that name, fleet and type is there already."""
        ...

    def start(self, name: str, zone: str) -> Pending: ...

    def delete(self, name: str, zone: str) -> Pending | None:
        """Ask for the end of a node; None when there is none."""
        ...

    def host_keys(self, name: str, zone: str) -> Sequence[str | None]:
        """Each worker's SSH host key line (`ssh-ed25519 AAAA…`), in the workers' order; None if not yet known."""
        ...

    def queued_resources(self, zone: str) -> tuple[str, ...]:
        """The names of all queued resources of the zone."""
        ...

    def close(self) -> None: ...
