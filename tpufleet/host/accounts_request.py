"""What the verb `accounts` is asked for: parsed, and checked again although it comes from home.

What is wrong with one person is an entry of `refused`, and keeps nobody else from their account.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeVar

from tpufleet.host import clock, files, git
from tpufleet.host.errors import HostError, bad
from tpufleet.host.files import JsonObject
from tpufleet.host.places import FLEET, REPO_ID
from tpufleet.personkey import parse_person_key
from tpufleet.publickey import parse_public_key

FIRST_UID, LAST_UID = 20_000, 59_999  # above what useradd gives by itself on a VM, below Debian's and Ubuntu's UID_MAX
SLOTS = (0, 1, 2, 4, 8)
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
HOST = re.compile(r"[a-z](?:[a-z0-9-]{0,58}[a-z0-9])?-w(?:0|[1-9][0-9]{0,4})")
ADDRESS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:]{2,39}")
DIRECTORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")

Value = TypeVar("Value")


class Clone(NamedTuple):
    """The repository at `url`, as the directory `name` of a home; `mirror` is its id on this host, which is all that
    there is of one without an address."""

    url: str | None
    name: str
    mirror: str | None


class Wanted(NamedTuple):
    """A person as they should be here; `expires` is RFC 3339."""

    name: str
    uid: int
    key: str
    expires: str | None
    seat: tuple[int, ...]
    share: bool
    clone: Clone | None

    def is_over(self, now: float) -> bool:
        return self.expires is not None and clock.seconds(self.expires) <= now


class FleetHost(NamedTuple):
    """A host of the fleet, as others reach it, with its key."""

    name: str
    address: str
    port: int
    key: str


class Visitor(NamedTuple):
    """A key that may enter every account until then (seconds since the epoch)."""

    key: str
    until: float


class Refused(NamedTuple):
    name: str
    uid: int | None
    why: str


class Request(NamedTuple):
    fleet: str
    host: str
    people: list[Wanted]
    refused: list[Refused]
    hosts: list[FleetHost]
    visitor: Visitor | None


def parse(request: JsonObject) -> Request:
    """The request; raises HostError (bad-request) for what is wrong with it as a whole."""
    fleet = _matching(request.get("fleet"), FLEET, "a fleet's name")
    host = _matching(request.get("host"), HOST, "a host's name")
    people: list[Wanted] = []
    refused: list[Refused] = []
    for entry in _objects(request, "people"):
        try:
            people.append(_among(people, _wanted(entry)))
        except (HostError, ValueError) as error:
            uid = entry.get("uid")
            refused.append(
                Refused(str(entry.get("name"))[:100], uid if isinstance(uid, int) else None, str(error)),
            )
    hosts = [_host(entry) for entry in _objects(request, "hosts")]
    visitor = None if request.get("visitor") is None else _visitor(files.as_object(request["visitor"]) or {})
    return Request(fleet, host, people, refused, hosts, visitor)


def _wanted(entry: JsonObject) -> Wanted:
    name = _matching(entry.get("name"), NAME, "a plain user name")
    uid = _number(entry.get("uid"), range(FIRST_UID, LAST_UID + 1), "a person's uid")
    expires, share = entry.get("expires"), entry.get("share", False)
    if expires is not None:
        clock.seconds(_typed(expires, str, "a time"))
    chips = files.as_list(entry.get("seat", []))
    if chips is None:
        raise bad("a seat is a list of chips' numbers")
    seat = tuple(_number(chip, range(16), "a chip's number") for chip in chips)
    if len(seat) not in SLOTS or sorted(set(seat)) != list(seat):
        raise bad("a seat has 1, 2, 4 or 8 chips, in order")
    key = str(parse_person_key(_typed(entry.get("key"), str, "a key")))
    clone = None if entry.get("clone") is None else _clone(files.as_object(entry["clone"]) or {})
    return Wanted(name, uid, key, expires, seat, _typed(share, bool, "share"), clone)


def _among(others: list[Wanted], person: Wanted) -> Wanted:
    """`person`, who has nothing that one of `others` has."""
    for other in others:
        shared = set(person.seat) & set(other.seat)
        if other.name == person.name:
            raise bad("this name is in the list twice")
        if other.uid == person.uid:
            raise bad(f"this uid is {other.name}'s")
        if other.key == person.key:
            raise bad(f"this key is {other.name}'s: everybody needs one of their own")
        if shared:
            raise bad(f"chip {min(shared)} is {other.name}'s seat")
    return person


def _clone(entry: JsonObject) -> Clone:
    url, mirror = entry.get("url"), entry.get("mirror")
    if url is None and mirror is None:
        raise bad("a clone needs a repository's address, or its id on this host")
    return Clone(
        None if url is None else git.checked_url(_typed(url, str, "a repository's address")),
        _matching(entry.get("name"), DIRECTORY, "a directory's name"),
        None if mirror is None else _matching(mirror, REPO_ID, "a repository's id"),
    )


def _host(entry: JsonObject) -> FleetHost:
    try:
        key = str(parse_public_key(_typed(entry.get("key"), str, "a host's key")))
    except ValueError as error:
        raise bad(f"a host's key: {error}") from None
    return FleetHost(
        _matching(entry.get("name"), HOST, "a host's name"),
        _matching(entry.get("address"), ADDRESS, "a host's address"),
        _number(entry.get("port"), range(1, 65536), "a port"),
        key,
    )


def _visitor(entry: JsonObject) -> Visitor:
    try:
        key = str(parse_person_key(_typed(entry.get("key"), str, "a key")))
        return Visitor(key, clock.seconds(_typed(entry.get("until"), str, "a time")))
    except ValueError as error:
        raise bad(f"visitor: {error}") from None


def _objects(request: JsonObject, name: str) -> list[JsonObject]:
    items = files.as_list(request.get(name))
    objects = None if items is None else [entry for item in items if (entry := files.as_object(item)) is not None]
    if items is None or objects is None or len(objects) != len(items):
        raise bad(f"{name} must be a list of objects")
    return objects


def _matching(value: object, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise bad(f"{value!r:.80} is not {what}")
    return value


def _number(value: object, numbers: range, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in numbers:
        raise bad(f"{value!r:.80} is not {what}")
    return value


def _typed(value: object, kind: type[Value], what: str) -> Value:
    if not isinstance(value, kind):
        raise bad(f"{value!r:.80} is not {what}")
    return value
