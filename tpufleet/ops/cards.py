"""The cards of a fleet's people: their seats, the hosts' addresses and pinned keys, and how to train there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tpufleet.cards import Card
from tpufleet.errors import HostFault, TpufleetError, UsageError
from tpufleet.model import Host
from tpufleet.names import Address
from tpufleet.ops.accounts_wanted import clone_of
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import find_nodes, hosts_of
from tpufleet.ops.people import People
from tpufleet.publickey import fingerprint
from tpufleet.ssh.fanout import gather
from tpufleet.ssh.trust import alias
from tpufleet.sweep import expand


def cards_of(people: People, fleet: Fleet, names: Sequence[str]) -> tuple[list[Card], dict[str, TpufleetError]]:
    """The cards that can be made, and for whom there is none, and why."""
    hosts = {str(host.name): host for host in hosts_of(fleet, find_nodes(fleet))}
    people.seating = people.seated({host.name: host.chips for host in hosts.values()})
    needed = {seat.host for name, seat in people.seating.seats.items() if name in names}
    refused = _pinned(fleet, [host for name, host in hosts.items() if name in needed])
    cards: list[Card] = []
    problems: dict[str, TpufleetError] = {}
    for name in names:
        try:
            seat = people.seat_of(name)
            if seat.host not in hosts:
                raise UsageError(f"{seat.host}, where {name} sits, is not ready", hint="tpufleet create")
            if seat.host in refused:
                raise refused[seat.host]
            cards.append(_card(people, fleet, name, hosts[seat.host]))
        except TpufleetError as error:
            problems[name] = error
    return cards, problems


def _pinned(fleet: Fleet, hosts: Iterable[Host]) -> dict[str, TpufleetError]:
    """Pin the hosts' keys; why not, for those where it can't be done."""
    outcomes = gather(list(hosts), fleet.pin)
    return {outcome.item.name: outcome.error for outcome in outcomes if outcome.error}


def _card(people: People, fleet: Fleet, name: str, host: Host) -> Card:
    key = fleet.trust.get(host.identity)
    try:
        address = Address(host.address)
    except ValueError as error:
        raise HostFault(f"has an impossible address: {error}", kind="bad-address", where=host.name) from error
    if key is None:
        raise HostFault("no key of it is known", kind="no-host-key", where=host.name, hint="tpufleet create")
    jump = people.spec.ssh.jump
    return Card(
        fleet=people.spec.fleet,
        name=people.known(name).name,
        seat=people.seat_of(name),
        address=address,
        port=host.port,
        alias=alias(host.identity),
        fingerprint=fingerprint(key),
        host_key_kind=key.kind,
        jump=jump.rpartition("@")[2] if jump else None,
        expires=people.known(name).expires,
        **training(people),
    )


def training(people: People) -> dict[str, Any]:
    """Where the code is and how to train, by the file: its first job, with the first values of its grid."""
    spec = people.spec
    found: dict[str, Any] = {}
    for name, job in spec.jobs.items():
        try:
            found = {"train": expand(name, job)[0].command, "workdir": job.workdir}
        except UsageError:
            continue  # it has a `{name}` that only the command line fills
        break
    clone = clone_of(spec, people.paths.directory)
    if spec.code and clone:
        found |= {"repo": clone["url"], "clone": clone["name"], "setup": spec.code.setup}
    return found
