"""Look at what is there: the fleet's nodes in every zone of the file, and what each host says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tpufleet import labels
from tpufleet.accelerators import lookup
from tpufleet.cloud.port import Cloud
from tpufleet.errors import HostKeyMismatch, TpufleetError, UsageError, ZoneNotGranted
from tpufleet.model import Host, HostView, Node, NodeState, Queued, Snapshot, Spec
from tpufleet.names import HostName
from tpufleet.ops.fleet import Fleet
from tpufleet.ssh.agent import Bare
from tpufleet.ssh.fanout import Outcome, gather
from tpufleet.text import natural

Thing = Node | Queued
T = TypeVar("T")
V = TypeVar("V")
Look = Callable[[str], Sequence[Thing]]


def observe(fleet: Fleet) -> Snapshot:
    """Two calls to the cloud per zone, one probe per host, side by side. A host that fails says so in its view."""
    found = survey(fleet.spec, fleet.cloud, fleet.zones)
    return replace(found, hosts=probe(fleet, hosts_of(fleet, found.nodes)))


def survey(spec: Spec, cloud: Cloud, zones: Sequence[str]) -> Snapshot:
    """The nodes and queued resources in `zones` that bear the fleet's label: found without local state."""
    looks: list[tuple[Look, str]] = [(look, zone) for look in (cloud.nodes, cloud.queued) for zone in zones]
    outcomes = gather(looks, lambda pair: pair[0](pair[1]))
    things = _granted(outcomes)
    refused = {outcome.item[1] for outcome in outcomes if isinstance(outcome.error, ZoneNotGranted)}
    found = sorted((thing for part in things for thing in part), key=lambda thing: (natural(thing.name), thing.zone))
    ours = [thing for thing in found if labels.fleet_of(thing.labels) == spec.fleet]
    return Snapshot(
        nodes=tuple(thing for thing in ours if isinstance(thing, Node)),
        queued=tuple(thing for thing in ours if isinstance(thing, Queued)),
        others=tuple(
            thing for thing in found if isinstance(thing, Node) and labels.fleet_of(thing.labels) != spec.fleet
        ),
        not_granted=tuple(zone for zone in zones if zone in refused),
    )


def find_nodes(fleet: Fleet) -> tuple[Node, ...]:
    """The fleet's nodes, as the cloud lists them now."""
    ours = [node for node in all_nodes(fleet) if labels.fleet_of(node.labels) == fleet.spec.fleet]
    return tuple(sorted(ours, key=lambda node: natural(node.name)))


def all_nodes(fleet: Fleet) -> list[Node]:
    """Everybody's nodes in the fleet's zones."""
    return [node for nodes in _granted(gather(fleet.zones, fleet.cloud.nodes)) for node in nodes]


def hosts_of(fleet: Fleet, nodes: Iterable[Node]) -> tuple[Host, ...]:
    """The hosts of those nodes that are READY, worker by worker; behind a jump host, by their internal addresses."""
    listed = {str(host.name): host for host in fleet.spec.cloud.hosts}
    return tuple(
        Host(
            name=HostName(f"{node.name}-w{worker}"),
            node=node.name,
            zone=node.zone,
            worker=worker,
            address=address,
            port=listed[node.name].port if node.name in listed else fleet.cloud.ssh_port,
            identity=f"{node.uid}-w{worker}",
            user=listed[node.name].user if node.name in listed else None,
            chips=_chips_of(node),
        )
        for node in nodes
        if node.state is NodeState.READY
        for worker, address in enumerate(node.internal if fleet.spec.ssh.jump else node.addresses)
    )


def _chips_of(node: Node) -> int:
    """The chips that each of its hosts must have; 0 for a type that isn't known here."""
    try:
        return lookup(node.accelerator).chips_per_host
    except UsageError:
        return 0


def _granted(outcomes: Sequence[Outcome[T, V]]) -> list[V]:
    """The values, but for zones that the project may not use: nothing of ours is there. All of them are an error."""
    refused = [outcome for outcome in outcomes if isinstance(outcome.error, ZoneNotGranted)]
    if len(refused) == len(outcomes):
        refused = []
    return [outcome.unwrap() for outcome in outcomes if outcome not in refused]


def probe(fleet: Fleet, hosts: Sequence[Host]) -> tuple[HostView, ...]:
    """What each host says of itself, in order. A host without this version's agent is given it first."""

    def ask(host: Host) -> Mapping[str, Any]:
        return fleet.agent(host).ask("probe", {}, ship=not fleet.dry_run)

    return tuple(outcome.unwrap() for outcome in gather(hosts, lambda host: view_of(fleet, host, ask)))


def view_of(fleet: Fleet, host: Host, ask: Callable[[Host], Mapping[str, Any]]) -> HostView:
    """What a host answers to `ask` (its probe), or why it doesn't."""
    try:
        probe = ask(host)
        # a host that was lent to several fleets has runs that are not ours
        runs = [run for run in probe["runs"] if run.get("fleet") in (None, "", fleet.spec.fleet)]
        return HostView(host, probe={**probe, "runs": runs})
    except Bare:
        return HostView(host, bare=True)
    except HostKeyMismatch as error:
        return HostView(host, error=error.message, impostor=True)
    except TpufleetError as error:
        return HostView(host, error=error.message)
