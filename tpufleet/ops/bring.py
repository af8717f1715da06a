"""One host's part of a collect: one question, and its files over a few streams.

What one run can't have is only its own loss.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from typing import Any

from tpufleet.errors import DiskFull, HostFault, TpufleetError
from tpufleet.model import Host
from tpufleet.ops.choose import Choice
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.home import RunHome, Wanted, before_all_is_home
from tpufleet.ops.offers import offers
from tpufleet.ops.progress import Progress
from tpufleet.ops.room import Room
from tpufleet.ops.share import Missing, Share
from tpufleet.ops.transfer import Received, fetch
from tpufleet.paths import writing
from tpufleet.text import counted, size

LISTING_S = 600.0  # a host reads new checkpoints once before it offers them
CUT = "the transfer was cut"
DAMAGED = "damaged at home, and its host has it no more"


@dataclass
class Tally:
    """Bytes and files that travelled, what is not home (`problems`), and what will never come and is known (`notes`).
    `missing` says so run by run, also of what isn't wanted or not written yet; `full`: there was no room at home."""

    runs: int = 0
    files: int = 0
    bytes: int = 0
    checkpoints: int = 0
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    missing: list[Missing] = field(default_factory=list[Missing])
    full: DiskFull | None = None

    def count(self, other: Tally) -> None:
        """Take in what `other` has."""
        self.runs += other.runs
        self.files += other.files
        self.bytes += other.bytes
        self.checkpoints += other.checkpoints
        self.problems += other.problems
        self.notes += other.notes
        self.missing += other.missing
        self.full = self.full or other.full


@dataclass
class Brought(Tally):
    """What came from one host; `states` are its runs as they may be written down now, `error` is what ended it."""

    states: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    error: TpufleetError | None = None


class Visit:
    """One host, asked once."""

    def __init__(self, fleet: Fleet, host: Host, choice: Choice, room: Room, progress: Progress) -> None:
        self._fleet = fleet
        self._host = host
        self._choice = choice
        self._room = room
        self._progress = progress
        self._done = Brought()
        self._received = Received()

    def look(self, runs: Sequence[str]) -> Brought:
        """What would come: `files` and `bytes`. Nothing is written."""
        for offered in self._offered(runs):
            self._done.runs += 1
            with self._guarded(offered["state"]["id"]):
                if offered["state"]["attempts"]:
                    share = self._share(RunHome.peek(self._fleet.paths.runs, offered["state"]), offered)
                    coming = list(_wanted([share]))
                    self._done.files += len(coming)
                    self._done.bytes += sum(item.left for item in coming)
                    self._done.checkpoints += len(share.parcels)
                    self._done.missing += (Missing(share.run, what, why) for what, why in share.kept.items())
        return self._done

    def collect(self, runs: Sequence[str]) -> Brought:
        asked = time.time()
        shares: list[Share] = []
        states: dict[str, dict[str, Any]] = {}
        for offered in self._offered(runs):
            state = offered["state"]
            states[state["id"]] = before_all_is_home(state)
            self._done.runs += 1
            with self._guarded(state["id"]):
                if state["attempts"]:
                    home = RunHome.open(self._fleet.paths.runs, state)
                    home.write_state(states[state["id"]])
                    shares.append(self._share(home, offered))
                    home.forget_parts(shares[-1].verified())
        why = CUT
        try:
            with self._guarded("the transfer"):
                self._transfer(list(_wanted(shares)))
        except TpufleetError as error:  # what has come is kept
            self._done.error, why = error, error.message
        for share in shares:
            state = share.offered["state"]
            with self._guarded(state["id"]):
                if self._finish(share, asked, why):
                    states[state["id"]] = state
        self._done.states = list(states.values())
        if self._done.files:
            came = f"{counted(self._done.files, 'file')}, {size(self._done.bytes)} home"
            self._fleet.say(self._host.name, came, "done")
        return self._done

    def _offered(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        ask: dict[str, Any] = {"runs": list(runs)}
        if self._choice.verify:
            ask["digests"] = True
        return offers(self._fleet.agent(self._host).ask("manifest", ask, timeout_s=LISTING_S), runs)

    def _share(self, home: RunHome, offered: dict[str, Any]) -> Share:
        share = Share.of(home, offered, self._choice)
        share.take_room(self._room)
        return share

    def _finish(self, share: Share, asked: float, why: str) -> bool:
        """Put what has come in its place; whether that is all there was when the host was `asked`."""
        self._done.checkpoints += share.finish(self._received)
        self._done.missing += share.missing(self._received, why)
        flawed = share.flaws() if self._choice.wants_checkpoints else ()
        for (flaw, is_known), flaws in groupby(flawed, lambda flaw: (flaw.why, flaw.is_known)):
            names = [flaw.name for flaw in flaws]
            sentence = f"{share.run} on {self._host.name}: {_not_as_told(names)} ({flaw})"
            (self._done.notes if is_known else self._done.problems).append(sentence)
            told = f"not as its manifest says ({flaw})"
            self._done.missing += (Missing(share.run, name, told, told=True) for name in names)
        for name in share.lost() if self._choice.verify else ():
            self._problem(share.run, f"{name} is {DAMAGED}")
            self._done.missing.append(Missing(share.run, name, DAMAGED, told=True))
        whole = share.is_all(self._received)
        if whole:
            share.home.mirrored = asked
            share.home.write_state(share.offered["state"])
        if share.under_way:
            self._done.missing.append(Missing(share.run, "what is still to come", "it is under way"))
        share.home.write_index()
        return whole

    def _transfer(self, wanted: Sequence[Wanted]) -> None:
        self._fetch(wanted)
        # What an earlier command had begun may have rotted since: it comes again at once, from its beginning.
        again = {item: replace(item, offset=0) for item in self._received.damaged if item.offset}
        self._fetch(list(again.values()))
        for item, anew in again.items():
            if anew in self._received.arrived:
                self._received.damaged.remove(item)
                self._received.arrived.add(item)
        for item in self._received.damaged:
            self._problem(item.run, f"{item.path} arrived damaged")

    def _fetch(self, wanted: Sequence[Wanted]) -> None:
        if not wanted:
            return
        self._progress.expect(self._host.name, sum(item.left for item in wanted), len(wanted))
        fetch(self._fleet.agent(self._host), wanted, self._received, self._told)

    def _told(self, count: int, files: int) -> None:
        self._done.bytes += count
        self._done.files += files
        self._progress.came(self._host.name, count, files=files)

    @contextlib.contextmanager
    def _guarded(self, what: object) -> Generator[None]:
        try:
            with writing(self._fleet.paths.runs):
                yield
        except DiskFull as error:
            self._done.full = error
            self._problem(what, error.message)
        except HostFault as error:
            self._problem(what, error.message)
        except OSError as error:
            self._problem(what, f"{error.strerror or error} ({error.filename or 'at home'})")

    def _problem(self, run: object, text: str) -> None:
        self._done.problems.append(f"{run} on {self._host.name}: {text}")


def _not_as_told(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is not as its manifest says"
    return f"{names[0]} and {len(names) - 1} more are not as their manifests say"


def _wanted(shares: Sequence[Share]) -> Iterator[Wanted]:
    """What must be sent, the most urgent first: logs and numbers, then each run's newest checkpoint; of a checkpoint
    that was cut only what had not come."""
    for share in shares:
        yield from share.plain
    for parcels in zip_longest(*(share.parcels for share in shares)):
        for parcel in parcels:
            yield from (item for item in parcel.items if item.left) if parcel else ()
