"""Pure: who sits where. A seat is a person's right to a chip, or to a host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tpufleet.accelerators import lookup
from tpufleet.model import Person, Spec
from tpufleet.names import HostName, Seat
from tpufleet.plan import wanted_nodes
from tpufleet.text import counted, natural


@dataclass(frozen=True)
class Seating:
    """Where everybody sits, by name; and of those who have no seat, why."""

    seats: Mapping[str, Seat] = field(default_factory=dict[str, Seat])
    standing: Mapping[str, str] = field(default_factory=dict[str, str])


def chips_of_hosts(spec: Spec) -> dict[HostName, int]:
    """The hosts that the fleet file asks for, or lists, and how many chips each has."""
    kinds = {str(name): pool.type for name, pool in wanted_nodes(spec).items()}
    kinds |= {str(host.name): replace(lookup(host.accelerator), hosts=1) for host in spec.cloud.hosts}
    return {
        HostName(f"{node}-w{worker}"): kind.chips_per_host
        for node, kind in kinds.items()
        for worker in range(kind.hosts)
    }


def is_over(person: Person, now: datetime) -> bool:
    """Whether the person's time was over at `now`."""
    return person.expires is not None and person.expires <= now


def seats(
    people: Sequence[Person],
    hosts: Mapping[HostName, int],
    present: Mapping[str, str],
    gone: Collection[str] = (),
) -> Seating:
    """A seat for each of `people` at `hosts` (name -> how many chips it has), given where they sat before.

    A fixed seat (`Person.seat`) is kept free for its owner, also when others came first. Who sat at a chip stays while
    that seat is there (a whole host is nobody's who hasn't fixed it); the rest are spread so that hosts are equally
    full. Hosts that are `gone` (and will come back) get people when no other has room: who sat there moves while
    there is, else waits for it, as fixed seats do. Nobody shares a chip: where there are too few, those who come
    last in the list stand, with the reason.
    """
    room = _Room(hosts, gone)
    taken: dict[str, Seat] = {}
    standing: dict[str, str] = {}
    for person in people:
        if person.seat is not None:
            why = room.refusal(person.seat)
            if why is None:
                taken[person.name] = room.take(person.seat)
            else:
                standing[person.name] = why
    others = [person for person in people if person.seat is None]
    present = {name: Seat(seat) for name, seat in present.items()}
    before = {person.name: seat for person in others if (seat := present.get(person.name)) and seat.chip is not None}
    for name, seat in before.items():
        if seat.host not in gone and room.refusal(seat) is None:
            taken[name] = room.take(seat)
    for name, seat in before.items():  # before who is new: they have had a card
        if name not in taken and room.refusal(seat) is None:
            taken[name] = room.take(room.free(elsewhere=True) or seat)
    for person in others:
        if person.name in taken:
            continue
        free = room.free(elsewhere=True) or room.free()
        if free is None:
            standing[person.name] = f"every chip has its person ({room.said})" if hosts else "the fleet has no hosts"
        else:
            taken[person.name] = room.take(free)
    return Seating({str(person.name): taken[person.name] for person in people if person.name in taken}, standing)


def moved(before: Mapping[str, Seat], after: Mapping[str, Seat]) -> dict[str, Seat]:
    """Who sits elsewhere than before, and where: the cards that aren't right any more."""
    return {name: seat for name, seat in after.items() if name in before and before[name] != seat}


class _Room:
    """The chips that are free while people are seated."""

    def __init__(self, hosts: Mapping[HostName, int], gone: Collection[str]) -> None:
        self._gone = gone
        self._chips = dict(sorted(hosts.items(), key=lambda item: natural(item[0])))
        self._free = {host: list(range(count)) for host, count in self._chips.items()}

    @property
    def said(self) -> str:
        total = sum(self._chips.values())
        return f"{counted(total, 'chip')} on {counted(len(self._chips), 'host')}"

    def refusal(self, seat: Seat) -> str | None:
        """Why nobody can sit at `seat` now, if so."""
        if seat.host not in self._chips:
            return f"{seat}: the fleet has no host {seat.host}"
        if seat.chip is not None and seat.chip >= self._chips[seat.host]:
            return f"{seat}: {seat.host} has {counted(self._chips[seat.host], 'chip')}"
        return None if set(self._wanted(seat)) <= set(self._free[seat.host]) else f"{seat} is somebody else's"

    def take(self, seat: Seat) -> Seat:
        wanted = self._wanted(seat)
        self._free[seat.host] = [chip for chip in self._free[seat.host] if chip not in wanted]
        return seat

    def free(self, *, elsewhere: bool = False) -> Seat | None:
        """The first free chip of the host that is least full; `elsewhere`: of those that aren't gone."""
        open_hosts = [host for host, chips in self._free.items() if chips and not (elsewhere and host in self._gone)]
        if not open_hosts:
            return None
        host = min(open_hosts, key=lambda host: 1 - len(self._free[host]) / self._chips[host])
        return Seat(f"{host}:{self._free[host][0]}")

    def _wanted(self, seat: Seat) -> Iterable[int]:
        return range(self._chips[seat.host]) if seat.chip is None else (seat.chip,)
