"""Hosts that somebody gave access to, as a cloud in which everything is there and nothing can be made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from tpufleet import labels
from tpufleet.cloud.port import ALL_ZONES, NodeRequest, Pending
from tpufleet.errors import Conflict, HostFault
from tpufleet.model import InventoryHost, Node, NodeState, Queued, Spec

KnownKey = Callable[[str, int], str | None]  # address and port -> the host key that the person trusts


class Inventory:
    """Implements `port.Cloud` without asking anybody: each host of the file is a READY node with one worker.

    The nodes are marked as adopted: they are in the fleet, and no pool of the file counts them.
    """

    ssh_port = 22  # of hosts that name none

    def __init__(self, spec: Spec, known_key: KnownKey) -> None:
        self._fleet = spec.fleet
        self._zone = spec.cloud.zones[0]
        self._hosts = {str(host.name): host for host in spec.cloud.hosts}
        self._known_key = known_key

    def nodes(self, zone: str) -> tuple[Node, ...]:
        return tuple(map(self._node, self._hosts.values())) if zone in (self._zone, ALL_ZONES) else ()

    def queued(self, zone: str) -> tuple[Queued, ...]:  # noqa: ARG002  the port's signature
        return ()

    def host_keys(self, name: str, zone: str) -> Sequence[str | None]:  # noqa: ARG002
        """The key that the file has, else the one that the person's own OpenSSH knows; HostFault without either."""
        host = self._hosts[name]
        key = host.host_key or self._known_key(host.address, host.port)
        if key is None:
            raise _unknown_key(host)
        return (key,)

    def create(self, request: NodeRequest) -> Pending | None:
        raise _not_ours(request.name)

    def start(self, name: str, zone: str) -> Pending:  # noqa: ARG002
        raise _not_ours(name)

    def delete(self, name: str, zone: str) -> Pending | None:  # noqa: ARG002
        raise _not_ours(name)

    def delete_queued(self, name: str, zone: str) -> Pending | None:  # noqa: ARG002
        raise _not_ours(name)

    def update(
        self,
        name: str,
        zone: str,  # noqa: ARG002
        *,
        labels: Mapping[str, str] | None = None,  # noqa: ARG002
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Pending:
        raise _not_ours(name)

    def close(self) -> None:
        pass

    def _node(self, host: InventoryHost) -> Node:
        return Node(
            name=host.name,
            zone=self._zone,
            uid=_uid(host),
            state=NodeState.READY,
            accelerator=host.accelerator,
            health="",
            addresses=(host.address,),
            internal=(host.address,),  # what a jump host is asked for
            labels={labels.FLEET: self._fleet, labels.ADOPTED: ""},
        )


def _uid(host: InventoryHost) -> str:
    """Which machine it is, by what the file says; with another host key, or elsewhere, it is another one."""
    said = "\0".join((host.name, host.address, str(host.port), host.host_key or ""))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _not_ours(name: str) -> Conflict:
    return Conflict(
        "the hosts of an inventory are not tpufleet's to make, change or delete",
        where=name,
        hint="`cloud.hosts` in the fleet file says which there are",
    )


def _unknown_key(host: InventoryHost) -> HostFault:
    port = "" if host.port == 22 else f"-p {host.port} "
    return HostFault(
        f"its host key is unknown, so nobody can tell whether it is {host.address} that answers",
        kind="no-host-key",
        where=host.name,
        hint=f"connect once by hand: ssh {port}{host.address}; or compare ssh-keyscan -t ed25519 {port}{host.address} "
        "with the host's own /etc/ssh/ssh_host_ed25519_key.pub and write that as its host_key into the fleet file",
    )
