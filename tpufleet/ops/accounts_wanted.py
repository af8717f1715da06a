"""Pure: what hosts are asked to make their accounts equal to, and what they tell of those that they have."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tpufleet.config.edits import rfc3339
from tpufleet.model import Host, HostView, Node, NodeState, Person, Spec
from tpufleet.names import PersonName, RepoUrl, Seat
from tpufleet.ops.code import local_directory, repo_id
from tpufleet.people import chips_of_hosts
from tpufleet.text import listed

FIRST_UID, LAST_UID = 20_000, 59_999  # above those that useradd gives by itself, below systemd's (60001 and up)
HERE = "here"  # the state of an account in a probe whose person may log in
CLONE = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}", re.ASCII)  # a directory's name that no shell takes for more
STAYING = frozenset(  # a node in one of these is there or will be, with what its hosts had
    {NodeState.READY, NodeState.CREATING, NodeState.STARTING, NodeState.RESTARTING, NodeState.REPAIRING}
)

Request = dict[str, Any]


def numbered(names: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """`known`, with a uid for each of `names` that had none: the next that nobody has or ever had."""
    uids = dict(known)
    free = iter(sorted(set(range(FIRST_UID, LAST_UID + 1)) - set(known.values())))
    for name in names:
        if name not in uids:
            uids[name] = next(free)
    return uids


def learned(views: Sequence[HostView]) -> dict[str, int]:
    """The uids that hosts tell of people, as far as they can be believed: the first host's word, no uid twice."""
    found: dict[str, int] = {}
    for view in views:
        for name, uid, _, _ in _told_people(view):
            if FIRST_UID <= uid <= LAST_UID and name not in found and uid not in found.values():
                found[name] = uid
    return found


def learned_seats(views: Sequence[HostView]) -> dict[str, Seat]:
    """Where people sit by the word of the hosts."""
    found: dict[str, Seat] = {}
    for view in views:
        for name, _, chips, state in _told_people(view):
            numbers = cast("list[object]", chips) if isinstance(chips, list) else []
            if state == HERE and numbers and all(isinstance(chip, int) and 0 <= chip < 64 for chip in numbers):
                all_of_it = len(numbers) > 1
                found[name] = Seat(view.host.name if all_of_it else f"{view.host.name}:{numbers[0]}")
    return found


def anybody_on(views: Sequence[HostView]) -> frozenset[str]:
    """Who has an account on one of the hosts, by their word."""
    return frozenset(name for view in views for name, _, _, state in _told_people(view) if state == HERE)


def wiped(persons: Sequence[Person], revoked: Collection[str], views: Sequence[HostView]) -> str | None:
    """Why a list isn't applied by itself, if so: nobody is in it, and that was no command.

    A file that was moved away, or that is being saved, must not end everybody's evening.
    """
    left = sorted(anybody_on(views) - set(revoked)) if not persons else []
    if not left:
        return None
    return f"the list is empty, and {listed(left)} have accounts: `tpufleet people apply` would revoke them"


def gone_hosts(spec: Spec, nodes: Sequence[Node]) -> frozenset[str]:
    """The hosts of the fleet file that are not there: never made, deleted, stopped, preempted."""
    there = {node.name for node in nodes if node.state in STAYING}
    return frozenset(str(host) for host in chips_of_hosts(spec) if host.rpartition("-w")[0] not in there)


@dataclass(frozen=True)
class Wanted:
    """What a fleet's accounts are to be: `persons`, with their `seats` and `uids` by name.

    `ways` lead to all hosts of the fleet, `clone` is for those who sit on a host, `visitor` is a key that may enter
    every account for a while.
    """

    fleet: str
    persons: Sequence[Person]
    seats: Mapping[str, Seat]
    uids: Mapping[str, int]
    ways: Sequence[Mapping[str, Any]] = ()
    clone: Mapping[str, Any] | None = None
    visitor: Mapping[str, Any] | None = None

    def of(self, host: Host) -> Request:
        """What `host` is asked for."""
        return {
            "fleet": self.fleet,
            "host": str(host.name),
            "people": [self._entry(person, host) for person in self.persons],
            "hosts": list(self.ways),
            "visitor": self.visitor,
        }

    def _entry(self, person: Person, host: Host) -> dict[str, Any]:
        chips = _chips(self.seats.get(person.name), host)
        return {
            "name": str(person.name),
            "uid": self.uids[person.name],
            "key": str(person.key),
            "expires": rfc3339(person.expires) if person.expires else None,
            "seat": chips,
            "share": person.share,
            "clone": self.clone if chips else None,
        }


def foreseen(request: Request, view: HostView) -> list[tuple[str, str]]:
    """Name and state of each account that would come of `request`, by what the host tells of those that it has."""
    there = {name: (uid, seat) for name, uid, seat, state in _told_people(view) if state == HERE}
    found: list[tuple[str, str]] = []
    for person in request["people"]:
        have = there.pop(person["name"], None)
        found.append((person["name"], _becomes((person["uid"], person["seat"]), have)))
    return [*found, *((name, "revoked") for name in there)]


def _becomes(wanted: tuple[int, list[int]], have: tuple[int, object] | None) -> str:
    if have is None:
        return "made"
    return "kept" if have == wanted else "changed"


def digest(request: Request) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


def clone_of(spec: Spec, directory: Path) -> dict[str, Any] | None:
    """What people get in their homes: the code. One without an address comes from the copy that the host has, and its
    path is meant from `directory`, the fleet file's."""
    if spec.code is None:
        return None
    url = spec.code.repo if RepoUrl.pattern.fullmatch(spec.code.repo) else None
    where = url or str(local_directory(spec.code, directory))
    name = re.split("[/:]", re.sub(r"/*$", "", where).removesuffix(".git"))[-1]
    return {"url": url, "name": name, "mirror": repo_id(where)} if CLONE.fullmatch(name) else None


def _chips(seat: Seat | None, host: Host) -> list[int]:
    """The chips of `host` that a seat means."""
    if seat is None or seat.host != host.name:
        return []
    return list(range(host.chips)) if seat.chip is None else [seat.chip]


def _told_people(view: HostView) -> list[tuple[str, int, object, str]]:
    """Name, uid, seat and state of the people that a host tells of, without what can't be one."""
    told: object = (view.probe or {}).get("people")
    found: list[tuple[str, int, object, str]] = []
    for item in cast("list[object]", told) if isinstance(told, list) else ():
        entry = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name, uid = entry.get("name"), entry.get("uid")
        if isinstance(name, str) and isinstance(uid, int) and PersonName.pattern.fullmatch(name):
            found.append((name, uid, entry.get("seat"), str(entry.get("state"))))
    return found
