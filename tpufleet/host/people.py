"""Who has an account of the fleet's on this host, and whose seat a chip is: root writes it down, everybody may read it.

It is for the queue, the probe and the tools. What root does about accounts rests on the accounts themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tpufleet.host import files
from tpufleet.host.files import JsonObject
from tpufleet.host.places import Places

HERE, REVOKED, EXPIRED = "here", "revoked", "expired"
STATES = (HERE, REVOKED, EXPIRED)


class Person(NamedTuple):
    """`seat` are the numbers of chips of this host; `since` is when they came to be theirs, `expires` RFC 3339."""

    name: str
    uid: int
    seat: tuple[int, ...]
    since: str
    state: str
    expires: str | None
    share: bool

    @property
    def is_here(self) -> bool:
        return self.state == HERE


class Known(NamedTuple):
    """What `people.json` says; `devices` are owner, group and mode that chips had before they became seats."""

    fleet: str
    host: str
    operator: str
    people: Mapping[str, Person]
    hosts: Sequence[JsonObject] = ()
    devices: Mapping[str, Sequence[int]] = {}

    def seats(self) -> dict[int, str]:
        """Whose seat a chip is."""
        return {chip: person.name for person in self.people.values() if person.is_here for chip in person.seat}

    def with_person(self, person: Person) -> Known:
        return self._replace(people={**self.people, person.name: person})


def read(places: Places) -> Known | None:
    """What is written down; None where nothing is, or nothing that this version understands."""
    try:
        value = files.read_json(places.people)
    except OSError:
        return None
    if value is None or not all(isinstance(value.get(name), str) for name in ("fleet", "host", "operator")):
        return None
    found = [_person(entry) for entry in files.as_list(value.get("people")) or []]
    hosts = [host for entry in files.as_list(value.get("hosts")) or [] if (host := files.as_object(entry)) is not None]
    devices = {
        name: tuple(_numbers(numbers)) for name, numbers in (files.as_object(value.get("devices")) or {}).items()
    }
    people = {person.name: person for person in found if person is not None}
    return Known(value["fleet"], value["host"], value["operator"], people, hosts, devices)


def write(places: Places, known: Known) -> None:
    """Puts it there, whole, for everybody to read; nothing is written where nothing has changed."""
    people = [{**known.people[name]._asdict(), "seat": list(known.people[name].seat)} for name in sorted(known.people)]
    devices = {name: list(numbers) for name, numbers in known.devices.items()}
    value = {**known._asdict(), "people": people, "hosts": list(known.hosts), "devices": devices}
    if files.read_json(places.people) != value:
        files.write_json(places.people, value)


def seats(places: Places) -> dict[int, str]:
    """Whose seat a chip of this host is, as it is written down."""
    known = read(places)
    return {} if known is None else known.seats()


def _person(entry: object) -> Person | None:
    value = files.as_object(entry) or {}
    name, uid, since, state = (value.get(field) for field in ("name", "uid", "since", "state"))
    expires, share = value.get("expires"), value.get("share")
    if not isinstance(name, str) or not isinstance(since, str) or isinstance(uid, bool) or not isinstance(uid, int):
        return None
    if state not in STATES or not (expires is None or isinstance(expires, str)):
        return None
    return Person(name, uid, tuple(_numbers(value.get("seat"))), since, str(state), expires, share is True)


def _numbers(value: object) -> list[int]:
    items = files.as_list(value) or []
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
