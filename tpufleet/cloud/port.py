"""What tpufleet asks of a cloud. `tpu_api` serves Google Cloud and the rehearsal cloud alike, `inventory` no cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpufleet.model import Node, Queued

ALL_ZONES = "-"  # Google's own wildcard for a location in lists


@dataclass(frozen=True)
class NodeRequest:
    """A node to be made; `metadata` carries the operator's key, since two later writers would lose keys.

    `scopes` are OAuth scopes in full. A `data_disk` that is shared with other nodes can only be read. `queued` asks
    for a queued resource of the node's name that makes the node; it gives up `valid_s` seconds after the asking, if
    that is set.
    """

    name: str
    zone: str
    accelerator: str
    runtime: str
    spot: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    network: str | None = None
    subnetwork: str | None = None
    external_ips: bool = True
    service_account: str | None = None
    scopes: tuple[str, ...] = ()
    data_disk: str | None = None
    disk_is_shared: bool = False
    queued: bool = False
    valid_s: float | None = None


class Pending(Protocol):
    """A long-running operation that was asked for."""

    name: str

    def finished(self) -> bool:
        """True when it ended well, False while it goes on; raises a CloudError when it failed."""
        ...


class Cloud(Protocol):
    """The calls tpufleet makes. Each raises a CloudError with its meaning and never waits for an operation."""

    ssh_port: int

    def nodes(self, zone: str) -> tuple[Node, ...]:
        """All nodes of the zone (or of ALL_ZONES), whoever made them."""
        ...

    def queued(self, zone: str) -> tuple[Queued, ...]:
        """All queued resources of the zone (or of ALL_ZONES), whoever asked for them."""
        ...

    def create(self, request: NodeRequest) -> Pending | None:
        """Ask for a node; None when a node (or queued resource) of that name, fleet and type is there already.

        A call whose answer was lost is looked into before it is made again, so that one wish makes one node.
        """
        ...

    def start(self, name: str, zone: str) -> Pending | None:
        """Ask for a STOPPED node's start; None when it is STARTING or READY already."""
        ...

    def delete(self, name: str, zone: str) -> Pending | None:
        """Ask for the end of a node; None when there is none."""
        ...

    def delete_queued(self, name: str, zone: str) -> Pending | None:
        """Ask for the end of a queued resource and of the node that it made; None when there is none."""
        ...

    def update(
        self,
        name: str,
        zone: str,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Pending:
        """Replace a READY node's labels, its metadata, or both, whole."""
        ...

    def host_keys(self, name: str, zone: str) -> Sequence[str | None]:
        """Each worker's SSH host key line (`ssh-ed25519 AAAA…`), in the workers' order; None if not yet known."""
        ...

    def close(self) -> None: ...
