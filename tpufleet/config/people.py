"""The list of people: in the fleet file, or in a file beside it that is YAML or CSV -> persons, checked.

Every problem has its place (file:line:column), whichever of the three the list is.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tpufleet.config.lists import twins
from tpufleet.config.marks import Document, Finding, Problem, below, parse
from tpufleet.config.table import parse_table
from tpufleet.config.words import PEOPLE, PersonEntry, finding_from
from tpufleet.model import Person
from tpufleet.names import Duration, Seat, look, shown
from tpufleet.personkey import HOW, parse_person_key
from tpufleet.publickey import PublicKeyLine

DEFAULT_FILE = "people.yaml"
MAX_NOTE = 200
SHARE = {"yes": True, "true": True, "no": False, "false": False}  # a table has text alone
DAY = timedelta(days=1)
TIME = re.compile(r"\d{4}-\d\d-\d\d(?P<hour>[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?", re.ASCII)
TIME_HINT = "2026-12-01 (to the end of that day, UTC), or with the hour: 2026-12-01T18:00Z, 2026-12-01T18:00+01:00"


class People(NamedTuple):
    """The persons of a list, in its order; or what is wrong with it."""

    persons: tuple[Person, ...]
    problems: tuple[Problem, ...] = ()


def parse_people(text: str, *, csv: bool) -> Document:
    """The text of a file of people as a document with the list at `people`; raises Unreadable."""
    if csv:
        return below(PEOPLE, parse_table(text))
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return Document(data={PEOPLE: []})  # nobody is there yet, or any more
    return below(PEOPLE, parse(text))


def people_of(document: Document, *, operator: str) -> People:
    """The persons at `people` of `document`; `operator` is the account that nobody else may have."""
    try:
        # as in config.load: through JSON, and wrapped in a tuple
        (entries,) = _adapter().validate_json(json.dumps([{PEOPLE: document.data[PEOPLE]}]))
    except ValidationError as error:
        details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] == "missing")
        found = [finding_from(detail, document) for detail in details]
        return People((), tuple(document.place(finding) for finding in found if finding))
    findings: list[Finding] = []
    persons = [_person(index, entry, findings) for index, entry in enumerate(entries.people)]
    whole = tuple(person for person in persons if person)
    findings += _names([entry.name for entry in entries.people], operator)
    if not findings:
        findings += _shared(whole)
    return People(whole, tuple(document.place(finding) for finding in findings))


def misfits(persons: Sequence[Person], operator: str) -> Iterator[Finding]:
    """What `persons`, each of them right by themselves, can't be together."""
    yield from _names([person.name for person in persons], operator)
    yield from _shared(persons)


def expiry(text: str, now: datetime | None = None) -> datetime:
    """The moment (UTC) that `2026-12-01` (the end of that day), `2026-12-01T18:00Z` or, from `now` on, `8h` means.

    Raises ValueError with a sentence.
    """
    if now is not None and Duration.pattern.fullmatch(text):
        return (now + timedelta(seconds=Duration(text).seconds)).replace(microsecond=0)
    found = TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if found["hour"] else moment.replace(tzinfo=UTC) + DAY
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(text)} is not a time that can be meant") from None


def note_refused(note: str) -> str | None:
    """Why `note` can't be one, if so."""
    if len(note) > MAX_NOTE or not note.isprintable():
        return f"`note` must be one printable line of at most {MAX_NOTE} characters"
    return None


@dataclasses.dataclass(frozen=True)
class _Entries:
    people: tuple[PersonEntry, ...]


@functools.cache
def _adapter() -> TypeAdapter[tuple[_Entries]]:
    return TypeAdapter(tuple[_Entries], config=ConfigDict(extra="forbid", strict=True))


def _person(index: int, entry: PersonEntry, findings: list[Finding]) -> Person | None:
    """The person that an entry means; None, with findings, when something in it can't be."""
    before = len(findings)
    key = _key(index, entry, findings)
    expires = seat = None
    if entry.expires is not None:
        try:
            expires = expiry(entry.expires)
        except ValueError as error:
            findings.append(Finding((PEOPLE, index, "expires"), f"`expires`: {error}", TIME_HINT))
    if entry.seat is not None:
        try:
            seat = Seat(entry.seat)
        except ValueError as error:
            findings.append(Finding((PEOPLE, index, "seat"), f"`seat`: {error}"))
    if why := note_refused(entry.note):
        findings.append(Finding((PEOPLE, index, "note"), why))
    if str(entry.share).lower() not in SHARE:
        findings.append(
            Finding((PEOPLE, index, "share"), f"`share` must be yes or no, unlike {shown(str(entry.share))}")
        )
    if key is None or len(findings) > before:
        return None
    return Person(entry.name, key, expires, seat, entry.note, SHARE[str(entry.share).lower()])


def _key(index: int, entry: PersonEntry, findings: list[Finding]) -> PublicKeyLine | None:
    try:
        return parse_person_key(entry.key)
    except ValueError as error:
        findings.append(Finding((PEOPLE, index, "key"), f"the key of {entry.name}: {error}", HOW))
        return None


def _names(names: Sequence[str], operator: str) -> Iterator[Finding]:
    """Names that are there twice, that are the operator's, or that look like another one."""
    yield from twins((PEOPLE,), names, "name")
    seen: dict[str, str] = {look(operator): operator}
    for index, name in enumerate(names):
        other = seen.setdefault(look(name), name)
        if name == operator:
            yield Finding((PEOPLE, index, "name"), f"{shown(operator)} is the operator's own account (`ssh.user`)")
        elif other != name:
            sentence = f"{shown(name)} looks like {shown(other)}, and people would take one for the other"
            yield Finding((PEOPLE, index, "name"), sentence, "choose another name")


def _shared(persons: Sequence[Person]) -> Iterator[Finding]:
    """Keys and seats that two people have."""
    keys: dict[bytes, Person] = {}
    seats: list[tuple[Seat, Person]] = []
    for index, person in enumerate(persons):
        owner = keys.setdefault(person.key.blob, person)
        if owner is not person:
            sentence = f"the key of {person.name} is {owner.name}'s: each person has a key of their own"
            yield Finding((PEOPLE, index, "key"), sentence, HOW)
        if person.seat is None:
            continue
        for seat, sitting in seats:
            if clash(seat, person.seat):
                yield Finding((PEOPLE, index, "seat"), f"{person.name} can't sit at {person.seat}: {sitting.name} does")
        seats.append((person.seat, person))


def clash(one: Seat, other: Seat) -> bool:
    """Whether two seats have a chip in common."""
    return one.host == other.host and (one.chip is None or other.chip is None or one.chip == other.chip)
