"""The list of people while a command works on it: who they are, where they sit, and what is written when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tpufleet.cli.session import LOCK_WAIT_S, Session
from tpufleet.errors import UsageError
from tpufleet.model import Person, Spec
from tpufleet.names import HostName, Seat, shown
from tpufleet.people import Seating, chips_of_hosts, is_over, seats

if TYPE_CHECKING:
    from tpufleet.config.roster import Roster

T = TypeVar("T")


class List:
    """The people of a fleet; nothing is written but by `write`, and nothing at all in a dry run."""

    def __init__(self, session: Session, spec: Spec, roster: Roster, *, dry_run: bool) -> None:
        from tpufleet.state.people import recall

        self.out = session.out
        self.spec = spec
        self.paths = session.paths(spec)
        self.roster = roster
        self.dry_run = dry_run
        self._text = roster.text
        remembered = recall(self.paths.people)
        self._present = remembered.seats
        self.revoked = remembered.revoked
        self.seating = self.seated()

    @property
    def persons(self) -> tuple[Person, ...]:
        return self.roster.persons

    def known(self, name: str) -> Person:
        """The person of that name; raises UsageError when there is none."""
        from tpufleet.config.words import closest

        for person in self.persons:
            if person.name == name:
                return person
        names = [str(person.name) for person in self.persons]
        raise UsageError(f"{shown(name)} is not in the list", hint=closest(name, names) or "tpufleet people list")

    def seat_of(self, name: str) -> Seat:
        """Where `name` sits; raises UsageError for somebody who stands."""
        if name not in self.seating.seats:
            why = self.seating.standing.get(name, "their time is over")
            raise UsageError(f"{name} has no seat: {why}", hint="tpufleet people list")
        return self.seating.seats[name]

    def seated(self, more: Mapping[HostName, int] | None = None) -> Seating:
        """Where everybody whose time isn't over sits, at the hosts of the file and `more` that are there."""
        now = datetime.now(UTC)
        there = [person for person in self.persons if not is_over(person, now)]
        return seats(there, {**(more or {}), **chips_of_hosts(self.spec)}, self._present)

    def change(self, edit: Callable[[Roster, T], str], what: T, wanted: tuple[Person, ...]) -> None:
        """Let `edit` do `what` to the list, which then must be `wanted`; raises UsageError when that can't be."""
        from tpufleet.config.people import misfits

        for finding in misfits(wanted, self.roster.operator):
            raise UsageError(finding.sentence, hint=finding.hint or f"see {self.roster.path}")
        self._text = edit(self.roster, what)
        self.roster = replace(self.roster, persons=wanted)
        self.seating = self.seated()

    def reseat(self, fixed: Mapping[str, Seat | None]) -> None:
        """Fix these seats; raises UsageError when two people would have one."""
        from tpufleet.config.roster import with_seats

        self.change(
            with_seats,
            fixed,
            tuple(replace(person, seat=fixed.get(person.name, person.seat)) for person in self.persons),
        )

    def write(self, *, revoked: str | None = None) -> None:
        """Write the list where it has changed, and remember seats, and who was `revoked`."""
        if self.dry_run:
            return
        from tpufleet.paths import write_atomically
        from tpufleet.state.people import remember

        # first what must not be forgotten: a name that is still in the list is revoked by the same command again
        if revoked and revoked not in self.revoked:
            self.revoked = (*self.revoked, revoked)
        remember(self.paths.people, self.seating.seats, self.revoked)
        if self._text != self.roster.text:
            path = self.roster.path.resolve()
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            try:
                write_atomically(path, self._text.encode(), mode)
            except OSError as error:
                raise UsageError(f"{path} can't be written: {error.strerror}", hint=f"ls -ld {path.parent}") from error

    def fields(self) -> list[dict[str, Any]]:
        """Everybody as JSON fields."""
        return [self._fields(person) for person in self.persons]

    def answer(self, names: Sequence[str], *, changed: bool) -> None:
        """The command's JSON object: those it was about."""
        about = [self._fields(person) for person in self.persons if person.name in names]
        self.out.data(file=str(self.roster.path), people=about, changed=changed, dry_run=self.dry_run)

    def _fields(self, person: Person) -> dict[str, Any]:
        from tpufleet.config.edits import rfc3339
        from tpufleet.publickey import fingerprint

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


@contextlib.contextmanager
def opened(session: Session, command: str, *, dry_run: bool) -> Generator[List]:
    """The list; one command changes it at a time, which a dry run needs not wait for."""
    from tpufleet.config.load import load_with_people
    from tpufleet.state.lock import locked

    spec, roster = load_with_people(session.config)
    if dry_run:
        yield List(session, spec, roster, dry_run=True)
        return
    paths = session.paths(spec)
    paths.ensure_state()
    waiting = session.out.note
    with locked(paths.people_lock, command, wait_s=LOCK_WAIT_S, waiting=lambda who: waiting(f"waiting for {who}")):
        spec, roster = load_with_people(session.config)  # as whoever was before us has left it
        yield List(session, spec, roster, dry_run=False)
