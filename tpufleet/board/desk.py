"""What the board asks of the fleet; `fleetdesk` answers it, and tests answer it without a fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tpufleet.board.look import Look
from tpufleet.cards import Card
from tpufleet.model import Person
from tpufleet.names import Seat


@dataclass(frozen=True)
class Listed:
    """The list of people at this moment, and names that were somebody's before (revoked ones among them)."""

    persons: Sequence[Person]
    operator: str
    former: Collection[str] = ()
    seats: Mapping[str, Seat] = field(default_factory=dict[str, Seat])


@dataclass(frozen=True)
class Admitted:
    """What became of people whom the hosts were told of: a card, or why there is none yet."""

    cards: Mapping[str, Card] = field(default_factory=dict[str, Card])
    problems: Mapping[str, str] = field(default_factory=dict[str, str])


class Desk(Protocol):
    """All of it may be called from any thread, and raises TpufleetError for what files, cloud and hosts do."""

    @property
    def fleet(self) -> str:
        """The fleet's name."""
        ...

    def listed(self) -> Listed:
        """The list as it is now; asks neither cloud nor hosts."""
        ...

    def enlist(self, persons: Sequence[Person], returning: Collection[str]) -> Mapping[str, str]:
        """Put `persons` into the list, and seat them; gives for whom that can't be, and why.

        A name that was somebody's before is only given to who is `returning`.
        """
        ...

    def admit(self, names: Collection[str]) -> Admitted:
        """Make all hosts' accounts equal the list, and write the cards of `names`."""
        ...

    def look(self) -> Look:
        """The fleet as it is now."""
        ...

    def log(self, run: str, size: int) -> bytes | None:
        """The last `size` bytes of the log of a run of the fleet; None for a run that the last look didn't find."""
        ...

    def rest(self) -> None:
        """Nobody looks any more: let go of what only looking needs."""
        ...
