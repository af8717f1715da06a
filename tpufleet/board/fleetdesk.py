"""The desk over a real fleet: its list of people, its hosts, and what they tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from tpufleet.board.desk import Admitted, Listed
from tpufleet.board.fleetlook import FleetLook
from tpufleet.board.look import Look
from tpufleet.errors import ConfigError, TpufleetError, Unreachable, UsageError
from tpufleet.model import Person
from tpufleet.ops.accounts import apply
from tpufleet.ops.cards import cards_of
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.people import People, opened
from tpufleet.ops.runs import Located, read_log
from tpufleet.people import is_over

COMMAND = "board"


class FleetDesk:
    """`connect` opens the fleet of the file at `config`; each round of the hosts does, as a command would."""

    def __init__(self, config: Path, fleet: str, connect: Callable[[], AbstractContextManager[Fleet]]) -> None:
        self._config = config
        self._fleet = fleet
        self._connect = connect
        self._looking = contextlib.ExitStack()  # the connections of whoever looks, kept from look to look
        self._seen: Fleet | None = None
        self._look = FleetLook()

    @property
    def fleet(self) -> str:
        return self._fleet

    def listed(self) -> Listed:
        with opened(self._config, COMMAND, dry_run=True) as people:
            return Listed(people.persons, people.roster.operator, _former(people), people.memory.seats)

    def enlist(self, persons: Sequence[Person], returning: Collection[str]) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        with opened(self._config, COMMAND) as people:
            former = _former(people)
            for person in persons:
                there = people.find(person.name)
                if there and there.key == person.key:
                    continue  # by hand, or by a board that was cut off
                if person.name in former and person.name not in returning:
                    refused[person.name] = f"was revoked; to let them in again: tpufleet people add {person.name} KEY"
                    continue
                try:
                    people.add(person)
                except ConfigError:
                    raise  # the list as a whole can't be changed, whoever it is
                except UsageError as error:
                    refused[person.name] = error.message
            people.write()
        return refused

    def admit(self, names: Collection[str]) -> Admitted:
        with opened(self._config, COMMAND) as people, self._connect() as fleet:
            applied = apply(fleet, people)
            cards, without = cards_of(people, fleet, [name for name in names if _is_here(people, name)])
            people.write()
        refused = {(host, account.name): f"{host}: {account.why}" for host, account in applied.refused}
        missed = {host: str(error) for host, error in applied.missed.items()}
        problems = {name: str(error) for name, error in without.items()}
        for card in cards:
            host = str(card.seat.host)
            if why := missed.get(host) or refused.get((host, card.name)):
                problems[card.name] = why
        return Admitted({card.name: card for card in cards if card.name not in problems}, problems)

    def look(self) -> Look:
        try:
            fleet = self._seen = self._seen or self._looking.enter_context(self._connect())
            with opened(self._config, COMMAND, dry_run=True) as people:
                sharing = {str(person.name) for person in people.persons if person.share}
                seating = people.seating
            return self._look.look(fleet, seating, sharing)
        except TpufleetError:
            self.rest()  # the next look begins anew: with the file as it is then, and with new connections
            raise

    def log(self, run: str, size: int) -> bytes | None:
        place, fleet = self._look.place(run), self._seen
        if place is None:
            return None
        if fleet is None:
            raise Unreachable("nobody looks at the fleet at the moment")
        host, state = place
        return b"".join(read_log(fleet, Located(state, host), offset=-size, follow=False))

    def rest(self) -> None:
        self._seen = None
        self._looking.close()


def _is_here(people: People, name: str) -> bool:
    """Whether somebody is in the list, and their time isn't over."""
    person = people.find(name)
    return person is not None and not is_over(person, datetime.now(UTC))


def _former(people: People) -> set[str]:
    """Names that had an account and are not in the list."""
    return {*people.memory.uids, *people.revoked} - {str(person.name) for person in people.persons}
