"""Pure: runs and hosts -> which run goes to which host, how many of a job each host may have on, why a run waits.

Home decides the host only. The chip is taken by the host itself at the moment of the start, under a lock that
all users of the host share: two commands can't give one chip away twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tpufleet.errors import UsageError
from tpufleet.host.slots import SIZES, Wish, assign
from tpufleet.model import JobSpec, RunSpec
from tpufleet.text import natural


@dataclass(frozen=True)
class Room:
    """A host's room: how many chips it has, which are free now, and how many the runs waiting in its queue want.

    `taken` are those of its chips that people or programs of theirs hold: no run gets a turn on them. `of_job` are
    the runs of the job at hand that are there and have not ended. A `suspect` host gets runs when no other has room.
    """

    host: str
    chips: int
    free: Collection[int] = ()
    waiting: int = 0
    taken: int = 0
    of_job: int = 0
    suspect: bool = False

    @property
    def load(self) -> int:
        """Negative while chips are free, else the chips waited for."""
        return self.waiting - len(self.free)

    def wants(self, job: JobSpec) -> int:
        """How many chips a run of `job` takes here."""
        return self.chips if job.whole_host else job.chips

    def has_room_for(self, job: JobSpec) -> bool:
        return self.wants(job) in SIZES and self.wants(job) <= self.chips

    def slots_for(self, job: JobSpec) -> int:
        """How many runs of `job` it holds at once when nothing else is on."""
        return self.chips // self.wants(job)

    def after(self, wanted: int) -> Room:
        """This room with one run of `wanted` chips more."""
        slot = self._slot(wanted)
        left = [chip for chip in self.free if chip not in slot]
        return replace(self, free=left, waiting=self.waiting if slot else self.waiting + wanted)

    def crowding(self, wanted: int) -> tuple[bool, bool, bool, float]:
        """The less the better: can a run start at once, would it ever, is the host in order, how many chips are free or
        waited for."""
        turns = self.chips - self.taken
        load = float(self.load) if self.load < 0 else self.load / max(turns, 0.5)
        return (not self._slot(wanted), turns < wanted, self.suspect, load)

    def _slot(self, wanted: int) -> tuple[int, ...]:
        """The free chips that a run would get, if it can start before what waits; only chips side by side go together.

        What waits here keeps chips for itself, so a run goes to the end of the queue.
        """
        if self.load + wanted > 0:
            return ()
        return assign([Wish("", wanted)], range(self.chips), self.free, ()).get("", ())


def place(
    runs: Sequence[RunSpec], rooms: Sequence[Room], homes: Mapping[str, str], shares: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Run id -> host name, for every run.

    A run that was on a host before (`homes`) returns to it, since its checkpoints lie there. The others go where
    most chips are free; when none is, where the least work waits per chip. Ties go by name, so the same question
    has the same answer. With `shares` (see `shares`) a job's runs go to those hosts only, each its part.

    Raises UsageError when a run needs more chips than any host has.
    """
    there = {room.host: room for room in sorted(rooms, key=lambda room: natural(room.host))}
    given = {room.host: room.of_job for room in rooms}
    placed: dict[str, str] = {}
    for run in runs:
        fitting = [room for room in there.values() if room.has_room_for(run.spec)]
        if not fitting:
            raise _too_large(run, rooms)
        allowed = [room for room in fitting if not shares or shares.get(room.host)]

        def order(room: Room, job: JobSpec = run.spec) -> tuple[object, ...]:
            turns = given[room.host] // shares[room.host] if shares else 0
            return (turns, *room.crowding(room.wants(job)))

        home = next((room for room in fitting if room.host == homes.get(run.id)), None)
        room = home or min(allowed, key=order)
        placed[run.id] = room.host
        given[room.host] += 1
        there[room.host] = room.after(room.wants(run.spec))
    return placed


def shares(job: JobSpec, limit: int, rooms: Sequence[Room], held: Mapping[str, int]) -> dict[str, int]:
    """Host -> how many runs of `job` it may have on at once, `limit` over all hosts (`JobSpec.max_parallel`).

    `held` are the hosts that have runs of the job already, or checkpoints to go on from, with the share they were
    given then: each of them keeps at least one, so that no run waits for ever. What is left goes to the hosts
    with most free slots.
    """
    able = {room.host: room for room in sorted(rooms, key=lambda room: natural(room.host)) if room.has_room_for(job)}
    share = {host: 1 for host in able if host in held}

    def give(hosts: Mapping[str, int]) -> None:
        """One more at a time, up to what each host of `hosts` may have."""
        while sum(share.values()) < limit:
            open_to = [host for host, most in hosts.items() if share.get(host, 0) < most]
            if not open_to:
                return
            chosen = min(open_to, key=lambda host: _fullness(able[host], share.get(host, 0), job))
            share[chosen] = share.get(chosen, 0) + 1

    give({host: min(held[host], able[host].slots_for(job)) for host in share})
    give({host: room.slots_for(job) for host, room in able.items()})
    return share


def _fullness(room: Room, share: int, job: JobSpec) -> tuple[bool, int, float]:
    free = len(room.free) // room.wants(job)
    return (room.suspect, -max(0, free - share), share / room.slots_for(job))


def why_waiting(host: str, chips: int, used: int, people: Sequence[str], before: int) -> str:
    """Why a run waits on `host`: `tpu-0-w0: 4 of 4 chips in use, 1 by ann; 2 before it`."""
    said = f"{host}: {used} of {chips} chips in use"
    if people:
        names = " and ".join(sorted(set(people)))
        said += f", {len(people)} by {names}"
    return said + (f"; {before} before it" if before else "")


def _too_large(run: RunSpec, rooms: Sequence[Room]) -> UsageError:
    largest = max((room.chips for room in rooms), default=0)
    if run.spec.whole_host:
        return UsageError(
            f"run {run.id} wants a whole host of {', '.join(map(str, SIZES))} chips; those that answer have "
            f"{', '.join(sorted({str(room.chips) for room in rooms}, key=natural)) or 'none'}",
            hint="tpufleet status",
        )
    return UsageError(
        f"run {run.id} needs {run.spec.chips} chips on one host; the largest host that answers has {largest}",
        hint="tpufleet status",
    )
