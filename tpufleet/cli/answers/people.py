"""Answers about people, the board and an evening's end."""

from __future__ import annotations

from typing import Literal

from tpufleet.cli.answers.base import MAYBE, Answer, Part, Time
from tpufleet.cli.answers.fleet import Proof


class Person(Part):
    name: str
    key: str
    fingerprint: str
    expires: Time | None
    expired: bool
    seat: str | None
    fixed: bool
    """the seat is the one that was asked for"""
    why: str | None
    """why there is no seat"""
    note: str
    share: bool


class People(Answer):
    file: str
    people: list[Person]
    """everybody"""
    revoked: list[str]
    """names that hosts may still have"""


class Changed(Answer):
    file: str
    people: list[Person]
    """those it was about"""
    changed: bool
    dry_run: bool
    moved: dict[str, str] = MAYBE
    """where hosts were told, as by `people apply`"""
    missed: dict[str, str] = MAYBE
    waiting: dict[str, str] = MAYBE


class Revoked(Answer):
    file: str
    revoked: str
    changed: bool
    dry_run: bool
    moved: dict[str, str] = MAYBE
    """where hosts were told, as by `people apply`"""
    missed: dict[str, str] = MAYBE
    waiting: dict[str, str] = MAYBE


class Account(Part):
    state: Literal["made", "kept", "changed", "revoked", "expired", "refused"]
    why: str | None


class Applied(Part):
    name: str
    uid: int | None
    seat: str | None
    hosts: dict[str, Account]


class PeopleApplied(Answer):
    fleet: str
    dry_run: bool
    changed: bool
    people: list[Applied]
    moved: dict[str, str]
    """name to seat"""
    missed: dict[str, str]
    """host to why: not told yet"""
    waiting: dict[str, str]
    """name to host: it is gone and there is no room, or the seat is fixed"""


class Visit(Part):
    """What a person finds on their host; without `faults` all is well."""

    name: str
    seat: str
    login: bool
    chip: bool
    pinned: bool
    clone: bool | None
    free: int | None
    """bytes"""
    faults: list[str]


class Checked(Answer):
    fleet: str
    people: list[Visit]
    without: dict[str, str]
    """name to why: nowhere to look"""


class Card(Part):
    name: str
    seat: str
    address: str
    port: int
    fingerprint: str | None
    host: str
    text: str


class Cards(Answer):
    fleet: str
    file: str | None
    cards: list[Card]
    without: dict[str, str]
    """name to why"""


class Board(Answer):
    """First of all, and then it serves."""

    board: str
    sign_up: str | None
    code: str | None
    until: Time | None
    host: str
    """the link for you alone"""


class Ended(Answer):
    fleet: str
    dry_run: bool
    home: str
    list: str | None
    """the copy of the list"""
    revoked: list[str]
    missed: dict[str, str]
    people: dict[str, int]
    """name to files at home"""
    files: int
    bytes: int
    runs: int
    notes: list[str]
    problems: list[str]
    """what is not home"""
    proof: list[Proof]


class Ending(Answer):
    """What would be done, with `--dry-run`."""

    fleet: str
    dry_run: bool
    revoked: list[str]
    agreed: list[str]
    nodes: list[str]
