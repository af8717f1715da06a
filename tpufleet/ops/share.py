"""One run's share of a collect: what is missing of it at home, what of that is wanted, what has come, what has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpufleet.host.checkpoints import check, names
from tpufleet.ops.choose import BY_FILE, CHECKPOINTS, Choice
from tpufleet.ops.home import RunHome, Wanted
from tpufleet.ops.room import Room
from tpufleet.ops.transfer import Received
from tpufleet.restart import FINAL_STATES
from tpufleet.text import size

NO_ROOM = "no room at home"
MOST_WHY = 200  # letters
BY_ONLY, BY_BEST = "left out by --only", "left out by --best"


@dataclass(frozen=True)
class Missing:
    """`what` of `run` isn't home, and `why`; `told`: in a sentence of its own."""

    run: str
    what: str
    why: str
    told: bool = False


@dataclass(frozen=True)
class Flaw:
    """A checkpoint that is not as its manifest says, and why; `is_known`: no news, and no loss that a person could
    still avert."""

    name: str
    why: str
    is_known: bool


@dataclass
class Parcel:
    """A checkpoint that is to come: as it was offered, and what is missing of it."""

    offered: Mapping[str, Any]
    items: list[Wanted]

    @property
    def name(self) -> str:
        return str(self.offered["name"])

    @property
    def left(self) -> int:
        return sum(item.left for item in self.items)


@dataclass
class Share:
    """`plain` files and `parcels` (the newest first) come; `kept` are left there, each with the reason."""

    home: RunHome
    offered: Mapping[str, Any]
    plain: list[Wanted] = field(default_factory=list[Wanted])
    parcels: list[Parcel] = field(default_factory=list[Parcel])
    kept: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, home: RunHome, offered: Mapping[str, Any], choice: Choice) -> Share:
        """What is missing of a run that a host offers, and wanted; nothing is changed by it."""
        share = cls(home, offered)
        home.log_cut_there = int(offered.get("log_cut") or 0)
        for entry in offered["files"]:
            if item := home.wanted(entry):
                if choice.wants(item.path):
                    share.plain.append(item)
                else:
                    share.kept[item.path] = BY_ONLY
        for index, point in enumerate(share.verified()):
            if items := home.wanted_of_checkpoint(point, verify=choice.verify):
                if choice.wants_checkpoint(home.run, newest=index == 0):
                    share.parcels.append(Parcel(point, items))
                else:
                    share.kept[str(point["name"])] = BY_BEST if choice.wants_checkpoints else BY_ONLY
        return share

    @property
    def run(self) -> str:
        return self.home.run

    @property
    def under_way(self) -> bool:
        return self.offered["state"]["state"] not in FINAL_STATES

    def verified(self) -> list[Mapping[str, Any]]:
        """The offered checkpoints that are as their manifests say there, the newest first."""
        return [point for point in reversed(self.offered["checkpoints"]) if point["verified"]]

    @property
    def newest(self) -> Mapping[str, Any] | None:
        return next(iter(self.verified()), None)

    def take_room(self, room: Room) -> None:
        """Leave there what has no room at home; small things are first, then the newest checkpoint."""
        for item in sorted(self.plain, key=lambda item: item.left):
            if not room.take(item.left):
                self.plain.remove(item)
                self.kept[item.path] = f"{NO_ROOM} ({size(item.left)})"
        for parcel in list(self.parcels):
            if not room.take(parcel.left):
                self.parcels.remove(parcel)
                self.kept[parcel.name] = f"{NO_ROOM} ({size(parcel.left)})"

    def finish(self, received: Received) -> int:
        """Put what has come in its place; how many checkpoints that are.

        A checkpoint is shown after the records that were there before it: whoever goes on from it needs them.
        """
        for item in self.plain:
            if item in received.arrived:
                self.home.finish(item)
        if not self._records_are_home(received):
            return 0
        whole = [parcel for parcel in self.parcels if self._has_come(parcel, received)]
        for parcel in whole:
            self.home.finish_checkpoint(parcel.offered, parcel.items)
        coming = {parcel.name for parcel in self.parcels}
        for point in self.verified():
            if str(point["name"]) not in coming | self.kept.keys():
                self.home.seal(point)
        return len(whole)

    def is_all(self, received: Received) -> bool:
        """Whether all is home now that there was. An older checkpoint may have been removed since: the job keeps its
        newest."""
        return (
            not self.kept
            and self._records_are_home(received)
            and all(
                self._has_come(parcel, received) or (parcel.offered != self.newest and self._is_gone(parcel, received))
                for parcel in self.parcels
            )
        )

    def missing(self, received: Received, why: str) -> Iterator[Missing]:
        """What of the run isn't home after all; `why` nothing more came."""
        for what, reason in self.kept.items():
            yield Missing(self.run, what, reason)
        for item in self.plain:
            if not received.answered(item):
                yield Missing(self.run, item.path, why)
        for parcel in self.parcels:
            if any(item in received.damaged for item in parcel.items):
                yield Missing(self.run, parcel.name, "arrived damaged", told=True)
            elif self._is_gone(parcel, received):
                if parcel.offered == self.newest:
                    yield Missing(self.run, parcel.name, "its job removed it just now")
            elif not self._has_come(parcel, received):
                yield Missing(self.run, parcel.name, why)
            elif not self._records_are_home(received):
                yield Missing(self.run, parcel.name, "the records before it haven't come yet")

    def lost(self) -> Iterator[str]:
        """The checkpoints at home that are damaged, read to the last byte, and that the host doesn't offer."""
        offered = {str(point["name"]) for point in self.verified()}
        folder = self.home.directory / CHECKPOINTS
        return (name for name in names(folder) if name not in offered and not check(folder / name).verified)

    def flaws(self) -> Iterator[Flaw]:
        """The checkpoints that aren't as their manifests say."""
        for point in self.offered["checkpoints"]:
            if not point["verified"]:
                why = str(point.get("problem") or "its host doesn't say why")[:MOST_WHY]
                yield Flaw(str(point["name"]), why, self._is_known(point))

    def _is_known(self, flaw: Mapping[str, Any]) -> bool:
        """Whether its run has ended, and a newer one is whole or people were told before."""
        if self.under_way:
            return False
        newer = (other for other in self.offered["checkpoints"] if other["step"] > flaw["step"])
        if any(other["verified"] for other in newer) or flaw["name"] in self.home.told:
            return True
        self.home.told.append(str(flaw["name"]))
        return False

    def _records_are_home(self, received: Received) -> bool:
        return not self.kept.keys() & BY_FILE.keys() and all(received.answered(item) for item in self.plain)

    def _has_come(self, parcel: Parcel, received: Received) -> bool:
        return all(item in received.arrived or not item.left for item in parcel.items)

    def _is_gone(self, parcel: Parcel, received: Received) -> bool:
        """Answered for as a whole, and not to be had any more."""
        answered = all(received.answered(item) or not item.left for item in parcel.items)
        return answered and any(item in received.gone for item in parcel.items)
