"""Many things asked of the cloud at once, each followed to its end; one look at the cloud serves all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tpufleet.errors import PartialFailure, TpufleetError
from tpufleet.ops.fleet import Fleet
from tpufleet.ops.observe import survey
from tpufleet.plan import Claim, claims
from tpufleet.ssh.fanout import gather
from tpufleet.text import lasted

FIRST_PAUSE_S = 0.1
REMINDER_S = 20.0  # between two lines about a node that nothing happens to
LONGEST_PAUSE_S = 2.0  # what a person waits for nothing: a create is to be over 3 s after its slowest node


class Errand(ABC):
    """One node's way to where it is wanted.

    `due` is when to ask (`time.monotonic`), None while it only has to be looked at. `error` is set when it failed.
    """

    def __init__(self, fleet: Fleet, name: str, zone: str) -> None:
        self.fleet = fleet
        self.name = name
        self.zone = zone
        self.open = True
        self.due: float | None = time.monotonic()
        self.error: TpufleetError | None = None
        self.started = time.monotonic()
        self._said = self.started
        self._last = ""

    @abstractmethod
    def ask(self) -> None:
        """Ask the cloud for it; what the cloud refuses is the errand's own business."""

    @abstractmethod
    def look(self, claim: Claim | None) -> None:
        """Take in what the cloud shows of it now; None when there is nothing."""

    @abstractmethod
    def late(self, waited_s: float) -> None:
        """The time is over: end with an error."""

    def say(self, text: str, state: str = "info") -> None:
        self._said = time.monotonic()
        self._last = text
        self.fleet.say(self.name, text, state)

    def remind(self) -> None:
        """Repeat what was said last, once in a while, with the time that has passed."""
        if self.open and time.monotonic() - self._said > REMINDER_S:
            last = self._last
            self.say(f"{last}; {self.waited()} so far")
            self._last = last

    def done(self, text: str) -> None:
        """It is where it was wanted."""
        self.open = False
        self.say(f"{text} after {self.waited()}", "done")

    def fail(self, error: TpufleetError) -> None:
        self.open = False
        self.error = error

    def waited(self) -> str:
        seconds = time.monotonic() - self.started
        return f"{seconds:.1f} s" if seconds < 60 else lasted(seconds)


def settle(fleet: Fleet, errands: Sequence[Errand], *, limit_s: float) -> None:
    """Run all errands to their ends, or for `limit_s` seconds; each then holds its error, if it has one."""
    started = time.monotonic()
    pause = FIRST_PAUSE_S
    while going := [errand for errand in errands if errand.open]:
        now = time.monotonic()
        if now - started > limit_s:
            for errand in going:
                errand.late(now - started)
            return
        _ask([errand for errand in going if errand.due is not None and errand.due <= now])
        _look(fleet, [errand for errand in going if errand.open and errand.due is None])
        for errand in going:
            errand.remind()
        pause = _rest(going, pause, started + limit_s)


def raise_failures(fleet: Fleet, errands: Sequence[Errand], what: str) -> None:
    """Tell each error; raise the only one there is, or PartialFailure when others went well."""
    failed = [(errand.name, errand.error) for errand in errands if errand.error]
    for name, error in failed:
        fleet.say(name, error.message, "failed")
    if not failed:
        return
    first = failed[0][1]
    if len(failed) == len(errands) and all(type(error) is type(first) for _, error in failed):
        raise first
    raise PartialFailure(f"{len(failed)} of {len(errands)} {what}: {first}", hint=first.hint or "tpufleet status")


def _ask(errands: Sequence[Errand]) -> None:
    """All side by side; what isn't the cloud's refusal (a file, the journal) ends the errand."""
    for outcome in gather(errands, lambda errand: errand.ask()):
        if outcome.error:
            outcome.item.fail(outcome.error)


def _look(fleet: Fleet, errands: Sequence[Errand]) -> None:
    if errands:
        seen = claims(survey(fleet.spec, fleet.cloud, sorted({errand.zone for errand in errands})))
        for errand in errands:
            errand.look(seen.get((errand.name, errand.zone)))


def _rest(errands: Sequence[Errand], pause: float, end: float) -> float:
    """Sleep until something may have changed or is due; returns the next pause."""
    now = time.monotonic()
    going = [errand for errand in errands if errand.open]
    if not going:
        return pause
    next_due = min((errand.due for errand in going if errand.due is not None), default=end)
    watched = any(errand.due is None for errand in going)
    until = min(next_due, now + pause if watched else end)
    time.sleep(max(0.0, min(until, end + 0.01) - now))
    return min(pause * 1.5, LONGEST_PAUSE_S)
