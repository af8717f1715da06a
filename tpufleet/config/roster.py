"""Where the people of a fleet are listed, and how a list is changed without losing what a person wrote around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, overload

from tpufleet.config.cloud import is_inside
from tpufleet.config.edits import added, fields_of, removed, row_added, row_changed, row_removed, seated
from tpufleet.config.marks import Document, Finding, Unreadable
from tpufleet.config.people import DEFAULT_FILE, parse_people, people_of
from tpufleet.config.reading import read_text, refusal
from tpufleet.config.words import PEOPLE
from tpufleet.errors import ConfigError
from tpufleet.model import Person
from tpufleet.names import Seat, shown

EXAMPLE = "- {name: ada, key: ssh-ed25519 AAAA…}   or: tpufleet people add ada KEY"
Edit = Callable[[str, Document], str]


@dataclass(frozen=True)
class Roster:
    """A list of people: the file that it is in (the fleet file itself, if `inside`), that file's text, and who they
    are. `operator` is the account that nobody else may have."""

    path: Path
    persons: tuple[Person, ...]
    text: str
    document: Document
    operator: str
    inside: bool = False

    @property
    def csv(self) -> bool:
        return is_csv(self.path)


@overload
def roster_of(config: Path, document: Document, *, operator: str) -> Roster | None: ...
@overload
def roster_of(config: Path, document: Document, *, operator: str, made: Literal[True]) -> Roster: ...
def roster_of(config: Path, document: Document, *, operator: str, made: bool = False) -> Roster | None:
    """The list that the fleet file at `config` means, None without any; `made`: one that isn't there yet is empty.

    Raises ConfigError for whatever is wrong in it, and for a list that is named and not there.
    """
    named = document.data.get(PEOPLE)
    if isinstance(named, list):
        return Roster(config, _persons(config, document, operator), "", document, operator, inside=True)
    path = config.parent / (named or DEFAULT_FILE)
    if not path.exists() and (made or named is None):
        return read_roster(path, "", operator) if made else None
    if not path.exists():
        hint = "`tpufleet people add NAME KEY` makes it"
        missing = Finding((PEOPLE,), f"`people`: {shown(str(named))} is not there", hint)
        raise refusal(config, [document.place(missing)])
    return read_roster(path, read_text(path, "list of people"), operator)


def read_roster(path: Path, text: str, operator: str) -> Roster:
    """The list that `text`, for the file at `path`, is; raises ConfigError with the places of what is wrong."""
    try:
        document = parse_people(text, csv=is_csv(path))
    except Unreadable as unreadable:
        raise refusal(path, [unreadable.problem], EXAMPLE) from None
    return Roster(path, _persons(path, document, operator), text, document, operator)


def people_named(document: Document) -> Iterator[Finding]:
    """What is wrong with how the fleet file names its people."""
    named = document.data.get(PEOPLE)
    if named is None or isinstance(named, list):
        return
    if not isinstance(named, str):
        yield Finding((PEOPLE,), "`people` must be a file's name, or a list", "people: people.yaml")
    elif not is_inside(named):
        yield Finding((PEOPLE,), f"`people` must be beside the fleet file or below, unlike {shown(named)}")


def is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def _persons(path: Path, document: Document, operator: str) -> tuple[Person, ...]:
    people = people_of(document, operator=operator)
    problems = [*people.problems, *document.problems]
    if problems:
        raise refusal(path, problems, EXAMPLE)
    return people.persons


def edited(roster: Roster, edit: Edit, wanted: tuple[Person, ...], by_hand: str) -> str:
    """The text of `roster`'s file with `edit` done to it, which must then say `wanted` and nothing else.

    Raises ConfigError, saying what to do `by_hand`, for a list in the fleet file, or one that is written in a way
    that the edit doesn't understand: better nothing than half.
    """
    if roster.inside:
        raise ConfigError(
            "the people are in the fleet file, which only you change", where=str(roster.path), hint=by_hand
        )
    text = edit(roster.text, roster.document)
    try:
        persons = read_roster(roster.path, text, roster.operator).persons
    except ConfigError:
        persons = None
    if persons != wanted:
        raise ConfigError(
            "this file is written in a way that only you can change", where=str(roster.path), hint=by_hand
        )
    return text


def with_person(roster: Roster, person: Person) -> str:
    """The text of the list with `person` in it as well; raises ConfigError."""

    def edit(text: str, document: Document) -> str:
        return row_added(text, person) if roster.csv else added(text, document, person)

    by_hand = f"write this into it: {json.dumps(fields_of(person), ensure_ascii=False)}"
    return edited(roster, edit, (*roster.persons, person), by_hand)


def without_person(roster: Roster, name: str) -> str:
    """The text of the list without the person called `name`; raises ConfigError."""
    index = [str(person.name) for person in roster.persons].index(name)

    def edit(text: str, document: Document) -> str:
        return row_removed(text, document, index) if roster.csv else removed(text, document, index)

    others = tuple(person for person in roster.persons if person.name != name)
    return edited(roster, edit, others, f"take {name} out of it")


def with_seats(roster: Roster, seats: Mapping[str, Seat | None]) -> str:
    """The text of the list with these fixed seats, None for no fixed one; raises ConfigError."""

    def edit(text: str, document: Document) -> str:
        for index, person in reversed(list(enumerate(roster.persons))):  # so that the places before stay right
            if person.name in seats:
                seat = seats[person.name]
                change = row_changed(text, document, index, {"seat": seat}) if roster.csv else None
                text = change or seated(text, document, index, seat)
        return text

    wanted = tuple(replace(person, seat=seats.get(person.name, person.seat)) for person in roster.persons)
    said = ", ".join(f"{name}: seat {seat or 'left out'}" for name, seat in seats.items())
    return edited(roster, edit, wanted, f"write this into it: {said}")
