"""Who is on each chip of a host: a run, a person, or somebody who never asked."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tpufleet.host import chips, locks, people, processes
from tpufleet.host.chips import Chip
from tpufleet.host.people import Known
from tpufleet.host.places import Places
from tpufleet.host.records import RunState
from tpufleet.restart import State

NOBODY: Mapping[int, str] = {}
PERSON = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


class Holder(NamedTuple):
    """A chip, and who has it: `state` is free, run, person (it is leased) or busy (open, and nobody leased it)."""

    chip: Chip
    state: str
    run: str | None = None
    person: str | None = None
    pid: int | None = None
    user: str | None = None
    command: str | None = None


def look(places: Places, states: Sequence[RunState]) -> list[Holder]:
    """Every chip of the host in order; `states` are those of its runs."""
    present = chips.chips_of(places)
    runs = {index: state for state in states if state.state is State.RUNNING for index in state.chip_indices}
    others = [chip for chip in present if chip.number not in runs]
    openers = processes.holders([chip.device for chip in others])
    for chip in others:
        if chip.device not in openers and (owner := chips.owner_by_driver(places, chip)):
            openers[chip.device] = [owner]
    leased = [chip.number for chip in others if locks.is_held(places.lease(chip.number))]
    takers = chips.lease_pids(places, leased) if leased else {}
    known = people.read(places) if leased else None
    return [
        _of_run(chip, runs[chip.number])
        if chip.number in runs
        else _unclaimed(places, chip, openers.get(chip.device, []), takers, known, leased=chip.number in leased)
        for chip in present
    ]


def sentence(holders: Sequence[Holder], seats: Mapping[int, str] = NOBODY) -> str | None:
    """Who else has chips, for a run that waits for one: `chip 0: alice, pid 12, python train.py`, `chip 1: bob's
    seat`. `seats` says whose a chip is."""
    told = {holder.chip.number: _words(holder) for holder in holders if holder.state in ("person", "busy")}
    kept = {chip: f"{name}'s seat" for chip, name in seats.items()}
    return "; ".join(f"chip {chip}: {words}" for chip, words in sorted((kept | told).items())) or None


def lockfile(places: Places) -> dict[str, object] | None:
    """libtpu's own lock file, if it is there: whose it is, and which process has it open."""
    try:
        status = places.libtpu_lock.lstat()
    except OSError:
        return None
    openers = processes.holders([places.libtpu_lock]).get(places.libtpu_lock, [])
    pid = openers[0] if openers else None
    command = None if pid is None else processes.command_of(pid)
    return {"user": processes.user_name(status.st_uid), "pid": pid, "command": command}


def clear_lockfile(places: Places) -> None:
    """Removes libtpu's lock file if it is our user's and no process has it: left behind by a run of ours, it keeps
    every other user of the host from libtpu. Another's is left alone."""
    try:
        fd = os.open(places.libtpu_lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # none there, or not ours to open
    try:
        status = os.fstat(fd)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
        if ours and set(processes.holders([places.libtpu_lock]).get(places.libtpu_lock, [])) <= {os.getpid()}:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as libtpu does it (tpu_initialize_util.cc)
            places.libtpu_lock.unlink()
    except OSError:
        pass  # someone has it after all
    finally:
        os.close(fd)


def _words(holder: Holder) -> str:
    said = [holder.person or holder.user, f"pid {holder.pid}" if holder.pid else None, holder.command]
    return ", ".join(word[:80] for word in said if word) or "somebody"


def _of_run(chip: Chip, state: RunState) -> Holder:
    command = processes.printable(" ".join(state.command))[:300]
    user = None if state.pid is None else processes.owner_of(state.pid)
    return Holder(chip, "run", run=state.id, pid=state.pid, user=user, command=command)


def _unclaimed(
    places: Places,
    chip: Chip,
    openers: Collection[int],
    takers: Mapping[int, int],
    known: Known | None,
    *,
    leased: bool,
) -> Holder:
    """A chip that no running run claims. What a lease says of its holder is believed as far as it looks like it, and
    never against whose seat it is, or which person's process has it."""
    note = chips.lease_note(places, chip.number) if leased else {}
    pid = next(iter(openers), _of_command(note, takers.get(chip.number)))
    if pid is None and not leased:
        return Holder(chip, "free")
    command = None if pid is None else processes.command_of(pid)
    user = None if pid is None else processes.owner_of(pid)
    found = Holder(chip, "busy", pid=pid, user=user, command=command)
    if not leased:
        return found
    seats = NOBODY if known is None else known.seats()
    persons: Collection[str] = () if known is None else known.people
    run, person = note.get("run"), seats.get(chip.number) or (user if user in persons else note.get("person"))
    if chip.number not in seats and user not in persons and isinstance(run, str) and run in places.runs():
        return found._replace(state="run", run=run)  # about to begin, or just about to end
    if not isinstance(person, str) or not PERSON.fullmatch(person):
        person = user
    return found._replace(state="person", person=person)


def _of_command(note: Mapping[str, object], taker: int | None) -> int | None:
    """The process that works on a chip: the one that the note names, if it is of the same user as the one that took
    the lease, which only waits for it (on-chip does)."""
    named = note.get("pid")
    if taker is None or not isinstance(named, int) or processes.owner_of(named) != processes.owner_of(taker):
        return taker
    return named


def device_name(device: Path) -> str:
    return device.name if device.parent.name != "vfio" else f"vfio/{device.name}"
