"""Look at what is there: the fleet's nodes in every zone of the file, and what each host says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tpufleet.cloud.port import FLEET_LABEL, Cloud
from tpufleet.errors import HostKeyMismatch, TpufleetError
from tpufleet.model import Host, HostView, Node, NodeState, Snapshot, Spec
from tpufleet.names import HostName
from tpufleet.ops.fleet import Fleet
from tpufleet.ssh.agent import Bare
from tpufleet.ssh.fanout import gather
from tpufleet.text import natural


def observe(fleet: Fleet) -> Snapshot:
    """One call to the cloud per zone, one probe per host, side by side. A host that fails says so in its view."""
    nodes = find_nodes(fleet)
    return Snapshot(nodes, probe(fleet, hosts_of(fleet, nodes)))


def find_nodes(fleet: Fleet) -> tuple[Node, ...]:
    """The fleet's nodes, as the cloud lists them now."""
    return list_nodes(fleet.spec, fleet.cloud)


def list_nodes(spec: Spec, cloud: Cloud) -> tuple[Node, ...]:
    """The nodes that bear the fleet's label in all zones of the file: found without local state."""
    found = gather(spec.cloud.zones, cloud.nodes)
    nodes = [node for outcome in found for node in outcome.unwrap() if is_ours(spec, node)]
    return tuple(sorted(nodes, key=lambda node: natural(node.name)))


def is_ours(spec: Spec, node: Node) -> bool:
    return node.labels.get(FLEET_LABEL) == spec.fleet


def hosts_of(fleet: Fleet, nodes: Iterable[Node]) -> tuple[Host, ...]:
    """The hosts of those nodes that are READY, worker by worker."""
    return tuple(
        Host(
            name=HostName(f"{node.name}-w{worker}"),
            node=node.name,
            zone=node.zone,
            worker=worker,
            address=address,
            port=fleet.cloud.ssh_port,
            identity=f"{node.uid}-w{worker}",
        )
        for node in nodes
        if node.state is NodeState.READY
        for worker, address in enumerate(node.addresses)
    )


def trust(fleet: Fleet, hosts: Sequence[Host]) -> None:
    """Pin the host keys that are not pinned yet, from guest attributes through the authenticated API, side by side."""
    unknown = {host.node: host.zone for host in hosts if fleet.trust.get(host.identity) is None}
    for outcome in gather(list(unknown.items()), lambda node: fleet.cloud.host_keys(*node)):
        node, _zone = outcome.item
        keys = outcome.unwrap()
        for host in hosts:
            key = keys[host.worker] if host.node == node and host.worker < len(keys) else None
            if key and fleet.trust.get(host.identity) is None:
                fleet.trust.pin(host.identity, key)


def probe(fleet: Fleet, hosts: Sequence[Host]) -> tuple[HostView, ...]:
    """What each host says of itself, in order. A host without this version's agent is given it first."""
    trust(fleet, hosts)
    return tuple(outcome.unwrap() for outcome in gather(hosts, lambda host: _view(fleet, host)))


def _view(fleet: Fleet, host: Host) -> HostView:
    try:
        return HostView(host, probe=fleet.agent(host).ask("probe", {}, ship=not fleet.dry_run))
    except Bare:
        return HostView(host, bare=True)
    except HostKeyMismatch as error:
        return HostView(host, error=error.message, impostor=True)
    except TpufleetError as error:
        return HostView(host, error=error.message)
