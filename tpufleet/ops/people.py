"""The list of people while something works on it: who they are, where they sit, and what is written when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tpufleet.config.edits import rfc3339
from tpufleet.config.load import load_with_people
from tpufleet.config.people import misfits
from tpufleet.config.roster import Roster, read_roster, with_person, with_seats, without_person
from tpufleet.config.words import closest
from tpufleet.errors import UsageError
from tpufleet.model import Person, Spec
from tpufleet.names import HostName, Seat, shown
from tpufleet.paths import LocalPaths, write_atomically
from tpufleet.people import Seating, chips_of_hosts, is_over, moved, seats
from tpufleet.publickey import fingerprint
from tpufleet.state.lock import locked
from tpufleet.state.people import Remembered, recall, remember

WAIT_S = 600.0
T = TypeVar("T")


class People:
    """The people of a fleet; nothing is written but by `write`, and nothing at all in a dry run."""

    def __init__(self, paths: LocalPaths, spec: Spec, roster: Roster, *, dry_run: bool = False) -> None:
        self.paths = paths
        self.spec = spec
        self.roster = roster
        self.dry_run = dry_run
        self._written = roster.text
        self.memory: Remembered = recall(paths.people)
        self.sat: Mapping[str, Seat] = self.memory.seats  # before this command
        self.seating = self.seated()

    @property
    def moved(self) -> dict[str, Seat]:
        """Who sits elsewhere than before this command, and where."""
        return moved(self.sat, self.seating.seats)

    @property
    def persons(self) -> tuple[Person, ...]:
        return self.roster.persons

    @property
    def revoked(self) -> tuple[str, ...]:
        """Who was revoked and may still be on hosts."""
        return self.memory.revoked

    def find(self, name: str) -> Person | None:
        return next((person for person in self.persons if person.name == name), None)

    def known(self, name: str) -> Person:
        """The person of that name; raises UsageError when there is none."""
        if person := self.find(name):
            return person
        names = [str(person.name) for person in self.persons]
        raise UsageError(f"{shown(name)} is not in the list", hint=closest(name, names) or "tpufleet people list")

    def seat_of(self, name: str) -> Seat:
        """Where `name` sits; raises UsageError for somebody who stands."""
        if name not in self.seating.seats:
            why = self.seating.standing.get(name, "their time is over")
            raise UsageError(f"{name} has no seat: {why}", hint="tpufleet people list")
        return self.seating.seats[name]

    def seated(self, more: Mapping[HostName, int] | None = None, *, gone: Collection[str] = ()) -> Seating:
        """Where everybody whose time isn't over sits, at the hosts of the file and `more` that are there.

        Whose seat isn't fixed leaves hosts that are `gone`, if there is room elsewhere.
        """
        now = datetime.now(UTC)
        there = [person for person in self.persons if not is_over(person, now)]
        return seats(there, {**(more or {}), **chips_of_hosts(self.spec)}, self.memory.seats, gone)

    def add(self, person: Person) -> bool:
        """Put `person` in the list; False when they are there already, just so. Raises UsageError."""
        twin = self.find(person.name)
        if twin == person:
            return False
        if twin:
            hint = f"tpufleet people revoke {person.name}, or edit {self.roster.path}"
            raise UsageError(f"{person.name} is in the list already, with something else", hint=hint)
        self.change(with_person, person, (*self.persons, person))
        self.memory = replace(self.memory, revoked=tuple(name for name in self.revoked if name != person.name))
        return True

    def revoke(self, name: str) -> bool:
        """Take a person out of the list, and remember the name until the hosts were told; False when that is so.

        Raises UsageError for somebody who was never there.
        """
        if self.find(name) is None and (name in self.revoked or name in self.memory.uids):
            return False
        self.known(name)
        self.change(without_person, name, tuple(person for person in self.persons if person.name != name))
        self.memory = replace(self.memory, revoked=tuple(sorted({*self.revoked, name})))
        return True

    def reseat(self, fixed: Mapping[str, Seat | None]) -> None:
        """Fix these seats; raises UsageError when two people would have one."""
        self.change(
            with_seats,
            fixed,
            tuple(replace(person, seat=fixed.get(person.name, person.seat)) for person in self.persons),
        )

    def change(self, edit: Callable[[Roster, T], str], what: T, wanted: tuple[Person, ...]) -> None:
        """Let `edit` do `what` to the list, which then must be `wanted`; raises UsageError when that can't be."""
        for finding in misfits(wanted, self.roster.operator):
            raise UsageError(finding.sentence, hint=finding.hint or f"see {self.roster.path}")
        text = edit(self.roster, what)
        self.roster = read_roster(self.roster.path, text, self.roster.operator)
        self.seating = self.seated()

    def write(self) -> None:
        """Write the list where it has changed, and remember seats, uids, who was revoked, and what hosts were told."""
        if self.dry_run:
            return
        # first what must not be forgotten: a name that is still in the list is revoked by the same command again
        self.memory = replace(self.memory, seats=dict(self.seating.seats))
        remember(self.paths.people, self.memory)
        if self.roster.text != self._written:
            path = self.roster.path.resolve()
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            try:
                write_atomically(path, self.roster.text.encode(), mode)
            except OSError as error:
                raise UsageError(f"{path} can't be written: {error.strerror}", hint=f"ls -ld {path.parent}") from error
            self._written = self.roster.text

    def fields(self, names: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Everybody, or those of these names, as JSON fields."""
        return [self._fields(person) for person in self.persons if names is None or person.name in names]

    def _fields(self, person: Person) -> dict[str, Any]:
        over = is_over(person, datetime.now(UTC))
        return {
            "name": person.name,
            "key": str(person.key),
            "fingerprint": fingerprint(person.key),
            "expires": rfc3339(person.expires) if person.expires else None,
            "expired": over,
            "seat": self.seating.seats.get(person.name),
            "fixed": person.seat is not None,
            "why": "their time is over" if over else self.seating.standing.get(person.name),
            "note": person.note,
            "share": person.share,
        }


def _unheard(_who: str) -> None:
    """For who needs not be told that it waits."""


@contextlib.contextmanager
def opened(
    config: Path,
    command: str,
    *,
    dry_run: bool = False,
    wait_s: float = WAIT_S,
    waiting: Callable[[str], None] = _unheard,
) -> Generator[People]:
    """The people of the fleet file at `config`; one command changes them at a time, which a dry run needs not wait for.

    `waiting` is told who has them. Raises StateError when they aren't to be had within `wait_s` seconds.
    """
    spec, roster = load_with_people(config)
    paths = LocalPaths(config.absolute(), spec.fleet)
    if dry_run:
        yield People(paths, spec, roster, dry_run=True)
        return
    paths.ensure_state()
    with locked(paths.people_lock, command, wait_s=wait_s, waiting=waiting):
        spec, roster = load_with_people(config)  # as whoever was before us has left it
        yield People(paths, spec, roster)
